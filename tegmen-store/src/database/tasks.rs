//! Changes of rows and leases that wait for the next commit.

use crate::store::answer::Promise;
use crate::store::{LeaseId, Revision, StoreError, Transaction};
use std::time::Duration;

/// A change, and the call that waits for it.
pub(super) enum Task {
    Commit(Transaction, Promise<Revision>),
    Grant(Duration, Promise<LeaseId>),
    /// The end of a lease. It has no caller if the lease was not renewed in time.
    End(LeaseId, Option<Promise<()>>),
    Compact(Revision, Promise<()>),
}

/// The result of a task: the revision or the lease that it made, in a transaction that is not durable yet, or the
/// reason why the task failed.
pub(super) type Outcome = Result<u64, StoreError>;

impl Task {
    /// Reports the outcome to the caller, after it is durable.
    pub(super) fn tell(self, outcome: Outcome) {
        match self {
            Self::Commit(_, promise) => promise.answer(outcome.map(Revision)),
            Self::Grant(_, promise) => promise.answer(outcome.map(LeaseId)),
            Self::End(_, Some(promise)) | Self::Compact(_, promise) => promise.answer(outcome.map(drop)),
            Self::End(_, None) => {}
        }
    }
}
