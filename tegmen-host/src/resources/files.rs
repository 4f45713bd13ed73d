//! Files as resources: read in parts, written in one step, and looked at each second while somebody observes them.

use super::{accepts, is_valid, may_change};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tegmen::coap::handler::Response;
use tegmen::coap::{Code, MessageRef, OptionNumber};

/// Files that are looked at each second, at most.
const MAX_WATCHED: usize = 1024;

/// The files of all shards.
#[derive(Clone, Default)]
pub(super) struct Files {
    /// Files that somebody observes, by path of the resource.
    watched: Arc<Mutex<BTreeMap<String, Watched>>>,
}

struct Watched {
    file: PathBuf,
    known: Option<Stamp>,
}

/// When a file was changed last and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    modified: SystemTime,
    len: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Option<Self> {
        Some(Self { modified: meta.modified().ok()?, len: meta.len() })
    }

    fn of_file(file: &Path) -> Option<Self> {
        Self::of(&std::fs::metadata(file).ok()?)
    }

    /// The entity tag of the file's content.
    fn etag(&self) -> [u8; 8] {
        let since = self.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (since.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.len).to_be_bytes()
    }
}

impl Files {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a file each second from now on, if there is room.
    pub(super) fn watch(&self, path: &str, file: &Path) {
        let mut watched = self.watched();
        if watched.len() < MAX_WATCHED {
            let new = || Watched { file: file.to_owned(), known: Stamp::of_file(file) };
            watched.entry(path.to_owned()).or_insert_with(new);
        }
    }

    /// Looks at all files: the paths of those that changed.
    pub(super) fn look(&self) -> Vec<String> {
        let mut changed = Vec::new();
        for (path, watched) in self.watched().iter_mut() {
            let now = Stamp::of_file(&watched.file);
            if now != watched.known {
                watched.known = now;
                changed.push(path.clone());
            }
        }
        changed
    }
}

/// Writes a file in one step: a concurrent reader reads the old or the new one, never a part.
pub(super) fn write(file: &Path, message: &MessageRef<'_>) -> Result<Code, Trouble> {
    let old = Stamp::of_file(file).map(|old| old.etag());
    may_change(message, old.as_ref().map(<[u8; 8]>::as_slice))?;
    let name = file.file_name().and_then(|name| name.to_str()).ok_or(Code::BAD_REQUEST)?;
    let part = file.with_file_name(format!(".{name}.part"));
    let written = std::fs::write(&part, message.payload()).and_then(|()| std::fs::rename(&part, file));
    match written {
        Ok(()) if old.is_some() => Ok(Code::CHANGED),
        Ok(()) => Ok(Code::CREATED),
        Err(error) => {
            let _ = std::fs::remove_file(&part);
            Err(trouble(file, &error))
        }
    }
}

pub(super) fn remove(file: &Path, message: &MessageRef<'_>) -> Result<(), Trouble> {
    let old = Stamp::of_file(file).map(|old| old.etag());
    may_change(message, old.as_ref().map(<[u8; 8]>::as_slice))?;
    std::fs::remove_file(file).map_err(|error| trouble(file, &error))
}

/// The code of an error response, and what the operator is told.
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) cause: Option<String>,
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Self { code, cause: None }
    }
}

fn trouble(file: &Path, error: &io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Code::NOT_FOUND.into(),
        _ => {
            let cause = Some(format!("{}: {error}", file.display()));
            Trouble { code: Code::INTERNAL_SERVER_ERROR, cause }
        }
    }
}

/// Sends of a file what the response has room for, and reads no more than that.
pub(super) fn send(file: &Path, message: &MessageRef<'_>, response: &mut Response<'_, '_>) -> Result<(), Trouble> {
    let failed = |error: io::Error| trouble(file, &error);
    let mut opened = File::open(file).map_err(failed)?;
    let meta = opened.metadata().map_err(failed)?;
    let stamp = Stamp::of(&meta).filter(|_| meta.is_file()).ok_or(Code::NOT_FOUND)?;
    let format = content_format(file);
    accepts(message, format)?;
    if is_valid(message, &stamp.etag(), response)? {
        return Ok(());
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
    Ok(())
}

/// The Content-Format that a file's ending stands for (IANA CoAP Content-Formats registry).
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
