use super::*;
use std::vec::Vec;

/// Two pages of 10 records each. `power` is the number of bytes that can still be programmed or erased before the power
/// fails; with `None` the power does not fail.
struct Model {
    pages: [Vec<u8>; 2],
    power: Option<usize>,
    erased: usize,
}

impl Model {
    fn new() -> Self {
        Self { pages: [std::vec![0xff; 120], std::vec![0xff; 120]], power: None, erased: 0 }
    }

    /// Returns an error if the power has failed. If it has not failed, subtracts one byte from `power`.
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
    const PAGE_LEN: usize = 120;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        out.copy_from_slice(&self.pages[page as usize][at..at + RECORD_LEN]);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), ()> {
        for (i, byte) in record.iter().enumerate() {
            // The byte that the power goes in is half written.
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
        self.erased += 1;
        for at in 0..120 {
            if self.step().is_err() {
                self.pages[page as usize][at] |= 0x3c;
                return Err(());
            }
            self.pages[page as usize][at] = 0xff;
        }
        Ok(())
    }
}

#[test]
fn a_power_cut_at_any_byte_leaves_the_last_number_that_was_kept_or_the_one_that_was_being() {
    for cut in 0..3000 {
        let mut kept = Kept::format(Model::new(), 0).unwrap();
        kept.flash.power = Some(cut);
        let mut value = 0;
        while kept.keep(value + 32).is_ok() {
            value += 32;
        }
        for _ in 0..3 {
            let mut flash = kept.into_flash();
            flash.power = None;
            kept = Kept::open(flash).unwrap();
            assert!([value, value + 32].contains(&kept.value()), "cut {cut}: {} after {value}", kept.value());
            value = kept.value() + 1;
            kept.keep(value).unwrap();
        }
    }
}

#[test]
fn ten_leases_wear_a_page_once() {
    let mut kept = Kept::format(Model::new(), 0).unwrap();
    (1..=1000).for_each(|value| kept.keep(value).unwrap());
    assert!(kept.flash.erased <= 2 + 1000 / 10, "{} erasures", kept.flash.erased);
    let before = kept.flash.erased;
    (0..1000).for_each(|value| kept.keep(value).unwrap());
    assert_eq!((kept.value(), kept.flash.erased), (1000, before), "a lower number changes nothing");
}

#[test]
fn empty_or_damaged_pages_are_lost_and_never_zero() {
    assert_eq!(Kept::open(Model::new()).err(), Some(Lost));
    let mut kept = Kept::format(Model::new(), 7).unwrap();
    kept.flash.pages[0][0] = 0;
    assert_eq!(Kept::open(kept.into_flash()).err(), Some(Lost));
}

#[test]
fn a_record_has_the_number_and_its_crc_32() {
    // From zlib.
    assert_eq!(record(0x0123_4567_89ab_cdef), [0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x47, 0xe2, 0x3b, 0x44]);
}
