//! The place that stores the numbers of one context: a file of its own, a row of a database, or none.

use crate::database::{Change, Database};
use crate::files;
use crate::numbers::Numbers;
use std::io;
use std::path::{Path, PathBuf};

/// The place that stores the numbers of one context.
pub enum Place {
    /// In a file of its own, and the identity of the file that this process read or wrote last.
    File(PathBuf, Option<String>),
    /// In a row of this name.
    Database(Database, String),
    /// Nowhere: the keys that they belong to end with the process.
    Memory,
}

impl Place {
    /// The file as it is now, if it is there.
    pub fn of_file(file: PathBuf) -> Self {
        let last = std::fs::metadata(&file).ok().map(|meta| files::identity(&meta));
        Self::File(file, last)
    }

    /// False if the file was removed, or another process has written it.
    pub fn is_ours(&self) -> bool {
        match self {
            Self::File(file, Some(last)) => std::fs::metadata(file).is_ok_and(|meta| files::identity(&meta) == *last),
            Self::File(_, None) | Self::Database(..) | Self::Memory => true,
        }
    }

    /// Makes the numbers durable.
    ///
    /// # Errors
    /// The error of the system; the numbers are then as they were.
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

    /// Returns the file, for the report of an error.
    pub fn file(&self) -> &Path {
        match self {
            Self::File(file, _) => file,
            Self::Database(database, _) => database.file(),
            Self::Memory => Path::new(""),
        }
    }
}
