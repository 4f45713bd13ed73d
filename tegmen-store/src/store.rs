//! Rows with revisions, behind one trait for all drivers.
//!
//! * A [`Transaction`] is made as a whole or not at all, and has a [`Revision`], which no other one ever has.
//! * A read and a scan see the rows as of one revision, and return it.
//! * [`Changes`] after a revision come in order and without gaps. History is bounded: a request for compacted
//!   history is refused; the caller reads again, and continues from the revision of that read.
//! * A row may be attached to a lease, and goes when the lease ends: all rows of a lease in one revision.

pub mod answer;
pub(crate) mod pace;

use answer::Answer;
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// The number of a transaction: larger than those of all transactions before, with gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a row that is not there.
    pub const ABSENT: Self = Self(0);
}

/// The name of a lease. No lease ever has the name of another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// A number that only goes forward, for nonces and epochs.
///
/// It moves no faster than its pace, counted from a day before the row was made. A restore relies on this: it moves the
/// number past everything that the pace allowed until now, however old the backup is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// Every number below may have been used.
    pub next: u64,
    /// Numbers a day, at least one. The pace of a row does not change.
    pub pace: u64,
}

/// The content of a row.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Bytes that are stored in clear.
    Plain(Vec<u8>),
    /// Bytes that are sealed at rest.
    Secret(Zeroizing<Vec<u8>>),
    /// A number that only goes forward.
    Number(Number),
}

impl Value {
    /// Returns the bytes of a plain value.
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
    /// The key, 1 to [`MAX_KEY`] bytes.
    pub key: Vec<u8>,
    /// The content, at most [`MAX_VALUE`] bytes.
    pub value: Value,
    /// The lease that the row is attached to.
    pub lease: Option<LeaseId>,
}

/// Changes that are made together if all requirements hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    /// Keys, and the revision at which each was changed last; [`Revision::ABSENT`] for a key without a row.
    pub require: Vec<(Vec<u8>, Revision)>,
    /// Rows to be written.
    pub put: Vec<Put>,
    /// Keys whose rows go; a key without a row is no error. A number that is deleted and made again begins anywhere, so
    /// it is deleted only together with the key of the cipher that it belongs to.
    pub delete: Vec<Vec<u8>>,
}

impl Transaction {
    /// Adds a requirement.
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

    /// Adds a key whose row goes.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.delete.push(key.into());
        self
    }

    /// Checks the sizes, and that no key is changed twice.
    ///
    /// # Errors
    /// [`StoreError::Invalid`].
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
/// Maximum number of bytes of the values of a transaction: what etcd takes as one request.
pub const MAX_BYTES: usize = 1 << 20;
/// Most requirements and changes of a transaction: as many as etcd takes.
pub const MAX_OPERATIONS: usize = 128;

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The content.
    pub value: Value,
    /// The revision that made the row.
    pub created: Revision,
    /// The revision that changed the row last.
    pub changed: Revision,
    /// The lease that the row is attached to.
    pub lease: Option<LeaseId>,
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The row, if there is one.
    pub entry: Option<Entry>,
    /// The revision of the store that was read.
    pub at: Revision,
}

/// A part of a scan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scan {
    /// The bytes with which all keys begin; none for all keys.
    pub prefix: Vec<u8>,
    /// The key after which the page begins: [`Page::next`] of the previous page.
    pub after: Option<Vec<u8>>,
    /// Maximum number of rows of the page, at least one.
    pub most: usize,
    /// The revision to read: [`Page::at`] of the first page, so that all pages belong together; `None` for the newest.
    pub at: Option<Revision>,
}

impl Scan {
    /// Returns the first page of the keys that begin with `prefix`.
    pub fn of(prefix: impl Into<Vec<u8>>, most: usize) -> Self {
        Self { prefix: prefix.into(), after: None, most, at: None }
    }

    /// Returns the page after this one.
    #[must_use]
    pub fn following(self, page: &Page) -> Option<Self> {
        Some(Self { after: Some(page.next.clone()?), at: Some(page.at), ..self })
    }
}

/// Rows in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// The rows.
    pub entries: Vec<Entry>,
    /// The key after which the next page begins; `None` on the last page.
    pub next: Option<Vec<u8>>,
    /// The revision of the store that was read.
    pub at: Revision,
}

/// One change of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The key.
    pub key: Vec<u8>,
    /// The revision of the transaction.
    pub revision: Revision,
    /// The row as the transaction left it; `None` if the row went.
    pub entry: Option<Entry>,
}

/// Changes in the order of their revisions, and within one revision in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The changes, whole revisions only.
    pub changes: Vec<Changed>,
    /// The revision to pass to the next call.
    pub through: Revision,
}

/// A store of rows. All calls return at once; the answer comes later. A clone is the same store.
pub trait Store: Clone + Send + Sync + 'static {
    /// Reads one row, at the newest revision or at an earlier one.
    ///
    /// The answer is [`StoreError::Compacted`] or [`StoreError::NotYet`] for a revision that is not there.
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found>;

    /// Reads a page of rows, with the errors of [`Self::read`].
    fn scan(&self, scan: Scan) -> Answer<Page>;

    /// Makes all changes of a transaction, or none. The answer comes when they are durable. A transaction without changes
    /// has no revision of its own, and is answered with the newest one.
    ///
    /// After [`StoreError::Unavailable`] the changes may be made or not: the caller reads, or skips the numbers in question.
    /// After any other error they are not made.
    fn commit(&self, transaction: Transaction) -> Answer<Revision>;

    /// Returns changes after `after` of keys that begin with `prefix`, about `most` of them, at once if there are some, and
    /// otherwise when there is one.
    ///
    /// The answer is [`StoreError::Compacted`] if history does not reach back to `after`.
    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes>;

    /// Forgets history before `through`; rows as they were then and later stay.
    fn compact(&self, through: Revision) -> Answer<()>;

    /// Makes a lease, which ends if it is not renewed for `ttl`, not earlier. A restart of the store renews each lease.
    fn grant(&self, ttl: Duration) -> Answer<LeaseId>;

    /// Renews a lease for its whole time. The answer is [`StoreError::LeaseEnded`] if it has ended.
    fn renew(&self, lease: LeaseId) -> Answer<()>;

    /// Ends a lease. The answer comes when its rows are gone durably.
    fn revoke(&self, lease: LeaseId) -> Answer<()>;

    /// True if several servers may have this store open at the same time. The rows that one of them read before can
    /// then be out of date.
    fn is_shared(&self) -> bool;
}

/// The reason why a call to a store was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// A requirement of the transaction does not hold.
    #[error("the row of {} was changed: read it and try again", name(.key))]
    Conflict {
        /// The key of the requirement.
        key: Vec<u8>,
        /// The revision at which the row was changed last; [`Revision::ABSENT`] if there is none.
        found: Revision,
    },
    /// History does not reach back to that revision.
    #[error("history begins at revision {}: read again, and continue from the revision of that read", .oldest.0)]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// There is no such revision yet.
    #[error("the newest revision is {}: a later one comes from another store", .newest.0)]
    NotYet {
        /// The newest revision.
        newest: Revision,
    },
    /// The lease has ended.
    #[error("lease {} has ended: ask for another one, and write its rows again", .0.0)]
    LeaseEnded(LeaseId),
    /// A number would stay, go back or become something else, or its pace would change.
    #[error("the number of {} only goes forward, at the pace that it was made with: read it and try again", name(.key))]
    NotForward {
        /// The key of the number.
        key: Vec<u8>,
    },
    /// A number would move faster than its pace.
    #[error("the number of {} would move faster than its pace allows: wait, or set the clock", name(.key))]
    TooFast {
        /// The key of the number.
        key: Vec<u8>,
    },
    /// A secret cannot be sealed or opened without the sealing key.
    #[error("secrets are sealed: open the database with its sealing key")]
    Sealed,
    /// The request breaks a limit.
    #[error("{why}")]
    Invalid {
        /// The limit.
        why: &'static str,
    },
    /// The store failed. A transaction may be made or not.
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
