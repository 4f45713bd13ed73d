//! A database in a temporary directory, for tests that cut its power.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen_store::store::answer::{Answer, Promise, promise};
use tegmen_store::store::{Changes, Found, LeaseId, Page, Scan};
use tegmen_store::{Database, Options, Revision, SealingKey, Store, StoreError, Transaction};

/// The fault at a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The power is cut before the disk has the transaction.
    BeforeCommit,
    /// The power is cut after the disk has the transaction, but before the caller has the answer.
    BeforeAnswer,
    /// The power is not cut. The disk has the transaction, but the caller never receives the answer.
    NoAnswer,
}

/// The kinds of calls to the store before which a test can act.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Read,
    Scan,
    Commit,
}

/// A kind of calls, the number of calls of this kind that come first, and a function that is called once, before the
/// next call of this kind.
type Action = (Call, usize, Box<dyn FnOnce() + Send>);

/// A database that counts the rows that are changed and read. Its power can be cut at a transaction.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) database: Database,
    transactions: Arc<AtomicUsize>,
    /// The number of rows that the last transaction changed.
    pub(crate) rows: Arc<AtomicUsize>,
    /// The number of reads of a single row.
    pub(crate) reads: Arc<AtomicUsize>,
    cut: Option<(usize, Moment)>,
    /// True if other servers use the database, too.
    pub(crate) is_shared: bool,
    before: Arc<Mutex<Option<Action>>>,
    /// The answers that callers wait for and never receive.
    promised: Arc<Mutex<Vec<Promise<Revision>>>>,
}

impl Counting {
    pub(crate) fn new(database: Database, cut: Option<(usize, Moment)>) -> Self {
        Self {
            database,
            transactions: Arc::default(),
            rows: Arc::default(),
            reads: Arc::default(),
            cut,
            is_shared: false,
            before: Arc::default(),
            promised: Arc::default(),
        }
    }

    /// Adds a function that is called before the transaction with this number. The function runs in a separate thread.
    pub(crate) fn before(self, number: usize, action: impl FnOnce() + Send + 'static) -> Self {
        self.interrupt(Call::Commit, number, action);
        self
    }

    /// From now on skips `first` calls of this kind, and calls a function before the next call. The function runs in a
    /// separate thread.
    pub(crate) fn interrupt(&self, call: Call, first: usize, action: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some((call, first, Box::new(action)));
    }

    fn begins(&self, call: Call) {
        let action = {
            let mut before = self.before.lock().unwrap();
            match &mut *before {
                Some((of, 0, _)) if *of == call => before.take(),
                Some((of, first, _)) if *of == call => {
                    *first -= 1;
                    None
                }
                _ => None,
            }
        };
        if let Some((.., action)) = action {
            std::thread::scope(|scope| scope.spawn(action).join().unwrap());
        }
    }

    /// Returns true if the disk has a transaction whose caller never receives the answer.
    pub(crate) fn has_promised(&self) -> bool {
        !self.promised.lock().unwrap().is_empty()
    }
}

impl Store for Counting {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.begins(Call::Read);
        self.database.read(key, at)
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.begins(Call::Scan);
        self.database.scan(scan)
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        let number = self.transactions.fetch_add(1, Ordering::Relaxed);
        self.rows.store(transaction.put.len() + transaction.delete.len(), Ordering::Relaxed);
        self.begins(Call::Commit);
        let Some((_, moment)) = self.cut.filter(|(cut, _)| *cut == number) else {
            return self.database.commit(transaction);
        };
        if moment != Moment::BeforeCommit {
            self.database.commit(transaction).wait().unwrap();
        }
        if moment == Moment::NoAnswer {
            let (promise, answer) = promise();
            self.promised.lock().unwrap().push(promise);
            return answer;
        }
        self.database.abandon();
        Answer::of(Err(StoreError::Unavailable { why: "the power was cut".to_owned() }))
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        self.database.changes(prefix, after, most)
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        self.database.compact(through)
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        self.database.grant(ttl)
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        self.database.renew(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        self.database.revoke(lease)
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

/// A temporary directory, which is removed when the value is dropped.
pub(crate) struct Scene(pub(crate) PathBuf);

impl Scene {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-disk-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let key = dir.join("key");
        std::fs::write(&key, "4".repeat(64)).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Self(dir)
    }

    pub(crate) fn options(&self) -> Options {
        let key = SealingKey::from_file(&self.0.join("key")).unwrap();
        Options { sealing: Some(Arc::new(key)), ..Options::default() }
    }

    pub(crate) fn database(&self) -> Database {
        Database::open_with(&self.0.join("state.db"), self.options()).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}
