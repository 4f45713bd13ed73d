//! Limits the rate of messages to an endpoint that does not answer (PROBING_RATE; RFC 7252, section 4.7).

use tegmen_base::time::{Duration, Instant};

/// PROBING_RATE (RFC 7252, section 4.8): the average rate in bytes per second.
const PROBING_RATE: u32 = 1;

/// The time from which the next non-confirmable message may be sent to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    next: Instant,
}

impl Default for Probing {
    fn default() -> Self {
        Self::new()
    }
}

impl Probing {
    /// Makes the state of an endpoint to which nothing was sent.
    pub const fn new() -> Self {
        Self { next: Instant::AT_ONCE }
    }

    /// Records that a message of `len` bytes is sent. The message is non-confirmable and does not respond to a
    /// message.
    pub fn sent(&mut self, now: Instant, len: usize) {
        let seconds = (len as u64).div_ceil(PROBING_RATE.into());
        self.next = self.next.max(now).after(Duration::from_secs(seconds));
    }

    /// Records that a message of the endpoint arrived. The next message may then be sent at once.
    pub const fn heard(&mut self) {
        self.next = Instant::AT_ONCE;
    }

    /// Returns the time from which the next non-confirmable message may be sent to the endpoint.
    pub const fn next(&self) -> Instant {
        self.next
    }
}

#[cfg(test)]
mod tests;
