//! Two pages of the chip's flash memory, for a number that must survive a power cut. QEMU emulates the contents of the
//! flash memory but not its controller, so in QEMU the pages cannot be changed.

use crate::register::Register;
use core::convert::Infallible;
use tegmen_flash::{Flash, Page, RECORD_LEN};

// SAFETY: FMA, FMD and FMC of the flash controller (LM3S6965 data sheet, chapter 7).
const ADDRESS: Register = unsafe { Register::at(0x400f_d000) };
// SAFETY: as above.
const DATA: Register = unsafe { Register::at(0x400f_d004) };
// SAFETY: as above.
const CONTROL: Register = unsafe { Register::at(0x400f_d008) };
// SAFETY: USECRL of the system control, which times the work of the controller.
const MICROSECOND: Register = unsafe { Register::at(0x400f_e140) };

/// The two highest pages of the flash memory.
pub struct Pages;

impl Flash for Pages {
    type Error = Infallible;

    const PAGE_LEN: usize = 1024;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        let (words, _) = out.as_chunks_mut::<4>();
        for (number, word) in words.iter_mut().enumerate() {
            // SAFETY: a whole word of the page, which nothing but the controller writes.
            let read =
                unsafe { core::ptr::with_exposed_provenance::<u32>(begin(page) + at + 4 * number).read_volatile() };
            *word = read.to_le_bytes();
        }
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), Infallible> {
        let (words, _) = record.as_chunks();
        for (number, word) in words.iter().enumerate() {
            DATA.write(u32::from_le_bytes(*word));
            work(begin(page) + at + 4 * number, WRITE);
        }
        Ok(())
    }

    fn erase(&mut self, page: Page) -> Result<(), Infallible> {
        work(begin(page), ERASE);
        Ok(())
    }
}

/// Starts an operation of the flash controller at `address` in the flash memory: sets `bit` ([`WRITE`] or [`ERASE`]) of
/// the register FMC. Waits until the controller has cleared `bit`. The processor waits anyway, because it runs code
/// from the same flash memory.
fn work(address: usize, bit: u32) {
    MICROSECOND.write(PROCESSOR_MHZ - 1);
    ADDRESS.write(address as u32);
    CONTROL.write(KEY | bit);
    while CONTROL.read() & bit != 0 {}
}

const fn begin(page: Page) -> usize {
    match page {
        Page::A => PAGES,
        Page::B => PAGES + Pages::PAGE_LEN,
    }
}

/// The address of the first of the two pages. link.x contains the same address.
const PAGES: usize = 0x0003_f800;
const WRITE: u32 = 1;
const ERASE: u32 = 1 << 1;
/// The write key, without which the controller does nothing.
const KEY: u32 = 0xa442_0000;
/// The speed of the processor in MHz, which [`crate::clock::start`] sets.
const PROCESSOR_MHZ: u32 = 50;
