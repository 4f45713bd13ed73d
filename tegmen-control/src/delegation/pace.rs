//! The times of the conversations with devices.

use std::time::Duration;

/// The times of the conversations with devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The longest handshake, and the longest exchange.
    pub patience: Duration,
    /// The pause after the first failure. It doubles with each further one.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// The time for which a session stays open after its last request.
    pub linger: Duration,
    /// The longest time between two conversations with a device that answers. In each the device learns the time, which it forgets
    /// when it restarts.
    pub every: Duration,
    /// Devices that the server speaks with at the same time.
    pub at_once: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(20),
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(300),
            linger: Duration::from_secs(30),
            every: Duration::from_secs(600),
            at_once: 256,
        }
    }
}
