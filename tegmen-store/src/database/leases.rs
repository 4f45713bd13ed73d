//! Ends of leases. Only their names and durations are on the disk: after a restart each lease has its whole duration again.

use crate::store::LeaseId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The leases that have not ended.
#[derive(Default)]
pub(super) struct Leases {
    /// The time of each, and its end.
    all: HashMap<LeaseId, (Duration, Duration)>,
    by_end: BTreeSet<(Duration, LeaseId)>,
}

impl Leases {
    /// Begins or renews a lease.
    pub(super) fn begin(&mut self, now: Duration, lease: LeaseId, ttl: Duration) {
        self.end(lease);
        let end = now.saturating_add(ttl);
        self.all.insert(lease, (ttl, end));
        self.by_end.insert((end, lease));
    }

    /// Renews a lease; false if there is none.
    pub(super) fn renew(&mut self, now: Duration, lease: LeaseId) -> bool {
        let Some((ttl, _)) = self.all.get(&lease).copied() else { return false };
        self.begin(now, lease, ttl);
        true
    }

    /// Ends a lease; false if there is none.
    pub(super) fn end(&mut self, lease: LeaseId) -> bool {
        let Some((_, end)) = self.all.remove(&lease) else { return false };
        self.by_end.remove(&(end, lease))
    }

    /// Returns the earliest end.
    pub(super) fn next(&self) -> Option<Duration> {
        self.by_end.first().map(|(end, _)| *end)
    }

    /// Takes out a lease whose time is over.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<LeaseId> {
        let (_, lease) = self.by_end.first().copied().filter(|(end, _)| *end <= now)?;
        self.end(lease);
        Some(lease)
    }
}
