//! Numbers that never repeat, even after a power cut, for example sequence numbers. A lease is a reserved range of
//! numbers. Its end is stored durably before the first number of the range is used (RFC 8613, appendix B.1.1).
//!
//! A counter in memory is lost at a power cut, and a counter that is stored at each step wears out the flash memory.
//! Therefore only the end of the lease is stored. After a restart, numbers continue from this end, and the remaining
//! numbers of the old lease are never used.

/// A reserved range of numbers. The numbers from `next` up to `end - 1` are not used yet, and may be used.
#[derive(Debug)]
pub struct Lease {
    next: u64,
    end: u64,
}

impl Lease {
    /// Continues with the number `kept`. It is the end of the reserved range that was last stored durably, or 0 if none
    /// was stored. No number may be used until [`Self::extend`].
    pub const fn resume(kept: u64) -> Self {
        Self { next: kept, end: kept }
    }

    /// Returns the number that [`Self::take`] returns next, without using it.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the end of the reserved range: one more than the last number that [`Self::take`] may return.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many reserved numbers are not used yet.
    pub const fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Reserves all numbers below `kept`, which becomes the new end of the reserved range. The caller must already have
    /// stored `kept` durably. If `kept` is below the current end, nothing changes.
    pub const fn extend(&mut self, kept: u64) {
        if kept > self.end {
            self.end = kept;
        }
    }

    /// Gives up the reserved numbers that are not used yet. No number may be used until [`Self::extend`].
    pub const fn stop(&mut self) {
        self.end = self.next;
    }

    /// Returns the next number of the reserved range, and counts it as used. Each number is returned once. Returns
    /// `None` if no reserved number is left. The caller then stores a higher end durably, and calls [`Lease::extend`]
    /// with it.
    pub const fn take(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        Some(number)
    }
}

#[cfg(test)]
mod tests;
