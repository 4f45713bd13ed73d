//! Numbers that never go back, not even across a power cut. A lease covers a chunk of them, and its end is stored
//! before the first number of the lease is used (RFC 8613, appendix B.1.1).
//!
//! A counter in memory is lost with the power, and a counter that is written at each step wears out the memory. So
//! only the end of the lease is stored. After a restart, numbers continue from this end, and the rest of the lease is
//! never used.

/// Numbers that may be used: from `next` to before `end`.
#[derive(Debug)]
pub struct Lease {
    next: u64,
    end: u64,
}

impl Lease {
    /// Continues after the end that was kept last; nothing may be used until [`Self::extend`].
    pub const fn resume(kept: u64) -> Self {
        Self { next: kept, end: kept }
    }

    /// The number that is used next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns one more than the last number that may be used.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many numbers remain.
    pub const fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Allows all numbers before `kept`, the end that was just made durable. An end that is lower than before changes
    /// nothing.
    pub const fn extend(&mut self, kept: u64) {
        if kept > self.end {
            self.end = kept;
        }
    }

    /// Gives up the remaining numbers: nothing may be used until [`Self::extend`].
    pub const fn stop(&mut self) {
        self.end = self.next;
    }

    /// Takes the next number. Each number is returned once. Returns `None` at the end of the lease: keep a new end first, then
    /// [`Lease::extend`] it.
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
