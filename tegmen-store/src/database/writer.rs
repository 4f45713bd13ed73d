//! The thread that writes: it combines changes that arrive close together into one transaction.

use super::rows::{self, apply};
use super::{Change, Done, Order};
use crate::StateError;
use crate::clock::{is_in_future, now};
use crate::files::{beside, identity, sync_directory};
use rusqlite::{Connection, ErrorCode, params};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tegmen_base::private;

/// Changes that one commit takes.
const MOST: usize = 256;
/// How long the first of them waits for others.
const PATIENCE: Duration = Duration::from_millis(2);
/// Of the tables; another one is of another version.
const VERSION: i64 = 1;

/// What only the thread that writes has.
pub(super) struct Writer {
    connection: Connection,
    file: PathBuf,
    /// Of the digests of all rows: none of them is older than the others.
    sum: u128,
    pub(super) was_recovered: bool,
    /// What of the changes since the last flush is not durable.
    failed: Result<(), String>,
}

impl Writer {
    pub(super) fn open(file: &Path, recovered: bool) -> Result<Self, StateError> {
        let name = || file.display().to_string();
        let failed = |source| StateError::File { file: name(), source };
        let untrusted = |why: String| StateError::Untrusted {
            file: name(),
            why,
            way_out: format!(
                "`tegmen oscore recover {}` forgets its sessions, so that clients shake hands again, and moves its \
                 contexts past everything that may have been used",
                name()
            ),
        };
        let sql = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StateError::InUse { file: name() },
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => untrusted(format!("it is damaged ({error})")),
            _ => failed(io::Error::other(error.to_string())),
        };
        let mut options = File::options();
        private::open(options.read(true).write(true).create(true).truncate(false), file).map_err(failed)?;
        let connection = Connection::open(file).map_err(sql)?;
        connection
            .execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 BEGIN EXCLUSIVE; COMMIT;",
            )
            .map_err(sql)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sql)?;
        let mut writer = Self { connection, file: file.to_owned(), sum: 0, was_recovered: recovered, failed: Ok(()) };
        match version {
            0 => {
                let empty =
                    writer.connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0));
                if empty.map_err(sql)? != 0 {
                    return Err(untrusted("this is a database of something else".to_owned()));
                }
                if !recovered && beside(file, "place").exists() {
                    return Err(untrusted("it is empty, and it was not".to_owned()));
                }
                writer.create(recovered).map_err(sql)?;
            }
            VERSION => {
                writer.check().map_err(sql)?.map_err(untrusted)?;
            }
            other => return Err(untrusted(format!("its format is {other}, of another version of this program"))),
        }
        // What was copied before this is not the last any more.
        writer.commit(&[], true).map_err(|error| failed(io::Error::other(error)))?;
        Ok(writer)
    }

    fn create(&mut self, recovered: bool) -> rusqlite::Result<()> {
        self.connection.execute_batch(&format!(
            "BEGIN;
             CREATE TABLE numbers (
                 name TEXT PRIMARY KEY, next INTEGER NOT NULL, seen BLOB, sealed TEXT NOT NULL, peer TEXT NOT NULL,
                 digest BLOB NOT NULL
             ) WITHOUT ROWID;
             CREATE TABLE state (
                 one INTEGER PRIMARY KEY CHECK (one = 1), place TEXT NOT NULL, sum BLOB NOT NULL, written INTEGER NOT NULL,
                 recovered INTEGER NOT NULL
             );
             INSERT INTO state VALUES (1, '', zeroblob(16), 0, {});
             PRAGMA user_version = {VERSION};
             COMMIT;",
            u8::from(recovered)
        ))
    }

    /// Verifies that the database is the last one written, and complete.
    fn check(&mut self) -> rusqlite::Result<Result<(), String>> {
        let state = self.connection.query_row("SELECT place, sum, written, recovered FROM state", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 16]>(1)?, row.get::<_, i64>(2)?, row.get::<_, bool>(3)?))
        });
        let (at, sum, written, recovered) = state?;
        self.was_recovered = recovered;
        let mut all = 0;
        for (name, numbers) in rows::with_prefix(&self.connection, "")? {
            all ^= rows::digest(&name, &numbers);
        }
        if all != u128::from_be_bytes(sum) {
            return Ok(Err("it is damaged, or put together from several".to_owned()));
        }
        self.sum = all;
        let (in_place, draft) = (beside(&self.file, "place"), beside(&self.file, "place.new"));
        let is_at = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| identity(&meta) == at);
        if !at.is_empty() && !is_at(&in_place) && !is_at(&draft) {
            return Ok(Err("it is a copy, or was restored from a backup".to_owned()));
        }
        if is_at(&draft) && !is_at(&in_place) {
            // It ended between the commit and this.
            if let Err(error) = take_place(&draft, &in_place) {
                return Ok(Err(format!("{} cannot be written: {error}", in_place.display())));
            }
        }
        if is_in_future(written as u64) {
            return Ok(Err("it was written in the future: the clock went back, or is not set".to_owned()));
        }
        Ok(Ok(()))
    }

    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let mut batch: Vec<(Change, Option<Done>)> = Vec::new();
        let mut until: Option<Instant> = None;
        loop {
            let order = match until {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => orders.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match order {
                Ok(Order::Change(change, done)) => {
                    // Nobody waits longer than for those who came at the same time.
                    let patience = if done.is_some() { Duration::ZERO } else { PATIENCE };
                    let at = Instant::now() + patience;
                    until = Some(until.map_or(at, |until| at.min(until)));
                    batch.push((change, done));
                    if batch.len() < MOST {
                        continue;
                    }
                    self.write(&mut batch);
                }
                Ok(Order::Load(prefix, answer)) => {
                    self.write(&mut batch);
                    let _ = answer.send(rows::with_prefix(&self.connection, &prefix).unwrap_or_default());
                }
                Ok(Order::Flush(answer)) => {
                    self.write(&mut batch);
                    let _ = answer.send(std::mem::replace(&mut self.failed, Ok(())));
                }
                Ok(Order::Abandon) => return,
                Err(RecvTimeoutError::Timeout) => self.write(&mut batch),
                Ok(Order::Close) | Err(RecvTimeoutError::Disconnected) => return self.write(&mut batch),
            }
            until = None;
        }
    }

    fn write(&mut self, batch: &mut Vec<(Change, Option<Done>)>) {
        if batch.is_empty() {
            return;
        }
        let (changes, done): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        let result = self.commit(&changes, false);
        if result.is_err() {
            self.failed = result.clone();
        }
        for done in done.into_iter().flatten() {
            done(result.clone());
        }
    }

    /// Makes changes durable, all or none.
    fn commit(&mut self, changes: &[Change], renew: bool) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let transaction = self.connection.unchecked_transaction().map_err(|error| failed(&error))?;
        let (sum, moves) = apply(&transaction, changes, self.sum).map_err(|error| failed(&error))?;
        let draft = beside(&self.file, "place.new");
        let renew = renew || moves;
        let at = if renew { Some(make(&draft).map_err(|error| failed(&error))?) } else { None };
        transaction
            .prepare("UPDATE state SET sum = ?1, written = ?2, place = coalesce(?3, place)")
            .and_then(|mut update| update.execute(params![sum.to_be_bytes(), now() as i64, at]))
            .map_err(|error| failed(&error))?;
        transaction.commit().map_err(|error| failed(&error))?;
        self.sum = sum;
        if renew {
            take_place(&draft, &beside(&self.file, "place")).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// Makes a file anew; what tells it from all others.
fn make(draft: &Path) -> io::Result<String> {
    let _ = std::fs::remove_file(draft);
    let file = private::open(File::options().write(true).create_new(true), draft)?;
    file.sync_all()?;
    Ok(identity(&file.metadata()?))
}

/// Puts what was made anew into the place of the one before, durably.
fn take_place(draft: &Path, in_place: &Path) -> io::Result<()> {
    std::fs::rename(draft, in_place)?;
    sync_directory(in_place)
}
