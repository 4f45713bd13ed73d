//! The epoch and the refused connections of a device in two pages of flash memory.
//!
//! A page holds the epoch in seven records, and after them one record for each refused connection. The next epoch is
//! written to the other page, which is erased first. The page with the higher epoch is valid. So after a power cut,
//! one of the two epochs is whole.

use crate::device::{Lost, Memory};
use crate::epoch::{Epoch, PSK_LEN};
use tegmen::buf::copy;
use tegmen_flash::{Flash, Page, RECORD_LEN, record};
use tegmen_tickets::TICKET_KEY_LEN;

/// Number of bytes of the value in a record.
const VALUE_LEN: usize = 8;
/// The position of the ticket key in a page, in bytes. The ticket key follows the device key.
const OF_TICKETS: usize = PSK_LEN / VALUE_LEN * RECORD_LEN;
/// The position of the first refused connection in a page, in bytes. The refused connections follow the ticket key.
const FIRST: usize = OF_TICKETS + TICKET_KEY_LEN.div_ceil(VALUE_LEN) * RECORD_LEN;

/// The memory of a device in two pages of flash memory. The pages hold no other data.
#[derive(Debug)]
pub struct FlashMemory<F> {
    flash: F,
    page: Page,
    /// The position in `page` at which the next record is written, in bytes.
    at: usize,
}

/// The reason why a value was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotKept<E> {
    /// The page that holds the present epoch has no space for a further record.
    Full,
    /// The flash memory reported an error.
    Flash(E),
}

impl<F: Flash> FlashMemory<F> {
    /// Creates the memory in the two pages of `flash`.
    pub const fn new(flash: F) -> Self {
        Self { flash, page: Page::A, at: 0 }
    }

    /// Stores a first epoch, and discards the content of both pages. Use this function only for a device key that was
    /// never used.
    ///
    /// # Errors
    /// The error of the hardware.
    pub fn format(mut flash: F, epoch: &Epoch) -> Result<Self, F::Error> {
        flash.erase(Page::A)?;
        let mut memory = Self::new(flash);
        memory.write(epoch)?;
        Ok(memory)
    }

    /// Returns the flash memory. Pass it to [`Self::new`] to use the stored epoch again.
    pub fn into_flash(self) -> F {
        self.flash
    }
}

impl<F: Flash> FlashMemory<F> {
    fn write(&mut self, epoch: &Epoch) -> Result<(), F::Error> {
        let (page, at) = (self.page, self.at);
        (self.page, self.at) = (page.other(), 0);
        let written = self.write_to_page(epoch);
        if written.is_err() {
            (self.page, self.at) = (page, at);
        }
        written
    }

    fn write_to_page(&mut self, epoch: &Epoch) -> Result<(), F::Error> {
        self.flash.erase(self.page)?;
        self.write_part(epoch.key.0.expose())?;
        self.write_part(epoch.tickets.0.expose())
    }

    /// Appends `part`, a part of the epoch, as records to the present page.
    #[inline(never)]
    fn write_part(&mut self, part: &[u8]) -> Result<(), F::Error> {
        part.chunks(VALUE_LEN).try_for_each(|chunk| {
            let mut value = [0; VALUE_LEN];
            let _ = copy(&mut value, chunk); // it fits
            self.append(u64::from_le_bytes(value))
        })
    }

    /// Appends a record that contains `value` to the present page.
    #[inline(never)]
    fn append(&mut self, value: u64) -> Result<(), F::Error> {
        let at = self.at;
        // This place is no longer erased, even if the record is not written.
        self.at = at.wrapping_add(RECORD_LEN);
        self.flash.program(self.page, at, &of_number(value))
    }

    /// Reads the epoch in a page, and writes it to `epoch`. Returns the number of the epoch. Returns `None` if the page
    /// does not hold a whole epoch.
    #[inline(never)]
    fn read(&self, page: Page, epoch: &mut Epoch) -> Option<u16> {
        self.read_part(page, 0, epoch.key.0.expose_mut())?;
        self.read_part(page, OF_TICKETS, epoch.tickets.0.expose_mut())?;
        Some(epoch.number_of_tickets())
    }

    /// Reads a part of the epoch into `part`. The part begins at the position `at` of the page. Returns `None` if a
    /// record is not whole.
    #[inline(never)]
    fn read_part(&self, page: Page, mut at: usize, part: &mut [u8]) -> Option<()> {
        let mut bytes = [0; RECORD_LEN];
        for chunk in part.chunks_mut(VALUE_LEN) {
            if !self.read_record(page, at, &mut bytes) {
                return None;
            }
            copy(chunk, bytes.get(..chunk.len())?).ok()?;
            at = at.wrapping_add(RECORD_LEN);
        }
        Some(())
    }

    /// Reads a record of a page into `bytes`. Returns false if the record is not whole.
    #[inline(never)]
    fn read_record(&self, page: Page, at: usize, bytes: &mut [u8; RECORD_LEN]) -> bool {
        self.flash.read(page, at, bytes);
        bytes.first_chunk().is_some_and(|value| *bytes == of_number(u64::from_le_bytes(*value)))
    }
}

impl<F: Flash> Memory for FlashMemory<F> {
    type Error = NotKept<F::Error>;

    fn load(&mut self, epoch: &mut Epoch, refused: &mut [u32]) -> Result<usize, Lost> {
        let (a, b) = (self.read(Page::A, epoch), self.read(Page::B, epoch));
        self.page = if b > a { Page::B } else { Page::A };
        epoch.number = self.read(self.page, epoch).ok_or(Lost)?;
        self.at = FIRST;
        // No connection has this number.
        let mut last = u32::MAX;
        let (mut len, mut at) = (0_usize, FIRST);
        let mut bytes = [0; RECORD_LEN];
        while at.wrapping_add(RECORD_LEN) <= F::PAGE_LEN {
            let is_whole = self.read_record(self.page, at, &mut bytes);
            at = at.wrapping_add(RECORD_LEN);
            if bytes.iter().any(|byte| *byte != 0xff) {
                self.at = at;
            }
            if is_whole {
                let &[a, b, c, d, ..] = &bytes;
                let number = u32::from_le_bytes([a, b, c, d]);
                // If the write of a record failed although the record is whole, the next record has the same
                // connection.
                if number != last {
                    *refused.get_mut(len).ok_or(Lost)? = number;
                    len = len.wrapping_add(1);
                    last = number;
                }
            }
        }
        Ok(len)
    }

    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), Self::Error> {
        self.write(epoch).map_err(NotKept::Flash)
    }

    fn keep_refused(&mut self, _: u16, number: u32) -> Result<(), Self::Error> {
        if self.at.wrapping_add(RECORD_LEN) > F::PAGE_LEN {
            return Err(NotKept::Full);
        }
        self.append(number.into()).map_err(NotKept::Flash)
    }
}

/// Returns the record that contains a number.
#[inline(never)]
fn of_number(value: u64) -> [u8; RECORD_LEN] {
    record(value)
}
