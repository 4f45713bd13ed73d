//! Many numbers in one SQLite file. One thread writes it, and combines changes that arrive close together into one
//! transaction.
//!
//! ```text
//! state.db          a row for each context and session; WAL, synchronous
//! state.db.key      what sessions are sealed under, and the lock
//! state.db.place    a file whose identity the database knows: a new one whenever a lease moves on
//! ```
//!
//! A restored backup is an intact database, so it cannot show that it is old. A file beside the database solves this.
//! Before an existing lease moves forward, the server creates a new file, the commit names this file, and the file
//! replaces the old one; only then may the lease be used. If a database names neither the file in place nor the file
//! that was about to replace it, it is not the last one.

use super::numbers::{Numbers, is_in_future, now, place};
use super::{Guard, StateError, beside, sync_directory};
use crate::hex::to_hex;
use crate::private;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tegmen::crypto::KEY_LEN;

/// An open database. Clones are the same one; the last of them closes it.
#[derive(Clone)]
pub struct Database(Arc<Shared>);

struct Shared {
    file: PathBuf,
    guard: Guard,
    was_recovered: bool,
    orders: Sender<Order>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// A change of one row.
pub(crate) enum Change {
    Put(String, Numbers),
    /// The numbers go on, and everything else of the row stays. Without such a row nothing happens.
    Move(String, u64, Option<[u64; 2]>),
    Remove(String),
}

/// Told whether a change is durable.
type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

enum Order {
    Change(Change, Option<Done>),
    Load(String, Sender<Vec<(String, Numbers)>>),
    /// Everything before is durable when this is answered, unless it says otherwise.
    Flush(Sender<Result<(), String>>),
    /// As a power cut: nothing of what waits is done.
    Abandon,
    Close,
}

/// Changes that one commit takes.
const MOST: usize = 256;
/// How long the first of them waits for others.
const PATIENCE: Duration = Duration::from_millis(2);
/// Of the tables; another one is of another version.
const VERSION: i64 = 1;

impl Database {
    /// Opens the database, or makes one.
    ///
    /// # Errors
    /// [`StateError`], which says what to do.
    pub fn open(file: &Path) -> Result<Self, StateError> {
        Self::begin(file, false)
    }

    fn begin(file: &Path, recovered: bool) -> Result<Self, StateError> {
        let failed = |source| StateError::File { file: file.display().to_string(), source };
        let name = file.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // By whatever path it is opened, what is beside it is the same.
        let file = std::fs::canonicalize(parent).map_err(failed)?.join(name);
        let guard = Guard::open(&file)?;
        if recovered {
            for extension in ["", "-wal", "-shm", "-journal"] {
                let mut path = file.as_os_str().to_owned();
                path.push(extension);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                    _ => {}
                }
            }
        }
        let writer = Writer::open(&file, recovered)?;
        let was_recovered = writer.was_recovered;
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("tegmen-state".to_owned());
        let thread = thread.spawn(move || writer.run(&received)).map_err(failed)?;
        Ok(Self(Arc::new(Shared { file, guard, was_recovered, orders, writer: Mutex::new(Some(thread)) })))
    }

    /// Returns the path of the database.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// Ends as a power cut does: what is not on the disk is lost. For tests of what comes after.
    pub fn abandon(&self) {
        self.end(Order::Abandon);
    }

    /// Returns when everything that was asked for before is on the disk.
    ///
    /// # Errors
    /// [`StateError::File`] if some of it is not.
    pub fn flush(&self) -> Result<(), StateError> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Flush(sender));
        let result = receiver.recv().unwrap_or_else(|_| Err("it is closed".to_owned()));
        result
            .map_err(|why| StateError::File { file: self.0.file.display().to_string(), source: io::Error::other(why) })
    }

    /// Returns the key that encrypts sessions.
    pub(crate) fn key(&self) -> &[u8; KEY_LEN] {
        self.0.guard.key()
    }

    /// Returns true if rows of the database were lost, so that a context without a row may have been used.
    pub(crate) fn was_recovered(&self) -> bool {
        self.0.was_recovered
    }

    /// The rows whose names begin so.
    pub(crate) fn load(&self, prefix: &str) -> Vec<(String, Numbers)> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Load(prefix.to_owned(), sender));
        receiver.recv().unwrap_or_default()
    }

    /// Queues a change. Calls `done` on the writing thread when the change is durable.
    pub(crate) fn change(&self, change: Change, done: Option<Done>) {
        self.order(Order::Change(change, done));
    }

    /// Makes a change that is durable after this.
    pub(crate) fn change_now(&self, change: Change) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        self.order(Order::Change(change, Some(done)));
        match receiver.recv() {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other(format!("{} is closed", self.0.file.display()))),
        }
    }

    fn order(&self, order: Order) {
        // Whoever waits for an answer of a thread that has ended learns that there is none.
        let _ = self.0.orders.send(order);
    }

    fn end(&self, order: Order) {
        self.order(order);
        self.0.join();
    }
}

impl Shared {
    fn join(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = writer.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Close);
        self.join();
    }
}

/// Resets a database that cannot be trusted. It forgets the sessions, so that clients perform new handshakes, and
/// moves every context past all numbers that may have been used.
///
/// # Errors
/// [`StateError`]; [`StateError::InUse`] while another process has it.
pub fn recover(file: &Path) -> Result<(), StateError> {
    Database::begin(file, true).map(drop)
}

/// What only the thread that writes has.
struct Writer {
    connection: Connection,
    file: PathBuf,
    /// Of the digests of all rows: none of them is older than the others.
    sum: u128,
    was_recovered: bool,
    /// What of the changes since the last flush is not durable.
    failed: Result<(), String>,
}

impl Writer {
    fn open(file: &Path, recovered: bool) -> Result<Self, StateError> {
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
        for (name, numbers) in self.rows("")? {
            all ^= digest(&name, &numbers);
        }
        if all != u128::from_be_bytes(sum) {
            return Ok(Err("it is damaged, or put together from several".to_owned()));
        }
        self.sum = all;
        let (in_place, draft) = (beside(&self.file, "place"), beside(&self.file, "place.new"));
        let is_at = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| place(&meta) == at);
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

    fn rows(&self, prefix: &str) -> rusqlite::Result<Vec<(String, Numbers)>> {
        let mut select = self.connection.prepare(
            "SELECT name, next, seen, sealed, peer, digest FROM numbers WHERE name >= ?1 AND name < ?1 || char(1114111) ORDER BY name",
        )?;
        let rows = select.query_map([prefix], |row| Ok((row.get(0)?, read(row)?)))?;
        rows.collect()
    }

    fn run(mut self, orders: &Receiver<Order>) {
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
                    let _ = answer.send(self.rows(&prefix).unwrap_or_default());
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
    Ok(place(&file.metadata()?))
}

/// Puts what was made anew into the place of the one before, durably.
fn take_place(draft: &Path, in_place: &Path) -> io::Result<()> {
    std::fs::rename(draft, in_place)?;
    sync_directory(in_place)
}

/// The sum of all digests after some changes, and whether numbers moved on that were there before.
fn apply(connection: &Connection, changes: &[Change], mut sum: u128) -> rusqlite::Result<(u128, bool)> {
    let mut find = connection.prepare("SELECT name, next, seen, sealed, peer, digest FROM numbers WHERE name = ?1")?;
    let mut put = connection.prepare("INSERT OR REPLACE INTO numbers VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let mut remove = connection.prepare("DELETE FROM numbers WHERE name = ?1")?;
    let mut moves = false;
    for change in changes {
        let (Change::Put(name, _) | Change::Move(name, ..) | Change::Remove(name)) = change;
        let old = find.query_row([name], |row| Ok((read(row)?, row.get::<_, [u8; 16]>(5)?))).optional()?;
        let before = old.as_ref().map_or(0, |(_, digest)| u128::from_be_bytes(*digest));
        let numbers = match (change, old) {
            (Change::Put(_, numbers), _) => numbers.clone(),
            (&Change::Move(_, next, window), Some((old, _))) => Numbers { next, window, ..old },
            (Change::Move(..), None) => continue,
            (Change::Remove(_), _) => {
                remove.execute([name])?;
                sum ^= before;
                continue;
            }
        };
        moves |= before != 0;
        let digest = digest(name, &numbers);
        sum ^= before ^ digest;
        let window = numbers.window.map(|[next, seen]| (u128::from(next) << 64 | u128::from(seen)).to_be_bytes());
        put.execute(params![name, numbers.next as i64, window, numbers.sealed, numbers.with, digest.to_be_bytes()])?;
    }
    Ok((sum, moves))
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Numbers> {
    let window = row.get::<_, Option<[u8; 16]>>(2)?.map(u128::from_be_bytes);
    Ok(Numbers {
        next: row.get::<_, i64>(1)? as u64,
        window: window.map(|both| [(both >> 64) as u64, both as u64]),
        sealed: row.get(3)?,
        with: row.get(4)?,
        ..Numbers::default()
    })
}

fn digest(name: &str, numbers: &Numbers) -> u128 {
    let Numbers { next, window, sealed, with, .. } = numbers;
    let text = format!("{name}\n{next}\n{window:?}\n{sealed}\n{with}");
    let digest = Sha256::digest(text);
    u128::from_be_bytes(digest.first_chunk::<16>().copied().unwrap_or_default())
}

/// The name of a row for a context with these secrets and IDs.
pub(crate) fn context_name(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new_with_prefix(b"tegmen state of a context");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("{CONTEXTS}{}", to_hex(hash.finalize().get(..16).unwrap_or(&[])))
}

/// How names of contexts begin.
const CONTEXTS: &str = "oscore/";
