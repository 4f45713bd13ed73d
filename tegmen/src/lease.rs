//! Numbers that never go back, not even across a power cut: leased in chunks, the end of a lease kept before the first
//! number of it is used (RFC 8613, appendix B.1.1).
//!
//! A counter in memory is lost with the power, and a counter that is written at each step wears its memory out. So only
//! the end of the lease is kept: whoever starts again goes on from there, and what was left of the lease is never used.

/// Numbers that may be used: from `next` to before `end`.
#[derive(Debug)]
pub struct Lease {
    next: u64,
    end: u64,
}

/// The lease is used up: keep a new end first, then [`Lease::extend`] it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent;

impl Lease {
    /// Goes on after the end that was kept last; nothing may be used until [`Self::extend`].
    pub const fn resume(kept: u64) -> Self {
        Self { next: kept, end: kept }
    }

    /// The number that is used next.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// One more than the last number that may be used.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// How many numbers are left.
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

    /// Gives back what is left: nothing may be used until [`Self::extend`].
    pub const fn stop(&mut self) {
        self.end = self.next;
    }

    /// The next number, which nobody gets again.
    ///
    /// # Errors
    /// [`Spent`] at the end of the lease.
    pub const fn take(&mut self) -> Result<u64, Spent> {
        if self.next >= self.end {
            return Err(Spent);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        Ok(number)
    }
}

#[cfg(test)]
mod tests;
