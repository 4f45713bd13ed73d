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

/// Maximum age of the lease that new rows with session identities get. The store deletes the rows of a lease when the
/// lease ends. The server asks the store for another lease when the lease has this age.
const LEASE_AGE: Duration = Duration::from_secs(600);
/// When this number of rows have the same lease of the store, the server asks the store for another lease. Until the
/// store grants the other lease, at most this number of further rows get the present lease.
const LEASE_ROWS: u32 = 4096;

/// The data that a server needs to write rows with accepted session identities into the store.
pub(super) struct SessionRows {
    lease: Mutex<Option<SessionLease>>,
    /// The duration of a lease of the store, which deletes the rows of a lease when the lease ends. The duration is
    /// [`LEASE_AGE`] longer than the time for which the server remembers a session identity. So the row of a session
    /// identity exists for at least that time, even if the row gets a lease that is already [`LEASE_AGE`] old.
    ttl: Duration,
    /// The number of the next row that [`State::bind_many`] writes. One such row contains many session identities, and
    /// its key contains its number.
    next: AtomicU64,
}

/// The present lease for rows with session identities: each new row gets this lease. The store deletes the rows when
/// the lease ends.
#[derive(Clone, Copy)]
struct SessionLease {
    id: LeaseId,
    /// The time at which this lease of the store began, in seconds since 1970.
    since: u64,
    rows: u32,
}

impl SessionRows {
    /// Makes the data for session identities that are remembered for `lifetime`. The server numbers the rows that contain
    /// many identities. `next` is the number of the next such row that the server writes.
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

    /// Returns true if one more session identity fits into the row with these session identities.
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
    /// Returns the lease that the caller must give to the next row with session identities. Many rows have the same
    /// lease. The server asks the store for a new lease in three cases: the present lease has the age [`LEASE_AGE`],
    /// [`LEASE_ROWS`] rows have it, or it is `ended`, a lease that the store no longer has. `now` is in seconds since
    /// 1970.
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
