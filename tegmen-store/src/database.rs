//! A database: one SQLite file with the sequence numbers of all contexts and sessions, and with the rows of a
//! [`Store`](crate::Store). One thread writes the file. The thread combines changes that arrive close together into one
//! transaction. Sequence numbers and rows share the file, the thread and the commit. So one synchronization of the disk
//! makes both durable, and one backup contains both.
//!
//! ```text
//! state.db          a row for each context and session, and for each revision of a key; WAL, synchronous
//! state.db.key      the key that seals sessions; a process locks this file while it uses the database
//! state.db.place    a file whose identity the database knows: a new file for each new lease
//! ```
//!
//! A lease is a range of sequence numbers that a process may use. The database stores the end of the range. A restored
//! backup is an intact database, so its content does not show its age. The file `state.db.place` shows the age. Before
//! a context takes its next lease, the server creates a new file. The commit that stores the end of the lease also
//! stores the identity of this file. After the commit, the file replaces `state.db.place`. Only then may the process
//! use the lease. So the newest database names either the present `state.db.place`, or the new file that has not
//! replaced it yet. A database that names neither of the two files is an older version, and the server refuses it.
//!
//! Revisions are leased like sequence numbers. A lease has [`REVISIONS`] revisions. Before the first revision of a
//! lease is used, the end of the lease is durable, and a new `.place` file exists. The next process begins after the
//! end of the lease. So no revision is used twice, even if a process took a revision and ended before the commit, or if
//! an operator starts the server with an older copy of the database.

mod applying;
mod calls;
mod entries;
mod leases;
mod revisions;
mod rows;
mod tasks;
mod waiting;
mod writer;

pub(crate) use entries::retake;
pub use revisions::REVISIONS;
pub(crate) use writer::{Copied, VERSION};

use crate::StateError;
use crate::clock::now_millis;
use crate::files::{Files, SystemFiles};
use crate::guard::Guard;
use crate::numbers::Numbers;
use crate::sealing::Keeper;
use calls::Call;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tegmen_base::crypto::KEY_LEN;
use writer::Writer;

/// An open database. All clones use the same database. The database is closed when the last clone is dropped.
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
pub enum Change {
    /// Writes a row with this name and this record of sequence numbers.
    Put(String, Numbers),
    /// Sets the next sequence number and the replay window in the row of this name. All other fields of the row keep
    /// their values. If no row has this name, nothing changes.
    Move(String, u64, Option<[u64; 2]>),
    /// Removes the row of this name.
    Remove(String),
}

/// A function that receives the result of a change, when the change is durable or has failed.
pub type Done = Box<dyn FnOnce(Result<(), String>) + Send>;

/// The options with which a database is opened.
#[derive(Clone)]
pub struct Options {
    /// The key under which secrets are sealed. With `None`, secrets are neither written nor read.
    pub sealing: Option<Arc<dyn Keeper>>,
    /// Clock that measures the leases of rows: the time since any fixed instant. This clock never goes back.
    pub monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Clock that returns the milliseconds since 1970. It limits how fast each [`Number`](crate::store::Number) and the
    /// revisions may increase.
    pub wall: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The file system that holds the database.
    pub files: Arc<dyn Files>,
    /// The database keeps the history of at least this number of the newest revisions, and deletes older history.
    pub history: u64,
    /// When the write-ahead log has this number of pages of 4096 bytes, SQLite moves the pages into the database.
    pub checkpoint_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        let start = Instant::now();
        Self {
            sealing: None,
            monotonic: Arc::new(move || start.elapsed()),
            wall: Arc::new(now_millis),
            files: Arc::new(SystemFiles),
            history: 65_536,
            // A page that changes often is then moved less often. The log has at most about 16 MB.
            checkpoint_pages: 4000,
        }
    }
}

enum Order {
    Call(Call),
    Change(Change, Option<Done>),
    Load(String, Sender<Vec<(String, Numbers)>>),
    /// Copies the database to a file.
    Copy(PathBuf, Sender<Result<Copied, String>>),
    /// Writes the waiting changes. Answers with an error if a change since the previous flush is not durable.
    Flush(Sender<Result<(), String>>),
    /// Ends the thread as a power cut would: the waiting changes are lost.
    Abandon,
    Close,
}

impl Database {
    /// Opens the database. Creates it if the file does not exist.
    ///
    /// # Errors
    /// [`StateError`]; its text contains the cause and the next step.
    pub fn open(file: &Path) -> Result<Self, StateError> {
        Self::open_with(file, Options::default())
    }

    /// Opens the database as [`Self::open`] does, with other options.
    ///
    /// # Errors
    /// The errors of [`Self::open`], and [`StateError::Sealing`] if the database was made with another sealing key.
    pub fn open_with(file: &Path, options: Options) -> Result<Self, StateError> {
        Self::begin(file, false, options)
    }

    fn begin(file: &Path, recovered: bool, options: Options) -> Result<Self, StateError> {
        let failed = |source| StateError::File { file: file.display().to_string(), source };
        let name = file.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The files beside it are then the same for each path that leads to it.
        let file = std::fs::canonicalize(parent).map_err(failed)?.join(name);
        let guard = Guard::open(&file)?;
        if recovered {
            // Before anything is removed.
            recoverable(&file, &options)?;
            for extension in ["", "-wal", "-shm", "-journal"] {
                let mut path = file.as_os_str().to_owned();
                path.push(extension);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                    _ => {}
                }
            }
        }
        let writer = Writer::open(&file, recovered, options)?;
        let was_recovered = writer.was_recovered;
        let (orders, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("tegmen-state".to_owned());
        let thread = thread.spawn(move || writer.run(&received)).map_err(failed)?;
        Ok(Self(Arc::new(Shared { file, guard, was_recovered, orders, writer: Mutex::new(Some(thread)) })))
    }

    /// Opens a restored database and closes it again. Opening creates a `.place` file, and stores the identity of this
    /// file in the database. From then on, a copy of the database is refused.
    pub(crate) fn take_place(file: &Path, options: Options, guard: Guard) -> Result<(), StateError> {
        let _locked = guard;
        Writer::open(file, false, options).map(drop)
    }

    /// Copies the database to `to`, which must be an empty file. Returns the newest revision in the copy, and a
    /// function that seals the digest of the copy.
    pub(crate) fn copy(&self, to: &Path) -> Result<Copied, String> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Copy(to.to_owned(), sender));
        receiver.recv().unwrap_or_else(|_| Err("it is closed".to_owned()))
    }

    /// Returns the path of the database.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// Ends the database as a power cut would: changes that are not on the disk are lost. For tests of recovery.
    pub fn abandon(&self) {
        self.end(Order::Abandon);
    }

    /// Returns when all earlier changes are on the disk.
    ///
    /// # Errors
    /// [`StateError::File`] if a change could not be written.
    pub fn flush(&self) -> Result<(), StateError> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Flush(sender));
        let result = receiver.recv().unwrap_or_else(|_| Err("it is closed".to_owned()));
        result
            .map_err(|why| StateError::File { file: self.0.file.display().to_string(), source: io::Error::other(why) })
    }

    /// Returns the key that encrypts sessions.
    pub fn key(&self) -> &[u8; KEY_LEN] {
        self.0.guard.key()
    }

    /// Returns true if a [recovery](recover) or a restore deleted the rows of contexts. In this case, a context that has
    /// no row may have used numbers before.
    pub fn was_recovered(&self) -> bool {
        self.0.was_recovered
    }

    /// Returns the rows whose names begin with `prefix`, in the order of their names.
    pub fn load(&self, prefix: &str) -> Vec<(String, Numbers)> {
        let (sender, receiver) = mpsc::channel();
        self.order(Order::Load(prefix.to_owned(), sender));
        receiver.recv().unwrap_or_default()
    }

    /// Queues a change. The thread that writes calls `done` when the change is durable or has failed.
    pub fn change(&self, change: Change, done: Option<Done>) {
        self.order(Order::Change(change, done));
    }

    /// Makes a change, and returns when the change is durable.
    ///
    /// # Errors
    /// The reason why the change is not durable.
    pub fn change_now(&self, change: Change) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel();
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        self.order(Order::Change(change, Some(done)));
        match receiver.recv() {
            Ok(result) => result.map_err(io::Error::other),
            Err(_) => Err(io::Error::other(format!("{} is closed", self.0.file.display()))),
        }
    }

    fn order(&self, order: Order) {
        // If the thread has ended, the order is dropped, and its caller receives an error.
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

/// Returns the current time in milliseconds since 1970, if the clock is set. A recovery and a restore need this time:
/// they compute the highest sequence number and the highest revision that may have been used. Each of these numbers
/// increases by at most a fixed amount in a day, its pace.
///
/// # Errors
/// [`StateError::Untrusted`] if the clock is not set.
pub(crate) fn recoverable(file: &Path, options: &Options) -> Result<u64, StateError> {
    let now = (options.wall)();
    if now < revisions::ORIGIN {
        return Err(StateError::Untrusted {
            file: file.display().to_string(),
            why: "the clock is not set, and it limits the numbers that may have been used".to_owned(),
            way_out: "Set the clock, then recover again".to_owned(),
        });
    }
    Ok(now)
}

/// Resets a database that cannot be trusted. Deletes the sessions, so that clients perform new handshakes. Each context
/// then continues above all numbers that it may have used.
///
/// # Errors
/// [`StateError`]; [`StateError::InUse`] while another process has the database open.
pub fn recover(file: &Path) -> Result<(), StateError> {
    Database::begin(file, true, Options::default()).map(drop)
}

#[cfg(test)]
mod tests;
