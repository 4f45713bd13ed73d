//! Revisions, which are the numbers of transactions. A process reserves them in ranges (leases): see [`super`].

use crate::clock;
use crate::store::{Revision, StoreError};

/// The number of revisions in one lease. A lease is a range of revisions that a process may use. Each start of the
/// program skips at most this many revisions.
pub const REVISIONS: u64 = 4096;
/// The beginning of 2026, in milliseconds since 1970. A clock that shows an earlier time is not set.
pub(super) const ORIGIN: u64 = 1_767_225_600_000;
/// The pace of revisions: the maximum number of new revisions in a day. This pace allows one new revision in each
/// microsecond.
const PACE: u64 = clock::DAY * 1000;

/// The newest revision, and the range of revisions that this process has reserved and may use (its lease).
#[derive(Clone, Copy, Debug)]
pub(super) struct Revisions {
    /// The newest revision. This revision and all lower revisions may have been used.
    newest: u64,
    /// The last revision of the range that this process has reserved. The database stores this value durably.
    end: u64,
    /// The last revision of the reserved range after the transaction in progress. It differs from `end` only if the
    /// transaction reserves another range of [`REVISIONS`] revisions.
    pub(super) wanted_end: u64,
    /// The oldest revision that can be read.
    pub(super) compacted: u64,
}

impl Revisions {
    /// Returns the state with which the program starts. `end` is the last revision that an earlier process reserved, as
    /// the database stores it. The first transaction reserves another range of revisions.
    pub(super) fn after(end: u64, compacted: u64) -> Self {
        Self { newest: end, end, wanted_end: end.saturating_add(REVISIONS), compacted }
    }

    /// Returns the newest revision.
    pub(super) const fn newest(&self) -> Revision {
        Revision(self.newest)
    }

    /// Returns true if the transaction in progress reserves another range of revisions, because it uses a revision
    /// above `end`.
    pub(super) const fn moves(&self) -> bool {
        self.wanted_end > self.end
    }

    /// Returns the next unused revision, for the transaction in progress. If the transaction fails, its revision counts
    /// as used, so no revision is used twice.
    pub(super) fn take(&mut self) -> u64 {
        self.newest = self.newest.saturating_add(1);
        if self.newest > self.wanted_end {
            self.wanted_end = self.newest.saturating_add(REVISIONS);
        }
        self.newest
    }

    /// Ends the transaction in progress. `is_durable` is false if the transaction failed. In this case the state
    /// returns to `before`, which is the state before the transaction, but the revisions of the transaction remain
    /// used.
    pub(super) fn settle(&mut self, before: &Self, is_durable: bool) {
        *self = match is_durable {
            true => Self { end: self.wanted_end, ..*self },
            false => Self { newest: self.newest, wanted_end: before.end.max(before.wanted_end), ..*before },
        };
    }

    /// Returns the revision that a request reads: `at`, or the newest revision if `at` is `None`.
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

/// Returns a revision that no store has reached at the time `now`, in milliseconds since 1970. In every store, the
/// revisions begin with 0 at the time [`ORIGIN`], and increase by at most [`PACE`] in a day. So a recovery needs no
/// data of the lost store.
pub(super) fn allowed(now: u64) -> u64 {
    clock::allowed(PACE, ORIGIN, now)
}
