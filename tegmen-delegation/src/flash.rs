//! The epoch and the refused connections of a device in two pages of flash memory.
//!
//! A page holds the epoch in seven records, and behind them a record for each refused connection. The next epoch goes to the other
//! page, which is erased first. The page with the higher epoch is valid, so a power cut leaves one of both epochs whole.

use crate::device::{Memory, Stored};
use crate::epoch::{DeviceKey, Epoch, PSK_LEN};
use tegmen::buf::{Reader, Writer};
use tegmen::secret::Secret;
use tegmen_flash::{Flash, Page, RECORD_LEN, record};
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey};

/// Bytes of an epoch: number, device key, ticket key.
const EPOCH_LEN: usize = 2 + PSK_LEN + TICKET_KEY_LEN;
/// Bytes of an epoch with padding to whole records of 8 bytes.
const PADDED_LEN: usize = EPOCH_LEN.next_multiple_of(8);
/// The place of the first refused connection.
const FIRST: usize = PADDED_LEN / 8 * RECORD_LEN;

/// The memory of a device in two pages, which hold nothing else.
#[derive(Debug)]
pub struct FlashMemory<F> {
    flash: F,
    page: Page,
    /// The place of the next record.
    at: usize,
}

/// The pages hold no epoch: the device is new, or the content is lost. It needs a new device key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// The reason why something was not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotKept<E> {
    /// The page of the epoch is full.
    Full,
    /// The hardware failed.
    Flash(E),
}

impl<F: Flash> FlashMemory<F> {
    /// Begins with an epoch, and discards the content of both pages: for a device key that was never used.
    ///
    /// # Errors
    /// The error of the hardware.
    pub fn format(mut flash: F, epoch: &Epoch) -> Result<Self, F::Error> {
        flash.erase(Page::A)?;
        let mut memory = Self { flash, page: Page::A, at: FIRST };
        memory.write(epoch)?;
        Ok(memory)
    }

    /// Reads the content of the pages; the refused connections are written to `refused`.
    ///
    /// # Errors
    /// [`Lost`], also if `refused` is too short.
    pub fn open(flash: F, refused: &mut [u32]) -> Result<(Self, Stored<'_>), Lost> {
        let mut bytes = Secret::zeroed();
        let (a, b) = (read(&flash, Page::A, &mut bytes), read(&flash, Page::B, &mut bytes));
        let page = if b > a { Page::B } else { Page::A };
        read(&flash, page, &mut bytes).ok_or(Lost)?;
        let epoch = parse_epoch(bytes.expose()).ok_or(Lost)?;
        let mut memory = Self { flash, page, at: FIRST };
        let (mut len, mut at) = (0_usize, FIRST);
        let mut bytes = [0; RECORD_LEN];
        while at.saturating_add(RECORD_LEN) <= F::PAGE_LEN {
            memory.flash.read(page, at, &mut bytes);
            at = at.saturating_add(RECORD_LEN);
            if bytes != [0xff; RECORD_LEN] {
                memory.at = at;
            }
            if let Some(number) = number(&bytes) {
                *refused.get_mut(len).ok_or(Lost)? = number as u32;
                len = len.saturating_add(1);
            }
        }
        Ok((memory, Stored { epoch, refused: refused.get(..len).ok_or(Lost)? }))
    }

    /// The pages, to be opened again.
    pub fn into_flash(self) -> F {
        self.flash
    }
}

impl<F: Flash> FlashMemory<F> {
    fn write(&mut self, epoch: &Epoch) -> Result<(), F::Error> {
        let other = self.page.other();
        self.flash.erase(other)?;
        let bytes = write_epoch(epoch);
        for (place, chunk) in bytes.expose().as_chunks().0.iter().enumerate() {
            let at = place.saturating_mul(RECORD_LEN);
            self.flash.program(other, at, &of_number(u64::from_le_bytes(*chunk)))?;
        }
        (self.page, self.at) = (other, FIRST);
        Ok(())
    }
}

impl<F: Flash> Memory for FlashMemory<F> {
    type Error = NotKept<F::Error>;

    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), Self::Error> {
        self.write(epoch).map_err(NotKept::Flash)
    }

    fn keep_refused(&mut self, _: u16, number: u32) -> Result<(), Self::Error> {
        let at = self.at;
        if at.saturating_add(RECORD_LEN) > F::PAGE_LEN {
            return Err(NotKept::Full);
        }
        // The place is not clean any more, even if the record is not written.
        self.at = at.saturating_add(RECORD_LEN);
        self.flash.program(self.page, at, &of_number(number.into())).map_err(NotKept::Flash)
    }
}

fn write_epoch(epoch: &Epoch) -> Secret<PADDED_LEN> {
    let mut bytes = Secret::zeroed();
    let mut writer = Writer::new(bytes.expose_mut());
    // All of it fits.
    let _ = writer.u16(epoch.number);
    let _ = writer.put(epoch.key.0.expose());
    let _ = writer.put(epoch.tickets.0.expose());
    bytes
}

/// Reads an epoch, and returns its number; `None` if it is not whole.
#[inline(never)]
fn read<F: Flash>(flash: &F, page: Page, bytes: &mut Secret<PADDED_LEN>) -> Option<u16> {
    let mut of_record = [0; RECORD_LEN];
    for (place, chunk) in bytes.expose_mut().as_chunks_mut().0.iter_mut().enumerate() {
        flash.read(page, place.saturating_mul(RECORD_LEN), &mut of_record);
        *chunk = number(&of_record)?.to_le_bytes();
    }
    bytes.expose().first_chunk().copied().map(u16::from_be_bytes)
}

fn parse_epoch(bytes: &[u8; PADDED_LEN]) -> Option<Epoch> {
    let reader = &mut Reader::new(bytes);
    let number = reader.u16().ok()?;
    let key = DeviceKey(Secret::new(reader.array().ok()?));
    Some(Epoch { number, key, tickets: TicketKey(Secret::new(reader.array().ok()?)) })
}

/// Returns the number of a record; `None` if the bytes are not one.
fn number(bytes: &[u8; RECORD_LEN]) -> Option<u64> {
    let (value, _) = bytes.split_first_chunk()?;
    let value = u64::from_le_bytes(*value);
    (*bytes == of_number(value)).then_some(value)
}

/// The record of a number.
#[inline(never)]
fn of_number(value: u64) -> [u8; RECORD_LEN] {
    record(value)
}
