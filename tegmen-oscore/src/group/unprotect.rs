//! Verifies and decrypts a message in place, in the group mode or the pairwise mode (RFC 10021, sections 6, 7.2, 7.4,
//! 8.4, 8.6 and 9).

use super::aad::{self, Aad};
use super::context::GroupContext;
use super::exchange::{GroupNonce, GroupPending, GroupRequest, Replies};
use super::gid::Gid;
use super::keystream::{self, SIGNATURE_LEN};
use super::recipient::{Recipient, Recipients};
use crate::context::NO_CHALLENGE;
use crate::cose::{Aead, Nonce};
use crate::id::Id;
use crate::option::{OscoreOption, PartialIv};
use crate::unprotect::{Parts, UnprotectError, Unprotected};
use tegmen_base::crypto::{GroupCrypto, KEY_LEN, MemberKey, NotAuthentic};
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::Secret;
use tegmen_coap::MessageRef;
use tegmen_coap::option::OptionNumber;

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Verifies and decrypts a request in place. The signature is verified before the decryption. The sequence number
    /// of the request is added to the replay window of the sender only after the verification and the decryption have
    /// succeeded.
    ///
    /// # Errors
    /// [`UnprotectError`]. After an error the replay window is unchanged, with one exception: the message was
    /// authentic, but its content is not a valid message. If the request was sent to the whole group, the server should
    /// not answer with an error (RFC 10021, section 7).
    pub fn unprotect_request<'r, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        recipients: &mut (impl Recipients<B> + ?Sized),
        datagram: &'r mut [u8],
    ) -> Result<Unprotected<'r, GroupNonce, GroupRequest>, UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = self.option(message)?;
        let (Some(number), Some(kid), true) = (option.partial_iv, option.kid, self.is_named_by(&option)) else {
            return Err(if option.kid_context.is_some() && !self.is_named_by(&option) {
                UnprotectError::UnknownContext
            } else {
                UnprotectError::BadOption
            });
        };
        let recipient = recipients.recipient(kid).ok_or(UnprotectError::UnknownMember)?;
        let mark = recipient.window.mark();
        if mark.is_none() {
            // The sequence number is checked again below, after the message has proved authentic.
            let _ = recipient.window.fresh(number.number())?;
        }
        let request = GroupRequest { kid: recipient.id, number, gid: self.gid, is_signed: option.group, hash: None };
        let (kind, of) = ((true, option.group, value), (&recipient.id, &number));
        let (credential, mut room) = (recipient.credential.as_ref(), [0; AAD]);
        let sealed = self.read((message, datagram, &mut room), kind, of, &request, credential)?;
        self.open(crypto, recipient, &sealed, datagram)?;
        if mark.is_none() {
            recipient.window.fresh(number.number())?.accept();
        }
        let message = sealed.parts.inside(datagram).map_err(|_| UnprotectError::Malformed)?;
        if !message.code().is_request() {
            return Err(UnprotectError::Malformed);
        }
        let Some(mark) = mark else { return Ok(Unprotected::Fresh(message, GroupNonce(request))) };
        // If the group uses the pairwise mode, the client must repeat the challenge in a request in the pairwise mode:
        // a request to the whole group might be meant for another member (RFC 10021, section 9).
        let is_for_us = !request.is_signed || self.algorithms.of_pairwise_mode().is_none();
        let is_echo = mark != NO_CHALLENGE && message.option(OptionNumber::ECHO) == Some(&mark.to_be_bytes());
        if !is_echo || !is_for_us {
            return Ok(Unprotected::Unverified(message, request));
        }
        // Messages that were sent before this request may have been delivered before the replay window was lost.
        recipient.window = ReplayWindow::seen_up_to(number.number());
        Ok(Unprotected::Fresh(message, GroupNonce(request)))
    }

    /// Verifies and decrypts a response to `pending` in place. Returns the response, and the ID of the member that sent
    /// it. Accepts for each member one response under the nonce of the request. Accepts a further response of the
    /// member only if the Partial IV of the response is higher than each Partial IV that was accepted from the member
    /// (RFC 10021, section 5.3.1).
    ///
    /// # Errors
    /// [`UnprotectError`]. `pending` is then unchanged, and the true response may still come.
    pub fn unprotect_response<'r, C: GroupCrypto, R: AsMut<[Replies]>>(
        &self,
        crypto: &mut C,
        recipients: &mut (impl Recipients<B> + ?Sized),
        pending: &mut GroupPending<R>,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, Id), UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = self.option(message)?;
        if pending.gid != self.gid || option.kid_context.is_some_and(|gid| gid != self.gid.as_bytes()) {
            return Err(UnprotectError::UnknownContext);
        }
        // If only one member may answer the request, the response may contain no ID of this member.
        let kid = match (option.kid.map(Id::new), pending.to) {
            (Some(kid), _) if kid.is_none() => return Err(UnprotectError::UnknownMember),
            (Some(Some(kid)), Some(to)) if kid != to => return Err(UnprotectError::UnknownMember),
            (Some(Some(kid)), _) | (None, Some(kid)) => kid,
            _ => return Err(UnprotectError::BadOption),
        };
        let number = option.partial_iv;
        // If the group got new keys after the request, a response must not use the nonce of the request (RFC 10021,
        // section 7.3).
        if number.is_none() && pending.request.gid != self.gid {
            return Err(UnprotectError::BadOption);
        }
        let recipient = recipients.recipient(kid.as_bytes()).ok_or(UnprotectError::UnknownMember)?;
        if let Some(hash) = pending.request.hash {
            // Every member has the keys of the request, so only the signature proves which member answers
            // (draft-ietf-core-cacheable-oscore-02, section 3.4.4).
            if !option.group || number.is_none() {
                return Err(UnprotectError::BadOption);
            }
            if message.option(OptionNumber::REQUEST_HASH).is_some_and(|theirs| theirs != hash) {
                return Err(UnprotectError::NotAuthentic);
            }
        }
        let mut taken = pending.taken(&kid)?;
        taken.check(number.as_ref())?;
        let request = &pending.request;
        let of = number.as_ref().map_or((&request.kid, &request.number), |number| (&kid, number));
        let (credential, mut room) = (recipient.credential.as_ref(), [0; AAD]);
        let sealed =
            self.read((message, datagram, &mut room), (false, option.group, value), of, request, credential)?;
        self.open(crypto, recipient, &sealed, datagram)?;
        let message = sealed.parts.inside(datagram).map_err(|_| UnprotectError::Malformed)?;
        if !message.code().is_response() {
            return Err(UnprotectError::Malformed);
        }
        taken.take(number.as_ref(), &message)?;
        pending.remember(&kid, taken);
        Ok((message, kid))
    }

    /// Returns the OSCORE option of a message, and its value, if the group uses the mode of the message (RFC 10021,
    /// section 6).
    pub(super) fn option<'m>(&self, message: &MessageRef<'m>) -> Result<(OscoreOption<'m>, &'m [u8]), UnprotectError> {
        let (option, value) = option_of(message)?;
        let has_mode = match option.group {
            true => self.algorithms.of_group_mode().is_some(),
            false => self.algorithms.of_pairwise_mode().is_some(),
        };
        if has_mode { Ok((option, value)) } else { Err(UnprotectError::BadOption) }
    }

    /// Reads the data that the decryption of a message needs. The nonce of the message is made from the member ID and
    /// the sequence number in `of`. `request` is the message itself if the message is a request, and otherwise the
    /// request that the message answers. Writes the additional authenticated data into `room`.
    pub(super) fn read<'a>(
        &self,
        (message, datagram, room): (&MessageRef<'_>, &[u8], &'a mut [u8; AAD]),
        (is_request, is_signed, option): (bool, bool, &[u8]),
        of: (&Id, &PartialIv),
        request: &GroupRequest,
        sender_credential: &[u8],
    ) -> Result<Sealed<'a>, UnprotectError> {
        let algorithms = &self.algorithms;
        let aead = if is_signed { algorithms.group_encryption } else { algorithms.aead };
        let aead = aead.ok_or(UnprotectError::BadOption)?;
        let behind = aead.tag_len().wrapping_add(if is_signed { SIGNATURE_LEN } else { 0 });
        let parts = aad::Parts {
            algorithms,
            request,
            option,
            sender_credential,
            group_manager_credential: self.group_manager_credential.as_ref(),
        };
        Ok(Sealed {
            // `Aad::new` fails only if a credential or the option is too long. The credential of a recipient was
            // checked before, and an option with our Group Identifier is short enough.
            aad: Aad::new(&parts, room).map_err(|_| UnprotectError::BadOption)?,
            parts: Parts::of(message, datagram, behind)?,
            nonce: self.nonce(aead, of),
            of: (*of.0, *of.1),
            aead,
            is_signed,
            is_request,
        })
    }

    /// Verifies the signature, if there is one, and then decrypts the message.
    #[cfg_attr(target_pointer_width = "64", inline)]
    pub(super) fn open<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        recipient: &mut Recipient<B>,
        sealed: &Sealed<'_>,
        datagram: &mut [u8],
    ) -> Result<(), NotAuthentic> {
        let Sealed { aad, parts, of: (id, number), is_signed, is_request, .. } = sealed;
        if *is_signed {
            let signed = Signed { aad, parts, of: (id, number), is_request: *is_request };
            signed.verify(crypto, (&self.signature_encryption_key, &self.gid), &recipient.public_key, datagram)?;
        }
        let key = if *is_signed { &recipient.key } else { &self.pairwise(crypto, recipient)?.1.recipient };
        sealed.decrypt(crypto, key, datagram).map(|_| ())
    }
}

/// Returns the OSCORE option of a message, and its value.
#[inline]
fn option_of<'m>(message: &MessageRef<'m>) -> Result<(OscoreOption<'m>, &'m [u8]), UnprotectError> {
    let value = message.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected)?;
    Ok((OscoreOption::parse_in_group(value)?, value))
}

/// Returns the OSCORE option of a message in the group mode, and its value.
pub(super) fn signed_option<'m>(message: &MessageRef<'m>) -> Result<(OscoreOption<'m>, &'m [u8]), UnprotectError> {
    let (option, value) = option_of(message)?;
    if option.group { Ok((option, value)) } else { Err(UnprotectError::BadOption) }
}

/// The inputs of the verification of a signature that are not keys.
pub(super) struct Signed<'a> {
    pub(super) aad: &'a Aad<'a>,
    pub(super) parts: &'a Parts,
    /// The member ID and the sequence number from which the nonce of the message is made.
    pub(super) of: (&'a Id, &'a PartialIv),
    pub(super) is_request: bool,
}

impl Signed<'_> {
    /// Decrypts the signature of a message with the Signature Encryption Key of the group, and verifies the signature
    /// with the public key of the sender (RFC 10021, section 7.5).
    #[inline]
    pub(super) fn verify<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        (key, gid): (&Secret<KEY_LEN>, &Gid),
        public_key: &MemberKey,
        datagram: &[u8],
    ) -> Result<(), NotAuthentic> {
        let (ciphertext, signature) = self.parts.whole(datagram).split_last_chunk().ok_or(NotAuthentic)?;
        let mut signature = *signature;
        keystream::apply::<C>(key, self.of, gid, self.is_request, &mut signature);
        self.aad.verify(crypto, public_key, ciphertext, &signature)
    }
}

/// The inputs of verification and decryption that are not keys.
pub(super) struct Sealed<'a> {
    pub(super) aad: Aad<'a>,
    pub(super) parts: Parts,
    nonce: Nonce,
    /// The member ID and the sequence number from which the nonce is made.
    of: (Id, PartialIv),
    pub(super) aead: Aead,
    is_signed: bool,
    is_request: bool,
}

impl Sealed<'_> {
    /// Decrypts the message in place. Returns the plaintext.
    pub(super) fn decrypt<'r, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        key: &Secret<KEY_LEN>,
        datagram: &'r mut [u8],
    ) -> Result<&'r [u8], NotAuthentic> {
        let Self { aad, nonce, aead, .. } = self;
        let (text, behind) = self.parts.payload(datagram).ok_or(NotAuthentic)?;
        let tag = behind.get(..aead.tag_len()).ok_or(NotAuthentic)?;
        crypto.open(aead.of::<C>(), key.expose(), nonce.as_bytes(), aad.as_bytes(), text, tag)?;
        Ok(text)
    }
}
