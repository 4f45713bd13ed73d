//! The DTLS session of a client, stored in a file.

use super::sessions::{end_after, open, seal};
use std::path::{Path, PathBuf};
use tegmen::crypto::Crypto;
use tegmen::dtls::Session;
use tegmen::dtls::record::MAX_SEALED;
use tegmen_store::{Guard, Numbers, StateError};

/// The open file of the session with one server. No other process can open the file at the same time. The session is
/// encrypted under a key in the file `FILE.key` in the same directory.
pub struct SessionFile {
    file: PathBuf,
    guard: Guard,
    kept: Option<Numbers>,
}

impl SessionFile {
    /// Opens a file. If the file does not exist, the first write makes it.
    ///
    /// # Errors
    /// [`StateError`], whose text names the cause and proposes a remedy.
    pub fn open(file: &Path) -> Result<Self, StateError> {
        let guard = Guard::open(file)?;
        let kept = match file.exists() {
            false => None,
            true => Some(Numbers::read(file).map_err(|why| StateError::Untrusted {
                file: file.display().to_string(),
                why,
                way_out: format!("Delete {}: the next request then begins with a handshake", file.display()),
            })?),
        };
        Ok(Self { file: file.to_owned(), guard, kept })
    }

    /// Returns the identity of the peer of the stored session.
    pub fn with(&self) -> Option<&str> {
        self.kept.as_ref().map(|kept| kept.with.as_str())
    }

    /// Returns the stored session and the end of its lease, if the peer of the session is `with`. The lease is the
    /// range of record numbers that are reserved for the session. The session may use only record numbers below this
    /// end, which is already on disk. A second call returns `None`. If the previous process called [`Self::park`]
    /// before it ended, the session continues at its next record number. After a crash or a power cut, the session
    /// skips all record numbers of its last lease, and its replay window is lost.
    ///
    /// # Errors
    /// [`StateError::File`] if the end of the lease cannot be written. No session is then returned.
    pub fn take<C: Crypto>(&mut self, crypto: &mut C, with: &str) -> Result<Option<(Session, u32)>, StateError> {
        let Some(kept) = self.kept.take().filter(|kept| kept.with == with) else { return Ok(None) };
        let lease_end = u32::try_from(kept.next).ok().map(end_after).filter(|end| *end <= MAX_SEALED);
        let session = open(crypto, self.guard.key(), with.as_bytes(), &kept.sealed);
        let (Some(lease_end), Some(mut session)) = (lease_end, session) else { return Ok(None) };
        session.go_on(kept.next as u32, kept.window.map(<(u64, u64)>::from));
        self.write(Numbers { next: lease_end.into(), window: None, ..kept })?;
        Ok(Some((session, lease_end)))
    }

    /// Stores a session. After a power cut the session continues at the next record number ([`Session::next`]) of
    /// `session`. So this record number must be the first one that is not reserved for the session (the end of its
    /// lease).
    ///
    /// # Errors
    /// [`StateError::File`].
    pub fn keep<C: Crypto>(&mut self, crypto: &mut C, session: &Session, with: &str) -> Result<(), StateError> {
        let Some(sealed) = seal(crypto, self.guard.key(), with.as_bytes(), session) else { return Ok(()) };
        self.write(Numbers { next: session.position().0.into(), sealed, with: with.to_owned(), ..Numbers::default() })
    }

    /// Reserves the record numbers below `end` for the session (extends its lease). The new end is on disk when this
    /// method returns.
    ///
    /// # Errors
    /// [`StateError::File`]. The reserved record numbers then do not change.
    pub fn extend(&mut self, end: u32) -> Result<(), StateError> {
        self.go_to(end, None)
    }

    /// Stores the next record number and the replay window of the session before the process ends properly. Call this
    /// after the last record of the session.
    ///
    /// # Errors
    /// [`StateError::File`].
    pub fn park(&mut self, session: &Session) -> Result<(), StateError> {
        let (next, window) = session.position();
        self.go_to(next, window)
    }

    /// Removes a session that has ended.
    pub fn remove(&mut self) {
        self.kept = None;
        // If the file stays, the next client that continues the session finds that the server does not know it.
        let _ = std::fs::remove_file(&self.file);
    }

    fn go_to(&mut self, next: u32, window: Option<(u64, u64)>) -> Result<(), StateError> {
        match self.kept.clone() {
            Some(kept) => self.write(Numbers { next: next.into(), window: window.map(<[u64; 2]>::from), ..kept }),
            None => Ok(()),
        }
    }

    fn write(&mut self, numbers: Numbers) -> Result<(), StateError> {
        let failed = |source| StateError::File { file: self.file.display().to_string(), source };
        numbers.keep(&self.file, true).map_err(failed)?;
        self.kept = Some(numbers);
        Ok(())
    }
}
