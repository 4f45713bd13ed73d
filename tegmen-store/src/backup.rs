//! Backups of a database. A backup is a consistent copy. After a restore from a backup, no sequence number, no epoch
//! and no revision is used a second time.
//!
//! ```text
//! tegmen backup 1                  the format
//! made = 1795651434                seconds since 1970
//! revision = 8193                  the newest revision of the copy
//! bytes = 61440                    length of the database
//! sha256 = "..."                   digest of the database
//! authentic = "..."                that digest, sealed under the data key of the database; empty without a sealing key
//!                                  an empty line, and the database
//! ```
//!
//! A backup does not record the numbers that are used after it was made. So [`restore`] increases each
//! [`Number`](crate::store::Number) to the highest value that it can have reached until the restore. Each number has a
//! pace, which is its maximum increase in a day. The restore increases the revisions in the same way. It deletes the
//! sessions, and the sequence numbers of OSCORE contexts. [`Database::was_recovered`] then returns true. A context
//! without stored sequence numbers then begins above every sequence number that it can have used at its maximum pace.
//! The restore also deletes the history, so each [`Watch`](crate::Watch) fails with
//! [`StoreError::Compacted`](crate::StoreError::Compacted).
//!
//! All changes after the time of the backup are lost. This includes revocations.

use crate::clock;
use crate::database::{Database, Options, recoverable, retake};
use crate::error::StateError;
use crate::files::{beside, directory_of, rename};
use crate::guard::Guard;
use crate::sealing::{Keeper, Sealer};
use rusqlite::{Connection, OpenFlags, params};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::private;

/// The first line of a backup.
const FORMAT: &str = "tegmen backup 1\n";
/// Maximum time by which the clock may be earlier than the time of the backup, in milliseconds.
const CLOCK_TOLERANCE: u64 = 120_000;
/// Maximum number of bytes of the header, which precedes the database in the file.
const MAX_HEADER: usize = 1024;
/// The ends of the names of a database's files. Each name begins with the name of the database.
const OWN: [&str; 7] = ["", "-wal", "-shm", "-journal", ".key", ".place", ".place.new"];

/// The description of a backup, which precedes the database in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The time at which the backup was made, in seconds since 1970.
    pub made: u64,
    /// The newest revision of the copy.
    pub revision: u64,
    /// The length of the copied database in bytes.
    pub bytes: u64,
    /// SHA-256 of the copied database, in hexadecimal.
    pub sha256: String,
    /// The digest `sha256`, sealed under the data key of the database, in hexadecimal. Empty for a database without a
    /// sealing key.
    pub authentic: String,
}

/// The reason why a backup cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file cannot be read or written.
    #[error("{file}: {source}: correct the path, or the permissions there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is no backup, or is damaged.
    #[error("{file}: {why}: use another backup")]
    Damaged {
        /// The path of the file.
        file: String,
        /// The fault.
        why: String,
    },
    /// The origin of the backup cannot be verified.
    #[error("{file}: {why}")]
    NotAuthentic {
        /// The path of the file.
        file: String,
        /// The reason, and the next step of the operator.
        why: String,
    },
    /// The database to restore exists already.
    #[error("{file}: there is a database: move it away first; if it is intact, it is newer than the backup")]
    Exists {
        /// The path of the database.
        file: String,
    },
    /// The database cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Returns a function that converts an error of the system into an error of this module. Both errors concern `file`.
fn failed(file: &Path) -> impl Fn(io::Error) -> BackupError {
    let file = file.display().to_string();
    move |source| BackupError::File { file: file.clone(), source }
}

/// Returns a function that converts an error of SQLite into an error of this module. Both errors concern `file`.
fn spoiled(file: &Path) -> impl Fn(rusqlite::Error) -> BackupError {
    let file = file.display().to_string();
    move |error| BackupError::Damaged { file: file.clone(), why: error.to_string() }
}

/// Creates an empty file that only its owner may read. Empties an existing file.
fn make(file: &Path) -> Result<File, BackupError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    private::open(&mut options, file).map_err(failed(file))
}

impl Database {
    /// Writes a consistent copy of the database to `to`. The copy contains all changes that were queued before this
    /// call. Later changes wait until the copy is complete. The copy replaces an existing backup.
    ///
    /// # Errors
    /// [`BackupError`]; an existing file then stays unchanged. [`BackupError::File`] also if the backup, or one of the two
    /// files that this function writes first (`to` with the extensions `copy` and `new`), would replace a file of the
    /// database, and if `to` is a file that is neither empty nor a backup. [`BackupError::NotAuthentic`] if the database
    /// has a sealing key and was opened without this key.
    pub fn backup(&self, to: &Path) -> Result<Manifest, BackupError> {
        let (copy, draft) = (beside(to, "copy"), beside(to, "new"));
        for file in [to, &copy, &draft] {
            self.check_other(file)?;
        }
        check_replaced(to)?;
        let made = self.write_backup(to, &copy, &draft);
        for file in [copy, draft] {
            let _ = std::fs::remove_file(file);
        }
        made
    }

    /// Refuses the path of a file of this database. Each file has two paths: its name, and the target of a symbolic link
    /// at this name. SQLite writes its own files beside the target of a symbolic link at the name of the database.
    fn check_other(&self, file: &Path) -> Result<(), BackupError> {
        let in_directory = || {
            let name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?;
            Ok(std::fs::canonicalize(directory_of(file))?.join(name))
        };
        let path = in_directory().map_err(failed(file))?;
        let paths: Vec<PathBuf> = std::fs::canonicalize(file).into_iter().chain([path]).collect();
        let databases = std::fs::canonicalize(self.file()).into_iter().chain([self.file().to_owned()]);
        let mut own = databases.flat_map(|database| {
            OWN.map(|end| {
                let mut own = database.clone().into_os_string();
                own.push(end);
                PathBuf::from(own)
            })
        });
        let is_own = own
            .any(|own| paths.contains(&own) || std::fs::canonicalize(&own).is_ok_and(|target| paths.contains(&target)));
        if is_own { Err(failed(file)(io::Error::other("it is a file of the database"))) } else { Ok(()) }
    }

    fn write_backup(&self, to: &Path, copy: &Path, draft: &Path) -> Result<Manifest, BackupError> {
        make(copy)?;
        let copied = self.copy(copy);
        let (revision, seal) = copied.map_err(|why| failed(copy)(io::Error::other(why)))?;
        let mut from = File::open(copy).map_err(failed(copy))?;
        let (digest, bytes) = digest(&mut from, &mut io::sink()).map_err(failed(copy))?;
        let authentic = seal(&digest).map_err(|why| failed(copy)(io::Error::other(why)))?;
        if authentic.is_empty() && data_key(&read_only(copy)?).map_err(spoiled(copy))?.is_some() {
            let why = "it has a sealing key, and its backup cannot be restored without this key: give the key (--sealing-key)";
            return Err(BackupError::NotAuthentic { file: self.file().display().to_string(), why: why.to_owned() });
        }
        let (sha256, authentic) = (to_hex(&digest), to_hex(&authentic));
        let manifest = Manifest { made: clock::now(), revision: revision.0, bytes, sha256, authentic };
        let text = toml::to_string(&manifest).map_err(|error| failed(to)(io::Error::other(error.to_string())))?;
        let mut from = File::open(copy).map_err(failed(copy))?;
        let mut out = BufWriter::new(make(draft)?);
        let written = writeln!(out, "{FORMAT}{text}").and_then(|()| io::copy(&mut from, &mut out));
        let file =
            written.and_then(|_| out.into_inner().map_err(io::IntoInnerError::into_error)).map_err(failed(draft))?;
        file.sync_all().map_err(failed(draft))?;
        rename(draft, to).map_err(failed(to))?;
        Ok(manifest)
    }
}

/// Refuses a file that a backup would replace, if this file is neither empty nor a backup.
fn check_replaced(to: &Path) -> Result<(), BackupError> {
    let read = File::open(to).and_then(|file| Ok((file.metadata()?.len(), read_header(&mut BufReader::new(file))?)));
    match read {
        Ok((1.., None)) => Err(failed(to)(io::Error::other("it exists and is no backup"))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(to)(error)),
    }
}

fn read_only(database: &Path) -> Result<Connection, BackupError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(database, flags).map_err(spoiled(database))
}

/// Returns the sealed data key of a database; `None` if the database has no sealing key.
fn data_key(connection: &Connection) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    connection.query_row("SELECT data_key FROM store", params![], |row| row.get(0))
}

/// Copies all bytes of `from` to `to`. Returns the SHA-256 of these bytes, and the number of bytes.
fn digest(from: &mut impl Read, to: &mut impl Write) -> io::Result<([u8; 32], u64)> {
    let (mut hash, mut len, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = from.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        hash.update(bytes);
        to.write_all(bytes)?;
        len += read as u64;
    }
    Ok((hash.finalize().into(), len))
}

/// Verifies that a backup is complete, that SQLite finds no fault in its database, and that `keeper` has the sealing
/// key of this database.
///
/// # Errors
/// [`BackupError`]. The backup of a database with a sealing key needs a `keeper`. With a `keeper`, this function
/// refuses the backup of a database without a sealing key.
pub fn verify(backup: &Path, keeper: Option<&dyn Keeper>) -> Result<Manifest, BackupError> {
    let draft = beside(backup, "check");
    let checked = extract(backup, &draft, keeper);
    let _ = std::fs::remove_file(&draft);
    checked
}

/// Creates the database `file` from a backup. Raises the revision and each [`Number`](crate::store::Number) above all
/// values that may have been used since the backup.
///
/// # Errors
/// [`BackupError`] for the reasons of [`verify`]; [`BackupError::Exists`] if `file` exists.
pub fn restore(backup: &Path, file: &Path, options: Options) -> Result<Manifest, BackupError> {
    let name = file.file_name().ok_or_else(|| failed(file)(io::ErrorKind::IsADirectory.into()))?;
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = std::fs::canonicalize(parent).map_err(failed(file))?.join(name);
    let guard = Guard::open(&file)?;
    if file.exists() {
        return Err(BackupError::Exists { file: file.display().to_string() });
    }
    let now = recoverable(&file, &options)?;
    let draft = beside(&file, "restored");
    let restored = extract(backup, &draft, options.sealing.as_deref()).and_then(|manifest| {
        // A clock that is behind would allow fewer numbers than were used.
        if manifest.made.saturating_mul(1000) > now.saturating_add(CLOCK_TOLERANCE) {
            return Err(StateError::Untrusted {
                file: backup.display().to_string(),
                why: "it was made in the future: the clock went back, or is not set".to_owned(),
                way_out: "Set the clock, then restore again".to_owned(),
            }
            .into());
        }
        let connection = Connection::open(&draft).map_err(spoiled(backup))?;
        retake(&connection, now).map_err(spoiled(backup))?;
        connection.close().map_err(|(_, error)| spoiled(backup)(error))?;
        File::open(&draft).and_then(|draft| draft.sync_all()).map_err(failed(&draft))?;
        Ok(manifest)
    });
    let manifest = restored.inspect_err(|_| drop(std::fs::remove_file(&draft)))?;
    for extension in ["-wal", "-shm", "-journal"] {
        let mut old = file.as_os_str().to_owned();
        old.push(extension);
        match std::fs::remove_file(&old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(Path::new(&old))(error)),
            _ => {}
        }
    }
    rename(&draft, &file).map_err(failed(&file))?;
    // The first start gives the database its place, so that a copy of it is refused.
    Database::take_place(&file, options, guard)?;
    Ok(manifest)
}

/// Copies the database in a backup to the file `draft`. Verifies the backup and the database.
fn extract(backup: &Path, draft: &Path, keeper: Option<&dyn Keeper>) -> Result<Manifest, BackupError> {
    let damaged = |why: &str| BackupError::Damaged { file: backup.display().to_string(), why: why.to_owned() };
    let mut reader = BufReader::new(File::open(backup).map_err(failed(backup))?);
    let manifest = read_header(&mut reader).map_err(failed(backup))?.ok_or_else(|| damaged("it is no backup"))?;
    let mut out = BufWriter::new(make(draft)?);
    let (digest, bytes) = digest(&mut reader, &mut out).map_err(failed(draft))?;
    let file = out.into_inner().map_err(|error| failed(draft)(error.into_error()))?;
    file.sync_all().map_err(failed(draft))?;
    if bytes != manifest.bytes || to_hex(&digest) != manifest.sha256 {
        return Err(damaged("it is damaged or cut short"));
    }
    let connection = read_only(draft)?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(spoiled(backup))?;
    // Opening changes the tables of an older version. Version 1 made no backups.
    if !(2..=crate::database::VERSION).contains(&version) {
        let (found, known) = (version, crate::database::VERSION);
        return Err(StateError::Version { file: backup.display().to_string(), found, known }.into());
    }
    let checked: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(spoiled(backup))?;
    if checked != "ok" {
        return Err(damaged(&checked));
    }
    let data_key = data_key(&connection).map_err(spoiled(backup))?;
    authenticate(backup, &manifest, &digest, keeper, data_key.as_deref())?;
    Ok(manifest)
}

/// Reads the header, up to the empty line. Returns `None` if the file is no backup.
fn read_header(reader: &mut impl Read) -> io::Result<Option<Manifest>> {
    let (mut header, mut byte) = (Vec::new(), [0]);
    while !header.ends_with(b"\n\n") {
        if header.len() == MAX_HEADER || reader.read(&mut byte)? == 0 {
            return Ok(None);
        }
        header.extend_from_slice(&byte);
    }
    let text = std::str::from_utf8(&header).ok().and_then(|text| text.strip_prefix(FORMAT));
    Ok(text.and_then(|text| toml::from_str(text).ok()))
}

fn authenticate(
    backup: &Path,
    manifest: &Manifest,
    digest: &[u8; 32],
    keeper: Option<&dyn Keeper>,
    data_key: Option<&[u8]>,
) -> Result<(), BackupError> {
    let refused = |why: &str| BackupError::NotAuthentic { file: backup.display().to_string(), why: why.to_owned() };
    let authentic = from_hex(&manifest.authentic).unwrap_or_default();
    match (keeper, data_key) {
        (None, None) if authentic.is_empty() => Ok(()),
        (None, _) => Err(refused("its database has a sealing key: give that key (--sealing-key)")),
        (Some(_), None) => {
            Err(refused("its database has no sealing key, so anybody can have made it: use it without one"))
        }
        (Some(keeper), Some(data_key)) => {
            let (sealer, _) = Sealer::begin(keeper, Some(data_key), backup)?;
            if authentic.is_empty() {
                return Err(refused("it was made without the sealing key of its database: use another backup"));
            }
            match sealer.open_digest(&authentic) {
                Some(opened) if opened.as_slice() == digest => Ok(()),
                _ => Err(refused("it was changed after it was made: use another backup")),
            }
        }
    }
}
