//! The durable state of a device in a file.
//!
//! ```text
//! "tegmen delegated device 1\n" | digest of the first device key (32) | length of the name (1), name | epoch | refused connections (4 each)
//! | SHA-256 of all preceding bytes (32)
//! ```

use super::error::DeviceError;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use tegmen::buf::{Reader, Writer};
use tegmen_base::private;
use tegmen_base::secret::Secret;
use tegmen_delegation::{DeviceKey, Epoch, Lost, Memory};
use tegmen_host::digest::{Digest, sha256};
use tegmen_store::files::{self, Readers};
use tegmen_store::lock::Locked;
use zeroize::Zeroizing;

const MAGIC: &[u8] = b"tegmen delegated device 1\n";

/// The number of entries in the list of refused connections.
pub(super) const REFUSED: usize = 1024;
/// Maximum number of bytes of a state.
const LONGEST: usize = MAGIC.len() + 32 + 1 + u8::MAX as usize + Epoch::LEN + 4 * REFUSED + size_of::<Digest>();

/// The state file of a device. While this value exists, no other process can open the file.
#[derive(Debug)]
pub(super) struct StateFile {
    file: PathBuf,
    _lock: Lock,
    head: Head,
    epoch: Secret<{ Epoch::LEN }>,
    refused: Vec<u32>,
    /// The reason why the last change was not stored; `None` if it was stored.
    problem: Option<String>,
}

/// The part of a state that never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Head {
    name: String,
    first_key: Digest,
}

struct Lock(#[expect(dead_code, reason = "it is held")] Locked);

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lock")
    }
}

/// The part of a state that changes: the epoch and the refused connections.
struct Content {
    epoch: Epoch,
    refused: Vec<u32>,
}

impl StateFile {
    /// Opens the state of a device. The first start creates the state from the device key.
    pub(super) fn open(file: &Path, name: &str, key: Option<&DeviceKey>) -> Result<Self, DeviceError> {
        let shown = || file.display().to_string();
        let failed = |source| DeviceError::File { file: shown(), source };
        let lock = lock(file)?;
        let first_key = key.map(digest);
        let (head, content) = match File::open(file) {
            Ok(handle) => {
                if let Some(mode) = private::exposed(&handle).map_err(failed)? {
                    return Err(DeviceError::Exposed { file: shown(), mode });
                }
                let bytes = Zeroizing::new(std::fs::read(file).map_err(failed)?);
                let (head, content) = read(&bytes).ok_or_else(|| DeviceError::NotState(shown()))?;
                if head.name != name {
                    return Err(DeviceError::OtherDevice { file: shown(), found: head.name, name: name.to_owned() });
                }
                if first_key.is_some_and(|first_key| first_key != head.first_key) {
                    return Err(DeviceError::OtherKey(shown()));
                }
                (head, content)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(key), Some(first_key)) = (key, first_key) else { return Err(DeviceError::NoKey(shown())) };
                let epoch = Epoch::first(DeviceKey(Secret::new(*key.0.expose())));
                (Head { name: name.to_owned(), first_key }, Content { epoch, refused: Vec::new() })
            }
            Err(source) => return Err(failed(source)),
        };
        let (epoch, refused) = (bytes_of(&content.epoch), content.refused);
        let state = Self { file: file.to_owned(), _lock: lock, head, epoch, refused, problem: None };
        // An existing file is written again, so that a disk that cannot be written is found at the start.
        state.write(&state.epoch, &state.refused).map_err(failed)?;
        Ok(state)
    }

    /// Returns the reason why the last change was not stored; `None` if it was.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn write(&self, epoch: &Secret<{ Epoch::LEN }>, refused: &[u32]) -> io::Result<()> {
        let Head { name, first_key } = &self.head;
        // The bytes do not move while they are written, so that no copy of the keys stays.
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
        bytes.extend(MAGIC);
        bytes.extend(first_key);
        bytes.push(u8::try_from(name.len()).map_err(io::Error::other)?);
        bytes.extend(name.as_bytes());
        bytes.extend(epoch.expose());
        refused.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        let digest = sha256(&bytes);
        bytes.extend(digest);
        files::replace(&self.file, &bytes, Readers::Owner)
    }

    fn note(&mut self, written: io::Result<()>) -> io::Result<()> {
        self.problem = written.as_ref().err().map(|error| format!("{}: {error}", self.file.display()));
        written
    }
}

impl Memory for StateFile {
    type Error = io::Error;

    fn load(&mut self, epoch: &mut Epoch, refused: &mut [u32]) -> Result<usize, Lost> {
        *epoch = Epoch::read(&mut Reader::new(self.epoch.expose())).map_err(|_| Lost)?;
        refused.get_mut(..self.refused.len()).ok_or(Lost)?.copy_from_slice(&self.refused);
        Ok(self.refused.len())
    }

    fn keep_epoch(&mut self, epoch: &Epoch) -> io::Result<()> {
        let epoch = bytes_of(epoch);
        let written = self.write(&epoch, &[]);
        self.note(written)?;
        (self.epoch, self.refused) = (epoch, Vec::new());
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, number: u32) -> io::Result<()> {
        let refused = [&self.refused[..], &[number]].concat();
        let written = self.write(&self.epoch, &refused);
        self.note(written)?;
        self.refused = refused;
        Ok(())
    }
}

/// Returns a digest that identifies a device key. The digest does not reveal the key, because the key is random.
fn digest(key: &DeviceKey) -> Digest {
    sha256(&Zeroizing::new([&b"tegmen delegated device\0"[..], key.0.expose()].concat()))
}

fn bytes_of(epoch: &Epoch) -> Secret<{ Epoch::LEN }> {
    let mut bytes = Secret::zeroed();
    // All of it fits.
    let _ = epoch.write(&mut Writer::new(bytes.expose_mut()));
    bytes
}

fn read(bytes: &[u8]) -> Option<(Head, Content)> {
    let (content, digest) = bytes.split_last_chunk()?;
    if sha256(content) != *digest {
        return None;
    }
    let reader = &mut Reader::new(content.strip_prefix(MAGIC)?);
    let first_key = reader.array().ok()?;
    let len = reader.u8().ok()?;
    let name = std::str::from_utf8(reader.take(len.into()).ok()?).ok()?.to_owned();
    let epoch = Epoch::read(reader).ok()?;
    let (numbers, rest) = reader.rest().as_chunks();
    let refused = numbers.iter().map(|number| u32::from_be_bytes(*number)).collect();
    rest.is_empty().then_some((Head { name, first_key }, Content { epoch, refused }))
}

fn lock(file: &Path) -> Result<Lock, DeviceError> {
    let path = files::beside(file, "lock");
    let failed = |source| DeviceError::File { file: path.display().to_string(), source };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let handle = private::open(&mut options, &path).map_err(failed)?;
    Locked::new(handle).map(Lock).map_err(|error| match error {
        TryLockError::WouldBlock => DeviceError::InUse(file.display().to_string()),
        TryLockError::Error(source) => failed(source),
    })
}

#[cfg(test)]
mod tests;
