//! The key file of a database or of the file of one stored session. The key file is in the same directory, and a lock
//! on it lets only one process use the database or the session.

use crate::StateError;
use crate::files::{beside, sync_directory};
use crate::lock::Locked;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use tegmen_base::crypto::KEY_LEN;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::private;
use tegmen_base::secret::Secret;

/// The key that encrypts stored sessions. While this value exists, the file with the key is locked against other
/// processes. The key file is in the directory of a database, or of the file of one stored session. The key is
/// generated once.
pub struct Guard {
    key: Secret<KEY_LEN>,
    _lock: Locked,
}

impl Guard {
    /// Opens or creates the key file beside `file`, and locks the key file until the guard is dropped.
    ///
    /// # Errors
    /// [`StateError`]; its text contains the cause and the next step. [`StateError::InUse`] if another process holds
    /// the lock.
    pub fn open(file: &Path) -> Result<Self, StateError> {
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
                failed(io::Error::other(
                    "this is no key of 32 hexadecimal digits: delete the file, and clients perform new handshakes",
                ))
            })?;
        }
        Ok(Self { key, _lock: lock })
    }

    /// Returns the key that encrypts sessions.
    pub const fn key(&self) -> &[u8; KEY_LEN] {
        self.key.expose()
    }
}
