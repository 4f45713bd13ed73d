//! The place that stores the numbers of one context: a separate file, a row of a database, or no place.

use crate::database::{Change, Database};
use crate::files;
use crate::numbers::Numbers;
use std::io;
use std::path::{Path, PathBuf};

/// The place that stores the numbers of one context.
pub enum Place {
    /// A separate file, with the identity of the file that this process read or wrote last.
    File(PathBuf, Option<String>),
    /// The row of this name in a database.
    Database(Database, String),
    /// No place: the keys to which the numbers belong are lost when the process ends.
    Memory,
}

impl Place {
    /// Returns the place for a file. If the file exists, the place remembers its current identity.
    pub fn of_file(file: PathBuf) -> Self {
        let last = std::fs::metadata(&file).ok().map(|meta| files::identity(&meta));
        Self::File(file, last)
    }

    /// Returns false if the file was removed, or if another process has replaced it.
    pub fn is_ours(&self) -> bool {
        match self {
            Self::File(file, Some(last)) => std::fs::metadata(file).is_ok_and(|meta| files::identity(&meta) == *last),
            Self::File(_, None) | Self::Database(..) | Self::Memory => true,
        }
    }

    /// Makes the numbers durable.
    ///
    /// # Errors
    /// The error of the system; the stored numbers are then unchanged.
    pub fn keep(&mut self, numbers: &Numbers) -> io::Result<()> {
        match self {
            Self::File(file, last) => {
                *last = Some(numbers.keep(file, true)?);
                Ok(())
            }
            Self::Database(database, name) => database.change_now(Change::Put(name.clone(), numbers.clone())),
            Self::Memory => Ok(()),
        }
    }

    /// Returns the path of the file, for messages of errors.
    pub fn file(&self) -> &Path {
        match self {
            Self::File(file, _) => file,
            Self::Database(database, _) => database.file(),
            Self::Memory => Path::new(""),
        }
    }
}
