//! Reads and writes the fields of compressed packets. Errors are stored, and reported at the end, which takes fewer
//! instructions than a check after each field.

use super::CHAINED;
use crate::error::Error;
use crate::tlv::{self, Elements, Type};
use tegmen_base::buf::{Full, Writer};

/// The elements of a value, which are read one by one.
pub(super) struct Cursor<'p>(Elements<'p>);

impl<'p> Cursor<'p> {
    pub(super) const fn of(value: &'p [u8]) -> Self {
        Self(Elements::of(value))
    }

    /// Returns the value of the next element if the element has this type.
    #[inline(never)]
    pub(super) fn take(&mut self, kind: Type) -> Option<&'p [u8]> {
        let mut ahead = self.0;
        let element = ahead.next()?.ok().filter(|element| element.kind == kind)?;
        self.0 = ahead;
        Some(element.value)
    }

    /// Returns true if no bytes of the value are left, neither elements nor other bytes.
    pub(super) const fn is_at_end(&self) -> bool {
        self.0.rest().is_empty()
    }
}

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

    /// Writes a length as a self-delimiting numeric value (RFC 9139, section 5.1; RFC 6256).
    #[inline(never)]
    pub(super) fn length(&mut self, len: usize) {
        self.require(len < 0x20_0000);
        for group in (1..length_len(len)).rev() {
            self.byte((len >> group.wrapping_mul(7)) as u8 | CHAINED);
        }
        self.byte(len as u8 & !CHAINED);
    }

    /// Writes bytes after their length.
    #[inline(never)]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.put(bytes);
    }

    /// Writes the type and the length of an element.
    #[inline(never)]
    pub(super) fn head(&mut self, kind: Type, len: usize) {
        let is_written = tlv::write_head(self.writer, kind, len).is_ok();
        self.require(is_written);
    }

    /// Writes an element.
    #[inline(never)]
    pub(super) fn element(&mut self, kind: Type, value: &[u8]) {
        self.head(kind, value.len());
        self.put(value);
    }

    pub(super) const fn finish(&self) -> Result<(), Full> {
        if self.is_valid { Ok(()) } else { Err(Full) }
    }
}

/// Returns the number of bytes in which a length is written.
pub(super) const fn length_len(len: usize) -> usize {
    match len {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
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
