//! Stores one number in two pages of flash memory. The number can only become higher. A mote uses it to reserve
//! sequence numbers: the mote may use only sequence numbers below the stored number. The stored number is the end of a
//! reserved range (`tegmen::oscore::Lease`).
//!
//! The crate appends each new value to a page, as a record with a checksum. When the page is full, the crate erases the
//! other page and continues there. After a power cut during a write or an erasure, the last complete record is still
//! stored, and it has the highest number.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

/// Flash memory of two pages. A page is erased as a whole, and keeps its content without power.
///
/// Erased bytes are 0xff. Programming changes bits to 0, and never to 1.
pub trait Flash {
    /// The error of the hardware.
    type Error;

    /// Length of a page in bytes, a multiple of [`RECORD_LEN`].
    const PAGE_LEN: usize;

    /// Reads [`RECORD_LEN`] bytes of a page into `out`, beginning at the offset `at`.
    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]);

    /// Writes one record at an offset that is a multiple of [`RECORD_LEN`]. No record may have been written at this
    /// offset since the page was erased.
    ///
    /// # Errors
    /// The error of the hardware.
    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), Self::Error>;

    /// Erases a page.
    ///
    /// # Errors
    /// The error of the hardware.
    fn erase(&mut self, page: Page) -> Result<(), Self::Error>;
}

/// One of the two pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// The first page.
    A,
    /// The second page.
    B,
}

impl Page {
    /// Returns the other page.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Length of a record in bytes: the number (8 bytes) and its checksum (4 bytes).
pub const RECORD_LEN: usize = 12;

/// The stored number, and the flash memory that stores it.
#[derive(Debug)]
pub struct Kept<F> {
    flash: F,
    page: Page,
    /// The offset in the page at which the next record will be written, in bytes.
    at: usize,
    value: u64,
}

/// The error that neither page contains a valid record: the stored number is lost, or no number was ever stored. If the
/// number reserves sequence numbers for keys, call [`Kept::format`] only if these keys were never used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

impl<F: Flash> Kept<F> {
    /// Stores `value` as the first number, and ignores the content of the pages. Call this only for keys that were
    /// never used.
    ///
    /// # Errors
    /// The error of the hardware.
    pub fn format(mut flash: F, value: u64) -> Result<Self, F::Error> {
        flash.erase(Page::B)?;
        flash.erase(Page::A)?;
        flash.program(Page::A, 0, &record(value))?;
        Ok(Self { flash, page: Page::A, at: RECORD_LEN, value })
    }

    /// Reads the highest stored number.
    ///
    /// # Errors
    /// [`Lost`] if there is none.
    pub fn open(flash: F) -> Result<Self, Lost> {
        let (in_a, in_b) = (scan(&flash, Page::A), scan(&flash, Page::B));
        let (page, (newest, at)) = if in_b.0 > in_a.0 { (Page::B, in_b) } else { (Page::A, in_a) };
        let value = newest.ok_or(Lost)?;
        Ok(Self { flash, page, at, value })
    }

    /// Returns the stored number.
    pub const fn value(&self) -> u64 {
        self.value
    }

    /// Stores a higher number. The number is durable when this function returns. If `value` is not higher than the
    /// stored number, nothing changes.
    ///
    /// # Errors
    /// The error of the hardware. The previous number is then still stored.
    pub fn keep(&mut self, value: u64) -> Result<(), F::Error> {
        if value <= self.value {
            return Ok(());
        }
        if self.at.saturating_add(RECORD_LEN) > F::PAGE_LEN {
            self.flash.erase(self.page.other())?;
            (self.page, self.at) = (self.page.other(), 0);
        }
        let at = self.at;
        // Even if the write fails, the bytes at this offset may no longer be erased, so the next record is written
        // after them.
        self.at = at.saturating_add(RECORD_LEN);
        self.flash.program(self.page, at, &record(value))?;
        self.value = value;
        Ok(())
    }

    /// Returns the flash memory, so that it can be opened again.
    pub fn into_flash(self) -> F {
        self.flash
    }
}

/// Returns the record of a number. Write such a record to the beginning of page A when you write an image with unused
/// keys to a device. The device can then [open](Kept::open) its memory, and never has to [begin again](Kept::format).
pub const fn record(value: u64) -> [u8; RECORD_LEN] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    let [i, j, k, l] = crc32(value).to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Returns the highest valid number of a page (`None` if the page has none), and the offset after the last record that
/// is not erased.
#[inline(never)]
fn scan<F: Flash>(flash: &F, page: Page) -> (Option<u64>, usize) {
    let (mut newest, mut free, mut at) = (None, 0, 0_usize);
    let mut bytes = [0; RECORD_LEN];
    loop {
        let end = at.saturating_add(RECORD_LEN);
        if end > F::PAGE_LEN {
            return (newest, free);
        }
        flash.read(page, at, &mut bytes);
        at = end;
        if bytes != [0xff; RECORD_LEN] {
            free = end;
        }
        let &[a, b, c, d, e, f, g, h, ..] = &bytes;
        let value = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        if bytes == record(value) {
            newest = newest.max(Some(value));
        }
    }
}

/// Computes the CRC-32 of IEEE 802.3 over the 8 bytes of `value`, beginning with the lowest byte. The function works
/// bit by bit without a table, because checksums are computed rarely: one for each stored number.
const fn crc32(value: u64) -> u32 {
    let (mut rest, mut bits) = (value ^ u32::MAX as u64, u64::BITS);
    while bits > 0 {
        rest = rest >> 1 ^ if rest & 1 == 1 { 0xedb8_8320 } else { 0 };
        bits = bits.wrapping_sub(1);
    }
    !(rest as u32)
}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
