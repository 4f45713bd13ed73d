//! Changes of rows and leases that wait for the next commit.

use crate::store::answer::Promise;
use crate::store::{LeaseId, Revision, StoreError, Transaction};
use std::time::Duration;

/// A change of rows or leases, and the call that waits for the result.
pub(super) enum Task {
    Commit(Transaction, Promise<Revision>),
    Grant(Duration, Promise<LeaseId>),
    /// The end of a lease. The promise is `None` if the lease ends because it was not renewed in time.
    End(LeaseId, Option<Promise<()>>),
    Compact(Revision, Promise<()>),
}

/// The result of a task in a transaction that is not durable yet. The value of a commit or a compaction is a revision,
/// and the value of the grant or the end of a lease is the name of the lease. The error is the reason why the task
/// failed.
pub(super) type Outcome = Result<u64, StoreError>;

impl Task {
    /// Sends the outcome to the caller. Call this function only after the transaction is durable.
    pub(super) fn tell(self, outcome: Outcome) {
        match self {
            Self::Commit(_, promise) => promise.answer(outcome.map(Revision)),
            Self::Grant(_, promise) => promise.answer(outcome.map(LeaseId)),
            Self::End(_, Some(promise)) | Self::Compact(_, promise) => promise.answer(outcome.map(drop)),
            Self::End(_, None) => {}
        }
    }
}
