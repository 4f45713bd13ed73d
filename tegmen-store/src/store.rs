//! The trait [`Store`]: rows with revisions. A driver is an implementation of the trait: a database file, or a cluster
//! of etcd.
//!
//! * A [`Transaction`] is made completely or not at all. It has a [`Revision`], which no other transaction ever has.
//! * A read and a scan show the rows at one revision, and return this revision.
//! * [`Changes`] after a revision arrive in order and without gaps. The store deletes old history. A request for
//!   deleted history fails with [`StoreError::Compacted`]; the caller then reads the rows again, and continues from the
//!   revision of that read.
//! * A row may be attached to a lease. A lease ends if nobody renews it in time. Then the store deletes all rows that
//!   are attached to the lease, in one revision.

pub mod answer;
pub(crate) mod pace;

use answer::Answer;
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// The number of a transaction. It is larger than the numbers of all earlier transactions. Some numbers are never used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a row that does not exist.
    pub const ABSENT: Self = Self(0);
}

/// The name of a lease. A lease keeps rows in the store until it ends. Two leases never have the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// A number that only increases, for nonces and epochs.
///
/// The pace limits the number: T days after the row was made, the number has increased by at most (T + 1) × pace. The
/// restore of a backup relies on this limit. The restore increases the number above all values that the pace allowed
/// until now. So no value is used a second time after the restore, even if the backup is old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// The present value of the number. Every lower value may have been used.
    pub next: u64,
    /// The maximum amount by which `next` increases in a day; at least 1. A change of the row never changes the pace.
    pub pace: u64,
}

/// The content of a row.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes that are stored in clear.
    Plain(Vec<u8>),
    /// Bytes that are stored encrypted.
    Secret(Zeroizing<Vec<u8>>),
    /// A [`Number`]: a value that only increases. Its field `pace` limits the increase in a day.
    Number(Number),
}

impl Value {
    /// Returns the bytes of a plain value; `None` for a secret or a [`Number`].
    pub fn plain(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(bytes) => Some(bytes),
            Self::Secret(_) | Self::Number(_) => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Secret(bytes) => bytes.len(),
            Self::Number(_) => size_of::<Number>(),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(bytes) => f.debug_tuple("Plain").field(bytes).finish(),
            Self::Secret(_) => f.write_str("Secret"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// A row that a transaction writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The key of the row, 1 to [`MAX_KEY`] bytes.
    pub key: Vec<u8>,
    /// The content of the row, at most [`MAX_VALUE`] bytes.
    pub value: Value,
    /// The lease to which the row is attached; `None` for a row without a lease.
    pub lease: Option<LeaseId>,
}

/// Changes that are made together, if all requirements of the transaction hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    /// Pairs of a key and a revision: the last change of the row with this key must have this revision.
    /// [`Revision::ABSENT`] requires that the row does not exist.
    pub require: Vec<(Vec<u8>, Revision)>,
    /// The rows to write.
    pub put: Vec<Put>,
    /// Keys whose rows are deleted. A key without a row is no error. A [`Number`] that is deleted and made again may
    /// begin at any value. So delete a number only together with the key of the cipher that uses it.
    pub delete: Vec<Vec<u8>>,
}

impl Transaction {
    /// Adds a requirement: the last change of the row of `key` must have the revision `at`.
    #[must_use]
    pub fn require(mut self, key: impl Into<Vec<u8>>, at: Revision) -> Self {
        self.require.push((key.into(), at));
        self
    }

    /// Adds a row without a lease.
    #[must_use]
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: Value) -> Self {
        self.put.push(Put { key: key.into(), value, lease: None });
        self
    }

    /// Adds a row that is attached to a lease.
    #[must_use]
    pub fn put_leased(mut self, key: impl Into<Vec<u8>>, value: Value, lease: LeaseId) -> Self {
        self.put.push(Put { key: key.into(), value, lease: Some(lease) });
        self
    }

    /// Adds a key whose row is deleted.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.delete.push(key.into());
        self
    }

    /// Checks the sizes of the keys and values, and that the transaction changes each row only once.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if a limit is exceeded, or if two changes have the same key.
    pub fn check(&self) -> Result<(), StoreError> {
        let invalid = |why| Err(StoreError::Invalid { why });
        if self.require.len() + self.put.len() + self.delete.len() > MAX_OPERATIONS {
            return invalid("a transaction has at most 128 requirements and changes: divide it");
        }
        let changed = || self.put.iter().map(|put| &put.key).chain(&self.delete);
        if changed().chain(self.require.iter().map(|(key, _)| key)).any(|key| key.is_empty() || key.len() > MAX_KEY) {
            return invalid("a key has 1 to 512 bytes");
        }
        if self.put.iter().any(|put| put.value.len() > MAX_VALUE) {
            return invalid("a value has at most 65,536 bytes: divide it among several keys");
        }
        if self.put.iter().map(|put| put.value.len()).sum::<usize>() > MAX_BYTES {
            return invalid("the values of a transaction have at most 1 MiB: divide it");
        }
        if self.put.iter().any(|put| matches!(put.value, Value::Number(Number { pace: 0, .. }))) {
            return invalid("the pace of a number is at least one a day");
        }
        let mut keys: Vec<_> = changed().collect();
        keys.sort_unstable();
        match keys.windows(2).any(|pair| matches!(pair, [first, second] if first == second)) {
            true => invalid("a transaction changes a key once"),
            false => Ok(()),
        }
    }
}

/// Maximum number of bytes of a key.
pub const MAX_KEY: usize = 512;
/// Maximum number of bytes of a value.
pub const MAX_VALUE: usize = 65_536;
/// Maximum number of bytes of all values of a transaction together: the limit of etcd for one request.
pub const MAX_BYTES: usize = 1 << 20;
/// Maximum number of requirements and changes of a transaction: the limit of etcd.
pub const MAX_OPERATIONS: usize = 128;

/// A row of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key of the row.
    pub key: Vec<u8>,
    /// The content of the row.
    pub value: Value,
    /// The revision that made the row.
    pub created: Revision,
    /// The revision that changed the row last.
    pub changed: Revision,
    /// The lease to which the row is attached; `None` for a row without a lease.
    pub lease: Option<LeaseId>,
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The row, if there is one.
    pub entry: Option<Entry>,
    /// The revision of the store at which the row was read.
    pub at: Revision,
}

/// The description of one page of a scan: the keys, the number of rows and the revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The scan returns the rows whose keys begin with these bytes. If the prefix is empty, it returns all rows.
    pub prefix: Vec<u8>,
    /// The key after which the page begins: [`Page::next`] of the previous page. `None` for the first page.
    pub after: Option<Vec<u8>>,
    /// Maximum number of rows in the page, at least one.
    pub most: usize,
    /// The revision to read; `None` for the newest revision. [`Self::following`] copies [`Page::at`] of the first page
    /// into this field, so that all pages show the same revision.
    pub at: Option<Revision>,
}

impl Scan {
    /// Returns the scan for the first page of the keys that begin with `prefix`.
    pub fn of(prefix: impl Into<Vec<u8>>, most: usize) -> Self {
        Self { prefix: prefix.into(), after: None, most, at: None }
    }

    /// Returns the scan for the page after `page`; `None` if `page` is the last one.
    #[must_use]
    pub fn following(self, page: &Page) -> Option<Self> {
        Some(Self { after: Some(page.next.clone()?), at: Some(page.at), ..self })
    }
}

/// One page of a scan: rows in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The rows of the page.
    pub entries: Vec<Entry>,
    /// The key after which the next page begins; `None` on the last page.
    pub next: Option<Vec<u8>>,
    /// The revision of the store at which the page was read.
    pub at: Revision,
}

/// One change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The key of the row.
    pub key: Vec<u8>,
    /// The revision of the transaction that made the change.
    pub revision: Revision,
    /// The row after the transaction; `None` if the transaction deleted the row.
    pub entry: Option<Entry>,
}

/// Changes in the order of their revisions, and within one revision in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The changes. All changes of a revision are in the same answer.
    pub changes: Vec<Changed>,
    /// The revision to pass as `after` to the next call of [`Store::changes`].
    pub through: Revision,
}

/// A store of rows. Each call returns at once with an [`Answer`], which receives the result later. A clone uses the
/// same store.
pub trait Store: Clone + Send + Sync + 'static {
    /// Reads one row, at the newest revision or at an earlier one.
    ///
    /// The answer is [`StoreError::Compacted`] for a revision that was deleted, and [`StoreError::NotYet`] for a future
    /// revision.
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found>;

    /// Reads a page of rows. The possible errors are those of [`Self::read`].
    fn scan(&self, scan: Scan) -> Answer<Page>;

    /// Makes all changes of a transaction, or none. The answer arrives when the changes are durable. A transaction
    /// without changes gets no new revision, and its answer is the newest revision.
    ///
    /// After [`StoreError::Unavailable`] it is unknown if the changes were made. The caller reads the rows again, or
    /// skips the values of a [`Number`] that the transaction would have reserved. After any other error no change was
    /// made.
    fn commit(&self, transaction: Transaction) -> Answer<Revision>;

    /// Returns about `most` changes of rows whose keys begin with `prefix`. All changes have revisions after `after`.
    /// If no such change exists yet, the answer waits for the next change.
    ///
    /// The answer is [`StoreError::Compacted`] if the history after `after` was deleted.
    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes>;

    /// Deletes the history before `through`. The rows at `through` and at all later revisions can still be read.
    fn compact(&self, through: Revision) -> Answer<()>;

    /// Makes a lease. The lease ends if it is not renewed for `ttl`. It never ends earlier, unless [`Self::revoke`]
    /// ends it. A restart of the store renews each lease.
    fn grant(&self, ttl: Duration) -> Answer<LeaseId>;

    /// Renews a lease for its whole duration. The answer is [`StoreError::LeaseEnded`] if the lease has ended.
    fn renew(&self, lease: LeaseId) -> Answer<()>;

    /// Ends a lease. The answer arrives when the deletion of the rows that are attached to the lease is durable.
    fn revoke(&self, lease: LeaseId) -> Answer<()>;

    /// Returns true if several servers may have this store open at the same time. The rows that one server read earlier
    /// can then be out of date.
    fn is_shared(&self) -> bool;
}

/// The reason why a call to a store failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// A requirement of the transaction does not hold.
    #[error("the row of {} was changed: read it and try again", name(.key))]
    Conflict {
        /// The key of the requirement.
        key: Vec<u8>,
        /// The revision at which the row was changed last; [`Revision::ABSENT`] if the row does not exist.
        found: Revision,
    },
    /// The history of the requested revision was deleted.
    #[error("history begins at revision {}: read again, and continue from the revision of that read", .oldest.0)]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("the newest revision is {}: a later one comes from another store", .newest.0)]
    NotYet {
        /// The newest revision.
        newest: Revision,
    },
    /// The lease has ended.
    #[error("lease {} has ended: ask for another one, and write its rows again", .0.0)]
    LeaseEnded(LeaseId),
    /// A transaction would break a rule for rows with a [`Number`]: the number would stay the same or decrease, its
    /// pace (its maximum increase in a day) would change, or another kind of value would replace the number.
    #[error("the number of {} only goes forward, at the pace that it was made with: read it and try again", name(.key))]
    NotForward {
        /// The key of the number.
        key: Vec<u8>,
    },
    /// A transaction would increase a [`Number`] faster than its pace (its maximum increase in a day) allows.
    #[error("the number of {} would move faster than its pace allows: wait, or set the clock", name(.key))]
    TooFast {
        /// The key of the number.
        key: Vec<u8>,
    },
    /// The sealing key is missing, so a secret cannot be encrypted or decrypted.
    #[error("secrets are sealed: open the database with its sealing key")]
    Sealed,
    /// The request breaks a limit.
    #[error("{why}")]
    Invalid {
        /// A text that describes the limit.
        why: &'static str,
    },
    /// The store failed. If the failed call was a transaction, it is unknown whether the store made the changes of the
    /// transaction.
    #[error("the store is not available ({why}): try again later, and read first whether a change was made")]
    Unavailable {
        /// The cause.
        why: String,
    },
}

impl StoreError {
    pub(crate) fn closed() -> Self {
        Self::Unavailable { why: "it is closed".to_owned() }
    }

    pub(crate) fn taken() -> Self {
        Self::Unavailable { why: "the answer was taken before".to_owned() }
    }
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
