//! Protects a message in place, in the group mode or the pairwise mode (RFC 10021, sections 7.1, 7.3, 8.3, 8.5 and 9).

use super::aad::{Aad, Parts};
use super::context::GroupContext;
use super::deterministic::{MaxAge, REQUEST_HASH_LEN};
use super::exchange::{GroupNonce, GroupPending, GroupRequest, Replies};
use super::keystream::{self, SIGNATURE_LEN};
use super::recipient::Recipient;
use crate::cose::{Aead, GCM_LIMIT, MAX_TAG};
use crate::error::ProtectError;
use crate::naming::MAX_ID_CONTEXT;
use crate::option::{OscoreOption, PartialIv, max_len};
use crate::protect::{Plain, build_challenge, enclose};
use tegmen_base::buf::{Frame, Headroom};
use tegmen_base::crypto::{Curve, GroupCrypto, KEY_LEN};
use tegmen_coap::{Code, MessageType, Token};

/// The mode of Group OSCORE in which a message is protected.
#[derive(Debug)]
pub enum Mode<'m, B> {
    /// The group mode: any member can read the message, and the signature proves which member sent it.
    Group,
    /// The pairwise mode: only the member in the value can read the message.
    Pairwise(&'m mut Recipient<B>),
}

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Maximum number of bytes that protection adds to a message. The frame must have free bytes in front of the
    /// message for the option with its header, a second Observe or Request-Hash, the payload marker and the code. It
    /// must have free bytes after the message for the tag and the signature.
    pub const OVERHEAD: usize = 2 + max_len(MAX_ID_CONTEXT) + REQUEST_HASH_LEN + 2 + MAX_TAG + SIGNATURE_LEN;

    /// Protects the request in `frame`. `replies` is an array with one element for each member that may answer. Send
    /// the same bytes for a retransmission, because a second call would use a second sequence number.
    ///
    /// # Errors
    /// Each [`ProtectError`] can occur. It is [`ProtectError::Unsupported`] also if the group does not use `mode`, or
    /// if the public key of the member that `mode` names is not valid. After [`ProtectError::LeaseSpent`],
    /// [`ProtectError::Exhausted`] and [`ProtectError::Malformed`] the frame is unchanged.
    pub fn protect_request<C: GroupCrypto, R: AsMut<[Replies]>>(
        &mut self,
        crypto: &mut C,
        mode: Mode<'_, B>,
        replies: R,
        frame: &mut Frame<'_>,
    ) -> Result<GroupPending<R>, ProtectError> {
        let plain = Plain::read(frame, true)?;
        let mut mode = mode;
        self.sealing(crypto, &mut mode)?;
        let number = self.take_number()?;
        let (is_signed, to) = match &mode {
            Mode::Group => (true, None),
            Mode::Pairwise(recipient) => (false, Some(recipient.id)),
        };
        let request = GroupRequest { kid: self.sender_id, number, gid: self.gid, is_signed, hash: None };
        self.seal(crypto, &plain, &mut mode, Some(&number), &request, frame)?;
        Ok(GroupPending::new(request, to, replies))
    }

    /// Protects the response in `frame` to a request. `nonce` permits one response that is encrypted under the nonce of
    /// the request. Such a response contains no Partial IV. In some cases, the response uses the next sequence number
    /// of this member, and contains it as its Partial IV (RFC 10021, section 7.3): if `nonce` is `None`, if `nonce`
    /// belongs to another request, and if the Group Identifier of the request is not the Group Identifier of this
    /// context. With AES-GCM there is a fourth case: the sequence number of the request is 2^23 or more.
    ///
    /// The response to a deterministic request is signed, and contains a sequence number of this member. Its Max-Age is
    /// repeated as an outer option, so that caches store the response for that time
    /// (draft-ietf-core-cacheable-oscore-02, section 3.4.4).
    ///
    /// # Errors
    /// The errors of [`Self::protect_request`]. For a deterministic request also [`ProtectError::Malformed`], if the
    /// group does not use the group mode, or if the response has Observe.
    pub fn protect_response<C: GroupCrypto>(
        &mut self,
        crypto: &mut C,
        mode: Mode<'_, B>,
        request: &GroupRequest,
        nonce: Option<GroupNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let plain = Plain::read(frame, false)?;
        let max_age = match (&mode, request.hash) {
            (_, None) => None,
            (Mode::Group, Some(_)) => MaxAge::read(frame)?,
            (Mode::Pairwise(_), Some(_)) => return Err(ProtectError::Malformed),
        };
        let mut mode = mode;
        let (aead, ..) = self.sealing(crypto, &mut mode)?;
        let own = match nonce {
            Some(GroupNonce(of))
                if of == *request && of.gid == self.gid && aead.check::<C>(&of.number, REQUEST_LIMIT).is_ok() =>
            {
                None
            }
            _ => Some(self.take_number()?),
        };
        self.seal(crypto, &plain, &mut mode, own.as_ref(), request, frame)?;
        max_age.map_or(Ok(()), |max_age| max_age.write(frame))
    }

    /// Writes the answer to a request that may be a replay because the replay window of its sender was lost. The answer
    /// is 4.01 with an Echo option, which the client must repeat (RFC 10021, section 9). The answer is protected in the
    /// pairwise mode if the group uses that mode.
    ///
    /// # Errors
    /// The errors of [`Self::protect_request`], and [`ProtectError::Malformed`] if the replay window is known, or
    /// another member sent the request.
    pub fn write_challenge<C: GroupCrypto>(
        &mut self,
        crypto: &mut C,
        recipient: &mut Recipient<B>,
        request: &GroupRequest,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        if recipient.id != request.kid {
            return Err(ProtectError::Malformed);
        }
        build_challenge(crypto, &mut recipient.window, head, token, frame)?;
        let mode = match self.algorithms.of_pairwise_mode() {
            Some(_) => Mode::Pairwise(recipient),
            None => Mode::Group,
        };
        self.protect_response(crypto, mode, request, None, frame)
    }

    /// Returns the algorithm and the key of a message, and the curve of its signature (`None` in the pairwise mode).
    #[cfg_attr(target_pointer_width = "64", inline)]
    fn sealing<'k, C: GroupCrypto>(
        &'k self,
        crypto: &mut C,
        mode: &'k mut Mode<'_, B>,
    ) -> Result<Sealing<'k>, ProtectError> {
        match mode {
            Mode::Group => {
                let (aead, curve) = self.algorithms.of_group_mode().ok_or(ProtectError::Unsupported)?;
                Ok((aead, self.sender_key.expose(), Some(curve)))
            }
            Mode::Pairwise(recipient) => {
                let (aead, keys) = self.pairwise(crypto, recipient).map_err(|_| ProtectError::Unsupported)?;
                Ok((aead, keys.sender.expose(), None))
            }
        }
    }

    /// Encloses the message in `frame` in an outer message, encrypts it, and signs it. The nonce is made from the
    /// sequence number `own`. If `own` is `None`, the nonce is made from the sequence number of the request that the
    /// message answers.
    pub(super) fn seal<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        plain: &Plain,
        mode: &mut Mode<'_, B>,
        own: Option<&PartialIv>,
        request: &GroupRequest,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let (aead, key, signature) = self.sealing(crypto, mode)?;
        own.map_or(Ok(()), |number| aead.check::<C>(number, GCM_LIMIT / 2))?;
        let is_request = plain.code.is_request();
        let option = OscoreOption {
            partial_iv: own.copied(),
            // A response contains the Group Identifier if the request had another Group Identifier (RFC 10021, section
            // 7.3).
            kid_context: (is_request || request.gid != self.gid).then_some(self.gid.as_bytes()),
            kid: (is_request || request.is_signed || signature.is_some()).then_some(self.sender_id.as_bytes()),
            group: signature.is_some(),
        };
        let mut room = [0; AAD];
        let aad = self.aad_of(&option, request, self.credential.as_ref(), &mut room)?;
        let of = own.map_or((&request.kid, &request.number), |number| (&self.sender_id, number));
        let nonce = self.nonce(aead, of);
        let code = if request.is_deterministic() { Code::CONTENT } else { plain.outer_code() };
        let (tag_len, signature_len) = (aead.tag_len(), if signature.is_some() { SIGNATURE_LEN } else { 0 });
        let (plaintext, behind) = enclose(frame, plain, code, &option, tag_len.wrapping_add(signature_len))?;
        let text_len = plaintext.len();
        let tag = behind.get_mut(..tag_len).ok_or(ProtectError::Full)?;
        crypto
            .seal(aead.of::<C>(), key, nonce.as_bytes(), aad.as_bytes(), plaintext, tag)
            .map_err(|_| ProtectError::Unsupported)?;
        let Some(curve) = signature else { return Ok(()) };
        let start = frame.len().wrapping_sub(text_len).wrapping_sub(tag_len).wrapping_sub(SIGNATURE_LEN);
        let (_, payload) = frame.split(start).ok_or(ProtectError::Full)?;
        let (ciphertext, place) = payload.split_last_chunk_mut().ok_or(ProtectError::Full)?;
        let private = self.private_key.expose();
        let signed = aad.signed(ciphertext, |message| crypto.sign_message(curve, private, message));
        *place = signed.map_err(|_| ProtectError::Unsupported)?;
        keystream::apply::<C>(&self.signature_encryption_key, of, &self.gid, is_request, place);
        Ok(())
    }

    /// Writes the additional authenticated data of a message of this member into `out`.
    pub(super) fn aad_of<'a>(
        &self,
        option: &OscoreOption<'_>,
        request: &GroupRequest,
        sender_credential: &[u8],
        out: &'a mut [u8; AAD],
    ) -> Result<Aad<'a>, ProtectError> {
        let mut room = [0; max_len(MAX_ID_CONTEXT)];
        let mut headroom = Headroom::new(&mut room);
        option.write(&mut headroom);
        let at = headroom.finish()?;
        let parts = Parts {
            algorithms: &self.algorithms,
            request,
            option: room.get(at..).unwrap_or(&[]),
            sender_credential,
            group_manager_credential: self.group_manager_credential.as_ref(),
        };
        Aad::new(&parts, out).map_err(Into::into)
    }
}

/// With AES-GCM, only a request with a sequence number below this limit gives its nonce to a response. So a key
/// encrypts at most 2^31 messages under sequence numbers of its own member, and at most 2^31 messages under sequence
/// numbers of 256 other members.
const REQUEST_LIMIT: u64 = GCM_LIMIT / 2 / 256;

/// The algorithm and the key of a message, and the curve of its signature (`None` in the pairwise mode).
type Sealing<'k> = (Aead, &'k [u8; KEY_LEN], Option<Curve>);
