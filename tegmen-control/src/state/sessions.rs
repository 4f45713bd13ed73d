//! Rows of session identities, and their leases.
//!
//! A server that has its store alone writes a row for many identities. The table in memory has all of them, and refuses those
//! that come again; the row is there so that the table has them after a restart, too. Servers that share a store write a row
//! for each identity, which the store takes once.

use super::rows::{self, AcceptedSession};
use super::{State, StateError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen_store::store::{LeaseId, MAX_VALUE};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// Time and rows after which session identities get another lease.
const LEASE_AGE: Duration = Duration::from_secs(600);
const LEASE_ROWS: u32 = 4096;

/// The rows that a server writes.
pub(super) struct SessionRows {
    lease: Mutex<Option<SessionLease>>,
    /// The time of a lease. A row lives at least as long as its identities are remembered.
    ttl: Duration,
    /// The number of the next row of many identities.
    next: AtomicU64,
}

/// The lease of the session identities that are accepted now.
#[derive(Clone, Copy)]
struct SessionLease {
    id: LeaseId,
    /// Seconds since 1970.
    since: u64,
    rows: u32,
}

impl SessionRows {
    /// Rows of identities that are remembered for `lifetime`; `next` is the number of the next row of many.
    pub(super) const fn new(lifetime: Duration, next: u64) -> Self {
        Self { lease: Mutex::new(None), ttl: lifetime.saturating_add(LEASE_AGE), next: AtomicU64::new(next) }
    }

    fn lease(&self) -> MutexGuard<'_, Option<SessionLease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Session identities that go to the store together.
#[derive(Default)]
pub(crate) struct ManySessions(Vec<u8>);

impl ManySessions {
    /// Adds an identity.
    pub(crate) fn add(&mut self, session: &AcceptedSession) {
        rows::add_session(&mut self.0, session);
    }

    /// True if one more identity fits.
    pub(crate) const fn has_room(&self) -> bool {
        self.0.len() <= MAX_VALUE - rows::LONGEST_SESSION
    }

    /// The identities.
    pub(crate) fn sessions(&self) -> Vec<AcceptedSession> {
        rows::read_sessions(&self.0).unwrap_or_default()
    }

    /// Removes all identities. The memory stays.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<S: Store> State<S> {
    /// The lease for another row of session identities, which is not `ended`. `now` is in seconds since 1970.
    pub(super) async fn session_lease(&self, now: u64, ended: Option<LeaseId>) -> Result<LeaseId, StoreError> {
        {
            let mut current = self.session_rows.lease();
            let usable = |lease: &&mut SessionLease| {
                Some(lease.id) != ended
                    && lease.rows < 2 * LEASE_ROWS
                    && now.saturating_sub(lease.since) < LEASE_AGE.as_secs()
            };
            if let Some(lease) = current.as_mut().filter(usable) {
                lease.rows = lease.rows.saturating_add(1);
                // One caller asks for the next lease, and the others take this one until it is there.
                if lease.rows != LEASE_ROWS {
                    return Ok(lease.id);
                }
            }
        }
        let id = self.store.grant(self.session_rows.ttl).await?;
        *self.session_rows.lease() = Some(SessionLease { id, since: now, rows: 1 });
        Ok(id)
    }

    /// True if no other server changes the store.
    pub(crate) fn is_alone(&self) -> bool {
        !self.store.is_shared()
    }

    /// Notes that a session identity goes to the store now, which this server has alone. That happens once.
    ///
    /// # Errors
    /// [`StateError::SessionUsed`] if the store has the identity, or is about to.
    pub(crate) fn begin_to_bind(&self, session: &AcceptedSession) -> Result<(), StateError> {
        // The table in memory has all identities, so it decides which of them come again.
        self.view().bind(session)
    }

    /// Makes it durable that session identities were accepted, each of which [`Self::begin_to_bind`] has passed, as one row.
    /// `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`]: then the identities are lost, and no key may leave.
    pub(crate) async fn bind_many(&self, sessions: &ManySessions, now: u64) -> Result<(), StoreError> {
        // A row that may be there is not written again.
        let number = self.session_rows.next.fetch_add(1, Ordering::Relaxed);
        let key = rows::sessions(number);
        let mut ended = None;
        loop {
            let lease = self.session_lease(now, ended).await?;
            let transaction = Transaction::default().require(key.as_str(), Revision::ABSENT);
            let transaction = transaction.put_leased(key.as_str(), Value::Plain(sessions.0.clone()), lease);
            match self.store.commit(transaction).await {
                Err(StoreError::LeaseEnded(lease)) if ended.is_none() => ended = Some(lease),
                result => return result.map(drop),
            }
        }
    }
}
