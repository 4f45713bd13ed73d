//! A set of units of an image. A unit is a part of 64 bytes.

use super::UNIT;
use std::ops::Range;

/// A set of units (parts of 64 bytes) of one image, with one bit for each unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Units {
    bits: Vec<u8>,
    /// The number of units of the image.
    count: u32,
    /// The number of units in the set.
    len: u32,
}

impl Units {
    /// Returns a set that contains none of the `count` units of an image.
    pub(crate) fn none(count: u32) -> Self {
        Self { bits: vec![0; Self::bytes_of(count)], count, len: 0 }
    }

    /// Returns the length in bytes of the bitmap of a set. The bitmap has one bit for each of the `count` units of an
    /// image. A unit is a part of 64 bytes.
    pub(crate) const fn bytes_of(count: u32) -> usize {
        count.div_ceil(8) as usize
    }

    /// Makes a set of units from its bitmap `bits`. The image has `count` units. Returns `None` if the number of bytes
    /// in `bits` is wrong.
    pub(crate) fn read(count: u32, bits: Vec<u8>) -> Option<Self> {
        if bits.len() != Self::bytes_of(count) {
            return None;
        }
        let mut units = Self { bits, count, len: 0 };
        if let (Some(last), 1..) = (units.bits.last_mut(), count % 8) {
            *last &= (1 << (count % 8)) - 1;
        }
        units.len = units.bits.iter().map(|byte| byte.count_ones()).sum();
        Some(units)
    }

    /// Finds the bytes of the set that contain these units. Returns the index of the first of these bytes in the set,
    /// and then the bytes.
    pub(crate) fn bytes(&self, units: &Range<u32>) -> (usize, &[u8]) {
        let (from, to) = (units.start as usize / 8, Self::bytes_of(units.end));
        (from, self.bits.get(from..to).unwrap_or(&[]))
    }

    /// True if the unit is in the set.
    pub(crate) fn has(&self, unit: u32) -> bool {
        self.bits.get(unit as usize / 8).is_some_and(|byte| byte >> (unit % 8) & 1 == 1)
    }

    /// Adds the units with these numbers to the set. A unit is a part of 64 bytes of the image. Numbers beyond the end
    /// of the image are left out. Returns the number of units that were not in the set before.
    pub(crate) fn add(&mut self, units: Range<u32>) -> u32 {
        let before = self.len;
        for unit in units.start..units.end.min(self.count) {
            if let Some(byte) = self.bits.get_mut(unit as usize / 8) {
                self.len += u32::from(*byte >> (unit % 8) & 1 == 0);
                *byte |= 1 << (unit % 8);
            }
        }
        self.len - before
    }

    /// True if all units are in the set.
    pub(crate) const fn is_whole(&self) -> bool {
        self.len == self.count
    }

    /// Returns the ranges of units that are not in the set, in order.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = Range<u32>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = (at..self.count).find(|unit| !self.has(*unit))?;
            let end = (start..self.count).find(|unit| self.has(*unit)).unwrap_or(self.count);
            at = end;
            Some(start..end)
        })
    }
}

/// Returns the units of the part of an image that begins at `start`, with `len` bytes. `size` is the size of the image.
/// Returns `None` if the part does not begin at a unit, or if it ends within a unit other than the last unit of the
/// image.
pub(crate) fn units_of(start: u32, len: usize, size: u32) -> Option<Range<u32>> {
    let end = u32::try_from(len).ok()?.checked_add(start)?;
    let ends_well = end.is_multiple_of(UNIT) && end <= size || end == size;
    (len > 0 && start.is_multiple_of(UNIT) && ends_well).then(|| start / UNIT..end.div_ceil(UNIT))
}
