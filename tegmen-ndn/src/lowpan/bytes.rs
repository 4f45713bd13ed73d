//! Reads and writes the fields of compressed packets. Errors are stored, and reported at the end, which takes fewer
//! instructions than a check after each field.

use super::CHAINED;
use crate::error::Error;
use crate::tlv::{self, Element, Elements, Type};
use tegmen_base::buf::{Full, Writer};

/// An element of a packet.
#[derive(Clone, Copy, Default)]
pub(super) struct Field<'p> {
    pub(super) is_present: bool,
    /// The value of the element, or no bytes if the element is absent.
    pub(super) value: &'p [u8],
}

/// A row in the table of the elements that a packet may have: the type of the element, and the number of elements that
/// contain it inside the packet. The rows have the order of the elements.
#[derive(Clone, Copy)]
pub(super) struct Row {
    kind: u8,
    depth: u8,
}

impl Row {
    pub(super) const fn new(kind: Type, depth: u8) -> Self {
        Self { kind: kind.0 as u8, depth }
    }
}

/// The elements of a packet: `N` rows of a table, and a field for each row.
pub(super) struct Fields<'p, const N: usize> {
    pub(super) found: [Field<'p>; N],
    /// True if the packet consists of these elements only. False for an element that is not in the table, a repeated
    /// element, an element out of order, and bytes that are not an element.
    pub(super) is_whole: bool,
}

impl<'p, const N: usize> Fields<'p, N> {
    /// Reads the elements in `value`, and the elements in these elements.
    pub(super) fn read(value: &'p [u8], table: &[Row; N]) -> Self {
        let mut found = [Field::default(); N];
        let is_whole = read(value, 0, table, &mut found).is_some();
        Self { found, is_whole }
    }
}

/// Reads the elements in `value`, whose rows have this depth. Returns the number of rows that are used or skipped.
/// Returns `None` if the packet is not whole.
#[inline(never)]
fn read<'p>(value: &'p [u8], depth: u8, rows: &[Row], found: &mut [Field<'p>]) -> Option<usize> {
    let mut next = 0usize;
    for element in Elements::of(value) {
        let Element { kind, value, .. } = element.ok()?;
        loop {
            let row = rows.get(next).filter(|row| row.depth >= depth)?;
            let field = found.get_mut(next)?;
            next = next.wrapping_add(1);
            if row.depth == depth && u32::from(row.kind) == kind.0 {
                *field = Field { is_present: true, value };
                break;
            }
        }
        let (inner, places) = (rows.get(next..)?, found.get_mut(next..)?);
        if inner.first().is_some_and(|row| row.depth > depth) {
            next = next.wrapping_add(read(value, depth.wrapping_add(1), inner, places)?);
        }
    }
    Some(next)
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
