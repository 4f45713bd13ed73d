//! The epoch and the refused connections of a device in two pages of flash memory.
//!
//! A page holds the epoch in seven records, and behind them a record for each refused connection. The next epoch goes to the other
//! page, which is erased first. The page with the higher epoch is valid, so a power cut leaves one of both epochs whole.

use crate::device::{Memory, Stored};
use crate::epoch::{DeviceKey, Epoch, PSK_LEN};
use tegmen::buf::{Reader, Truncated, Writer};
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
        let (a, b) = (read_epoch(&flash, Page::A), read_epoch(&flash, Page::B));
        let (page, epoch) = match (a, b) {
            (Some(a), Some(b)) if b.number > a.number => (Page::B, b),
            (Some(a), _) => (Page::A, a),
            (None, Some(b)) => (Page::B, b),
            (None, None) => return Err(Lost),
        };
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
        let other = match self.page {
            Page::A => Page::B,
            Page::B => Page::A,
        };
        self.flash.erase(other)?;
        let bytes = write_epoch(epoch);
        for (place, chunk) in bytes.expose().as_chunks().0.iter().enumerate() {
            let at = place.saturating_mul(RECORD_LEN);
            self.flash.program(other, at, &record(u64::from_le_bytes(*chunk)))?;
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
        self.flash.program(self.page, at, &record(number.into())).map_err(NotKept::Flash)
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

fn read_epoch<F: Flash>(flash: &F, page: Page) -> Option<Epoch> {
    let mut bytes = Secret::<PADDED_LEN>::zeroed();
    let mut of_record = [0; RECORD_LEN];
    for (place, chunk) in bytes.expose_mut().as_chunks_mut().0.iter_mut().enumerate() {
        flash.read(page, place.saturating_mul(RECORD_LEN), &mut of_record);
        *chunk = number(&of_record)?.to_le_bytes();
    }
    parse_epoch(&mut Reader::new(bytes.expose())).ok()
}

fn parse_epoch(reader: &mut Reader<'_>) -> Result<Epoch, Truncated> {
    let number = reader.u16()?;
    let key = DeviceKey(Secret::new(reader.array()?));
    Ok(Epoch { number, key, tickets: TicketKey(Secret::new(reader.array()?)) })
}

/// Returns the number of a record; `None` if the bytes are not one.
fn number(bytes: &[u8; RECORD_LEN]) -> Option<u64> {
    let (value, _) = bytes.split_first_chunk()?;
    let value = u64::from_le_bytes(*value);
    (*bytes == record(value)).then_some(value)
}
