//! The thread that writes the database. It combines changes that arrive close together into one transaction.

use super::applying::Applying;
use super::calls::Call;
use super::entries::Version;
use super::leases::Leases;
use super::revisions::{self, Revisions};
use super::rows::{self, apply};
use super::tasks::{Outcome, Task};
use super::waiting::Waiting;
use super::{Change, Done, Options, Order, entries};
use crate::StateError;
use crate::clock::{self, is_in_future};
use crate::files::{Files, beside};
use crate::sealing::Sealer;
use crate::store::{LeaseId, Revision, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Maximum number of changes in one commit. It is also the maximum number of reading calls that the thread answers
/// before it commits the waiting changes.
const MOST: usize = 256;
/// The time for which the first change of a commit waits for further changes.
const PATIENCE: Duration = Duration::from_millis(2);
/// Maximum time in milliseconds for which a commit waits for the clock. A commit waits if its revisions are higher than
/// their pace allows at the present time. After the maximum time the commit fails, because the clock is wrong.
const CLOCK_PATIENCE: u32 = 1000;
/// Maximum memory of SQLite for pages, in KiB. After a commit that moved pages, SQLite examines all pages in this
/// memory, so more memory makes commits slower.
const CACHE_KIB: u32 = 8_192;
/// The version of the tables. Tables of version 1 have only the sequence numbers of OSCORE contexts and of sessions.
/// Version 2 indexes the rows of a lease in the order of their keys, and version 3 in the order of their revisions.
pub(crate) const VERSION: i64 = 3;

/// The newest revision in a copy of the database, and a function that seals the digest of the copy. If the database has
/// no sealing key, the function returns no bytes.
pub(crate) type Copied = (Revision, Box<dyn FnOnce(&[u8; 32]) -> Result<Vec<u8>, String> + Send>);

/// The state of the thread that writes.
pub(super) struct Writer {
    connection: Connection,
    file: PathBuf,
    options: Options,
    /// The XOR of the digests of all rows with sequence numbers of contexts and sessions. The database also stores this
    /// XOR. If the stored XOR does not match the rows when the database is opened, some rows are older than others, so
    /// the database is damaged.
    sum: u128,
    pub(super) was_recovered: bool,
    /// An error if a change since the last [`Database::flush`](super::Database::flush) is not durable.
    failed: Result<(), String>,
    revisions: Revisions,
    sealer: Option<Arc<Sealer>>,
    leases: Leases,
    waiting: Waiting,
    /// True if the last commit failed.
    is_failing: bool,
}

impl Writer {
    pub(super) fn open(file: &Path, recovered: bool, options: Options) -> Result<Self, StateError> {
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
        let connection = connect(file, &options).map_err(failed)?.map_err(sql)?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(sql)?;
        let mut writer = Self {
            connection,
            file: file.to_owned(),
            sum: 0,
            was_recovered: recovered,
            failed: Ok(()),
            revisions: Revisions::after(0, 0),
            sealer: None,
            leases: Leases::default(),
            waiting: Waiting::default(),
            is_failing: false,
            options,
        };
        match version {
            0 => {
                let empty =
                    writer.connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get::<_, i64>(0));
                if empty.map_err(sql)? != 0 {
                    return Err(untrusted("this is a database of something else".to_owned()));
                }
                if !recovered && writer.options.files.identity(&beside(file, "place")).is_some() {
                    return Err(untrusted("it is empty, and it was not".to_owned()));
                }
                writer.create(recovered).map_err(sql)?;
            }
            1..=VERSION => {
                writer.check().map_err(sql)?.map_err(untrusted)?;
                writer.migrate(version).map_err(sql)?;
            }
            found => return Err(StateError::Version { file: name(), found, known: VERSION }),
        }
        let data_key = writer.load().map_err(sql)?;
        if let Some(keeper) = writer.options.sealing.clone() {
            let (sealer, new) = Sealer::begin(&*keeper, data_key.as_deref(), file)?;
            writer.sealer = Some(Arc::new(sealer));
            if let Some(data_key) = new {
                writer.connection.execute("UPDATE store SET data_key = ?1", [data_key]).map_err(sql)?;
            }
        }
        // From here on, earlier copies are refused.
        let opened = writer.commit(&[], &mut [], true).and_then(|committed| committed.placed);
        opened.map_err(|error| failed(io::Error::other(error)))?;
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
             {}
             COMMIT;",
            u8::from(recovered),
            self.tables()
        ))
    }

    /// Changes tables of an older version to tables of [`VERSION`].
    fn migrate(&mut self, version: i64) -> rusqlite::Result<()> {
        let changes = match version {
            1 => self.tables(),
            2 => format!("DROP INDEX by_lease; {} PRAGMA user_version = {VERSION};", entries::BY_LEASE),
            _ => return Ok(()),
        };
        self.connection.execute_batch(&format!("BEGIN; {changes} COMMIT;"))
    }

    fn tables(&self) -> String {
        let (tables, by_lease) = (entries::TABLES, entries::BY_LEASE);
        // After a recovery the used revisions are unknown.
        let end = if self.was_recovered { revisions::allowed((self.options.wall)()) } else { 0 };
        format!(
            "{tables} {by_lease} INSERT INTO store VALUES (1, {end}, {end}, NULL); PRAGMA user_version = {VERSION};"
        )
    }

    /// Loads from the database the end of the reserved revisions, the oldest revision that can be read, and the leases
    /// of rows. Returns the sealed data key; `None` if there is none.
    fn load(&mut self) -> rusqlite::Result<Option<Vec<u8>>> {
        let (end, compacted, data_key) =
            self.connection.query_row("SELECT revision_end, compacted, data_key FROM store", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?))
            })?;
        self.revisions = Revisions::after(end as u64, compacted as u64);
        let now = (self.options.monotonic)();
        for (lease, ttl) in entries::leases(&self.connection)? {
            self.leases.begin(now, lease, ttl);
        }
        Ok(data_key)
    }

    /// Verifies that the database is complete, and that it is the newest version and not an older copy.
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
        let files = &*self.options.files;
        let is_at = |path: &Path| files.identity(path).is_some_and(|here| here == at);
        if !at.is_empty() && !is_at(&in_place) && !is_at(&draft) {
            return Ok(Err("it is a copy, or was restored from a backup".to_owned()));
        }
        if is_at(&draft) && !is_at(&in_place) {
            // It ended between the commit and this.
            if let Err(error) = take_place(files, &draft, &in_place) {
                return Ok(Err(format!("{} cannot be written: {error}", in_place.display())));
            }
        }
        if is_in_future(written as u64) {
            return Ok(Err("it was written in the future: the clock went back, or is not set".to_owned()));
        }
        Ok(Ok(()))
    }

    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        let mut batch = Batch::default();
        let mut until: Option<Instant> = None;
        loop {
            if self.end_due_leases(&mut batch) {
                until = Some(Instant::now());
            }
            let wait = [until.map(|until| until.saturating_duration_since(Instant::now())), self.next_lease()];
            let order = match wait.into_iter().flatten().min() {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => orders.recv_timeout(wait),
            };
            let patience = match order {
                Ok(Order::Change(change, done)) => {
                    // A change with a caller waits only for changes that are queued already.
                    let patience = if done.is_some() { Duration::ZERO } else { PATIENCE };
                    batch.changes.push((change, done));
                    patience
                }
                Ok(Order::Call(Call::Task(task))) => {
                    if let Task::End(lease, _) = task {
                        self.leases.end(lease);
                    }
                    batch.tasks.push(task);
                    Duration::ZERO
                }
                Ok(Order::Call(call)) => {
                    self.answer(call);
                    if batch.is_held_back() {
                        self.write(&mut batch);
                        until = None;
                    }
                    continue;
                }
                Ok(Order::Load(prefix, answer)) => {
                    self.write(&mut batch);
                    let _ = answer.send(rows::with_prefix(&self.connection, &prefix).unwrap_or_default());
                    until = None;
                    continue;
                }
                Ok(Order::Copy(to, answer)) => {
                    self.write(&mut batch);
                    let _ = answer.send(self.copy(&to));
                    until = None;
                    continue;
                }
                Ok(Order::Flush(answer)) => {
                    self.write(&mut batch);
                    let _ = answer.send(std::mem::replace(&mut self.failed, Ok(())));
                    until = None;
                    continue;
                }
                Ok(Order::Abandon) => return,
                Err(RecvTimeoutError::Timeout) if until.is_none_or(|until| until > Instant::now()) => continue,
                Err(RecvTimeoutError::Timeout) => {
                    self.write(&mut batch);
                    until = None;
                    continue;
                }
                Ok(Order::Close) | Err(RecvTimeoutError::Disconnected) => return self.write(&mut batch),
            };
            let at = Instant::now() + patience;
            until = Some(until.map_or(at, |until| at.min(until)));
            if batch.len() >= MOST {
                self.write(&mut batch);
                until = None;
            }
        }
    }

    fn copy(&self, to: &Path) -> Result<Copied, String> {
        let to = to.to_str().ok_or("its path is not UTF-8")?;
        self.connection.execute("VACUUM INTO ?1", [to]).map_err(|error| error.to_string())?;
        let sealer = self.sealer.clone();
        let seal = move |digest: &[u8; 32]| sealer.as_ref().map_or(Ok(Vec::new()), |sealer| sealer.seal_digest(digest));
        Ok((self.revisions.newest(), Box::new(seal)))
    }

    /// Answers a call that changes nothing on the disk.
    fn answer(&mut self, call: Call) {
        let Self { connection, revisions, sealer, .. } = self;
        match call {
            Call::Read(key, at, promise) => {
                promise.answer(entries::read(connection, revisions, sealer.as_deref(), &key, at));
            }
            Call::Scan(scan, promise) => promise.answer(entries::scan(connection, revisions, sealer.as_deref(), &scan)),
            Call::Changes(watcher) => self.waiting.ask(connection, revisions, sealer.as_deref(), watcher),
            Call::Renew(lease, promise) => {
                let is_there = self.leases.renew((self.options.monotonic)(), lease);
                promise.answer(if is_there { Ok(()) } else { Err(StoreError::LeaseEnded(lease)) });
            }
            Call::Task(_) => {}
        }
    }

    /// Returns the time from now until the earliest end of a lease of rows; `None` if there are no leases.
    fn next_lease(&self) -> Option<Duration> {
        let end = self.leases.next()?;
        Some(end.saturating_sub((self.options.monotonic)()))
    }

    /// Adds a task to the batch for each lease that was not renewed in time. Returns true if there is such a lease.
    fn end_due_leases(&mut self, batch: &mut Batch) -> bool {
        if self.leases.next().is_none() {
            return false;
        }
        let (now, before) = ((self.options.monotonic)(), batch.tasks.len());
        while let Some(lease) = self.leases.take_due(now) {
            batch.tasks.push(Task::End(lease, None));
        }
        batch.tasks.len() > before
    }

    fn write(&mut self, batch: &mut Batch) {
        if batch.len() == 0 {
            return;
        }
        let Batch { changes, mut tasks, .. } = std::mem::take(batch);
        let (changes, done): (Vec<_>, Vec<_>) = changes.into_iter().unzip();
        let (result, outcomes, versions) = match self.commit(&changes, &mut tasks, false) {
            Ok(Committed { outcomes, versions, placed }) => (placed, outcomes, versions),
            Err(why) => (Err(why), Vec::new(), Vec::new()),
        };
        if let Err(why) = &result {
            self.failed = Err(why.clone());
        }
        self.report(&result);
        for done in done.into_iter().flatten() {
            done(result.clone());
        }
        let mut outcomes = outcomes.into_iter();
        for task in tasks {
            let outcome = outcomes.next().unwrap_or_else(|| Err(StoreError::closed()));
            task.tell(result.clone().map_err(|why| StoreError::Unavailable { why }).and(outcome));
        }
        if !versions.is_empty() {
            self.waiting.changed(versions, self.revisions.newest(), self.sealer.as_deref());
        }
    }

    /// Logs an event when commits begin to fail, and when they succeed again.
    fn report(&mut self, result: &Result<(), String>) {
        let file = self.file.display();
        match (result, std::mem::replace(&mut self.is_failing, result.is_err())) {
            (Err(why), false) => tracing::error!("{file} cannot be written, so no change is acknowledged: {why}"),
            (Ok(()), true) => tracing::info!("{file} is written again"),
            _ => {}
        }
    }

    /// Makes all changes and tasks durable, or none of them. The database knows the identity of its `.place` file, so
    /// that an old copy of the database is detected. If `renew` is true, a new file replaces this file, even if the
    /// changes and tasks do not require this. Takes the rows to write out of the transactions in `tasks`.
    ///
    /// # Errors
    /// The reason why no change was made.
    fn commit(&mut self, changes: &[Change], tasks: &mut [Task], renew: bool) -> Result<Committed, String> {
        let before = self.revisions;
        let written = self.write_all(changes, tasks, renew);
        self.revisions.settle(&before, written.is_ok());
        let now = (self.options.monotonic)();
        let Written { sum, outcomes, versions, granted, renewed } = match written {
            Ok(written) => written,
            Err(why) => {
                // These leases have not ended. Each has its whole duration again.
                let kept =
                    tasks.iter().filter_map(|task| if let Task::End(lease, _) = task { Some(*lease) } else { None });
                for lease in kept {
                    if let Ok(Some(ttl)) = entries::ttl(&self.connection, lease) {
                        self.leases.begin(now, lease, ttl);
                    }
                }
                return Err(why);
            }
        };
        self.sum = sum;
        for (lease, ttl) in granted {
            self.leases.begin(now, lease, ttl);
        }
        let (draft, in_place) = (beside(&self.file, "place.new"), beside(&self.file, "place"));
        let placed = if renewed { take_place(&*self.options.files, &draft, &in_place) } else { Ok(()) };
        Ok(Committed { outcomes, versions, placed: placed.map_err(|error| error.to_string()) })
    }

    fn write_all(&mut self, changes: &[Change], tasks: &mut [Task], renew: bool) -> Result<Written, String> {
        let failed = |error: rusqlite::Error| error.to_string();
        let (now, compacted) = ((self.options.wall)(), self.revisions.compacted);
        let transaction = self.connection.unchecked_transaction().map_err(failed)?;
        let (sum, moves) = apply(&transaction, changes, self.sum).map_err(failed)?;
        let (revisions, sealer) = (&mut self.revisions, self.sealer.as_deref());
        let (written, granted) = (Vec::new(), Vec::new());
        let mut applying =
            Applying { connection: &transaction, revisions, sealer, now, written, granted, moves, lease: None };
        let outcomes = tasks.iter_mut().map(|task| applying.apply(task)).collect::<rusqlite::Result<Vec<_>>>();
        let outcomes = outcomes.map_err(failed)?;
        applying.compact_to(self.options.history).map_err(failed)?;
        let Applying { written: versions, granted, moves, .. } = applying;
        let (end, is_longer) = (self.revisions.wanted_end, self.revisions.moves());
        // After a recovery the lease begins at the limit of the clock, and a few milliseconds raise the limit enough.
        for _ in 0..CLOCK_PATIENCE {
            if end <= revisions::allowed((self.options.wall)()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if end > revisions::allowed((self.options.wall)()) {
            return Err("the clock went back, or is not set: set it".to_owned());
        }
        let renewed = renew || moves || is_longer;
        let at = match renewed {
            true => {
                Some(make(&*self.options.files, &beside(&self.file, "place.new")).map_err(|error| error.to_string())?)
            }
            false => None,
        };
        transaction
            .prepare_cached("UPDATE state SET sum = ?1, written = ?2, place = coalesce(?3, place)")
            .and_then(|mut update| update.execute(params![sum.to_be_bytes(), clock::now() as i64, at]))
            .map_err(failed)?;
        if is_longer || compacted != self.revisions.compacted {
            transaction
                .prepare_cached("UPDATE store SET revision_end = ?1, compacted = ?2")
                .and_then(|mut update| update.execute(params![end as i64, self.revisions.compacted as i64]))
                .map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok(Written { sum, outcomes, versions, granted, renewed })
    }
}

/// The result of a commit in the database, before the new `.place` file replaces the previous one.
struct Written {
    sum: u128,
    outcomes: Vec<Outcome>,
    versions: Vec<Version>,
    granted: Vec<(LeaseId, Duration)>,
    renewed: bool,
}

/// Opens the database file, or creates it. Locks it for this process.
pub(super) fn connect(file: &Path, options: &Options) -> io::Result<rusqlite::Result<Connection>> {
    options.files.make(file)?;
    let flags = OpenFlags::default();
    let connection = match options.files.vfs() {
        None => Connection::open_with_flags(file, flags),
        Some(vfs) => Connection::open_with_flags_and_vfs(file, flags, vfs),
    };
    let begin = |connection: Connection| {
        // Otherwise SQLite plans a query again for each value of its parameters.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.execute_batch(&format!(
            "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             PRAGMA wal_autocheckpoint = {}; PRAGMA cache_size = -{CACHE_KIB}; BEGIN EXCLUSIVE; COMMIT;",
            options.checkpoint_pages
        ))?;
        Ok(connection)
    };
    Ok(connection.and_then(begin))
}

/// Changes that wait for the next commit.
#[derive(Default)]
struct Batch {
    changes: Vec<(Change, Option<Done>)>,
    tasks: Vec<Task>,
    /// Number of calls that were answered while changes waited in this batch.
    answered: usize,
}

impl Batch {
    fn len(&self) -> usize {
        self.changes.len() + self.tasks.len()
    }

    /// Counts an answered call, if changes wait. Returns true after [`MOST`] calls: the caller must then write the
    /// changes, because otherwise a continuous sequence of reads would delay them.
    fn is_held_back(&mut self) -> bool {
        if self.len() > 0 {
            self.answered += 1;
        }
        self.answered >= MOST
    }
}

/// The result of a commit that is durable.
struct Committed {
    outcomes: Vec<Outcome>,
    /// The versions of rows that the commit wrote.
    versions: Vec<Version>,
    /// An error if the new `.place` file could not replace the previous one. The caller must then return this error in
    /// place of `outcomes`.
    placed: Result<(), String>,
}

/// Creates the new `.place` file under the name `draft`, and returns the identity of this file.
fn make(files: &dyn Files, draft: &Path) -> io::Result<String> {
    files.remove(draft)?;
    files.make(draft)?;
    files.sync(draft)?;
    // The commit names this file, so the name of the file must be on the disk before the commit.
    files.sync_directory(draft)?;
    files.identity(draft).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Renames the file `draft` to `in_place`, durably. `in_place` is the `.place` file of the database.
fn take_place(files: &dyn Files, draft: &Path, in_place: &Path) -> io::Result<()> {
    files.rename(draft, in_place)?;
    files.sync_directory(in_place)
}
