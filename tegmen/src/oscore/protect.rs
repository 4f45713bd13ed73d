//! From a message to a protected one, in place (RFC 8613, sections 8.1 and 8.3).

use super::context::Context;
use super::cose::{Aad, MAX_TAG};
use super::option::{MAX_LEN, OscoreOption, PartialIv};
use super::unprotect::{Pending, RequestBinding, RequestNonce};
use super::{Id, MAX_PARTIAL_IV};
use crate::buf::{Frame, Full, Writer};
use crate::coap::message::{BuildError, Builder, HEADER_LEN, MAX_TOKEN, MessageRef, MessageType};
use crate::coap::option::{self, Class, Keep, OptionNumber, Options};
use crate::coap::{Code, Token};
use crate::crypto::Crypto;

/// Most bytes that protecting adds to a message: the option with its header, a second Observe, the payload marker, the
/// code, the tag. As many as are needed of them must be free in front of the message, the tag's behind it.
pub const OVERHEAD: usize = 2 + MAX_LEN + 5 + 2 + MAX_TAG;

/// Why a message cannot be protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The lease of numbers is used up: keep a new end, extend the lease, and protect the message then.
    LeaseSpent,
    /// All 2^40 numbers are used up: a new context is due (RFC 8613, section 7.2.1).
    Exhausted,
    /// The frame has no room in front or behind.
    Full,
    /// The frame holds no message, or one that is protected already.
    Malformed,
    /// The provider does not have the algorithm.
    Unsupported,
}

impl From<Full> for Stop {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<BuildError> for Stop {
    fn from(_: BuildError) -> Self {
        Self::Full
    }
}

impl Context {
    /// Protects the request in `frame`. What is sent again is these same bytes; a second call would use a second number.
    ///
    /// # Errors
    /// [`Stop`]; after [`Stop::LeaseSpent`], [`Stop::Exhausted`] and [`Stop::Malformed`] the frame is as it was.
    pub fn protect_request<C: Crypto>(&mut self, crypto: &mut C, frame: &mut Frame<'_>) -> Result<Pending, Stop> {
        let message = plain(frame)?;
        let code = if message.option(OptionNumber::OBSERVE).is_some() { Code::FETCH } else { Code::POST };
        let number = self.take_number()?;
        let sender_id = self.sender_id;
        let option =
            OscoreOption { partial_iv: Some(number), kid_context: self.id_context(), kid: Some(sender_id.as_bytes()) };
        let aad = Aad::new(self.aead, &sender_id, &number);
        self.seal(crypto, code, &option, (&sender_id, &number), &aad, frame)?;
        Ok(Pending::new(RequestBinding(number)))
    }

    /// Protects the response in `frame` to a request. With the request's own nonce, which can be spent once, it carries
    /// no number; without, it takes one of ours, as every notification but the first does.
    ///
    /// # Errors
    /// As [`Self::protect_request`].
    pub fn protect_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: &RequestBinding,
        nonce: Option<RequestNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), Stop> {
        let message = plain(frame)?;
        let code = if message.option(OptionNumber::OBSERVE).is_some() { Code::CONTENT } else { Code::CHANGED };
        let aad = Aad::new(self.aead, &self.recipient_id, &request.0);
        if let Some(RequestNonce(binding)) = nonce {
            let recipient_id = self.recipient_id;
            return self.seal(crypto, code, &OscoreOption::default(), (&recipient_id, &binding.0), &aad, frame);
        }
        let (sender_id, number) = (self.sender_id, self.take_number()?);
        let option = OscoreOption { partial_iv: Some(number), ..OscoreOption::default() };
        self.seal(crypto, code, &option, (&sender_id, &number), &aad, frame)
    }

    /// Writes the answer to a request that may be a replay because the window was lost: 4.01 with an Echo option that the
    /// client is to repeat (RFC 8613, appendix B.1.2). Its value is a number that we never used before and that goes
    /// encrypted and authenticated, so that it need not be random (RFC 9175, appendix A).
    ///
    /// # Errors
    /// As [`Self::protect_request`]; [`Stop::Malformed`] if the window is known.
    pub fn write_challenge<C: Crypto>(
        &mut self,
        crypto: &mut C,
        request: &RequestBinding,
        (message_type, message_id): (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), Stop> {
        let mark = self.window.mark().ok_or(Stop::Malformed)?;
        let echo = PartialIv::new(mark.min(MAX_PARTIAL_IV)).ok_or(Stop::Exhausted)?;
        let mut builder = Builder::new(frame, message_type, Code::UNAUTHORIZED, message_id, token.as_bytes())?;
        builder.option(OptionNumber::ECHO, echo.as_bytes())?;
        self.protect_response(crypto, request, None, frame)
    }

    /// Puts the message in `frame` inside of one with `code` and `option`, encrypted under the nonce of a number of one
    /// of both ends.
    fn seal<C: Crypto>(
        &self,
        crypto: &mut C,
        code: Code,
        option: &OscoreOption<'_>,
        nonce: (&Id, &PartialIv),
        aad: &Aad,
        frame: &mut Frame<'_>,
    ) -> Result<(), Stop> {
        let mut storage = [0; MAX_LEN];
        let mut value = Writer::new(&mut storage);
        option.write(&mut value)?;
        let tag_len = self.aead.tag_len();
        let start = enclose(frame, code, value.written(), tag_len)?;
        let plaintext = frame.bytes_mut().get_mut(start..).ok_or(Stop::Full)?;
        let at = plaintext.len().checked_sub(tag_len).ok_or(Stop::Full)?;
        let (plaintext, tag) = plaintext.split_at_mut_checked(at).ok_or(Stop::Full)?;
        let nonce = self.aead.nonce(&self.common_iv, nonce.0, nonce.1);
        let sealed = self.aead.seal(crypto, self.sender_key.expose(), &nonce, aad.as_bytes(), plaintext, tag);
        sealed.map_err(|_| Stop::Unsupported)
    }
}

/// The message in the frame, not protected yet.
fn plain<'f>(frame: &'f Frame<'_>) -> Result<MessageRef<'f>, Stop> {
    let message = MessageRef::parse(frame.bytes()).map_err(|_| Stop::Malformed)?;
    let whole = !message.code().is_request() && !message.code().is_response();
    match whole || message.option(OptionNumber::OSCORE).is_some() {
        true => Err(Stop::Malformed),
        false => Ok(message),
    }
}

/// Puts an outer header and the outer options before what is to be encrypted, and room for a tag behind it; where the
/// plaintext begins.
fn enclose(frame: &mut Frame<'_>, code: Code, oscore: &[u8], tag_len: usize) -> Result<usize, Stop> {
    let message = plain(frame)?;
    let (is_response, inner_code) = (message.code().is_response(), message.code());
    let head_len = HEADER_LEN.wrapping_add(message.token().len());
    let options_len = message.options_len();
    let mut outer_len = 0usize;
    outer_options(message.options(), oscore, |delta, value| {
        outer_len = outer_len.saturating_add(option::encoded_len(delta, value.len()));
        Ok(())
    })?;
    let mut head = [0; HEADER_LEN + MAX_TOKEN];
    crate::buf::copy(&mut head, frame.bytes().get(..head_len).ok_or(Stop::Malformed)?)?;
    if let Some(byte) = head.get_mut(1) {
        *byte = code.0;
    }
    // The marker and the code of the message inside come between the options outside and those inside.
    let before = outer_len.saturating_add(2);
    let bytes = frame.widen(before, tag_len)?;
    let start = before.saturating_add(head_len);
    let (outer, inner) = bytes.split_at_mut_checked(start).ok_or(Stop::Full)?;
    let mut writer = Writer::new(outer);
    writer.put(head.get(..head_len).unwrap_or(&[]))?;
    let options = Options::new(inner.get(..options_len).unwrap_or(&[]), &[]);
    outer_options(options, oscore, |delta, value| option::write(&mut writer, delta, value))?;
    writer.put(&[0xff, inner_code.0])?;
    let kept = option::retain(inner.get_mut(..options_len).unwrap_or(&mut []), |number| match number {
        // The number of a message says which notification is the newer (RFC 8613, section 4.1.3.5.2).
        OptionNumber::OBSERVE if is_response => Keep::Empty,
        _ if number.class() == Class::Unprotected => Keep::Nothing,
        _ => Keep::Whole,
    });
    let gap = options_len.saturating_sub(kept);
    if gap > 0 {
        crate::buf::shift_left(inner, options_len, kept);
        frame.truncate(frame.len().saturating_sub(gap));
    }
    start.checked_sub(1).ok_or(Stop::Malformed)
}

/// The options outside, by rising number: those of class U, Observe, and OSCORE itself. `write` gets the distance from
/// one to the next.
fn outer_options(
    options: Options<'_>,
    oscore: &[u8],
    mut write: impl FnMut(u16, &[u8]) -> Result<(), Full>,
) -> Result<(), Full> {
    let (mut last, mut written) = (0u16, false);
    let mut place = |number: OptionNumber, value: &[u8]| {
        write(number.0.wrapping_sub(last), value)?;
        last = number.0;
        Ok(())
    };
    for (number, value) in options {
        if !written && number > OptionNumber::OSCORE {
            place(OptionNumber::OSCORE, oscore)?;
            written = true;
        }
        if number == OptionNumber::OBSERVE || number.class() == Class::Unprotected {
            place(number, value)?;
        }
    }
    if written { Ok(()) } else { place(OptionNumber::OSCORE, oscore) }
}
