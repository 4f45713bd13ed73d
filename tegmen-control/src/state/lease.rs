//! The time for which the view of a server, its copy of the store in memory, counts as current.

use std::time::{Duration, Instant};

/// The time for which the view of a server, its copy of the store in memory, counts as current. It ends if the server
/// does not renew it.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    /// The time from which `length` counts. The copy of the store in memory has all changes that the store acknowledged
    /// before this time.
    pub(super) since: Instant,
    pub(super) length: Duration,
}

impl Lease {
    /// Returns true if the view still counts as current at `now`.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < self.length
    }
}
