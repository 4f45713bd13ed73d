//! Time limits and intervals of the conversations with devices.

use std::time::Duration;

/// Time limits and intervals of the conversations with devices. In a conversation, the server sends the requests that
/// wait for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Maximum time for a handshake, and for a request with its response.
    pub patience: Duration,
    /// The pause after the first failed conversation. The pause doubles with each further failed conversation.
    pub first_pause: Duration,
    /// Maximum time of a pause.
    pub longest_pause: Duration,
    /// The time for which a session stays open after its last request.
    pub linger: Duration,
    /// Maximum time between two conversations with a device that answers. In each conversation the server sends the
    /// present time, because a device that restarts does not know the time.
    pub every: Duration,
    /// Maximum number of devices with which the server has a conversation at the same time.
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
