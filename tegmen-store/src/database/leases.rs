//! The times at which leases end. The database stores only the names and durations of leases, so a restart gives each
//! lease its whole duration again.

use crate::store::LeaseId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The leases that have not ended.
#[derive(Default)]
pub(super) struct Leases {
    /// Maps each lease to its duration, and to the time at which it ends. The clock
    /// [`Options::monotonic`](crate::Options::monotonic) measures this time.
    all: HashMap<LeaseId, (Duration, Duration)>,
    by_end: BTreeSet<(Duration, LeaseId)>,
}

impl Leases {
    /// Begins a lease, or renews it.
    pub(super) fn begin(&mut self, now: Duration, lease: LeaseId, ttl: Duration) {
        self.end(lease);
        let end = now.saturating_add(ttl);
        self.all.insert(lease, (ttl, end));
        self.by_end.insert((end, lease));
    }

    /// Renews a lease. Returns false if the lease does not exist.
    pub(super) fn renew(&mut self, now: Duration, lease: LeaseId) -> bool {
        let Some((ttl, _)) = self.all.get(&lease).copied() else { return false };
        self.begin(now, lease, ttl);
        true
    }

    /// Ends a lease. Returns false if the lease does not exist.
    pub(super) fn end(&mut self, lease: LeaseId) -> bool {
        let Some((_, end)) = self.all.remove(&lease) else { return false };
        self.by_end.remove(&(end, lease))
    }

    /// Returns the earliest time at which a lease ends; `None` if there are no leases.
    pub(super) fn next(&self) -> Option<Duration> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Removes one lease whose end has come at `now`, and returns it; `None` if there is none.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<LeaseId> {
        let (_, lease) = self.by_end.first().copied().filter(|(end, _)| *end <= now)?;
        self.end(lease);
        Some(lease)
    }
}
