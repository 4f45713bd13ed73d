//! Files as resources: they are read in parts, replaced in one step, and checked each second while a client observes
//! them.

use super::{accepts, is_valid, may_change};
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tegmen::coap::{Code, MessageRef, OptionNumber, Response};
use tegmen_store::files::rename;

/// Maximum number of files that are checked each second.
const MAX_WATCHED: usize = 1024;

/// The files that clients observe, for all shards (tasks) of a server.
#[derive(Clone, Default)]
pub(super) struct Files {
    /// The observed files, by the path of the resource. A request that changes a file holds this lock from the check of
    /// If-Match and If-None-Match until the file has changed.
    watched: Arc<Mutex<BTreeMap<String, Watched>>>,
}

struct Watched {
    file: PathBuf,
    known: Option<Stamp>,
    /// True if no client observed the file at the last check.
    unobserved: bool,
}

/// Identifies the content of a file: the time of its last change, its length in bytes, and its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    modified: SystemTime,
    len: u64,
    /// The number of the file's inode. It changes each time the file is replaced, even if two replacements have the
    /// same time `modified`.
    inode: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Option<Self> {
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(meta);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { modified: meta.modified().ok()?, len: meta.len(), inode })
    }

    pub(super) fn of_file(file: &Path) -> Option<Self> {
        Self::of(&std::fs::metadata(file).ok()?)
    }

    /// Returns the length of the file in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.len
    }

    /// Returns the entity tag of the content of the file.
    fn etag(&self) -> [u8; 8] {
        let since = self.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mixed = (since.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.inode.rotate_left(32);
        mixed.wrapping_add(self.len).to_be_bytes()
    }
}

impl Files {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file to the files that are checked each second, for the observers of `path`. Returns false if there are
    /// already [`MAX_WATCHED`] such files.
    pub(super) fn watch(&self, path: &str, file: &Path, known: Stamp) -> bool {
        let mut watched = self.watched();
        if let Some(watched) = watched.get_mut(path) {
            if watched.file != file {
                (watched.file, watched.known) = (file.to_owned(), Some(known));
            }
            watched.unobserved = false;
            return true;
        }
        let has_room = watched.len() < MAX_WATCHED;
        if has_room {
            watched.insert(path.to_owned(), Watched { file: file.to_owned(), known: Some(known), unobserved: false });
        }
        has_room
    }

    /// Returns the paths of the watched files.
    pub(super) fn watched_paths(&self) -> Vec<String> {
        self.watched().keys().cloned().collect()
    }

    /// Checks all observed files, and returns the paths of the changed files. A file that no client observed at two
    /// successive checks is no longer checked.
    pub(super) fn look(&self, is_observed: impl Fn(&str) -> bool) -> Vec<String> {
        let mut changed = Vec::new();
        self.watched().retain(|path, watched| {
            let now = Stamp::of_file(&watched.file);
            if now != watched.known {
                watched.known = now;
                changed.push(path.clone());
            }
            // An observer is registered a moment after its request was answered.
            let unobserved = !is_observed(path);
            let forgotten = unobserved && watched.unobserved;
            watched.unobserved = unobserved;
            !forgotten
        });
        changed
    }

    /// Replaces a file in one step: a concurrent reader reads the old or the new content, never a mixture.
    pub(super) fn write(&self, path: &str, file: &Path, message: &MessageRef<'_>) -> Result<Code, Trouble> {
        let check = || {
            let old = Stamp::of_file(file);
            may_change(message, old.map(|old| old.etag()).as_ref().map(<[u8; 8]>::as_slice)).map(|()| old.is_some())
        };
        // The first check avoids a useless draft; the second one, under the lock, decides.
        check()?;
        let draft = Draft::write(file, message.payload()).map_err(|error| trouble(file, &error))?;
        let mut watched = self.watched();
        let existed = check()?;
        draft.rename(file).map_err(|error| trouble(file, &error))?;
        told(&mut watched, path, file);
        Ok(if existed { Code::CHANGED } else { Code::CREATED })
    }

    pub(super) fn remove(&self, path: &str, file: &Path, message: &MessageRef<'_>) -> Result<(), Trouble> {
        let mut watched = self.watched();
        let old = Stamp::of_file(file).map(|old| old.etag());
        may_change(message, old.as_ref().map(<[u8; 8]>::as_slice))?;
        std::fs::remove_file(file).map_err(|error| trouble(file, &error))?;
        told(&mut watched, path, file);
        Ok(())
    }
}

/// Notes that this server changed the file of a path. The observers are notified at once, so the next check must not
/// notify them again.
fn told(watched: &mut BTreeMap<String, Watched>, path: &str, file: &Path) {
    if let Some(watched) = watched.get_mut(path) {
        watched.known = Stamp::of_file(file);
    }
}

/// The code of an error response, and the cause for the operator.
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) cause: Option<String>,
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Self { code, cause: None }
    }
}

/// Returns the response code and the cause for an error of a file.
pub(super) fn trouble(file: &Path, error: &io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Code::NOT_FOUND.into(),
        _ => {
            let cause = Some(format!("{}: {error}", file.display()));
            Trouble { code: Code::INTERNAL_SERVER_ERROR, cause }
        }
    }
}

/// Returns the path of a file below a directory; `None` if a link leads out of the directory.
pub(super) fn below(root: &Path, relative: &Path) -> Option<PathBuf> {
    let (root, file) = (root.canonicalize().ok()?, root.join(relative));
    // What is written need not exist, and is never written through a link.
    let directory = file.parent()?.canonicalize().ok()?;
    let within = directory.join(file.file_name()?);
    let real = match within.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => within.clone(),
        Err(_) => return None,
    };
    (directory.starts_with(&root) && real.starts_with(&root)).then_some(within)
}

/// The path of a new file beside the file that it will replace. Dropping this value removes the new file, unless the
/// replacement has happened.
struct Draft(Option<PathBuf>);

impl Draft {
    fn write(file: &Path, content: &[u8]) -> io::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        // Hidden names are not served.
        let draft = file.with_file_name(format!(".{:016x}.part", u64::from_ne_bytes(random)));
        let mut opened = OpenOptions::new().write(true).create_new(true).open(&draft)?;
        let draft = Self(Some(draft));
        opened.write_all(content)?;
        opened.sync_all()?;
        Ok(draft)
    }

    fn rename(mut self, file: &Path) -> io::Result<()> {
        let Some(draft) = &self.0 else { return Ok(()) };
        rename(draft, file)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(draft) = &self.0 {
            let _ = std::fs::remove_file(draft);
        }
    }
}

/// Opens a regular file, and never waits: opening a FIFO without a writer would block.
fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    options.open(file)
}

/// Sends the part of a file that the response needs, and reads only this part. Returns the [`Stamp`] of the file, which
/// identifies its content.
pub(super) fn send(file: &Path, message: &MessageRef<'_>, response: &mut Response<'_, '_>) -> Result<Stamp, Trouble> {
    let failed = |error: io::Error| trouble(file, &error);
    let mut opened = open(file).map_err(failed)?;
    let meta = opened.metadata().map_err(failed)?;
    let stamp = Stamp::of(&meta).filter(|_| meta.is_file()).ok_or(Code::NOT_FOUND)?;
    let format = content_format(file);
    accepts(message, format)?;
    if is_valid(message, &stamp.etag(), response)? {
        return Ok(stamp);
    }
    if let Some(format) = format {
        response.uint(OptionNumber::CONTENT_FORMAT, format)?;
    }
    let len = usize::try_from(meta.len()).map_err(|_| Code::NOT_IMPLEMENTED)?;
    let wanted = response.wanted();
    let (start, end) = (wanted.start.min(len), wanted.end.min(len));
    let mut bytes = vec![0; end - start];
    opened.seek(SeekFrom::Start(start as u64)).map_err(failed)?;
    opened.read_exact(&mut bytes).map_err(failed)?;
    response.skip(start)?;
    response.payload(&bytes)?;
    response.skip(len - end)?;
    Ok(stamp)
}

/// Returns the Content-Format for the extension of a file name (IANA CoAP Content-Formats registry).
fn content_format(file: &Path) -> Option<u32> {
    match file.extension()?.to_str()? {
        "txt" => Some(0),
        "wlnk" => Some(40),
        "xml" => Some(41),
        "json" => Some(50),
        "cbor" => Some(60),
        "senml" => Some(110),
        "senmlc" => Some(112),
        "bin" => Some(42),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
