//! From a message to a protected one, in place (RFC 8613, sections 8.1 and 8.3).

use super::context::{Context, NO_CHALLENGE};
use super::cose::{Inputs, MAX_TAG};
use super::option::{MAX_LEN, OscoreOption};
use super::unprotect::{Pending, RequestBinding, RequestNonce};
use crate::buf::{Frame, Full, Reader, Writer, shift_left};
use crate::coap::message::{BuildError, Builder, HEADER_LEN, MessageRef, MessageType};
use crate::coap::option::{self, Class, Keep, OptionNumber};
use crate::coap::{Code, Token};
use crate::crypto::Crypto;
use crate::replay::ReplayWindow;

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
        let plain = Plain::read(frame)?;
        let code = if plain.observe { Code::FETCH } else { Code::POST };
        let number = self.take_number()?;
        let ids = (&self.sender_id, &number);
        let option =
            OscoreOption { partial_iv: Some(number), kid_context: self.id_context(), kid: Some(ids.0.as_bytes()) };
        self.seal(crypto, &plain, code, &option, &self.inputs(ids, ids), frame)?;
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
        let plain = Plain::read(frame)?;
        let code = if plain.observe { Code::CONTENT } else { Code::CHANGED };
        let ours = if nonce.is_none() { Some(self.take_number()?) } else { None };
        let request = (&self.recipient_id, &request.0);
        let inputs = match (&ours, &nonce) {
            (None, Some(RequestNonce(binding))) => self.inputs((&self.recipient_id, &binding.0), request),
            (Some(number), _) => self.inputs((&self.sender_id, number), request),
            (None, None) => return Err(Stop::LeaseSpent),
        };
        let option = OscoreOption { partial_iv: ours, ..OscoreOption::default() };
        self.seal(crypto, &plain, code, &option, &inputs, frame)
    }

    /// Writes the answer to a request that may be a replay because the window was lost: 4.01 with an Echo option that the
    /// client is to repeat (RFC 8613, appendix B.1.2): eight random bytes, drawn for the first challenge after the window
    /// was lost (RFC 9175, appendix A).
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
        let mut mark = self.window.mark().ok_or(Stop::Malformed)?;
        if mark == NO_CHALLENGE {
            let mut random = [0; 8];
            crypto.random(&mut random);
            // Neither the mark of no challenge nor one that a window could not hold.
            mark = u64::from_be_bytes(random) >> 1 | 1;
            self.window = ReplayWindow::lost(mark);
        }
        let mut builder = Builder::new(frame, message_type, Code::UNAUTHORIZED, message_id, token.as_bytes())?;
        builder.option(OptionNumber::ECHO, &mark.to_be_bytes())?;
        self.protect_response(crypto, request, None, frame)
    }

    /// Puts the message in `frame` inside of one with `code` and `option`, and encrypts it.
    fn seal<C: Crypto>(
        &self,
        crypto: &mut C,
        plain: &Plain,
        code: Code,
        option: &OscoreOption<'_>,
        inputs: &Inputs,
        frame: &mut Frame<'_>,
    ) -> Result<(), Stop> {
        let (plaintext, tag) = enclose(frame, plain, code, option, self.aead.tag_len())?;
        let sealed = self.aead.seal(crypto, self.sender_key.expose(), inputs, plaintext, tag);
        sealed.map_err(|_| Stop::Unsupported)
    }
}

/// What has to be known of a message that is not protected yet.
struct Plain {
    code: Code,
    /// Bytes of header and token.
    head_len: usize,
    options_len: usize,
    observe: bool,
    /// It may have options that stay outside.
    outside: bool,
}

impl Plain {
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn read(frame: &Frame<'_>) -> Result<Self, Stop> {
        // By reference, here and below: it is large, and moving it costs a mote more than reading it.
        let Ok(message) = &MessageRef::parse(frame.bytes()) else { return Err(Stop::Malformed) };
        let code = message.code();
        if !(code.is_request() || code.is_response()) || message.option(OptionNumber::OSCORE).is_some() {
            return Err(Stop::Malformed);
        }
        let observe = message.option(OptionNumber::OBSERVE).is_some();
        Ok(Self {
            code,
            head_len: HEADER_LEN.wrapping_add(message.token().len()),
            options_len: message.options_len(),
            observe,
            outside: observe || message.may_have_unprotected(),
        })
    }
}

/// Puts an outer header and the outer options before what is to be encrypted, and room for a tag behind it; what is to be
/// encrypted, and the room.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn enclose<'f>(
    frame: &'f mut Frame<'_>,
    plain: &Plain,
    code: Code,
    option: &OscoreOption<'_>,
    tag_len: usize,
) -> Result<(&'f mut [u8], &'f mut [u8]), Stop> {
    let mut storage = [0; MAX_LEN];
    let mut oscore = Writer::new(&mut storage);
    option.write(&mut oscore)?;
    let oscore = oscore.written();
    // Only of these there is anything to copy or to take away.
    let looked_at = if plain.outside { plain.options_len } else { 0 };
    let options = frame.bytes().get(plain.head_len..).and_then(|options| options.get(..looked_at));
    let outer_len = match options {
        Some(options @ [_, ..]) => outer_options(options, oscore, &mut []),
        _ => option::encoded_len(OptionNumber::OSCORE.0, oscore.len()),
    };
    // The marker and the code of the message inside come between the options outside and those inside.
    let before = outer_len.saturating_add(2);
    let start = before.saturating_add(plain.head_len);
    let bytes = frame.widen(before, tag_len)?;
    let (outer, inner) = bytes.split_at_mut_checked(start).ok_or(Stop::Full)?;
    shift_left(outer, before, 0);
    if let Some(byte) = outer.get_mut(1) {
        *byte = code.0;
    }
    let options = inner.get_mut(..looked_at).ok_or(Stop::Malformed)?;
    let between = outer.get_mut(plain.head_len..).ok_or(Stop::Full)?;
    outer_options(options, oscore, between);
    if let Some(end) = between.last_chunk_mut() {
        *end = [0xff, plain.code.0];
    }
    if plain.outside {
        let kept = option::retain(options, if plain.code.is_response() { inside_response } else { inside_request });
        let gap = looked_at.saturating_sub(kept);
        shift_left(inner, looked_at, kept);
        frame.truncate(frame.len().saturating_sub(gap));
    }
    let sealed = frame.bytes_mut().get_mut(start.saturating_sub(1)..).ok_or(Stop::Full)?;
    let at = sealed.len().checked_sub(tag_len).ok_or(Stop::Full)?;
    sealed.split_at_mut_checked(at).ok_or(Stop::Full)
}

fn inside_request(number: OptionNumber) -> Keep {
    match number.class() {
        Class::Unprotected => Keep::Nothing,
        Class::Encrypted => Keep::Whole,
    }
}

/// The number of a message says which notification is the newer (RFC 8613, section 4.1.3.5.2).
fn inside_response(number: OptionNumber) -> Keep {
    if number == OptionNumber::OBSERVE { Keep::Empty } else { inside_request(number) }
}

/// The options outside, by rising number: those of class U, Observe, and OSCORE itself, written to `out` as far as it has
/// room; how long they are.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn outer_options(options: &[u8], oscore: &[u8], out: &mut [u8]) -> usize {
    let mut reader = Reader::new(options);
    let (mut previous, mut last, mut len, mut written) = (0u16, 0u16, 0usize, false);
    loop {
        let mut ahead = reader;
        let (number, value) = match option::read(&mut ahead, previous) {
            Ok(next) if written || next.0 < OptionNumber::OSCORE => {
                (reader, previous) = (ahead, next.0.0);
                next
            }
            Err(_) if written => return len,
            _ => {
                written = true;
                (OptionNumber::OSCORE, oscore)
            }
        };
        if number == OptionNumber::OBSERVE || number.class() == Class::Unprotected {
            let delta = number.0.wrapping_sub(last);
            let _ = option::write(&mut Writer::new(out.get_mut(len..).unwrap_or(&mut [])), delta, value);
            len = len.saturating_add(option::encoded_len(delta, value.len()));
            last = number.0;
        }
    }
}
