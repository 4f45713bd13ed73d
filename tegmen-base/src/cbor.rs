//! Reads and writes the heads of CBOR values (RFC 8949, section 3) for motes. A head consists of a major type and a
//! number of at most 32 bits. The values are numbers, strings, arrays and maps of definite length.

use crate::buf::{Full, Reader, Writer};

/// The major type of a number that is not negative (RFC 8949, section 3.1).
pub const UNSIGNED: u8 = 0;
/// The major type of a negative number, whose value is -1 minus the number in the head.
pub const NEGATIVE: u8 = 1;
/// The major type of a string of bytes. The number in the head is the length of the string in bytes.
pub const BYTES: u8 = 2;
/// The major type of a text. The number in the head is the length of the text in bytes.
pub const TEXT: u8 = 3;
/// The major type of an array. The number in the head is the number of values in the array.
pub const ARRAY: u8 = 4;
/// The major type of a map. The number in the head is the number of pairs in the map.
pub const MAP: u8 = 5;
/// The major type of a tag for the value that follows.
pub const TAG: u8 = 6;

/// Writes the head of a value of this major type. A number up to 255 takes as few bytes as possible. A greater number
/// always takes 32 bits.
///
/// # Errors
/// [`Full`] if the head does not fit.
pub fn write_head(major: u8, value: usize, out: &mut Writer<'_>) -> Result<(), Full> {
    match value {
        0..24 => out.u8(major << 5 | value as u8),
        24..0x100 => {
            out.u8(major << 5 | 24)?;
            out.u8(value as u8)
        }
        _ => {
            out.u8(major << 5 | 26)?;
            out.put(&(value as u32).to_be_bytes())
        }
    }
}

/// Reads the head of a value: its major type and its number. Returns `None` for a value of indefinite length, for a
/// number of 64 bits, and for a head that is cut short.
pub fn read_head(reader: &mut Reader<'_>) -> Option<(u8, usize)> {
    let first = reader.u8().ok()?;
    let number = match first & 31 {
        low @ 0..24 => low.into(),
        24 => reader.u8().ok()?.into(),
        25 => reader.u16().ok()?.into(),
        26 => reader.u32().ok()? as usize,
        _ => return None,
    };
    Some((first >> 5, number))
}

/// Reads the head of a value of this major type, and returns the number in the head.
pub fn read(major: u8, reader: &mut Reader<'_>) -> Option<usize> {
    read_head(reader).filter(|(found, _)| *found == major).map(|(_, number)| number)
}

/// Reads a string of bytes.
pub fn read_bytes<'m>(reader: &mut Reader<'m>) -> Option<&'m [u8]> {
    let len = read(BYTES, reader)?;
    reader.take(len).ok()
}

/// Skips a value with at most `depth` levels of nesting. Returns `None` if it has more levels, or cannot be read.
pub fn skip(reader: &mut Reader<'_>, depth: u8) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let (major, number) = read_head(reader)?;
    let parts = match major {
        BYTES | TEXT => return reader.take(number).ok().map(|_| ()),
        ARRAY => number,
        MAP => number.checked_mul(2)?,
        TAG => 1,
        _ => 0,
    };
    (0..parts).try_for_each(|_| skip(reader, depth))
}
