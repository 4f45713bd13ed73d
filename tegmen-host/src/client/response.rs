//! Responses, with their options in one block of memory.

use std::time::Duration;
use tegmen::coap::{Block, Code, MessageRef, OptionNumber};

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The code of the response.
    pub code: Code,
    /// The payload of the response.
    pub payload: Vec<u8>,
    /// The time from the request to the response.
    pub round_trip: Duration,
    pub(super) options: PackedOptions,
    /// True if the response is still protected, because it is only the first block of a response that a proxy has cut.
    pub(super) is_cut: bool,
    /// True if the response answers the last block of a request in blocks, and contains no Block1 option.
    pub(super) lacks_block1: bool,
}

impl Response {
    pub(super) fn new(message: &MessageRef<'_>) -> Self {
        let mut options = PackedOptions::default();
        message.options().for_each(|(number, value)| options.push(number, value));
        Self {
            code: message.code(),
            payload: message.payload().to_vec(),
            round_trip: Duration::ZERO,
            options,
            is_cut: false,
            lacks_block1: false,
        }
    }

    /// Returns the options, in the order of their numbers.
    pub fn options(&self) -> impl Iterator<Item = (OptionNumber, &[u8])> {
        self.options.iter()
    }

    /// Returns the value of the first option with this number.
    pub fn option(&self, number: OptionNumber) -> Option<&[u8]> {
        self.options().find(|(n, _)| *n == number).map(|(_, value)| value)
    }

    /// Returns the value of an option of format `uint`; `None` if there is no such option.
    pub fn uint(&self, number: OptionNumber) -> Option<u32> {
        self.option(number).and_then(tegmen::coap::uint)
    }

    /// True if this successful response answers a request in blocks, and contains no Block1 option (RFC 7959, section
    /// 2.3). The server may then have processed the last block as if it were the whole body.
    pub const fn lacks_block1(&self) -> bool {
        self.lacks_block1
    }

    /// Returns a Block option; `None` if there is none, or if it is not valid.
    pub(super) fn block(&self, number: OptionNumber) -> Option<Block> {
        self.option(number).and_then(|value| Block::read(value).ok())
    }

    /// Returns the Content-Format, if the response has one.
    pub fn content_format(&self) -> Option<u32> {
        self.uint(OptionNumber::CONTENT_FORMAT)
    }

    /// Removes all options of this number.
    pub(super) fn remove_options(&mut self, number: OptionNumber) {
        let mut rest = PackedOptions::default();
        self.options.iter().filter(|(each, _)| *each != number).for_each(|(each, value)| rest.push(each, value));
        self.options = rest;
    }
}

/// Maximum number of bytes of options that a response stores without a separate allocation. It is enough for two
/// options whose value is a Content-Format, and for an ETag, Max-Age, Observe and a Block option.
const INLINE: usize = 46;
/// Bytes in front of each value: 2 bytes for the number of the option, and 2 bytes for the length of the value.
const OPTION_HEAD: usize = 4;

/// Options in one sequence of bytes. Each option has its number, the length of its value, and its value.
#[derive(Clone, Debug)]
pub(super) struct PackedOptions {
    len: u8,
    inline: [u8; INLINE],
    /// The bytes of all options, if they are longer than [`INLINE`].
    spilled: Vec<u8>,
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self { len: 0, inline: [0; INLINE], spilled: Vec::new() }
    }
}

impl PackedOptions {
    fn bytes(&self) -> &[u8] {
        if self.spilled.is_empty() { self.inline.get(..self.len.into()).unwrap_or(&[]) } else { &self.spilled }
    }

    fn push(&mut self, number: OptionNumber, value: &[u8]) {
        let value = value.get(..value.len().min(u16::MAX.into())).unwrap_or(&[]);
        let (number, len) = (number.0.to_ne_bytes(), (value.len() as u16).to_ne_bytes());
        let [[n0, n1], [l0, l1]] = [number, len];
        let head = [n0, n1, l0, l1];
        let (at, behind) = (usize::from(self.len), usize::from(self.len) + OPTION_HEAD + value.len());
        if self.spilled.is_empty()
            && let Some((to_head, to_value)) = self.inline.get_mut(at..behind).and_then(|to| to.split_first_chunk_mut())
        {
            *to_head = head;
            to_value.copy_from_slice(value);
            self.len = behind as u8;
            return;
        }
        if self.spilled.is_empty() {
            self.spilled.extend(self.inline.get(..at).unwrap_or(&[]));
        }
        self.spilled.extend(head);
        self.spilled.extend(value);
    }

    fn iter(&self) -> impl Iterator<Item = (OptionNumber, &[u8])> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (&[n0, n1, l0, l1], behind) = rest.split_first_chunk::<OPTION_HEAD>()?;
            let (value, behind) = behind.split_at_checked(u16::from_ne_bytes([l0, l1]).into())?;
            rest = behind;
            Some((OptionNumber(u16::from_ne_bytes([n0, n1])), value))
        })
    }
}

#[cfg(test)]
mod tests;
