//! Protects a message in place (RFC 8613, sections 8.1 and 8.3).

use super::context::{Context, NO_CHALLENGE, SecurityContext};
use super::cose::{GCM_LIMIT, MAX_TAG};
use super::error::ProtectError;
use super::id::Id;
use super::naming::Naming;
use super::option::{OscoreOption, PartialIv, max_len};
use super::unprotect::{Pending, RequestBinding, RequestNonce};
use tegmen_base::buf::{Frame, Headroom, Reader, shift_left};
use tegmen_base::crypto::Crypto;
use tegmen_base::replay::ReplayWindow;
use tegmen_coap::option::{self, Class, Header, OptionNumber, Part};
use tegmen_coap::{Builder, HEADER_LEN, MAX_TOKEN, MessageRef, MessageType};
use tegmen_coap::{Code, Token};

/// Maximum number of bytes that OSCORE adds to a message: the value of
/// [`Context::OVERHEAD`](SecurityContext::OVERHEAD).
pub const OVERHEAD: usize = Context::OVERHEAD;

impl<N: Naming> SecurityContext<N> {
    /// Maximum number of bytes that protection adds to a message. The frame must have free bytes in front of the
    /// message for the option with its header, a second Observe, the payload marker and the code. It must have free
    /// bytes after the message for the tag.
    pub const OVERHEAD: usize = 2 + max_len(N::MAX_KID_CONTEXT) + 5 + 2 + MAX_TAG;

    /// Protects the request in `frame`. Send the same bytes for a retransmission, because a second call would use a
    /// second sequence number.
    ///
    /// # Errors
    /// [`ProtectError`]. After [`ProtectError::LeaseSpent`], [`ProtectError::Exhausted`] and
    /// [`ProtectError::Malformed`] the frame is unchanged.
    pub fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        frame: &mut Frame<'_>,
    ) -> Result<Pending, ProtectError> {
        let plain = Plain::read(frame, true);
        let plain = plain.as_ref().map_err(|stop| *stop)?;
        let number = self.take_number()?;
        self.seal(crypto, plain, Some(&number), (&self.sender_id, &number), frame)?;
        Ok(Pending::new(RequestBinding(number)))
    }

    /// Protects the response in `frame` to a request. `nonce` permits one response that is encrypted under the nonce of
    /// the request. Such a response contains no Partial IV. If `nonce` is `None`, the response uses the next sequence
    /// number of this endpoint and contains it as its Partial IV, as each notification after the first one does. With
    /// AES-GCM, the response to a request with a sequence number from 2^31 on does the same.
    ///
    /// # Errors
    /// The errors of [`Self::protect_request`].
    pub fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: &RequestBinding,
        nonce: Option<RequestNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let plain = Plain::read(frame, false);
        let plain = plain.as_ref().map_err(|stop| *stop)?;
        let RequestBinding(request) = nonce.as_ref().map_or(request, |RequestNonce(request)| request);
        let number = match &nonce {
            Some(_) if self.aead.check::<C>(request, GCM_LIMIT / 2).is_ok() => None,
            _ => Some(self.take_number()?),
        };
        self.seal(crypto, plain, number.as_ref(), (&self.recipient_id, request), frame)
    }

    /// Writes the answer to a request that may be a replay because the replay window was lost. The answer is 4.01 with
    /// an Echo option, which the client must repeat (RFC 8613, appendix B.1.2). The Echo value is eight bytes, drawn at
    /// random for the first challenge after the loss of the replay window (RFC 9175, appendix A). Later challenges have
    /// the same value.
    ///
    /// # Errors
    /// The errors of [`Self::protect_request`], and [`ProtectError::Malformed`] if the replay window is known.
    pub fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: &RequestBinding,
        (message_type, message_id): (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        build_challenge(crypto, &mut self.window, (message_type, message_id), token, frame)?;
        self.protect_response(crypto, request, None, frame)
    }

    /// Encloses the message in `frame` in an outer message, and encrypts it. The nonce is made from the sequence number
    /// `number`. If `number` is `None`, the nonce is made from the sequence number of the request that the message
    /// answers.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn seal<C: Crypto>(
        &self,
        crypto: &mut C,
        plain: &Plain,
        number: Option<&PartialIv>,
        request: (&Id, &PartialIv),
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        // The nonces under the key of this endpoint contain its own sequence numbers, and in responses also those of
        // the other endpoint.
        self.aead.check::<C>(number.unwrap_or(request.1), GCM_LIMIT / 2)?;
        let inputs = &self.inputs(&self.sender_id, number, request);
        let mut option = OscoreOption { partial_iv: number.copied(), ..OscoreOption::default() };
        let wrapped = &mut N::Wrapped::default();
        if plain.code.is_request() {
            (option.kid_context, option.kid) = (self.kid_context(wrapped), Some(self.sender_id.as_bytes()));
        } else if self.naming.names_responses() {
            option.kid_context = self.kid_context(wrapped);
        }
        let (plaintext, tag) = enclose(frame, plain, plain.outer_code(), &option, self.aead.tag_len())?;
        let (aead, key) = (self.aead.of::<C>(), self.sender_key.expose());
        let sealed = crypto.seal(aead, key, inputs.nonce(), inputs.aad(), plaintext, tag);
        sealed.map_err(|_| ProtectError::Unsupported)
    }
}

/// Builds a challenge: the answer to a peer after this endpoint has lost the replay window, which records the sequence
/// numbers that the peer has used. Draws the Echo value if this is the first challenge after the loss.
#[inline]
pub(super) fn build_challenge<C: Crypto>(
    crypto: &mut C,
    window: &mut ReplayWindow,
    (message_type, message_id): (MessageType, u16),
    token: &Token,
    frame: &mut Frame<'_>,
) -> Result<(), ProtectError> {
    let mut mark = window.mark().ok_or(ProtectError::Malformed)?;
    if mark == NO_CHALLENGE {
        let mut random = [0; 8];
        crypto.random(&mut random);
        // The Echo value must not be `NO_CHALLENGE`, and a replay window must be able to store it: it has 63 bits, and
        // the lowest bit is set.
        mark = u64::from_be_bytes(random) >> 1 | 1;
        *window = ReplayWindow::lost(mark);
    }
    let mut builder = Builder::new(frame, message_type, Code::UNAUTHORIZED, message_id, token.as_bytes())?;
    builder.option(OptionNumber::ECHO, &mark.to_be_bytes())?;
    Ok(())
}

/// The properties of an unprotected message on which its protection depends.
pub(super) struct Plain {
    pub(super) code: Code,
    /// Number of bytes of header and token.
    head_len: usize,
    /// Number of bytes of all options of the unprotected message, or 0 if none of these options can belong to the outer
    /// message.
    options_len: usize,
    observe: bool,
}

impl Plain {
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn read(frame: &Frame<'_>, asks: bool) -> Result<Self, ProtectError> {
        let Ok(message) = &MessageRef::parse(frame.bytes()) else { return Err(ProtectError::Malformed) };
        let code = message.code();
        let is_meant = if asks { code.is_request() } else { code.is_response() };
        if !is_meant || message.option(OptionNumber::OSCORE).is_some() {
            return Err(ProtectError::Malformed);
        }
        let observe = message.option(OptionNumber::OBSERVE).is_some();
        Ok(Self {
            code,
            head_len: HEADER_LEN.wrapping_add(message.token().len()),
            options_len: if observe || message.may_have_unprotected() { message.options_len() } else { 0 },
            observe,
        })
    }

    /// Returns the code of the outer message (RFC 8613, section 4.2).
    #[inline]
    pub(super) fn outer_code(&self) -> Code {
        match (self.code.is_request(), self.observe) {
            (true, true) => Code::FETCH,
            (true, false) => Code::POST,
            (false, true) => Code::CONTENT,
            (false, false) => Code::CHANGED,
        }
    }
}

/// Puts the outer header and the outer options in front of the plaintext, and free bytes for a tag after it. Returns
/// the plaintext and the free bytes.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(super) fn enclose<'f>(
    frame: &'f mut Frame<'_>,
    plain: &Plain,
    code: Code,
    oscore: &OscoreOption<'_>,
    tag_len: usize,
) -> Result<(&'f mut [u8], &'f mut [u8]), ProtectError> {
    let (room, inner) = frame.split(plain.head_len).ok_or(ProtectError::Malformed)?;
    let options = inner.get_mut(..plain.options_len).ok_or(ProtectError::Malformed)?;
    let all = room.len();
    let mut storage = [0; HEADER_LEN + MAX_TOKEN];
    let head = storage.get_mut(..plain.head_len).ok_or(ProtectError::Malformed)?;
    let written = room.get(all.wrapping_sub(plain.head_len)..).ok_or(ProtectError::Malformed)?;
    head.iter_mut().zip(written).for_each(|(to, from)| *to = *from);
    // The outer header and the outer options are written from their end to their beginning, so that no length must be
    // known before.
    let mut outer = Headroom::new(room);
    // The payload marker of the outer message and the code of the inner message are between the outer options and the
    // inner options.
    outer.push(plain.code.0);
    outer.push(0xff);
    write_outer_options(&mut outer, options, oscore);
    outer.put(head);
    let outer_len = all.wrapping_sub(outer.finish()?);
    if !options.is_empty() {
        let part = if plain.code.is_request() { Part::InsideRequest } else { Part::InsideResponse };
        let kept = option::retain(options, part);
        shift_left(inner, plain.options_len, kept);
        frame.cut(plain.options_len.wrapping_sub(kept));
    }
    let bytes = frame.widen(outer_len.wrapping_sub(plain.head_len), tag_len)?;
    if let Some(byte) = bytes.get_mut(1) {
        *byte = code.0;
    }
    let sealed = bytes.get_mut(outer_len.wrapping_sub(1)..).ok_or(ProtectError::Full)?;
    let at = sealed.len().checked_sub(tag_len).ok_or(ProtectError::Full)?;
    sealed.split_at_mut_checked(at).ok_or(ProtectError::Full)
}

/// Writes the outer options from the last to the first: the options of `options` that belong to the outer message,
/// and OSCORE.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn write_outer_options(outer: &mut Headroom<'_>, mut options: &[u8], oscore: &OscoreOption<'_>) {
    // The header of an option contains the difference between its number and the number of the previous option. This
    // loop finds the previous option later.
    let (mut behind, mut len, mut written) = (0u16, 0, false);
    loop {
        let (number, value) = match last_outside(options) {
            Some((number, value, before)) if written || number > OptionNumber::OSCORE => {
                options = before;
                (number.0, Some(value))
            }
            None if written => return outer.put(Header::new(behind, len).as_bytes()),
            _ => (OptionNumber::OSCORE.0, None),
        };
        if behind > 0 {
            outer.put(Header::new(behind.wrapping_sub(number), len).as_bytes());
        }
        let end = outer.left();
        match value {
            Some(value) => outer.put(value),
            None => {
                oscore.write(outer);
                written = true;
            }
        }
        (behind, len) = (number, end.wrapping_sub(outer.left()));
    }
}

/// Returns the last option that belongs to the outer message, and the options before it. A parser must have checked
/// the options in `run`.
fn last_outside(run: &[u8]) -> Option<(OptionNumber, &[u8], &[u8])> {
    let (mut reader, mut previous, mut last) = (Reader::new(run), 0, None);
    loop {
        let before = run.len().wrapping_sub(reader.rest().len());
        let Ok((number, value)) = option::read(&mut reader, previous) else { return last };
        if number == OptionNumber::OBSERVE || number.class() == Class::Unprotected {
            last = Some((number, value, run.get(..before)?));
        }
        previous = number.0;
    }
}
