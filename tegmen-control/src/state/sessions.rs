//! Rows of session identities, which are the PSK identities of sessions between subscribers and publishers. Each row
//! has a lease of the store: the store deletes the row when the lease ends.
//!
//! A server that does not share its store writes many identities into one row. The table in memory has all identities,
//! and refuses an identity that was accepted before. The rows restore the table after a restart. A server that shares
//! its store writes a separate row for each identity. The store accepts a row for the same identity only once.

use super::rows::{self, AcceptedSession};
use super::{State, StateError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen_store::store::{LeaseId, MAX_VALUE};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// When a lease has this age, the server asks the store for another lease for further rows. The store deletes the rows
/// of a lease when the lease ends.
const LEASE_AGE: Duration = Duration::from_secs(600);
/// The number of rows of one lease at which the server asks the store for the next lease. While the server waits for
/// the next lease, at most the same number of further rows get the present lease.
const LEASE_ROWS: u32 = 4096;

/// The data that a server needs to write rows of session identities.
pub(super) struct SessionRows {
    lease: Mutex<Option<SessionLease>>,
    /// The duration of a lease. Each row must exist for as long as its identities are remembered, so the duration is
    /// longer than that time.
    ttl: Duration,
    /// The number in the key of the next row with many identities.
    next: AtomicU64,
}

/// The lease that new rows of session identities get now. The store deletes these rows when the lease ends.
#[derive(Clone, Copy)]
struct SessionLease {
    id: LeaseId,
    /// The time at which the lease began, in seconds since 1970.
    since: u64,
    rows: u32,
}

impl SessionRows {
    /// Makes the data for identities that are remembered for `lifetime`. `next` is the number in the key of the next
    /// row with many identities.
    pub(super) const fn new(lifetime: Duration, next: u64) -> Self {
        Self { lease: Mutex::new(None), ttl: lifetime.saturating_add(LEASE_AGE), next: AtomicU64::new(next) }
    }

    fn lease(&self) -> MutexGuard<'_, Option<SessionLease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Session identities that one row in the store contains.
#[derive(Default)]
pub(crate) struct ManySessions(Vec<u8>);

impl ManySessions {
    /// Adds an identity.
    pub(crate) fn add(&mut self, session: &AcceptedSession) {
        rows::add_session(&mut self.0, session);
    }

    /// Returns true if one more identity fits into the row.
    pub(crate) const fn has_room(&self) -> bool {
        self.0.len() <= MAX_VALUE - rows::LONGEST_SESSION
    }

    /// Returns the identities.
    pub(crate) fn sessions(&self) -> Vec<AcceptedSession> {
        rows::read_sessions(&self.0).unwrap_or_default()
    }

    /// Removes all identities. The memory stays allocated.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<S: Store> State<S> {
    /// Returns the lease for another row of session identities. Asks the store for another lease if the present lease
    /// is older than [`LEASE_AGE`], if its number of rows reaches [`LEASE_ROWS`], or if it is the lease `ended`, which
    /// the store no longer has. `now` is in seconds since 1970.
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

    /// Returns true if no other server changes the store.
    pub(crate) fn is_alone(&self) -> bool {
        !self.store.is_shared()
    }

    /// Records that a session identity is about to be written to a store that this server does not share. Only one call
    /// succeeds for each identity.
    ///
    /// # Errors
    /// [`StateError::SessionUsed`] if the identity is in the store, or is about to be written.
    pub(crate) fn begin_to_bind(&self, session: &AcceptedSession) -> Result<(), StateError> {
        // The table in memory has all identities, so it decides which of them come again.
        self.view().bind(session)
    }

    /// Writes one row with accepted session identities, and makes the row durable. Each identity must have passed
    /// [`Self::begin_to_bind`]. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`StoreError`]. The identities then cannot be used any more, and no key of their sessions may leave the server.
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
