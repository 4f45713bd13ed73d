//! A substitute for the flash memory of a mote. It is in the memory of the test.

use std::cell::RefCell;
use std::rc::Rc;
use tegmen_flash::{Flash, Page, RECORD_LEN, record};

/// The two pages of a mote's flash memory. A clone shares the content. So a test can start a mote again with the flash
/// memory that the mote had before the restart.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) bytes: Rc<RefCell<[[u8; Self::PAGE_LEN]; 2]>>,
    pub(crate) works: Rc<RefCell<bool>>,
}

impl Pages {
    /// Returns the flash memory with the content that the image has.
    pub(crate) fn written() -> Self {
        let mut bytes = [[0xff; Self::PAGE_LEN]; 2];
        bytes[Page::A as usize][..RECORD_LEN].copy_from_slice(&record(0));
        Self { bytes: Rc::new(RefCell::new(bytes)), works: Rc::new(RefCell::new(true)) }
    }
}

impl Flash for Pages {
    type Error = ();
    const PAGE_LEN: usize = 1024;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        out.copy_from_slice(&self.bytes.borrow()[page as usize][at..at + RECORD_LEN]);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), ()> {
        if !*self.works.borrow() {
            return Err(());
        }
        self.bytes.borrow_mut()[page as usize][at..at + RECORD_LEN].copy_from_slice(record);
        Ok(())
    }

    fn erase(&mut self, page: Page) -> Result<(), ()> {
        self.bytes.borrow_mut()[page as usize].fill(0xff);
        Ok(())
    }
}
