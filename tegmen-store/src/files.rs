//! Names and identities of files, and directories on the disk.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Returns `FILE.extension`, whatever extension the file has itself.
pub fn beside(file: &Path, extension: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Makes new names in the directory of `file` durable.
///
/// # Errors
/// The error of the system.
pub fn sync_directory(file: &Path) -> io::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Returns the identity of a file, which differs from that of a copy: its inode and its time of creation.
pub fn identity(meta: &Metadata) -> String {
    let born = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map_or(0, |at| at.as_nanos());
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(meta);
    #[cfg(not(unix))]
    let inode = 0;
    format!("{inode}:{born}")
}
