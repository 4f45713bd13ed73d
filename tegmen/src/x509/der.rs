//! As much of DER (ITU-T X.690) as certificates need, of which every value has one form. Nothing is read behind the bytes
//! that are there.

use crate::buf::{Reader, Truncated};

/// Not DER, or not what is due here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// The tag of a BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// The tag of a INTEGER.
pub const INTEGER: u8 = 0x02;
/// The tag of a BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// The tag of a OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// The tag of a OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// The tag of a UTCTime.
pub const UTC_TIME: u8 = 0x17;
/// The tag of a GeneralizedTime.
pub const GENERALIZED_TIME: u8 = 0x18;
/// The tag of a SEQUENCE, and SEQUENCE OF.
pub const SEQUENCE: u8 = 0x30;
/// The tag of a SET, and SET OF.
pub const SET: u8 = 0x31;

/// The tag `[n]` of a constructed field.
pub const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// The next element: its tag and its value. A length has no more bytes than it needs, at most three; tags of more than one
/// byte do not occur in certificates.
///
/// # Errors
/// [`Malformed`].
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
        0x83 => (reader.u24()? as usize, 0x1_0000),
        _ => return Err(Malformed),
    };
    if len < least {
        return Err(Malformed);
    }
    Ok((tag, reader.take(len)?))
}

/// The value of the next element, which has this tag.
///
/// # Errors
/// [`Malformed`].
#[inline(never)]
pub fn value<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<&'r [u8], Malformed> {
    match element(reader)? {
        (found, value) if found == tag => Ok(value),
        _ => Err(Malformed),
    }
}

/// What is inside the next element, which has this tag.
///
/// # Errors
/// [`Malformed`].
pub fn inside<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<Reader<'r>, Malformed> {
    value(reader, tag).map(Reader::new)
}

/// All of the next element, which has this tag: tag, length and value.
///
/// # Errors
/// [`Malformed`].
pub fn whole<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<&'r [u8], Malformed> {
    let bytes = reader.rest();
    value(reader, tag)?;
    bytes.get(..bytes.len().wrapping_sub(reader.rest().len())).ok_or(Malformed)
}

/// The value of the next element if it has this tag; otherwise nothing is taken.
///
/// # Errors
/// [`Malformed`].
pub fn optional<'r>(reader: &mut Reader<'r>, tag: u8) -> Result<Option<&'r [u8]>, Malformed> {
    match reader.rest().first() {
        Some(next) if *next == tag => value(reader, tag).map(Some),
        _ => Ok(None),
    }
}

/// Nothing is left.
///
/// # Errors
/// [`Malformed`].
pub const fn end(reader: &Reader<'_>) -> Result<(), Malformed> {
    if reader.is_empty() { Ok(()) } else { Err(Malformed) }
}

/// The bytes of an INTEGER that is greater than zero, without the zero that may stand before them.
///
/// # Errors
/// [`Malformed`].
pub fn positive<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Malformed> {
    match value(reader, INTEGER)? {
        [0, rest @ ..] if rest.first().is_some_and(|byte| *byte >= 0x80) => Ok(rest),
        bytes if bytes.first().is_some_and(|byte| (1..0x80).contains(byte)) => Ok(bytes),
        _ => Err(Malformed),
    }
}

/// An INTEGER from 0 to 127.
///
/// # Errors
/// [`Malformed`].
pub fn small(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    match *value(reader, INTEGER)? {
        [number @ 0..=0x7f] => Ok(number),
        _ => Err(Malformed),
    }
}

/// The bytes of a BIT STRING in which no bit is unused: a signature.
///
/// # Errors
/// [`Malformed`].
pub fn whole_bits<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Malformed> {
    value(reader, BIT_STRING)?.strip_prefix(&[0]).ok_or(Malformed)
}

/// The first eight bits of a BIT STRING that is a list of named ones: the last bit of all is set (X.690, section 11.2.2).
///
/// # Errors
/// [`Malformed`].
pub fn named_bits(reader: &mut Reader<'_>) -> Result<u8, Malformed> {
    let (unused, bytes) = value(reader, BIT_STRING)?.split_first().ok_or(Malformed)?;
    let last = *bytes.last().ok_or(Malformed)?;
    if last == 0 || last.trailing_zeros() != u32::from(*unused) {
        return Err(Malformed);
    }
    bytes.first().copied().ok_or(Malformed)
}

/// A BOOLEAN that is not its DEFAULT FALSE: only TRUE is written, as 0xff (X.690, sections 11.1 and 11.5).
///
/// # Errors
/// [`Malformed`].
pub fn optional_true(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match optional(reader, BOOLEAN)? {
        None => Ok(false),
        Some([0xff]) => Ok(true),
        Some(_) => Err(Malformed),
    }
}

/// A UTCTime or GeneralizedTime in the one form of RFC 5280, section 4.1.2.5: seconds since 1970, zero before that.
///
/// # Errors
/// [`Malformed`].
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

/// Days of the Gregorian calendar; a year is counted from March, so that the leap day is its last. No number here
/// overflows: years have four digits.
const fn days_since_1970(year: u32, month: u32, day: u32) -> u32 {
    let (year, month) =
        if month <= 2 { (year.wrapping_sub(1), month.wrapping_add(9)) } else { (year, month.wrapping_sub(3)) };
    let leap_days = (year / 4).wrapping_sub(year / 100).wrapping_add(year / 400);
    let before_year = year.wrapping_mul(365).wrapping_add(leap_days);
    let before_month = month.wrapping_mul(153).wrapping_add(2) / 5;
    before_year.wrapping_add(before_month).wrapping_add(day).wrapping_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn time_of(tag: u8, text: &str) -> Option<u64> {
        let der: Vec<u8> = [tag, text.len() as u8].into_iter().chain(text.bytes()).collect();
        let mut reader = Reader::new(&der);
        time(&mut reader).ok()
    }

    #[test]
    fn times_are_read_in_their_one_form() {
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20240229123456Z", Some(1_709_210_096)),
            (GENERALIZED_TIME, "20000301000000Z", Some(951_868_800)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "00000101000000Z", Some(0)),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "7001010000000", None),
            (UTC_TIME, "700101000000+0100", None),
            (UTC_TIME, "700230000000Z", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "700001000000Z", None),
            (UTC_TIME, "700100000000Z", None),
            (UTC_TIME, "700101240000Z", None),
            (UTC_TIME, "70:101000000Z", None),
            (GENERALIZED_TIME, "20230229000000Z", None),
            (GENERALIZED_TIME, "21000229000000Z", None),
            (GENERALIZED_TIME, "20230228000000.5Z", None),
            (OCTET_STRING, "20230228000000Z", None),
        ] {
            assert_eq!(time_of(tag, text), seconds, "{text}");
        }
    }

    #[test]
    fn every_day_is_one_later_than_the_day_before() {
        let mut expected = 0;
        for year in 1970..2420 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
                    expected += 1;
                }
            }
        }
    }

    #[test]
    fn every_value_has_one_form() {
        let read = |der: &[u8]| value(&mut Reader::new(der), OCTET_STRING).ok().map(<[u8]>::to_vec);
        let long = |header: &[u8], len| [header, &Vec::from_iter((0..len).map(|_| 1))].concat();
        assert_eq!(read(&[4, 1, 7]), Some(Vec::from([7])));
        for refused in [
            &[4, 0x81, 1, 7][..],
            &[4, 0x80, 7, 0, 0],
            &[4, 2, 7],
            &[4],
            &[5, 1, 7],
            &[0x1f, 1, 7],
            &long(&[4, 0x82, 0, 200], 200),
            &long(&[4, 0x83, 0, 1, 44], 300),
        ] {
            assert_eq!(read(refused), None, "{refused:?}");
        }
        assert_eq!(read(&long(&[4, 0x81, 200], 200)).map(|value| value.len()), Some(200));
        assert_eq!(read(&long(&[4, 0x82, 1, 44], 300)).map(|value| value.len()), Some(300));
        assert_eq!(read(&long(&[4, 0x83, 1, 0, 0], 65_536)).map(|value| value.len()), Some(65_536));

        let number = |der: &[u8]| positive(&mut Reader::new(der)).ok().map(<[u8]>::to_vec);
        assert_eq!(number(&[2, 2, 0, 0x80]), Some(Vec::from([0x80])));
        assert_eq!(number(&[2, 1, 0x7f]), Some(Vec::from([0x7f])));
        for refused in [&[2, 0][..], &[2, 1, 0], &[2, 1, 0x80], &[2, 2, 0, 0x7f], &[2, 2, 0, 0]] {
            assert_eq!(number(refused), None, "{refused:?}");
        }

        let bits = |der: &[u8]| named_bits(&mut Reader::new(der)).ok();
        assert_eq!(bits(&[3, 2, 7, 0x80]), Some(0x80));
        assert_eq!(bits(&[3, 3, 7, 0x88, 0x80]), Some(0x88));
        for refused in [&[3, 0][..], &[3, 1, 0], &[3, 2, 0, 0x80], &[3, 2, 7, 0], &[3, 2, 8, 0], &[3, 2, 6, 0xc1]] {
            assert_eq!(bits(refused), None, "{refused:?}");
        }

        let truth = |der: &[u8]| optional_true(&mut Reader::new(der)).ok();
        assert_eq!((truth(&[]), truth(&[1, 1, 0xff])), (Some(false), Some(true)));
        assert_eq!((truth(&[1, 1, 0]), truth(&[1, 1, 1]), truth(&[1, 0])), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while let Ok((_, value)) = element(&mut reader) {
                let inner = || Reader::new(value);
                let _ = (positive(&mut inner()), small(&mut inner()), named_bits(&mut inner()), time(&mut inner()));
                let _ = (whole_bits(&mut inner()), optional_true(&mut inner()), whole(&mut inner(), SEQUENCE));
            }
        }
    }
}
