//! Performs tasks (transactions, grants and ends of leases, compactions) within one SQLite transaction, which becomes
//! durable afterwards.

use super::entries::{self, Current, Version};
use super::revisions::Revisions;
use super::tasks::{Outcome, Task};
use crate::sealing::Sealer;
use crate::store::{LeaseId, Put, Revision, StoreError, Transaction, Value, pace};
use rusqlite::{Connection, params};
use std::time::Duration;

/// The state of one SQLite transaction while it performs a batch of tasks.
pub(super) struct Applying<'w> {
    pub(super) connection: &'w Connection,
    pub(super) revisions: &'w mut Revisions,
    pub(super) sealer: Option<&'w Sealer>,
    /// The time of the batch, in milliseconds since 1970.
    pub(super) now: u64,
    /// The versions of rows that the batch wrote.
    pub(super) written: Vec<Version>,
    pub(super) granted: Vec<(LeaseId, Duration)>,
    /// True if the batch writes a [`Number`](crate::store::Number), for example an epoch. An older copy of the database
    /// would use values of this number a second time, so an older copy must be refused after the batch.
    pub(super) moves: bool,
    /// The lease whose existence was checked last, to avoid a second query.
    pub(super) lease: Option<LeaseId>,
}

/// Approximate number of changes that one compaction examines.
const AT_ONCE: usize = 4096;

impl Applying<'_> {
    /// Performs a task. Takes the rows to write out of a transaction.
    pub(super) fn apply(&mut self, task: &mut Task) -> rusqlite::Result<Outcome> {
        match task {
            Task::Commit(transaction, _) => {
                let puts = std::mem::take(&mut transaction.put);
                self.commit(transaction, puts)
            }
            Task::Grant(ttl, _) => self.grant(*ttl),
            Task::End(lease, _) => self.end(*lease),
            Task::Compact(through, _) => match self.revisions.checked(Some(*through)) {
                Ok(through) => self.compact(through, usize::MAX).map(|()| Ok(through)),
                Err(error) => Ok(Err(error)),
            },
        }
    }

    /// Deletes the history before `through`, but only about `most` changes in one call.
    fn compact(&mut self, through: u64, most: usize) -> rusqlite::Result<()> {
        self.revisions.compacted = entries::compact(self.connection, self.revisions.compacted, through, most)?;
        Ok(())
    }

    /// Deletes history, so that only the newest `history` revisions remain. One call deletes about [`AT_ONCE`] changes.
    pub(super) fn compact_to(&mut self, history: u64) -> rusqlite::Result<()> {
        let through = self.revisions.newest().0.saturating_sub(history);
        match through > self.revisions.compacted {
            true => self.compact(through, AT_ONCE),
            false => Ok(()),
        }
    }

    /// Performs a transaction that writes the rows `rows`, in place of the rows in `transaction`.
    fn commit(&mut self, transaction: &Transaction, rows: Vec<Put>) -> rusqlite::Result<Outcome> {
        let connection = self.connection;
        let mut select = connection.prepare_cached(entries::CURRENT)?;
        // The rows of the requirements, which are often those that are put.
        let mut required: Vec<(&[u8], Option<Current>)> = Vec::new();
        for (key, at) in &transaction.require {
            let current = entries::current(&mut select, key)?;
            let found = current.map_or(Revision::ABSENT, |row| Revision(row.revision));
            if found != *at {
                return Ok(Err(StoreError::Conflict { key: key.clone(), found }));
            }
            required.push((key, current));
        }
        let mut puts = Vec::new();
        for put in rows {
            let before = match required.iter().find(|(key, _)| *key == put.key) {
                Some((_, current)) => *current,
                None => entries::current(&mut select, &put.key)?,
            };
            match self.check(&put, before)? {
                Ok(checked) => puts.push((put, checked)),
                Err(error) => return Ok(Err(error)),
            }
        }
        let mut deletes = Vec::new();
        for key in &transaction.delete {
            deletes.extend(entries::current(&mut select, key)?.map(|_| key));
        }
        if puts.is_empty() && deletes.is_empty() {
            return Ok(Ok(self.revisions.newest().0));
        }
        let revision = self.revisions.take();
        let mut versions = Vec::new();
        for (put, Checked { created, since }) in puts {
            let Put { key, value, lease } = put;
            let moves = matches!(value, Value::Number(_));
            match Version::new(key, revision, value, since, self.sealer) {
                Ok(version) => versions.push(version.of(created.unwrap_or(revision), lease)),
                Err(error) => return Ok(Err(error)),
            }
            self.moves |= moves;
        }
        versions.extend(deletes.iter().map(|key| Version::deleted(key, revision)));
        Version::write_all(connection, &versions)?;
        self.written.append(&mut versions);
        Ok(Ok(revision))
    }

    /// Checks if a row may be written. `before` is the current row of this key; `None` if there is none.
    fn check(&mut self, put: &Put, before: Option<Current>) -> rusqlite::Result<Result<Checked, StoreError>> {
        if let Some(lease) = put.lease
            && !self.has(lease)?
        {
            return Ok(Err(StoreError::LeaseEnded(lease)));
        }
        if matches!(put.value, Value::Secret(_)) && self.sealer.is_none() {
            return Ok(Err(StoreError::Sealed));
        }
        let created = before.map(|row| row.created);
        let number = before.and_then(|row| row.number);
        Ok(pace::since(put, number, self.now).map(|since| Checked { created, since }))
    }

    fn has(&mut self, lease: LeaseId) -> rusqlite::Result<bool> {
        if self.lease == Some(lease) {
            return Ok(true);
        }
        let mut select = self.connection.prepare_cached("SELECT 1 FROM leases WHERE lease = ?1")?;
        let is_there = select.exists([lease.0 as i64])?;
        self.lease = is_there.then_some(lease);
        Ok(is_there)
    }

    fn grant(&mut self, ttl: Duration) -> rusqlite::Result<Outcome> {
        // A lease is named by a revision, so that its name comes once.
        let lease = self.revisions.take();
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let mut insert = self.connection.prepare_cached("INSERT INTO leases VALUES (?1, ?2)")?;
        insert.execute(params![lease as i64, millis])?;
        self.granted.push((LeaseId(lease), ttl));
        Ok(Ok(lease))
    }

    /// Ends a lease. In one revision, deletes all rows that are attached to the lease.
    fn end(&mut self, lease: LeaseId) -> rusqlite::Result<Outcome> {
        self.lease = None;
        let mut delete = self.connection.prepare_cached("DELETE FROM leases WHERE lease = ?1")?;
        if delete.execute([lease.0 as i64])? == 0 {
            return Ok(Err(StoreError::LeaseEnded(lease)));
        }
        let keys = entries::leased(self.connection, lease)?;
        if !keys.is_empty() {
            let revision = self.revisions.take();
            let mut versions: Vec<_> = keys.iter().map(|key| Version::deleted(key, revision)).collect();
            Version::write_all(self.connection, &versions)?;
            self.written.append(&mut versions);
        }
        Ok(Ok(lease.0))
    }
}

/// The result of a successful check of a row.
struct Checked {
    /// The revision that made the row; `None` for a new row.
    created: Option<u64>,
    /// For a row with a [`Number`](crate::store::Number), a time in milliseconds since 1970. From this time on, the
    /// highest allowed value of the number grows by its `pace` each day. The field is 0 for any other row.
    since: u64,
}
