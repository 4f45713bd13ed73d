//! The response that a handler writes. If the client requested one block, the response keeps only this block.

use super::Code;
use super::block::{Block, Fnv};
use super::option::{self, OptionNumber};
use super::request::Request;
use super::{BuildError, Builder, MessageRef};

/// A response that a handler writes: first the options in the order of their numbers, then the payload.
///
/// The handler writes the whole representation for each request. In the response to a GET or FETCH, only the requested
/// block of the representation remains, or the first block if the whole representation does not fit (RFC 7959). So the
/// server stores no state between the requests for the blocks.
pub struct Response<'f, 't> {
    pub(super) builder: Builder<'f, 't>,
    pub(super) token_len: usize,
    pub(super) deferred: bool,
    /// The number for the Observe option; `None` if the client did not ask to be registered as observer.
    registration: Option<u32>,
    pub(super) observed: bool,
    window: Window,
    /// Number of bytes of the representation that the handler has already written or skipped.
    written: usize,
    /// Fingerprint of all bytes that were written. `None` after bytes were skipped, or after the handler added an ETag.
    fingerprint: Option<Fnv>,
}

/// The part of a representation that the message contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Window {
    /// The whole payload.
    Whole,
    /// The whole payload if it has at most this number of bytes, otherwise the first block of the payload.
    UpTo(usize),
    /// The block that the client requested.
    Asked(Block),
}

impl Window {
    const fn start(self) -> usize {
        match self {
            Self::Whole | Self::UpTo(_) => 0,
            Self::Asked(block) => block.offset(),
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::UpTo(len) => len,
            Self::Asked(block) => block.size(),
        }
    }
}

/// Maximum number of bytes of the options Block2, Size2, ETag and Observe in a response that contains only one block.
const CUT_OPTIONS_LEN: usize = 24;

impl<'f, 't> Response<'f, 't> {
    #[inline]
    pub(super) fn new(builder: Builder<'f, 't>, request: &Request<'_>, window: Window, in_blocks: bool) -> Self {
        Self {
            builder,
            token_len: request.message.token().len(),
            deferred: false,
            registration: request.registration(),
            observed: false,
            window,
            written: 0,
            fingerprint: in_blocks.then_some(Fnv::EMPTY),
        }
    }

    /// Sets the code of the response. Without this call, the code is 2.05 (Content).
    pub fn set_code(&mut self, code: Code) {
        self.builder.set_code(code);
    }

    /// Adds an option.
    ///
    /// # Errors
    /// 5.00 if the option does not fit, if the response already has an option with a higher number, or if it already
    /// has a payload.
    pub fn option(&mut self, number: OptionNumber, value: &[u8]) -> Result<(), Code> {
        if number == OptionNumber::ETAG {
            // The handler's ETag identifies the representation, so no fingerprint is necessary.
            self.fingerprint = None;
        }
        self.builder.option(number, value).map_err(failed)
    }

    /// Adds an option of format `uint`.
    ///
    /// # Errors
    /// 5.00 if the option does not fit, if the response already has an option with a higher number, or if it already
    /// has a payload.
    pub fn uint(&mut self, number: OptionNumber, value: u32) -> Result<(), Code> {
        self.builder.uint(number, value).map_err(failed)
    }

    /// Appends bytes to the payload.
    ///
    /// # Errors
    /// 5.00 if the bytes do not fit.
    #[cfg_attr(not(target_pointer_width = "64"), inline(always))]
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), Code> {
        if self.window == Window::Whole {
            return self.builder.payload(bytes).map_err(failed);
        }
        self.payload_in_block(bytes)
    }

    /// Appends only the bytes that are in the requested block. The other bytes are counted, but not written.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn payload_in_block(&mut self, bytes: &[u8]) -> Result<(), Code> {
        if self.written == 0 {
            self.window = self.fitting()?;
        }
        let (at, start) = (self.written, self.window.start());
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.add(bytes);
        }
        self.written = at.saturating_add(bytes.len());
        let from = start.saturating_sub(at).min(bytes.len());
        let to = start.saturating_add(self.window.len()).saturating_sub(at).min(bytes.len());
        self.builder.payload(bytes.get(from..to).unwrap_or(&[])).map_err(failed)
    }

    /// Skips `len` bytes of the payload instead of writing them. None of these bytes may be in [`Self::wanted`]. With
    /// this function, a handler that responds with a file needs to read only the requested block of the file.
    ///
    /// # Errors
    /// 5.00 if some of the skipped bytes are in [`Self::wanted`].
    pub fn skip(&mut self, len: usize) -> Result<(), Code> {
        let wanted = self.wanted();
        let end = self.written.saturating_add(len);
        if self.written < wanted.end && end > wanted.start && len > 0 {
            return Err(Code::INTERNAL_SERVER_ERROR);
        }
        if self.written == 0 {
            self.window = self.fitting()?;
        }
        (self.written, self.fingerprint) = (end, None);
        Ok(())
    }

    /// Returns the range of the whole payload that this message contains. A handler may [skip](Self::skip) the bytes
    /// before and after this range.
    pub fn wanted(&self) -> core::ops::Range<usize> {
        let window = if self.written == 0 { self.fitting().unwrap_or(self.window) } else { self.window };
        window.start()..window.start().saturating_add(window.len())
    }

    /// Returns the number of payload bytes that still fit the message.
    pub(crate) fn room(&self) -> usize {
        self.builder.room().saturating_sub(1)
    }

    /// Allows the client to observe the representation (RFC 7641). If the client asked for an observation, it becomes
    /// an observer when the response is sent, now or later. An error response makes no client an observer.
    pub fn observable(&mut self) {
        self.observed = self.registration.is_some();
    }

    /// Defers the response. Only an acknowledgement is sent now; the response follows in a separate message (RFC
    /// 7252, section 5.2.2).
    pub fn defer(&mut self) {
        self.deferred = true;
    }

    /// Returns the window (the part of the representation that this message contains), after reducing its length to the
    /// free bytes of the frame.
    fn fitting(&self) -> Result<Window, Code> {
        let cut_room = self.room().saturating_sub(CUT_OPTIONS_LEN);
        Ok(match self.window {
            Window::Whole => Window::Whole,
            Window::UpTo(len) => {
                let reserved = if self.observed { 5 } else { 0 };
                Window::UpTo(len.min(self.room().saturating_sub(reserved)))
            }
            Window::Asked(block) if cut_room < 16 && block.size() > 16 => return Err(Code::INTERNAL_SERVER_ERROR),
            Window::Asked(block) => Window::Asked(block.limited(cut_room.max(16))),
        })
    }

    /// Adds the options that depend on the length of the whole payload: the options of a block, and Observe.
    #[inline]
    pub(super) fn finish(&mut self, message: &MessageRef<'_>, in_blocks: bool) -> Result<(), Code> {
        if in_blocks {
            self.finish_block(message)?;
        }
        if let Some(number) = self.registration.filter(|_| self.observed) {
            self.insert(OptionNumber::OBSERVE, number)?;
        }
        Ok(())
    }

    /// Adds the options of a block. If the request has a Block1 option, also adds the Block1 option that acknowledges
    /// it.
    fn finish_block(&mut self, message: &MessageRef<'_>) -> Result<(), Code> {
        let block = match self.window {
            Window::Asked(block) if block.number > 0 && block.offset() >= self.written => {
                return Err(Code::BAD_REQUEST);
            }
            Window::Asked(block) => Some(block),
            Window::UpTo(len) if self.written > len => {
                let missing = CUT_OPTIONS_LEN.saturating_sub(self.builder.room());
                let block = Block::first(len.saturating_sub(missing));
                let surplus = len.checked_sub(block.size()).ok_or(Code::INTERNAL_SERVER_ERROR)?;
                self.builder.cut(surplus);
                Some(block)
            }
            Window::Whole | Window::UpTo(_) => None,
        };
        if let Some(block) = block {
            let more = self.written > block.offset().saturating_add(block.size());
            self.insert(OptionNumber::BLOCK2, Block { more, ..block }.value())?;
            let whole = block.number == 0 && !more;
            if block.number == 0 && (more || message.option(OptionNumber::SIZE2).is_some()) {
                self.insert(OptionNumber::SIZE2, self.written as u32)?;
            }
            // Blocks of two representations must not be put together (RFC 7959, section 2.4).
            if let Some(fingerprint) = self.fingerprint
                && !whole
                && !self.builder.has(OptionNumber::ETAG)
            {
                self.builder.insert(OptionNumber::ETAG, &fingerprint.short().to_be_bytes()).map_err(failed)?;
            }
        }
        if let Ok(Some(block)) = message.block(OptionNumber::BLOCK1)
            && !self.builder.has(OptionNumber::BLOCK1)
        {
            self.insert(OptionNumber::BLOCK1, Block { more: false, ..block }.value())?;
        }
        Ok(())
    }

    fn insert(&mut self, number: OptionNumber, value: u32) -> Result<(), Code> {
        let mut bytes = [0; 4];
        self.builder.insert(number, option::uint_bytes(value, &mut bytes)).map_err(failed)
    }
}

fn failed(_: BuildError) -> Code {
    Code::INTERNAL_SERVER_ERROR
}

#[cfg(test)]
mod tests;
