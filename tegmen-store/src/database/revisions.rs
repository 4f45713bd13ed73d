//! The numbers of transactions, which are leased: see [`super`].

use crate::clock;
use crate::store::{Revision, StoreError};

/// Revisions that are leased at a time: as many are left out at most with each start.
pub const REVISIONS: u64 = 4096;
/// The beginning of 2026, in milliseconds since 1970. A clock before it is not set.
pub(super) const ORIGIN: u64 = 1_767_225_600_000;
/// Revisions a day: one a microsecond.
const PACE: u64 = clock::DAY * 1000;

/// The newest revision, and the lease that it is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Revisions {
    /// Every revision up to this one may have been used.
    newest: u64,
    /// The last one of the lease that is durable.
    end: u64,
    /// The last one of the lease that the transaction in progress takes.
    pub(super) wanted_end: u64,
    /// The oldest that can be read.
    pub(super) compacted: u64,
}

impl Revisions {
    /// Continues after a lease that ended at `end`.
    pub(super) fn after(end: u64, compacted: u64) -> Self {
        Self { newest: end, end, wanted_end: end.saturating_add(REVISIONS), compacted }
    }

    /// Returns the newest revision.
    pub(super) const fn newest(&self) -> Revision {
        Revision(self.newest)
    }

    /// Returns true if the transaction in progress takes another lease.
    pub(super) const fn moves(&self) -> bool {
        self.wanted_end > self.end
    }

    /// Takes the next revision. It is not taken back if the transaction fails.
    pub(super) fn take(&mut self) -> u64 {
        self.newest = self.newest.saturating_add(1);
        if self.newest > self.wanted_end {
            self.wanted_end = self.newest.saturating_add(REVISIONS);
        }
        self.newest
    }

    /// The transaction in progress is durable, or failed. `before` is as it began. Revisions that it took are not taken
    /// again.
    pub(super) fn settle(&mut self, before: &Self, is_durable: bool) {
        *self = match is_durable {
            true => Self { end: self.wanted_end, ..*self },
            false => Self { newest: self.newest, wanted_end: before.end.max(before.wanted_end), ..*before },
        };
    }

    /// Returns the revision up to which a read looks.
    pub(super) fn checked(&self, at: Option<Revision>) -> Result<u64, StoreError> {
        match at {
            None => Ok(self.newest),
            Some(Revision(at)) if at > self.newest => Err(StoreError::NotYet { newest: self.newest() }),
            Some(Revision(at)) if at < self.compacted => {
                Err(StoreError::Compacted { oldest: Revision(self.compacted) })
            }
            Some(Revision(at)) => Ok(at),
        }
    }
}

/// The revision that no store has reached at `now`, in milliseconds since 1970. The origin is the same for all stores, so that
/// a recovery needs nothing of the store that is lost.
pub(super) fn allowed(now: u64) -> u64 {
    clock::allowed(PACE, ORIGIN, now)
}
