//! Rows with revisions. The store keeps each version of a row until the history is compacted. One table holds the
//! current and the earlier versions, so each change is written only once.

use super::calls::Watcher;
use super::revisions::{self, Revisions};
use crate::clock;
use crate::sealing::Sealer;
use crate::store::{Changed, Changes, Entry, Found, LeaseId, Number, Page, Revision, Scan, StoreError, Value, pace};
use rusqlite::{Connection, OptionalExtension as _, Row, Statement, ToSql, params};
use std::time::Duration;

/// The SQL statements that make the tables, without the index [`BY_LEASE`].
pub(super) const TABLES: &str = "
    CREATE TABLE versions (
        key BLOB NOT NULL, revision INTEGER NOT NULL, kind INTEGER NOT NULL, value BLOB, created INTEGER NOT NULL,
        lease INTEGER, PRIMARY KEY (key, revision)
    ) WITHOUT ROWID;
    CREATE INDEX by_revision ON versions (revision);
    CREATE TABLE leases (lease INTEGER PRIMARY KEY, ttl INTEGER NOT NULL);
    CREATE TABLE store (
        one INTEGER PRIMARY KEY CHECK (one = 1), revision_end INTEGER NOT NULL, compacted INTEGER NOT NULL,
        data_key BLOB
    );";

/// The index of the rows of each lease, in the order of their revisions. A new row is then the last row of its lease in
/// the index, so a commit of many rows writes few pages.
pub(super) const BY_LEASE: &str = "CREATE INDEX by_lease ON versions (lease, revision) WHERE lease IS NOT NULL;";

/// Maximum number of rows in a page of a scan.
const MOST: usize = 10_000;
/// A page of a scan ends when the values in the page have this number of bytes together.
const PAGE_BYTES: usize = 4 << 20;
/// If a page of a scan has at least this number of rows, two threads decrypt the page.
const LONG_PAGE: usize = 512;

const DELETED: i64 = 0;
const PLAIN: i64 = 1;
const SECRET: i64 = 2;
const NUMBER: i64 = 3;

/// A version of a row, as the table stores it.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) key: Vec<u8>,
    pub(super) revision: u64,
    kind: i64,
    value: Vec<u8>,
    pub(super) created: u64,
    lease: Option<u64>,
}

impl Version {
    /// Returns the version that marks the row `key` as deleted at `revision`.
    pub(super) fn deleted(key: &[u8], revision: u64) -> Self {
        Self { key: key.to_owned(), revision, kind: DELETED, value: Vec::new(), created: revision, lease: None }
    }

    /// Returns the version of a row with this value. If the value is a [`Number`], `since` is a time in milliseconds
    /// since 1970. From this time on, the highest allowed value of the number grows by its `pace` each day.
    ///
    /// # Errors
    /// [`StoreError::Sealed`] for a secret, if the store has no sealing key.
    pub(super) fn new(
        key: Vec<u8>,
        revision: u64,
        value: Value,
        since: u64,
        sealer: Option<&Sealer>,
    ) -> Result<Self, StoreError> {
        let (kind, value) = match value {
            Value::Plain(bytes) => (PLAIN, bytes),
            Value::Secret(secret) => {
                let sealed = sealer.ok_or(StoreError::Sealed)?.seal(&key, revision, &secret);
                (SECRET, sealed.map_err(|why| StoreError::Unavailable { why })?)
            }
            Value::Number(number) => (NUMBER, pace::encode(number, since).to_vec()),
        };
        Ok(Self { key, revision, kind, value, created: revision, lease: None })
    }

    /// Returns the [`Number`] that is the value of the row in this version, and a time in milliseconds since 1970. From
    /// this time on, the highest allowed value of the number grows by its `pace` each day. Returns `None` if the value
    /// is no number.
    pub(super) fn number(&self) -> Option<(Number, u64)> {
        if self.kind == NUMBER { pace::decode(&self.value) } else { None }
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
        Ok(Self {
            key: row.get(0)?,
            revision: number(1)?,
            kind: row.get(2)?,
            value: row.get::<_, Option<Vec<u8>>>(3)?.unwrap_or_default(),
            created: number(4)?,
            lease: row.get::<_, Option<i64>>(5)?.map(|lease| lease as u64),
        })
    }

    /// Writes versions to the table. The previous versions of their rows stay there until the history is compacted. After
    /// an error some of the versions may be written, so the caller must end the SQLite transaction without a commit.
    pub(super) fn write_all(connection: &Connection, versions: &[Self]) -> rusqlite::Result<()> {
        let (many, rest) = versions.as_chunks::<ROWS>();
        if !many.is_empty() {
            let mut insert = connection.prepare_cached(&insert(ROWS))?;
            many.iter().try_for_each(|versions| Self::write(versions, &mut insert))?;
        }
        if !rest.is_empty() {
            let mut insert = connection.prepare_cached(&insert(1))?;
            rest.chunks(1).try_for_each(|version| Self::write(version, &mut insert))?;
        }
        Ok(())
    }

    /// Writes as many versions as the prepared statement [`insert`] writes.
    fn write(versions: &[Self], insert: &mut Statement<'_>) -> rusqlite::Result<()> {
        let mut places = 1..;
        for Self { key, revision, kind, value, created, lease } in versions {
            let (revision, created, lease) = (*revision as i64, *created as i64, lease.map(|lease| lease as i64));
            let columns: [&dyn ToSql; COLUMNS] = [key, &revision, kind, value, &created, &lease];
            // `places` comes second: of two iterators, `zip` may take one item more from the first.
            for (column, place) in columns.into_iter().zip(places.by_ref()) {
                insert.raw_bind_parameter(place, column)?;
            }
        }
        insert.raw_execute().map(drop)
    }

    /// Sets the revision that made the row, and the lease to which the row is attached. `lease` is `None` for a row
    /// without a lease.
    pub(super) fn of(self, created: u64, lease: Option<LeaseId>) -> Self {
        Self { created, lease: lease.map(|lease| lease.0), ..self }
    }

    /// Decrypts the version and returns its row. Returns `None` if this version deletes the row.
    fn entry(self, sealer: Option<&Sealer>) -> Result<Option<Entry>, StoreError> {
        let damaged = || StoreError::Unavailable { why: "a row is damaged: restore a backup".to_owned() };
        let value = match self.kind {
            DELETED => return Ok(None),
            PLAIN => Value::Plain(self.value),
            SECRET => {
                let opened = sealer.ok_or(StoreError::Sealed)?.open(&self.key, self.revision, &self.value);
                Value::Secret(opened.ok_or_else(damaged)?)
            }
            _ => Value::Number(self.number().ok_or_else(damaged)?.0),
        };
        let (created, changed) = (Revision(self.created), Revision(self.revision));
        Ok(Some(Entry { key: self.key, value, created, changed, lease: self.lease.map(LeaseId) }))
    }
}

/// The current version of a row, but without the key and the value.
#[derive(Clone, Copy)]
pub(super) struct Current {
    /// The revision that changed the row last.
    pub(super) revision: u64,
    /// The revision that made the row.
    pub(super) created: u64,
    /// If the value of the row is a [`Number`]: this number, and a time in milliseconds since 1970. From this time on,
    /// the highest allowed value of the number grows by its `pace` each day. `None` for any other value.
    pub(super) number: Option<(Number, u64)>,
}

/// Number of columns of the table of versions.
const COLUMNS: usize = 6;
/// Maximum number of versions that one statement writes. SQLite begins and ends each statement, and this
/// takes about as long as the insertion of a row.
const ROWS: usize = 16;

/// Returns the SQL statement that writes this number of versions. Without `OR FAIL`, SQLite copies each page before a
/// statement for several rows changes it, so that the statement can be undone alone.
fn insert(rows: usize) -> String {
    format!("INSERT OR FAIL INTO versions VALUES {}", vec!["(?, ?, ?, ?, ?, ?)"; rows].join(", "))
}

/// The SQL query that [`current`] uses.
pub(super) const CURRENT: &str =
    "SELECT revision, created, kind, value FROM versions WHERE key = ?1 ORDER BY revision DESC LIMIT 1";

/// Returns the current version of the row of a key; `None` if the row does not exist. `select` is the prepared statement
/// [`CURRENT`].
pub(super) fn current(select: &mut Statement<'_>, key: &[u8]) -> rusqlite::Result<Option<Current>> {
    let row = select.query_row([key], |row| {
        let kind: i64 = row.get(2)?;
        let number = if kind == NUMBER { pace::decode(row.get_ref(3)?.as_blob()?) } else { None };
        let (revision, created) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
        Ok((kind != DELETED).then_some(Current { revision, created, number }))
    });
    Ok(row.optional()?.flatten())
}

/// Returns the version of a row that was current at the revision `at`.
fn version(connection: &Connection, key: &[u8], at: u64) -> rusqlite::Result<Option<Version>> {
    let mut select = connection.prepare_cached(
        "SELECT key, revision, kind, value, created, lease FROM versions WHERE key = ?1 AND revision <= ?2
         ORDER BY revision DESC LIMIT 1",
    )?;
    select.query_row(params![key, at as i64], Version::read).optional()
}

/// Prepares a copy of a database for the restore of a backup: see [`crate::backup`]. `now` is the time of the restore,
/// in milliseconds since 1970.
pub(crate) fn retake(connection: &Connection, now: u64) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    // History, and rows that are gone.
    transaction.execute_batch(
        "DELETE FROM versions WHERE EXISTS (
             SELECT 1 FROM versions AS newer WHERE newer.key = versions.key AND newer.revision > versions.revision
         );
         DELETE FROM versions WHERE kind = 0;
         DELETE FROM numbers;
         UPDATE state SET place = '', sum = zeroblob(16), recovered = 1;",
    )?;
    let end: i64 = transaction.query_row("SELECT revision_end FROM store", [], |row| row.get(0))?;
    // The lost database has not used this revision, nor any above.
    let end = revisions::allowed(now).max(end as u64).saturating_add(1);
    let mut select =
        transaction.prepare("SELECT key, revision, kind, value, created, lease FROM versions WHERE kind = ?1")?;
    let numbers = select.query_map([NUMBER], Version::read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    drop(select);
    for version in numbers {
        let Some((number, since)) = version.number() else { continue };
        let next = number.next.max(clock::allowed(number.pace, since, now));
        let value = pace::encode(Number { next, ..number }, since);
        transaction.execute(
            "UPDATE versions SET revision = ?1, value = ?2 WHERE key = ?3",
            params![end as i64, value.as_slice(), version.key],
        )?;
    }
    let written = clock::now() as i64;
    transaction.execute("UPDATE state SET written = ?1", [written])?;
    transaction.execute("UPDATE store SET revision_end = ?1, compacted = ?1", [end as i64])?;
    transaction.commit()
}

/// Implements [`Store::read`](crate::Store::read).
pub(super) fn read(
    connection: &Connection,
    revisions: &Revisions,
    sealer: Option<&Sealer>,
    key: &[u8],
    at: Option<Revision>,
) -> Result<Found, StoreError> {
    let at = revisions.checked(at)?;
    let version = version(connection, key, at).map_err(unavailable)?;
    let entry = version.map(|version| version.entry(sealer)).transpose()?.flatten();
    Ok(Found { entry, at: Revision(at) })
}

/// Implements [`Store::scan`](crate::Store::scan).
pub(super) fn scan(
    connection: &Connection,
    revisions: &Revisions,
    sealer: Option<&Sealer>,
    scan: &Scan,
) -> Result<Page, StoreError> {
    if scan.most == 0 {
        return Err(StoreError::Invalid { why: "a page has at least one row" });
    }
    let at = revisions.checked(scan.at)?;
    let most = scan.most.min(MOST);
    // The smallest key after another one has one byte more, a zero.
    let after = scan.after.as_ref().map(|after| [after.as_slice(), &[0]].concat());
    let first = after.filter(|after| *after > scan.prefix).unwrap_or_else(|| scan.prefix.clone());
    let query = "SELECT key, revision, kind, value, created, lease FROM versions
         WHERE key >= ?1 AND revision <= ?2 ORDER BY key, revision";
    let mut select = connection.prepare_cached(query).map_err(unavailable)?;
    let mut rows = select.query(params![first, at as i64]).map_err(unavailable)?;
    let (mut found, mut bytes) = (Vec::<Version>::new(), 0_usize);
    let mut newest: Option<Version> = None;
    let mut next = None;
    loop {
        // Of the versions of a key, the last one is the row.
        let version = rows.next().map_err(unavailable)?.map(Version::read).transpose().map_err(unavailable)?;
        let version = version.filter(|version| version.key.starts_with(&scan.prefix));
        let is_last = version.is_none();
        let is_newer = version.as_ref().map(|version| &version.key) == newest.as_ref().map(|newest| &newest.key);
        let before = std::mem::replace(&mut newest, version);
        if let Some(row) = before.filter(|before| !is_newer && before.kind != DELETED) {
            if found.len() >= most || bytes >= PAGE_BYTES {
                next = found.last().map(|last| last.key.clone());
                break;
            }
            bytes = bytes.saturating_add(row.value.len());
            found.push(row);
        }
        if is_last {
            break;
        }
    }
    Ok(Page { entries: open(found, sealer)?, next, at: Revision(at) })
}

/// Decrypts rows. For a long page a second thread decrypts one half of the rows, because decryption takes longer than
/// the query.
fn open(mut rows: Vec<Version>, sealer: Option<&Sealer>) -> Result<Vec<Entry>, StoreError> {
    let open = |rows: Vec<Version>| -> Result<Vec<Entry>, StoreError> {
        rows.into_iter().filter_map(|row| row.entry(sealer).transpose()).collect()
    };
    if sealer.is_none() || rows.len() < LONG_PAGE {
        return open(rows);
    }
    let half = rows.split_off(rows.len().div_ceil(2));
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, move || open(half));
        let other = other.map_err(|error| StoreError::Unavailable { why: error.to_string() })?;
        let mut entries = open(rows)?;
        let half = other.join().unwrap_or_else(|_| Err(StoreError::closed()));
        half.map(|mut half| {
            entries.append(&mut half);
            entries
        })
    })
}

/// Finds the existing changes that a call of [`Store::changes`](crate::Store::changes) requests. `watcher` contains the
/// arguments of this call.
pub(super) fn changes(
    connection: &Connection,
    revisions: &Revisions,
    sealer: Option<&Sealer>,
    watcher: &Watcher,
) -> Result<Changes, StoreError> {
    let (after, newest) = (revisions.checked(Some(watcher.after))?, revisions.newest());
    if after == newest.0 {
        return Ok(Changes { changes: Vec::new(), through: newest });
    }
    let mut select = connection
        .prepare_cached(
            "SELECT key, revision, kind, value, created, lease FROM versions WHERE revision > ?1 ORDER BY revision, key",
        )
        .map_err(unavailable)?;
    let rows = select.query_map([after as i64], Version::read).map_err(unavailable)?;
    wanted(rows.map(|version| version.map_err(unavailable)), newest, sealer, watcher)
}

/// Selects from `versions` the changes that a call of [`Store::changes`](crate::Store::changes) requests. `watcher`
/// contains the arguments of this call. `versions` contains versions of rows, in the order of their revisions and keys.
/// `newest` is the newest revision of these versions.
pub(super) fn wanted(
    versions: impl Iterator<Item = Result<Version, StoreError>>,
    newest: Revision,
    sealer: Option<&Sealer>,
    watcher: &Watcher,
) -> Result<Changes, StoreError> {
    let (mut changes, mut bytes) = (Vec::<Changed>::new(), 0_usize);
    for version in versions {
        let version = version?;
        let revision = Revision(version.revision);
        let is_full = changes.len() >= watcher.most.clamp(1, MOST) || bytes >= PAGE_BYTES;
        if let Some(last) = changes.last().filter(|last| is_full && last.revision != revision) {
            let through = last.revision;
            return Ok(Changes { changes, through });
        }
        if version.key.starts_with(&watcher.prefix) {
            bytes = bytes.saturating_add(version.value.len());
            let key = version.key.clone();
            changes.push(Changed { key, revision, entry: version.entry(sealer)? });
        }
    }
    Ok(Changes { changes, through: newest })
}

/// Deletes old versions. Examines the changes after the revision `from`, up to the revision `through`, and stops after
/// about `most` changes. For each of these changes, deletes the earlier versions of the same row. Returns the revision
/// up to which history was deleted.
pub(super) fn compact(connection: &Connection, from: u64, through: u64, most: usize) -> rusqlite::Result<u64> {
    let mut border = connection.prepare_cached(
        "SELECT revision FROM versions WHERE revision > ?1 AND revision <= ?2 ORDER BY revision LIMIT 1 OFFSET ?3",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let border = border.query_row(params![from as i64, through as i64, most], |row| row.get::<_, i64>(0)).optional()?;
    let through = border.map_or(through, |border| border as u64);
    let mut select = connection.prepare_cached(
        "SELECT revision, key, kind FROM versions WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
    )?;
    let rows = select.query_map(params![from as i64, through as i64], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)?))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut older = connection.prepare_cached("DELETE FROM versions WHERE key = ?1 AND revision < ?2")?;
    let mut this = connection.prepare_cached("DELETE FROM versions WHERE key = ?1 AND revision = ?2")?;
    for (revision, key, kind) in &rows {
        older.execute(params![key, revision])?;
        if *kind == DELETED {
            this.execute(params![key, revision])?;
        }
    }
    Ok(through)
}

/// Returns the keys of the rows that are attached to a lease.
pub(super) fn leased(connection: &Connection, lease: LeaseId) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut select = connection.prepare_cached(
        "SELECT key FROM versions AS one WHERE lease = ?1 AND revision =
             (SELECT max(revision) FROM versions AS other WHERE other.key = one.key)",
    )?;
    select.query_map([lease.0 as i64], |row| row.get(0))?.collect()
}

/// Returns all leases, each with its duration.
pub(super) fn leases(connection: &Connection) -> rusqlite::Result<Vec<(LeaseId, Duration)>> {
    let mut select = connection.prepare("SELECT lease, ttl FROM leases")?;
    let rows = select.query_map([], |row| {
        Ok((LeaseId(row.get::<_, i64>(0)? as u64), Duration::from_millis(row.get::<_, i64>(1)? as u64)))
    })?;
    rows.collect()
}

/// Returns the duration of a lease; `None` if the lease does not exist.
pub(super) fn ttl(connection: &Connection, lease: LeaseId) -> rusqlite::Result<Option<Duration>> {
    let mut select = connection.prepare_cached("SELECT ttl FROM leases WHERE lease = ?1")?;
    let ttl = select.query_row([lease.0 as i64], |row| row.get::<_, i64>(0)).optional()?;
    Ok(ttl.map(|millis| Duration::from_millis(millis as u64)))
}

fn unavailable(error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable { why: error.to_string() }
}
