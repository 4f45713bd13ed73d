//! Numbers that never repeat, even after a power cut. A lease covers a range of numbers, and its end is stored before
//! the first number of the lease is used (RFC 8613, appendix B.1.1).
//!
//! A counter in memory is lost at a power cut, and a counter that is stored at each step wears out the flash memory.
//! Therefore only the end of the lease is stored. After a restart, numbers continue from this end, and the remaining
//! numbers of the old lease are never used.

/// Numbers that may be used: from `next` up to `end - 1`.
#[derive(Debug)]
pub struct Lease {
    next: u64,
    end: u64,
}

impl Lease {
    /// Continues with the number `kept`: the last stored end of the lease, or 0 if none was stored. No number may be
    /// used until [`Self::extend`].
    pub const fn resume(kept: u64) -> Self {
        Self { next: kept, end: kept }
    }

    /// Returns the number that is used next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns one more than the last number that may be used.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many numbers the lease still has.
    pub const fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Allows all numbers below `kept`, the new end of the lease. The caller must have stored this end durably. An end
    /// below the current end changes nothing.
    pub const fn extend(&mut self, kept: u64) {
        if kept > self.end {
            self.end = kept;
        }
    }

    /// Gives up the remaining numbers. No number may be used until [`Self::extend`].
    pub const fn stop(&mut self) {
        self.end = self.next;
    }

    /// Takes the next number. Each number is returned once. Returns `None` at the end of the lease. The caller then
    /// stores a new end, and calls [`Lease::extend`] with it.
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
