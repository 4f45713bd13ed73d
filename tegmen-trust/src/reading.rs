//! Decides when a file is read again: after each change, and after an error until a read succeeds.

use std::fs::Metadata;
use std::path::Path;

/// Identifies a file and its state: the time at which the content of the file last changed, the time at which the
/// content, the owner, the mode or the name last changed, the length of the file, and its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    modified: (i64, i64),
    changed: (i64, i64),
    len: u64,
    inode: u64,
}

impl Stamp {
    /// Returns the stamp from metadata.
    #[cfg(unix)]
    pub fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            len: meta.len(),
            inode: meta.ino(),
        }
    }

    /// Returns the stamp from the metadata that every system has: the time of the last modification and the length.
    #[cfg(not(unix))]
    pub fn of(meta: &Metadata) -> Self {
        let since =
            meta.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
        let modified = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
        Self { modified, changed: modified, len: meta.len(), inode: 0 }
    }

    /// Returns the stamp of the file at `path`, or `None` if the metadata of the file is not readable.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::of)
    }
}

/// The stamp of a file at the last successful read, and the last reported failure. A stamp is a value that changes when
/// the file changes, such as [`Stamp`].
#[derive(Clone, Debug, Default)]
pub struct Reading<S> {
    read: Option<S>,
    said: Option<String>,
}

impl<S: PartialEq> Reading<S> {
    /// Makes the reading state of a file after its first successful read. `stamp` is the stamp of the file at this
    /// read: a value that changes when the file changes, such as [`Stamp`].
    pub const fn of(stamp: S) -> Self {
        Self { read: Some(stamp), said: None }
    }

    /// Returns true if `stamp`, the present stamp of the file, is the same as at the last successful read.
    pub fn is_current(&self, stamp: &S) -> bool {
        self.read.as_ref() == Some(stamp)
    }

    /// Records a successful read. `stamp` is the stamp of the file before this read: a value that changes when the file
    /// changes, such as [`Stamp`].
    pub fn succeeded(&mut self, stamp: S) {
        *self = Self::of(stamp);
    }

    /// Records a failed read, so that the file is read again.
    ///
    /// # Errors
    /// The failure, unless it is the same as the last reported failure.
    pub fn failed<E: std::fmt::Display>(&mut self, error: E) -> Result<(), E> {
        self.read = None;
        let text = error.to_string();
        if self.said.as_ref() == Some(&text) {
            return Ok(());
        }
        self.said = Some(text);
        Err(error)
    }
}
