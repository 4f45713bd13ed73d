//! Elements of a type, a length and a value, which encode all data of NDN (packet format, section "TLV encoding").

pub use crate::types::Type;

use crate::error::Error;
use tegmen_base::buf::{Full, Reader, Writer};

/// An element in the value of another element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element<'p> {
    /// The type of the element.
    pub kind: Type,
    /// The value of the element.
    pub value: &'p [u8],
    /// The position of the first byte of the type, in the value of the outer element.
    pub start: usize,
    /// The position after the last byte of the value, in the value of the outer element.
    pub end: usize,
}

/// The elements in the value of another element, in order. The iteration ends at the first error.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'p> {
    reader: Reader<'p>,
    len: usize,
}

impl<'p> Elements<'p> {
    /// Starts with the first element in `value`.
    pub const fn of(value: &'p [u8]) -> Self {
        Self { reader: Reader::new(value), len: value.len() }
    }

    /// Returns the bytes that are not read yet.
    pub const fn rest(&self) -> &'p [u8] {
        self.reader.rest()
    }

    fn read(&mut self) -> Result<Element<'p>, Error> {
        let start = self.len.wrapping_sub(self.reader.rest().len());
        let kind = read_number(&mut self.reader, Error::Type)?;
        if kind == 0 {
            return Err(Error::Type);
        }
        let len = read_number(&mut self.reader, Error::Truncated)?;
        let value = self.reader.take(len as usize)?;
        let end = self.len.wrapping_sub(self.reader.rest().len());
        Ok(Element { kind: Type(kind), value, start, end })
    }
}

impl<'p> Iterator for Elements<'p> {
    type Item = Result<Element<'p>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let element = self.read();
        if element.is_err() {
            *self = Self::of(&[]);
        }
        Some(element)
    }
}

/// Reads the element in `bytes`. `bytes` must contain exactly one element, of this type. Returns its value.
///
/// # Errors
/// [`Error::Truncated`] if the element is longer than `bytes`, [`Error::Trailing`] if it is shorter, and
/// [`Error::Missing`] if it has another type.
pub fn only(bytes: &[u8], kind: Type) -> Result<&[u8], Error> {
    let mut elements = Elements::of(bytes);
    let element = elements.next().ok_or(Error::Truncated)??;
    if element.kind != kind {
        return Err(Error::Missing(kind));
    }
    if elements.rest().is_empty() { Ok(element.value) } else { Err(Error::Trailing) }
}

/// Finds the elements of these types in `value`. The result has the value of an element for each type, in the order of
/// `kinds`, or `None` if the type is missing. The elements must be in this order, and each may occur at most once. An
/// element that is unknown, repeated or out of order is skipped if it is not critical.
///
/// # Errors
/// [`Error::Critical`] for a critical element that is unknown, repeated or out of order. [`Error::Truncated`],
/// [`Error::NotShortest`] and [`Error::Type`] for bytes that are not elements.
pub fn fields<'p, const N: usize>(value: &'p [u8], kinds: &[Type; N]) -> Result<[Option<&'p [u8]>; N], Error> {
    let mut found = [None; N];
    find(value, kinds, &mut found, Extent::Known)?;
    Ok(found)
}

/// The packets that a parser accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// All valid packets. Unknown elements that are not critical are skipped.
    Known,
    /// The packets whose fields determine all their bytes: a packet with an unknown element, or with an integer that
    /// has more bytes than necessary, is refused.
    Exact,
}

/// Finds the elements for [`fields`]. On a host the compiler makes a separate, faster copy of the code for each list of
/// types. On a device there is one copy.
#[cfg_attr(target_pointer_width = "64", inline(always))]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn find<'p>(
    value: &'p [u8],
    kinds: &[Type],
    found: &mut [Option<&'p [u8]>],
    extent: Extent,
) -> Result<(), Error> {
    let mut next = 0;
    for element in Elements::of(value) {
        let element = element?;
        let skipped = kinds.get(next..).and_then(|rest| rest.iter().position(|kind| *kind == element.kind));
        match skipped.and_then(|skipped| found.get_mut(next.wrapping_add(skipped)).map(|field| (skipped, field))) {
            Some((skipped, field)) => {
                *field = Some(element.value);
                next = next.wrapping_add(skipped).wrapping_add(1);
            }
            None if element.kind.is_critical() || extent == Extent::Exact => return Err(Error::Critical(element.kind)),
            None => {}
        }
    }
    Ok(())
}

/// Returns the value of an element whose value must have `LEN` bytes. Returns `None` if the element is missing.
///
/// # Errors
/// [`Error::Length`] for any other length.
pub(crate) fn fixed<const LEN: usize>(value: Option<&[u8]>, kind: Type) -> Result<Option<&[u8; LEN]>, Error> {
    match value {
        None => Ok(None),
        Some(value) => value.as_array().ok_or(Error::Length(kind)).map(Some),
    }
}

/// Reads a NonNegativeInteger into `number`. If the element is missing, `number` does not change.
///
/// # Errors
/// [`Error::Length`] for a length that [`integer`] refuses, and for unnecessary bytes that `extent` refuses.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn read_integer(
    value: &Option<&[u8]>,
    kind: Type,
    number: &mut Option<u64>,
    extent: Extent,
) -> Result<(), Error> {
    if let Some(value) = value {
        let read = integer(value, kind)?;
        *number = Some(read);
        if extent == Extent::Exact && integer_bytes(read, &mut [0; 8]).len() != value.len() {
            return Err(Error::Length(kind));
        }
    }
    Ok(())
}

/// Returns the position in `outer` after the last byte of `part`, which is a part of `outer`.
pub(crate) fn end_of(outer: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().wrapping_sub(outer.as_ptr().addr()).wrapping_add(part.len())
}

/// Reads a type or a length in 1, 3, 5 or 9 bytes. Returns `too_large` for a number above 4,294,967,295.
fn read_number(reader: &mut Reader<'_>, too_large: Error) -> Result<u32, Error> {
    let (value, least) = match reader.u8()? {
        short @ 0..253 => return Ok(short.into()),
        253 => (reader.u16()?.into(), 253),
        254 => (reader.u32()?, 0x1_0000),
        _ => match reader.array_ref::<8>()? {
            [0, 0, 0, 0, ..] => return Err(Error::NotShortest),
            _ => return Err(too_large),
        },
    };
    if value < least { Err(Error::NotShortest) } else { Ok(value) }
}

/// Reads a NonNegativeInteger: 1, 2, 4 or 8 bytes. `kind` is the type of the element with this value.
///
/// # Errors
/// [`Error::Length`] for any other length.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn integer(value: &[u8], kind: Type) -> Result<u64, Error> {
    if !matches!(value.len(), 1 | 2 | 4 | 8) {
        return Err(Error::Length(kind));
    }
    Ok(value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Returns the bytes of a NonNegativeInteger, in the shortest form.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn integer_bytes(number: u64, bytes: &mut [u8; 8]) -> &[u8] {
    *bytes = number.to_be_bytes();
    let len = match number {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x1_0000_0000 => 4,
        _ => 8,
    };
    bytes.get(bytes.len().wrapping_sub(len)..).unwrap_or(&[])
}

/// Returns the number of bytes in which a type or a length is written.
pub const fn number_len(number: usize) -> usize {
    match number {
        0..253 => 1,
        253..0x1_0000 => 3,
        _ => 5,
    }
}

/// Returns the number of bytes of an element whose value has `len` bytes.
pub const fn element_len(kind: Type, len: usize) -> usize {
    number_len(kind.0 as usize).saturating_add(number_len(len)).saturating_add(len)
}

/// Maximum number of bytes of a type and a length that [`write_head`] writes.
pub(crate) const MAX_NUMBERS: usize = 10;

/// Writes a type or a length in as few bytes as possible.
fn write_number(out: &mut Writer<'_>, number: u32) -> Result<(), Full> {
    match number {
        0..253 => out.u8(number as u8),
        253..0x1_0000 => {
            out.u8(253)?;
            out.u16(number as u16)
        }
        _ => {
            out.u8(254)?;
            out.u32(number)
        }
    }
}

/// Writes the type and the length of an element.
///
/// # Errors
/// [`Full`], also for a length of 2^32 bytes or more.
pub fn write_head(out: &mut Writer<'_>, kind: Type, len: usize) -> Result<(), Full> {
    write_number(out, kind.0)?;
    write_number(out, u32::try_from(len).map_err(|_| Full)?)
}

/// Returns the type and the length of an element.
///
/// # Errors
/// [`Full`] for a length of 2^32 bytes or more.
pub(crate) fn head(kind: Type, len: usize, bytes: &mut [u8; MAX_NUMBERS]) -> Result<&[u8], Full> {
    let mut out = Writer::new(bytes);
    write_head(&mut out, kind, len)?;
    Ok(out.finish())
}

/// Makes one element of all bytes that were written from the position `start` on: writes the type and the length in
/// front of them. So the length of an element that contains others need not be computed before.
///
/// # Errors
/// [`Full`] if the type and the length do not fit.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub(crate) fn enclose(out: &mut Writer<'_>, start: usize, kind: Type) -> Result<(), Full> {
    let mut bytes = [0; MAX_NUMBERS];
    out.insert(start, head(kind, out.len().wrapping_sub(start), &mut bytes)?)
}

/// Writes an element.
///
/// # Errors
/// [`Full`] if the element does not fit.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
pub fn write(out: &mut Writer<'_>, kind: Type, value: &[u8]) -> Result<(), Full> {
    write_head(out, kind, value.len())?;
    out.put(value)
}

/// Writes an element whose value is a NonNegativeInteger.
///
/// # Errors
/// [`Full`] if the element does not fit.
pub fn write_integer(out: &mut Writer<'_>, kind: Type, number: u64) -> Result<(), Full> {
    write(out, kind, integer_bytes(number, &mut [0; 8]))
}
