//! The sliding window of protocols that number their messages (RFC 6347, section 4.1.2.6; RFC 8613, section 7.4).

/// A replay window: records which of the last 64 sequence numbers of a peer were accepted.
#[derive(Debug, Clone)]
pub struct ReplayWindow {
    /// The highest accepted sequence number plus one. All sequence numbers from this one on are new.
    next: u64,
    /// Bit `i` is set if the sequence number `next - 1 - i` was accepted.
    seen: u64,
}

impl ReplayWindow {
    /// Creates a replay window that has accepted no sequence number.
    pub const fn new() -> Self {
        Self { next: 0, seen: 0 }
    }

    /// Creates a replay window in which all sequence numbers up to `number` count as accepted.
    pub const fn seen_up_to(number: u64) -> Self {
        Self { next: number.saturating_add(1), seen: u64::MAX }
    }

    /// Creates a replay window whose content was lost, for example after a power cut. The window does not know which
    /// sequence numbers the peer has used. [`Self::mark`] then returns `mark`, which is any number that the caller
    /// needs again later.
    pub const fn lost(mark: u64) -> Self {
        // A window that has accepted a sequence number has the bit of the highest one in `seen`. So no other window has
        // `seen` = 0 and `next` > 0.
        Self { next: mark.saturating_add(1), seen: 0 }
    }

    /// Returns the fields `next` and `seen`. A program that ends without a failure can store them, and restore the
    /// window later with [`Self::from_parts`].
    pub const fn parts(&self) -> (u64, u64) {
        (self.next, self.seen)
    }

    /// Creates a window from the fields that [`Self::parts`] returned.
    pub const fn from_parts((next, seen): (u64, u64)) -> Self {
        Self { next, seen }
    }

    /// Returns the number that was given to [`Self::lost`], or `None` for a window whose content was not lost. A window
    /// whose content was lost cannot distinguish a replay from a new message.
    pub const fn mark(&self) -> Option<u64> {
        match (self.next, self.seen) {
            (1.., 0) => Some(self.next.wrapping_sub(1)),
            _ => None,
        }
    }

    /// Returns one more than the highest sequence number that was accepted.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Checks that `sequence` was not accepted before. Call [`Fresh::accept`] to record that `sequence` is accepted
    /// now.
    ///
    /// # Errors
    /// [`Replayed`] if `sequence` was accepted before, or is too old for the window.
    pub fn fresh(&mut self, sequence: u64) -> Result<Fresh<'_>, Replayed> {
        if sequence < self.next {
            let age = self.age(sequence);
            if age >= 64 || self.seen.wrapping_shr(age as u32) & 1 == 1 {
                return Err(Replayed);
            }
        }
        Ok(Fresh { window: self, sequence })
    }

    /// Returns the difference between the highest accepted number and `sequence`. It is also the position of the bit of
    /// `sequence` in `seen`.
    const fn age(&self, sequence: u64) -> u64 {
        self.next.wrapping_sub(sequence).wrapping_sub(1)
    }
}

/// Creates a replay window from its two fields, as [`ReplayWindow::from_parts`] does.
impl From<(u64, u64)> for ReplayWindow {
    fn from(parts: (u64, u64)) -> Self {
        Self::from_parts(parts)
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

/// The error that a sequence number was accepted before, or is too old for the replay window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replayed;

/// A sequence number that was not accepted before. If this value is dropped, the replay window does not change.
#[must_use = "a record is only accepted by `accept`, after its tag was checked"]
pub struct Fresh<'w> {
    window: &'w mut ReplayWindow,
    sequence: u64,
}

impl Fresh<'_> {
    /// Marks the sequence number as accepted in the replay window. Call this function after the message with this
    /// sequence number has proved authentic.
    #[inline]
    pub fn accept(self) {
        let Self { window, sequence } = self;
        let next = sequence.wrapping_add(1);
        if next > window.next {
            // The distance is usually one. A shift by a variable distance takes long on a mote.
            let ahead = next.wrapping_sub(window.next).min(64) as u32;
            window.seen <<= 1;
            for _ in 1..ahead {
                window.seen <<= 1;
            }
            window.next = next;
        }
        window.seen |= 1u64.wrapping_shl(window.age(sequence) as u32);
    }
}

#[cfg(test)]
mod tests;
