//! The times of certificates.

use crate::error::Error;
use crate::tlv::{self, Type};
use tegmen_base::buf::{Reader, Writer};

/// The period in which a certificate is valid, in seconds since 1970. The certificate is valid at both times and
/// between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Validity {
    /// NotBefore.
    pub not_before: u64,
    /// NotAfter.
    pub not_after: u64,
}

impl Validity {
    /// The length of a time in bytes: `yyyymmddThhmmss`.
    pub const TIME_LEN: usize = 15;

    /// The last time that can be written: the end of the year 9999.
    pub const MAX_TIME: u64 = 253_402_300_799;

    /// The length of the value of a ValidityPeriod element, in bytes.
    pub const LEN: usize = 2 * tlv::element_len(Type::NOT_BEFORE, Self::TIME_LEN);

    /// Returns true if the period contains a time in seconds since 1970.
    pub const fn contains(&self, now: u64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Reads the value of a ValidityPeriod element.
    ///
    /// # Errors
    /// [`Error::Time`] if a time is not valid. Other variants of [`Error`] if the value does not consist of NotBefore
    /// and NotAfter.
    pub fn parse(value: &[u8]) -> Result<Self, Error> {
        let [before, after] = tlv::fields(value, &[Type::NOT_BEFORE, Type::NOT_AFTER])?;
        let before = before.ok_or(Error::Missing(Type::NOT_BEFORE))?;
        let after = after.ok_or(Error::Missing(Type::NOT_AFTER))?;
        let time = |value| parse_time(value).ok_or(Error::Time);
        Ok(Self { not_before: time(before)?, not_after: time(after)? })
    }

    /// Returns the value of the ValidityPeriod element. A time after [`Self::MAX_TIME`] is replaced by
    /// [`Self::MAX_TIME`].
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut out = Writer::new(&mut bytes);
        let written = tlv::write(&mut out, Type::NOT_BEFORE, &time_bytes(self.not_before))
            .and_then(|()| tlv::write(&mut out, Type::NOT_AFTER, &time_bytes(self.not_after)));
        debug_assert!(written.is_ok());
        bytes
    }
}

/// Reads a time as `yyyymmddThhmmss`, in UTC. Returns the seconds since 1970.
pub fn parse_time(text: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(text);
    let mut number = |len: usize| {
        reader.take(len).ok()?.iter().try_fold(0u64, |number, byte| {
            let digit = byte.is_ascii_digit().then_some(u64::from(byte & 0x0f))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let [b'T', clock @ ..] = reader.rest() else { return None };
    let mut reader = Reader::new(clock);
    let mut number = || {
        let [tens, ones] = reader.array().ok().filter(|pair: &[u8; 2]| pair.iter().all(u8::is_ascii_digit))?;
        Some(u64::from(tens & 0x0f).wrapping_mul(10).wrapping_add(u64::from(ones & 0x0f)))
    };
    let (hour, minute, second) = (number()?, number()?, number()?);
    let is_time = reader.is_empty() && hour < 24 && minute < 60 && second < 60;
    if !is_time || year < 1970 || !(1..=12).contains(&month) || day == 0 || day > days_of(year, month) {
        return None;
    }
    let days = days_before(year).wrapping_add((1..month).map(|month| days_of(year, month)).sum()).wrapping_add(day);
    let hours = days.wrapping_sub(1).wrapping_mul(24).wrapping_add(hour);
    Some(hours.wrapping_mul(60).wrapping_add(minute).wrapping_mul(60).wrapping_add(second))
}

/// Formats a time in seconds since 1970 as `yyyymmddThhmmss`, in UTC. A time after [`Validity::MAX_TIME`] is replaced
/// by [`Validity::MAX_TIME`].
pub fn time_bytes(time: u64) -> [u8; Validity::TIME_LEN] {
    let time = time.min(Validity::MAX_TIME);
    let (mut day, seconds) = (time / 86_400, time % 86_400);
    // The estimate of the year can be too late by a few years, because leap years have one day more.
    let mut year = (day / 365).saturating_add(1970);
    while days_before(year) > day {
        year = year.saturating_sub(1);
    }
    day = day.saturating_sub(days_before(year));
    let mut month = 1;
    while day >= days_of(year, month) {
        day = day.saturating_sub(days_of(year, month));
        month = month.saturating_add(1);
    }
    let parts = [
        (year, 4),
        (month, 2),
        (day.saturating_add(1), 2),
        (seconds / 3600, 2),
        (seconds / 60 % 60, 2),
        (seconds % 60, 2),
    ];
    let mut bytes = [b'T'; Validity::TIME_LEN];
    let mut places = bytes.iter_mut();
    for (place, (mut number, len)) in parts.into_iter().enumerate() {
        if place == 3 {
            let _the_letter = places.next();
        }
        let mut digits = [0; 4];
        for digit in digits.iter_mut().take(len).rev() {
            (*digit, number) = (b'0' | (number % 10) as u8, number / 10);
        }
        for (from, to) in digits.iter().take(len).zip(places.by_ref()) {
            *to = *from;
        }
    }
    bytes
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_of(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the number of days from the beginning of 1970 to the beginning of a year. The year must not be before 1970.
const fn days_before(year: u64) -> u64 {
    let past = year.saturating_sub(1);
    let leaps = (past / 4).saturating_sub(past / 100).saturating_add(past / 400);
    // There are 477 leap years before 1970.
    year.saturating_sub(1970).saturating_mul(365).saturating_add(leaps.saturating_sub(477))
}
