//! The lease of a view: the time for which the view counts as current.

use std::time::{Duration, Instant};

/// The time for which a view counts as current.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    /// The time at which the lease began. The view has all changes that were acknowledged before this time.
    pub(super) since: Instant,
    pub(super) length: Duration,
}

impl Lease {
    /// Returns true if the lease has not ended at `now`.
    pub(super) fn holds(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < self.length
    }
}
