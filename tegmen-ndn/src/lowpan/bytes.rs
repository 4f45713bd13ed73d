//! Reads and writes the fields of compressed packets. Errors are stored, and reported at the end, which takes fewer
//! instructions than a check after each field.

use super::CHAINED;
use crate::error::Error;
use crate::tlv::{self, Type};
use tegmen_base::buf::{Full, Writer};

/// A writer of fields that stores errors.
pub(super) struct Out<'w, 't> {
    writer: &'w mut Writer<'t>,
    is_valid: bool,
}

impl<'w, 't> Out<'w, 't> {
    pub(super) const fn new(writer: &'w mut Writer<'t>) -> Self {
        Self { writer, is_valid: true }
    }

    /// Stores an error if `is_valid` is false, for example because the compressed form cannot represent the packet.
    pub(super) const fn require(&mut self, is_valid: bool) {
        self.is_valid &= is_valid;
    }

    #[inline(never)]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let is_written = self.writer.put(bytes).is_ok();
        self.require(is_written);
    }

    #[inline(never)]
    pub(super) fn byte(&mut self, byte: u8) {
        self.put(&[byte]);
    }

    /// Returns the number of bytes written.
    pub(super) const fn len(&self) -> usize {
        self.writer.len()
    }

    /// Adds `number` to the byte at the position `place`.
    pub(super) fn add(&mut self, place: usize, number: u8) {
        if let Some(byte) = self.writer.written_mut().get_mut(place) {
            *byte = byte.wrapping_add(number);
        }
    }

    /// Inserts bytes at the position `place`.
    #[inline(never)]
    pub(super) fn insert(&mut self, place: usize, bytes: &[u8]) {
        let is_written = self.writer.insert(place, bytes).is_ok();
        self.require(is_written);
    }

    /// Writes a length at the position `place`, as a self-delimiting numeric value (RFC 9139, section 5.1; RFC 6256).
    #[inline(never)]
    pub(super) fn length(&mut self, place: usize, len: usize) {
        self.require(len < 0x20_0000);
        let groups = [(len >> 14) as u8 | CHAINED, (len >> 7) as u8 | CHAINED, len as u8 & !CHAINED];
        let skipped = match len {
            0..0x80 => 2,
            0x80..0x4000 => 1,
            _ => 0,
        };
        self.insert(place, groups.get(skipped..).unwrap_or(&[]));
    }

    /// Writes the number of all bytes that were written from the position `start` on in front of these bytes.
    #[inline(never)]
    pub(super) fn count(&mut self, start: usize) {
        self.length(start, self.len().wrapping_sub(start));
    }

    /// Writes bytes after their length.
    #[inline(never)]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.length(self.len(), bytes.len());
        self.put(bytes);
    }

    /// Writes a number after its length.
    #[inline(never)]
    pub(super) fn integer(&mut self, number: u64) {
        self.bytes(tlv::integer_bytes(number, &mut [0; 8]));
    }

    /// Writes an element.
    #[inline(never)]
    pub(super) fn element(&mut self, kind: Type, value: &[u8]) {
        let is_written = tlv::write(self.writer, kind, value).is_ok();
        self.require(is_written);
    }

    /// Makes one element of all bytes that were written from the position `start` on.
    #[inline(never)]
    pub(super) fn enclose(&mut self, start: usize, kind: Type) {
        let is_written = tlv::enclose(self.writer, start, kind).is_ok();
        self.require(is_written);
    }

    pub(super) const fn finish(&self) -> Result<(), Full> {
        if self.is_valid { Ok(()) } else { Err(Full) }
    }
}

/// A reader of fields. After the end, it reads empty fields.
pub(super) struct In<'f> {
    rest: &'f [u8],
    is_valid: bool,
}

impl<'f> In<'f> {
    pub(super) const fn of(bytes: &'f [u8]) -> Self {
        Self { rest: bytes, is_valid: true }
    }

    pub(super) const fn rest(&self) -> &'f [u8] {
        self.rest
    }

    /// Stores an error if `is_valid` is false: the frame is invalid.
    pub(super) const fn require(&mut self, is_valid: bool) {
        self.is_valid &= is_valid;
    }

    #[inline(never)]
    pub(super) fn take(&mut self, len: usize) -> &'f [u8] {
        let parts = self.rest.split_at_checked(len);
        self.require(parts.is_some());
        let (taken, rest) = parts.unwrap_or((&[], &[]));
        self.rest = rest;
        taken
    }

    #[inline(never)]
    pub(super) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Reads a length below 2^21, and then that number of bytes. Returns the bytes after the length.
    #[inline(never)]
    pub(super) fn bytes(&mut self) -> &'f [u8] {
        let mut len = 0;
        for _ in 0..3 {
            let byte = self.byte();
            len = len << 7 | usize::from(byte & !CHAINED);
            if byte & CHAINED == 0 {
                return self.take(len);
            }
        }
        self.require(false);
        &[]
    }

    /// Returns an error if one was stored, or if bytes are left.
    pub(super) const fn finish(&self) -> Result<(), Error> {
        if self.is_valid && self.rest.is_empty() { Ok(()) } else { Err(Error::Compression) }
    }
}
