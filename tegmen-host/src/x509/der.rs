//! As much of DER (ITU-T X.690) as certificates and keys need: a cursor that never reads beyond its bytes.

/// Reads elements one after the other. What is not DER in its shortest form gives `None`.
#[derive(Clone, Copy)]
pub(crate) struct Der<'a>(&'a [u8]);

/// An element: its value, and all of it with tag and length.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
}

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The tag `[n]` of a constructed field.
pub(crate) const fn context(n: u8) -> u8 {
    0xa0 | n
}

impl<'a> Der<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element, whatever it is. Tags of more than one byte do not occur in certificates.
    pub(crate) fn element(&mut self) -> Option<Element<'a>> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (len, value) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = digits.iter().fold(0_u64, |len, digit| len << 8 | u64::from(*digit));
                // In DER the length has no more bytes than it needs.
                if digits.first() == Some(&0) || len < 0x80 {
                    return None;
                }
                (usize::try_from(len).ok()?, rest)
            }
            _ => return None,
        };
        let (value, after) = value.split_at_checked(len)?;
        let whole = self.0.split_at_checked(self.0.len() - after.len())?.0;
        self.0 = after;
        Some(Element { tag, value, whole })
    }

    /// The next element, if it has this tag; otherwise nothing is taken.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Element<'a>> {
        let mut ahead = *self;
        let element = ahead.element().filter(|element| element.tag == tag)?;
        *self = ahead;
        Some(element)
    }

    /// The value of the next element, which has this tag.
    pub(crate) fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.optional(tag).map(|element| element.value)
    }

    /// What is inside the next element, which has this tag.
    pub(crate) fn inside(&mut self, tag: u8) -> Option<Self> {
        self.value(tag).map(Self)
    }

    /// The bytes of a BIT STRING in which no bit is unused: a key, a signature.
    pub(crate) fn whole_bits(&mut self) -> Option<&'a [u8]> {
        self.value(BIT_STRING)?.strip_prefix(&[0])
    }

    /// The bytes of an INTEGER that is not negative, without the zero that may stand before them.
    pub(crate) fn unsigned(&mut self) -> Option<&'a [u8]> {
        match self.value(INTEGER)? {
            [0] => Some(&[]),
            [0, rest @ ..] => rest.first().is_some_and(|byte| *byte >= 0x80).then_some(rest),
            bytes => bytes.first().is_some_and(|byte| *byte < 0x80).then_some(bytes),
        }
    }

    /// A UTCTime or GeneralizedTime in the one form of RFC 5280, section 4.1.2.5, as seconds since 1970; before that
    /// it is zero.
    pub(crate) fn time(&mut self) -> Option<u64> {
        let Element { tag, value, .. } = self.element()?;
        let digits = value.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        let (year, rest) = match (tag, digits.len()) {
            (UTC_TIME, 12) => match number(&digits[..2]) {
                year @ 0..50 => (2000 + year, &digits[2..]),
                year => (1900 + year, &digits[2..]),
            },
            (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
            _ => return None,
        };
        let field = |at: usize| number(&rest[at..at + 2]);
        let (month, day, hour, minute, second) = (field(0), field(2), field(4), field(6), field(8));
        let sane = (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        sane.then_some(u64::try_from(seconds).unwrap_or(0))
    }
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of the proleptic Gregorian calendar; a year is counted from March, so that the leap day is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let days_before_year = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    days_before_year + (month_from_march * 153 + 2) / 5 + day - 1 - 719_468
}

/// A point in time as `2027-01-31 12:00:00 UTC`, from seconds since 1970.
pub(crate) fn date(seconds: u64) -> String {
    let days = (seconds / 86_400) as i64 + 719_468;
    // The year from March that holds the day: the estimate is exact or one too late.
    let mut year = days * 400 / 146_097 + 1;
    while days_since_1970(year, 3, 1) + 719_468 > days {
        year -= 1;
    }
    let day_of_year = days - (days_since_1970(year, 3, 1) + 719_468);
    let month_from_march = (day_of_year * 5 + 2) / 153;
    let day = day_of_year - (month_from_march * 153 + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = if month <= 2 { year + 1 } else { year };
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tag: u8, text: &str) -> Option<u64> {
        let mut der = vec![tag, text.len() as u8];
        der.extend(text.bytes());
        Der::new(&der).time()
    }

    #[test]
    fn times_are_read_and_printed() {
        for (tag, text, seconds, printed) in [
            (UTC_TIME, "700101000000Z", 0, "1970-01-01 00:00:00 UTC"),
            (UTC_TIME, "500101000000Z", 0, "1970-01-01 00:00:00 UTC"),
            (UTC_TIME, "491231235959Z", 2_524_607_999, "2049-12-31 23:59:59 UTC"),
            (GENERALIZED_TIME, "20240229123456Z", 1_709_210_096, "2024-02-29 12:34:56 UTC"),
            (GENERALIZED_TIME, "20000301000000Z", 951_868_800, "2000-03-01 00:00:00 UTC"),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(time(tag, text), Some(seconds), "{text}");
            assert_eq!(date(seconds), printed);
        }
        for day in 0..200_000 {
            let text: String = date(day * 86_400).chars().filter(char::is_ascii_digit).collect();
            assert_eq!(time(GENERALIZED_TIME, &format!("{text}Z")), Some(day * 86_400), "{text}");
        }
    }

    #[test]
    fn times_in_another_form_are_refused() {
        for (tag, text) in [
            (UTC_TIME, "7001010000Z"),
            (UTC_TIME, "700101000000"),
            (UTC_TIME, "700101000000+0100"),
            (UTC_TIME, "700230000000Z"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700101240000Z"),
            (GENERALIZED_TIME, "20230229000000Z"),
            (GENERALIZED_TIME, "20230228000000.5Z"),
            (OCTET_STRING, "20230228000000Z"),
        ] {
            assert_eq!(time(tag, text), None, "{text}");
        }
    }

    #[test]
    fn lengths_are_in_their_shortest_form() {
        assert_eq!(Der::new(&[4, 1, 7]).value(OCTET_STRING), Some(&[7][..]));
        assert_eq!(Der::new(&[4, 0x81, 1, 7]).value(OCTET_STRING), None);
        assert_eq!(Der::new(&[4, 0x80, 7, 0, 0]).value(OCTET_STRING), None);
        assert_eq!(Der::new(&[4, 2, 7]).value(OCTET_STRING), None);
        assert_eq!(Der::new(&[4, 0x84, 255, 255, 255, 255, 7]).value(OCTET_STRING), None);
        let long = [&[4, 0x81, 200][..], &[1; 200]].concat();
        assert_eq!(Der::new(&long).value(OCTET_STRING), Some(&[1; 200][..]));
        let padded = [&[4, 0x82, 0, 200][..], &[1; 200]].concat();
        assert_eq!(Der::new(&padded).value(OCTET_STRING), None);
    }

    #[test]
    fn integers_have_one_form_and_no_sign() {
        assert_eq!(Der::new(&[2, 1, 0]).unsigned(), Some(&[][..]));
        assert_eq!(Der::new(&[2, 2, 0, 0x80]).unsigned(), Some(&[0x80][..]));
        assert_eq!(Der::new(&[2, 2, 0, 0x7f]).unsigned(), None);
        assert_eq!(Der::new(&[2, 1, 0x80]).unsigned(), None);
        assert_eq!(Der::new(&[2, 0]).unsigned(), None);
    }
}
