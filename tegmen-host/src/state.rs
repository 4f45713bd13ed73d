//! State that must never go back: numbers for nonces, and the numbers that the other end has used.
//!
//! There is one rule: the end of a lease of numbers is durable before the first of them is used. The state of a
//! context or a session is in one of two places:
//!
//! * a file for each, written and renamed in one step: OSCORE contexts (see [`crate::contexts`]), and the session of a
//!   client ([`SessionFile`]);
//! * a SQLite [`Database`] for many: the sessions of a server ([`Sessions`]), and its contexts.
//!
//! Each place is open in one process at a time, and recognizes itself. A copy, a restored older version and a file
//! that was cut short are refused, because they would repeat nonces.

pub(crate) mod database;
pub(crate) mod numbers;
mod session_file;
mod sessions;

pub use database::{Database, recover};
pub use session_file::SessionFile;
pub use sessions::{Restored, SessionName, Sessions, With};

use crate::hex::{from_hex, to_hex};
use crate::lock::Locked;
use crate::private;
use database::Change;
use numbers::Numbers;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use tegmen::crypto::KEY_LEN;
use tegmen::secret::Secret;

/// The reason why state cannot be used. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file cannot be read or written.
    #[error("{file}: {source}: sessions are kept there; correct the path, or the permissions there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Others on this machine can read the key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a key: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process uses it.
    #[error("{file}: another process uses this state; end it first, two would use the same nonces")]
    InUse {
        /// The path of the file.
        file: String,
    },
    /// The stored state cannot be trusted.
    #[error("{file}: {why}; going on could repeat nonces. {way_out}")]
    Untrusted {
        /// The path of the file.
        file: String,
        /// The error in the file.
        why: String,
        /// The next step.
        way_out: String,
    },
}

/// The files beside a place of state: the key that encrypts sessions, generated once, and the lock.
pub(crate) struct Guard {
    key: Secret<KEY_LEN>,
    _lock: Locked,
}

impl Guard {
    /// Opens, or makes, the key file of `file`, and locks it until this is dropped.
    pub(crate) fn open(file: &Path) -> Result<Self, StateError> {
        let path = beside(file, "key");
        let failed = |source| StateError::File { file: path.display().to_string(), source };
        if let Ok(handle) = File::open(&path)
            && let Some(mode) = private::exposed(&handle).map_err(failed)?
        {
            return Err(StateError::Exposed { file: path.display().to_string(), mode });
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let lock = private::open(&mut options, &path).map_err(failed)?;
        let mut lock = Locked::new(lock).map_err(|error| match error {
            TryLockError::WouldBlock => StateError::InUse { file: file.display().to_string() },
            TryLockError::Error(source) => failed(source),
        })?;
        let mut text = zeroize::Zeroizing::new(String::new());
        lock.read_to_string(&mut text).map_err(failed)?;
        let mut key = Secret::<KEY_LEN>::zeroed();
        if text.is_empty() {
            getrandom::fill(key.expose_mut()).map_err(|error| failed(io::Error::other(error.to_string())))?;
            let text = zeroize::Zeroizing::new(to_hex(key.expose()));
            lock.write_all(text.as_bytes()).and_then(|()| lock.sync_all()).map_err(failed)?;
            sync_directory(&path).map_err(failed)?;
        } else {
            let bytes = zeroize::Zeroizing::new(from_hex(text.trim()).unwrap_or_default());
            let whole = <[u8; KEY_LEN]>::try_from(bytes.as_slice());
            *key.expose_mut() = whole.map_err(|_| {
                failed(io::Error::other("this is no key of 32 hexadecimal digits: delete it, and sessions begin anew"))
            })?;
        }
        Ok(Self { key, _lock: lock })
    }

    pub(crate) const fn key(&self) -> &[u8; KEY_LEN] {
        self.key.expose()
    }
}

/// The place that stores the numbers of one context.
pub(crate) enum Place {
    /// In a file of their own, and what tells the one that this process read or wrote last from all others.
    File(PathBuf, Option<String>),
    /// In a row of this name.
    Database(Database, String),
}

impl Place {
    /// The file as it is now, if it is there.
    pub(crate) fn of_file(file: PathBuf) -> Self {
        let last = std::fs::metadata(&file).ok().map(|meta| numbers::place(&meta));
        Self::File(file, last)
    }

    /// False if the file was removed, or somebody else has written it.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::File(file, Some(last)) => std::fs::metadata(file).is_ok_and(|meta| numbers::place(&meta) == *last),
            Self::File(_, None) | Self::Database(..) => true,
        }
    }

    /// Makes them durable.
    pub(crate) fn keep(&mut self, numbers: &Numbers) -> io::Result<()> {
        match self {
            Self::File(file, last) => {
                *last = Some(numbers.keep(file, true)?);
                Ok(())
            }
            Self::Database(database, name) => database.change_now(Change::Put(name.clone(), numbers.clone())),
        }
    }

    /// Returns the file, for the report of an error.
    pub(crate) fn file(&self) -> &Path {
        match self {
            Self::File(file, _) => file,
            Self::Database(database, _) => database.file(),
        }
    }
}

/// `FILE.extension`, whatever extension the file has itself.
pub(crate) fn beside(file: &Path, extension: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// New names in the directory of `file` are on the disk after this.
pub(crate) fn sync_directory(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
