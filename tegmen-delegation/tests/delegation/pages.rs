//! A model of the flash memory of a device, for tests and for fuzzing.

use tegmen_flash::{Flash, Page, RECORD_LEN};

/// Two pages of flash memory. If `power` is set, the power is cut after `power` bytes were programmed or erased.
#[derive(Clone, Debug)]
pub struct Model {
    pages: [Vec<u8>; 2],
    pub power: Option<usize>,
}

impl Model {
    pub fn new() -> Self {
        Self { pages: [vec![0xff; Self::PAGE_LEN], vec![0xff; Self::PAGE_LEN]], power: None }
    }

    fn step(&mut self) -> Result<(), ()> {
        match &mut self.power {
            Some(0) => Err(()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Flash for Model {
    type Error = ();
    const PAGE_LEN: usize = 180;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        out.copy_from_slice(&self.pages[page as usize][at..at + RECORD_LEN]);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), ()> {
        for (i, byte) in record.iter().enumerate() {
            let cut = self.step().is_err();
            let place = &mut self.pages[page as usize][at + i];
            assert_eq!(*place, 0xff, "programmed twice");
            *place &= if cut { byte | 0xa5 } else { *byte };
            if cut {
                return Err(());
            }
        }
        Ok(())
    }

    fn erase(&mut self, page: Page) -> Result<(), ()> {
        for at in 0..Self::PAGE_LEN {
            if self.step().is_err() {
                self.pages[page as usize][at] |= 0x3c;
                return Err(());
            }
            self.pages[page as usize][at] = 0xff;
        }
        Ok(())
    }
}
