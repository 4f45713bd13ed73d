//! The place where the sequence numbers of one OSCORE context or of one group membership are stored: a separate file, a
//! row of a database, or only the memory.

use crate::database::{Change, Database};
use crate::files;
use crate::numbers::Numbers;
use std::io;
use std::path::{Path, PathBuf};

/// The place where the sequence numbers of one OSCORE context or of one group membership are stored.
pub enum Place {
    /// A separate file: its path, and the identity that the file had when this process last read or wrote it. The
    /// identity is `None` if the file did not exist at that time.
    File(PathBuf, Option<String>),
    /// A row of a database: the database, and the name of the row.
    Database(Database, String),
    /// Only the memory. The keys to which the sequence numbers belong are lost when the process ends.
    Memory,
}

impl Place {
    /// Returns a place that stores sequence numbers in the file `file`. If the file exists, the place contains the
    /// present identity of the file: its inode and its time of creation.
    pub fn of_file(file: PathBuf) -> Self {
        let last = std::fs::metadata(&file).ok().map(|meta| files::identity(&meta));
        Self::File(file, last)
    }

    /// Returns true if the stored sequence numbers are still those that this process wrote or read. Returns false if
    /// the file was removed, or if another process has replaced it.
    pub fn is_ours(&self) -> bool {
        match self {
            Self::File(file, Some(last)) => std::fs::metadata(file).is_ok_and(|meta| files::identity(&meta) == *last),
            Self::File(_, None) | Self::Database(..) | Self::Memory => true,
        }
    }

    /// Stores the record `numbers` of sequence numbers durably.
    ///
    /// # Errors
    /// The error of the system; the stored sequence numbers are then unchanged.
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

    /// Returns the path of the file or of the database, for messages of errors.
    pub fn file(&self) -> &Path {
        match self {
            Self::File(file, _) => file,
            Self::Database(database, _) => database.file(),
            Self::Memory => Path::new(""),
        }
    }
}
