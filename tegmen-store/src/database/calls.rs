//! Calls of a [`Store`], in the form in which the writing thread receives them.

use super::tasks::Task;
use super::{Database, Order};
use crate::store::answer::{Answer, Promise, promise};
use crate::store::{Changes, Found, LeaseId, Page, Revision, Scan, Store, Transaction};
use std::time::Duration;

/// A call that waits for its answer.
pub(super) enum Call {
    Read(Vec<u8>, Option<Revision>, Promise<Found>),
    Scan(Scan, Promise<Page>),
    Changes(Watcher),
    Renew(LeaseId, Promise<()>),
    /// A change. Its caller gets the answer after the change is durable.
    Task(Task),
}

/// A waiting call of [`Store::changes`].
pub(super) struct Watcher {
    pub(super) prefix: Vec<u8>,
    pub(super) after: Revision,
    pub(super) most: usize,
    pub(super) promise: Promise<Changes>,
}

impl Database {
    fn call<T>(&self, call: impl FnOnce(Promise<T>) -> Call) -> Answer<T> {
        let (promise, answer) = promise();
        self.order(Order::Call(call(promise)));
        answer
    }
}

impl Store for Database {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        self.call(|promise| Call::Read(key.to_owned(), at, promise))
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.call(|promise| Call::Scan(scan, promise))
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        match transaction.check() {
            Ok(()) => self.call(|promise| Call::Task(Task::Commit(transaction, promise))),
            Err(error) => Answer::of(Err(error)),
        }
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        self.call(|promise| Call::Changes(Watcher { prefix: prefix.to_owned(), after, most, promise }))
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        self.call(|promise| Call::Task(Task::Compact(through, promise)))
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        self.call(|promise| Call::Task(Task::Grant(ttl, promise)))
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        self.call(|promise| Call::Renew(lease, promise))
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        self.call(|promise| Call::Task(Task::End(lease, Some(promise))))
    }

    fn is_shared(&self) -> bool {
        false
    }
}
