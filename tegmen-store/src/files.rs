//! Names and identities of files, and directories on the disk.

use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use tegmen_base::private;

/// Returns the path `FILE.extension`. An extension that `file` already has stays: the result for `state.db` and `key`
/// is `state.db.key`.
pub fn beside(file: &Path, extension: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Returns the path of the directory that contains a file.
pub fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes new, changed and removed names in the directory of `file` durable.
///
/// # Errors
/// The error of the system.
pub fn sync_directory(file: &Path) -> io::Result<()> {
    File::open(directory_of(file))?.sync_all()
}

/// Renames the file `from` to `to`, and makes the new name durable. The content of `from` must already be durable. An
/// existing file `to` is replaced: a reader gets either the complete old file or the complete new file.
///
/// # Errors
/// The error of the system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    sync_directory(to)
}

/// The users who may read a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// Only the owner.
    Owner,
    /// All users, unless the defaults of the system restrict the permissions.
    All,
}

/// Writes a file durably, and replaces an existing file. A reader gets either the complete old content or the complete
/// new content, also after a power cut.
///
/// # Errors
/// The error of the system.
pub fn replace(file: &Path, bytes: &[u8], readers: Readers) -> io::Result<()> {
    let draft = beside(file, "new");
    let _ = std::fs::remove_file(&draft);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if readers == Readers::Owner {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    #[cfg(not(unix))]
    let _ = readers;
    let mut handle = options.open(&draft)?;
    handle.write_all(bytes)?;
    handle.sync_all()?;
    rename(&draft, file)
}

/// Returns the identity of a file: its inode and its time of creation. A copy of the file has another identity.
pub fn identity(meta: &Metadata) -> String {
    let born = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |at| at.as_nanos());
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(meta);
    #[cfg(not(unix))]
    let inode = 0;
    format!("{inode}:{born}")
}

/// The file system that holds a database and its `.place` file. Tests use an implementation that loses data which was
/// not synchronized.
pub trait Files: Send + Sync {
    /// Creates a file that only its owner may read and write, if it does not exist.
    ///
    /// # Errors
    /// The error of the system.
    fn make(&self, file: &Path) -> io::Result<()>;

    /// Makes the content of a file and its metadata durable.
    ///
    /// # Errors
    /// The error of the system.
    fn sync(&self, file: &Path) -> io::Result<()>;

    /// Makes new, changed and removed names in the directory of `file` durable, as the function [`sync_directory`]
    /// does.
    ///
    /// # Errors
    /// The error of the system.
    fn sync_directory(&self, file: &Path) -> io::Result<()>;

    /// Renames a file. An existing file with the new name is replaced.
    ///
    /// # Errors
    /// The error of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file if it exists.
    ///
    /// # Errors
    /// The error of the system.
    fn remove(&self, file: &Path) -> io::Result<()>;

    /// Returns the identity of a file, as the function [`identity`] does; `None` if the file does not exist.
    fn identity(&self, file: &Path) -> Option<String>;

    /// Returns the name of the SQLite VFS for these files; `None` for the default VFS of the system.
    fn vfs(&self) -> Option<&str>;
}

/// The file system of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemFiles;

impl Files for SystemFiles {
    fn make(&self, file: &Path) -> io::Result<()> {
        let mut options = File::options();
        private::open(options.read(true).write(true).create(true).truncate(false), file).map(drop)
    }

    fn sync(&self, file: &Path) -> io::Result<()> {
        File::open(file)?.sync_all()
    }

    fn sync_directory(&self, file: &Path) -> io::Result<()> {
        sync_directory(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, file: &Path) -> io::Result<()> {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn identity(&self, file: &Path) -> Option<String> {
        std::fs::metadata(file).ok().map(|meta| identity(&meta))
    }

    fn vfs(&self) -> Option<&str> {
        None
    }
}
