//! Changes of rows and leases that wait for the next commit.

use crate::store::answer::Promise;
use crate::store::{LeaseId, Revision, StoreError, Transaction};
use std::time::Duration;

/// A change, and the call that waits for it.
pub(super) enum Task {
    Commit(Transaction, Promise<Revision>),
    Grant(Duration, Promise<LeaseId>),
    /// A lease that was not renewed ends without a caller.
    End(LeaseId, Option<Promise<()>>),
    Compact(Revision, Promise<()>),
}

/// A change that was made, in a transaction that is not durable yet, or the reason why it was not made. The number is
/// that of the revision or the lease.
pub(super) type Outcome = Result<u64, StoreError>;

impl Task {
    /// Reports the outcome, when it is durable.
    pub(super) fn tell(self, outcome: Outcome) {
        match self {
            Self::Commit(_, promise) => promise.answer(outcome.map(Revision)),
            Self::Grant(_, promise) => promise.answer(outcome.map(LeaseId)),
            Self::End(_, Some(promise)) | Self::Compact(_, promise) => promise.answer(outcome.map(drop)),
            Self::End(_, None) => {}
        }
    }
}
