//! The part of DER (ITU-T X.690) that certificates need. Each value has exactly one valid encoding. The functions
//! never read past the end of the input.

use tegmen::buf::{Reader, Truncated};

/// The bytes are not valid DER, or are not the expected element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// The tag of a BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// The tag of an INTEGER.
pub const INTEGER: u8 = 0x02;
/// The tag of a BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// The tag of an OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// The tag of an OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// The tag of a UTCTime.
pub(crate) const UTC_TIME: u8 = 0x17;
/// The tag of a GeneralizedTime.
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
/// The tag of a SEQUENCE and of a SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;
/// The tag of a SET and of a SET OF.
pub const SET: u8 = 0x31;

/// Returns the context-specific tag `[n]` of a constructed field.
pub const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// Reads the next element: its tag and its value. The length field must have its shortest form, and at most three
/// bytes. Tags of more than one byte are refused, because they do not occur in certificates.
///
/// # Errors
/// [`Malformed`] if there is no such element.
#[inline(never)]
pub fn element<'r>(reader: &mut Reader<'r>) -> Result<(u8, &'r [u8]), Malformed> {
    let tag = reader.u8()?;
    if tag & 0x1f == 0x1f {
        return Err(Malformed);
    }
    let (len, least) = match reader.u8()? {
        short @ 0..=0x7f => (usize::from(short), 0),
        0x81 => (usize::from(reader.u8()?), 0x80),
        0x82 => (usize::from(reader.u16()?), 0x100),
        0x83 => (reader.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))? as usize, 0x1_0000),
        _ => return Err(Malformed),
    };
    if len < least {
        return Err(Malformed);
    }
    Ok((tag, reader.take(len)?))
}

/// Reads the value of the next element, which must have this tag.
///
/// # Errors
/// [`Malformed`] if there is no such element.
#[inline(never)]
pub fn value<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<&'r [u8], Malformed> {
    match element(reader)? {
        (found, value) if found == tag => Ok(value),
        _ => Err(Malformed),
    }
}

/// Returns a reader for the content of the next element, which must have this tag.
///
/// # Errors
/// [`Malformed`] if there is no such element.
pub fn inside<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<Reader<'r>, Malformed> {
    value(reader, tag).map(Reader::new)
}

/// Reads the next element, which must have the tag `tag`. Returns all bytes of the element: tag, length and value.
///
/// # Errors
/// [`Malformed`] if there is no such element.
pub fn whole<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<&'r [u8], Malformed> {
    let bytes = reader.rest();
    value(reader, tag)?;
    bytes.get(..bytes.len().wrapping_sub(reader.rest().len())).ok_or(Malformed)
}

/// Reads the value of the next element if it has this tag. If it has another tag, the reader does not advance.
///
/// # Errors
/// [`Malformed`] if the element is malformed.
pub fn optional<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<Option<&'r [u8]>, Malformed> {
    match reader.rest().first() {
        Some(next) if *next == tag => value(reader, tag).map(Some),
        _ => Ok(None),
    }
}

/// Checks that no bytes remain.
///
/// # Errors
/// [`Malformed`] if bytes remain.
pub const fn end(reader: &Reader<'_>) -> Result<(), Malformed> {
    if reader.rest().is_empty() { Ok(()) } else { Err(Malformed) }
}

/// Reads an INTEGER that is greater than zero. Returns its bytes without a leading zero.
///
/// # Errors
/// [`Malformed`] for any other element.
pub fn positive<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Malformed> {
    match value(reader, INTEGER)? {
        [0, rest @ ..] if rest.first().is_some_and(|byte| *byte >= 0x80) => Ok(rest),
        bytes if bytes.first().is_some_and(|byte| (1..0x80).contains(byte)) => Ok(bytes),
        _ => Err(Malformed),
    }
}

/// Reads an INTEGER from 0 to 127.
///
/// # Errors
/// [`Malformed`] for any other element.
pub(crate) fn small(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    match *value(reader, INTEGER)? {
        [number @ 0..=0x7f] => Ok(number),
        _ => Err(Malformed),
    }
}

/// Reads the bytes of a BIT STRING without unused bits, such as a signature.
///
/// # Errors
/// [`Malformed`] for any other element.
pub fn whole_bits<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Malformed> {
    value(reader, BIT_STRING)?.strip_prefix(&[0]).ok_or(Malformed)
}

/// Reads a BIT STRING that is a list of named bits, and returns its first eight bits. The last bit of the list must
/// be set (X.690, section 11.2.2).
///
/// # Errors
/// [`Malformed`] for any other element.
pub fn named_bits(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let (unused, bytes) = value(reader, BIT_STRING)?.split_first().ok_or(Malformed)?;
    let last = *bytes.last().ok_or(Malformed)?;
    if last == 0 || last.trailing_zeros() != u32::from(*unused) {
        return Err(Malformed);
    }
    bytes.first().copied().ok_or(Malformed)
}

/// Reads a BOOLEAN with the default FALSE. DER writes only the value TRUE, as 0xff (X.690, sections 11.1 and 11.5).
///
/// # Errors
/// [`Malformed`] for a BOOLEAN with another value.
pub(crate) fn optional_true(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match optional(reader, BOOLEAN)? {
        None => Ok(false),
        Some([0xff]) => Ok(true),
        Some(_) => Err(Malformed),
    }
}

/// Reads a UTCTime or GeneralizedTime in the only form that RFC 5280, section 4.1.2.5, allows. Returns the seconds
/// since 1970; 0 for a time before 1970.
///
/// # Errors
/// [`Malformed`] for any other element.
pub fn time(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let (tag, text) = element(reader)?;
    let (digits, zulu) = text.split_last_chunk::<1>().ok_or(Malformed)?;
    if zulu != b"Z" {
        return Err(Malformed);
    }
    let mut digits = Reader::new(digits);
    let century = match tag {
        GENERALIZED_TIME => two_digits(&mut digits)?,
        UTC_TIME => 19,
        _ => return Err(Malformed),
    };
    let mut year = century.wrapping_mul(100).wrapping_add(two_digits(&mut digits)?);
    if tag == UTC_TIME && year < 1950 {
        year = year.wrapping_add(100);
    }
    let mut field = |allowed: core::ops::RangeInclusive<u32>| {
        let field = two_digits(&mut digits)?;
        if allowed.contains(&field) { Ok(field) } else { Err(Malformed) }
    };
    let month = field(1..=12)?;
    let day = field(1..=days_of(year, month))?;
    let (hour, minute, second) = (field(0..=23)?, field(0..=59)?, field(0..=59)?);
    end(&digits)?;
    if year < 1970 {
        return Ok(0);
    }
    let in_day = hour.wrapping_mul(60).wrapping_add(minute).wrapping_mul(60).wrapping_add(second);
    let days = u64::from(days_since_1970(year, month, day));
    Ok(days.wrapping_mul(86_400).wrapping_add(in_day.into()))
}

fn two_digits(digits: &mut Reader<'_>) -> Result<u32, Malformed> {
    let [tens, ones] = digits.array()?;
    if !tens.is_ascii_digit() || !ones.is_ascii_digit() {
        return Err(Malformed);
    }
    Ok(u32::from(tens & 0xf).wrapping_mul(10).wrapping_add(u32::from(ones & 0xf)))
}

const fn days_of(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from 1970 to a date in the Gregorian calendar. Years are counted from March, so that the leap day
/// is the last day of a year. No number overflows, because years have four digits.
const fn days_since_1970(year: u32, month: u32, day: u32) -> u32 {
    let (year, month) =
        if month <= 2 { (year.wrapping_sub(1), month.wrapping_add(9)) } else { (year, month.wrapping_sub(3)) };
    let leap_days = (year / 4).wrapping_sub(year / 100).wrapping_add(year / 400);
    let before_year = year.wrapping_mul(365).wrapping_add(leap_days);
    let before_month = month.wrapping_mul(153).wrapping_add(2) / 5;
    before_year.wrapping_add(before_month).wrapping_add(day).wrapping_sub(719_469)
}

#[cfg(test)]
mod tests;
