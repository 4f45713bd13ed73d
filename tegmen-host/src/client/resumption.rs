//! The files with which a client resumes sessions without a key exchange. The directory
//! [`ClientState::resume`](super::ClientState::resume) contains one file for each server and each identity of the
//! client.
//!
//! Each file contains the master secret of the last session, so only the owner of the file can read it. A file is valid
//! for the lifetime that the server gave. But at the beginning of the session, the client also stores the time until
//! which it trusts the certificate of the server, and the file is not valid after this time. If the trust settings
//! change (anchors, pins or revocation lists), the file is no longer valid, and the client makes a full handshake.

use super::resumable::Offer;
use super::{ClientConfig, ClientError};
use crate::digest::sha256;
use crate::hex::{from_hex, to_hex};
use crate::private;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen::dtls::{CipherSuite, Keys as _, MASTER_LEN, Resumption, SessionState};
use tegmen::identity::Principal;
use tegmen::secret::{Secret, same};
use zeroize::{Zeroize as _, Zeroizing};

/// True if the client accepts tickets.
pub(super) struct AcceptsTickets(pub(super) bool);

impl Resumption for AcceptsTickets {
    fn takes_tickets(&self) -> bool {
        self.0
    }
}

/// The file that stores the session with one server.
pub(super) struct ResumptionStore {
    pub(super) file: PathBuf,
    /// Digest of the trust settings of this client, in hexadecimal. The text is empty if the client has no public keys.
    /// The digest is the value of [`PeerVerifier::trust`](crate::x509::PeerVerifier::trust).
    pub(super) trust: String,
    pub(super) kept: Option<StoredSession>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSession {
    pub(super) server: String,
    pub(super) cipher_suite: u16,
    pub(super) master_secret: String,
    pub(super) ticket: Option<String>,
    pub(super) session_id: Option<String>,
    /// The time from which the stored session is no longer valid, in seconds since 1970.
    pub(super) until: u64,
    /// The authenticated name of the server; `None` if the server proved no name.
    pub(super) name: Option<String>,
    /// The value of [`ResumptionStore::trust`] when the session was stored.
    #[serde(default)]
    pub(super) trust: String,
}

impl Drop for StoredSession {
    fn drop(&mut self) {
        self.master_secret.zeroize();
    }
}

impl ResumptionStore {
    /// Opens the file that stores the session with `remote`. Returns `None` if the settings do not resume sessions.
    /// Ignores the stored session if it has expired, was stored under other trust settings, or cannot be read.
    pub(super) fn open(config: &ClientConfig, remote: SocketAddr) -> Result<Option<Self>, ClientError> {
        let Some(dir) = &config.state.resume else { return Ok(None) };
        let trust = match &config.trust.public_keys {
            None => Some(String::new()),
            Some(keys) => keys.trust().map(|trust| to_hex(&trust)),
        };
        let Some(trust) = trust else { return Ok(None) };
        let failed = |source| ClientError::Resume { file: dir.display().to_string(), source };
        make_dir(dir).map_err(failed)?;
        let file = dir.join(format!("{}.toml", to_hex(&name_of(config, remote)[..12])));
        let kept = load(&file).map_err(failed)?;
        let kept = kept.filter(|kept| kept.until > seconds() && kept.trust == trust);
        Ok(Some(Self { file, trust, kept }))
    }

    /// Returns the offer to the server, with `principal` as the principal of the session. The offer contains the
    /// session, then true for a ticket or false for a session id, and then the ticket or session id. Returns `None` if
    /// no session is stored.
    pub(super) fn offer(&self, principal: Principal) -> Option<Offer> {
        let kept = self.kept.as_ref()?;
        let master = from_hex(&kept.master_secret).map(Zeroizing::new)?;
        let master = Secret::new(<[u8; MASTER_LEN]>::try_from(master.as_slice()).ok()?);
        let cipher_suite = CipherSuite(kept.cipher_suite);
        let session = SessionState { cipher_suite, master, principal, since: None };
        let handle = kept.ticket.as_ref().or(kept.session_id.as_ref()).and_then(|text| from_hex(text))?;
        Some((session, kept.ticket.is_some(), handle))
    }

    /// Returns the means to resume the stored session: `ticket` or `session id`. Returns `None` if no session is
    /// stored.
    pub(super) fn by(&self) -> Option<&'static str> {
        Some(if self.kept.as_ref()?.ticket.is_some() { "ticket" } else { "session id" })
    }

    /// Returns the name that the server proved in the stored session; `None` if there is no session or no such name.
    pub(super) fn name(&self) -> Option<String> {
        self.kept.as_ref()?.name.clone()
    }

    /// Forgets the stored session, and removes its file. Call this if the session cannot be resumed. The file remains if
    /// another client has stored another session in it: one with another master secret.
    pub(super) fn forget(&mut self) -> Result<(), ClientError> {
        let Some(ended) = self.kept.take() else { return Ok(()) };
        let is_it = |stored: &StoredSession| same(stored.master_secret.as_bytes(), ended.master_secret.as_bytes());
        let removed = load(&self.file).and_then(|stored| match stored.filter(is_it) {
            Some(_) => self.keep(None),
            None => Ok(()),
        });
        removed.map_err(|source| ClientError::Resume { file: self.file.display().to_string(), source })
    }

    /// Stores the ticket or session id of a new session, and replaces the earlier file. If `kept` is `None`, removes
    /// the file.
    pub(super) fn keep(&mut self, kept: Option<StoredSession>) -> io::Result<()> {
        self.kept = kept;
        let Some(kept) = &self.kept else {
            return match std::fs::remove_file(&self.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        // Writes under another name first: two concurrent clients leave the whole file of one of them.
        let draft = self.file.with_extension(format!("{}.new", std::process::id()));
        let mut handle = private::open(File::options().write(true).create(true).truncate(true), &draft)?;
        handle.write_all(
            b"# A DTLS session that can be resumed. Written by tegmen; anyone who has it can act as this client.\n",
        )?;
        handle.write_all(Zeroizing::new(toml::to_string(kept).map_err(io::Error::other)?).as_bytes())?;
        std::fs::rename(&draft, &self.file)
    }
}

/// Returns the digest from which the name of the file of a stored session is made. The digest depends on the address of
/// the server, on the identity and key of the client, on the expected server name, and on the client's certificate.
fn name_of(config: &ClientConfig, remote: SocketAddr) -> [u8; 32] {
    let mut text = Zeroizing::new(remote.to_string().into_bytes());
    let mut put = |part: &[u8]| {
        text.extend((part.len() as u64).to_be_bytes());
        text.extend(part);
    };
    if let Some(key) = &config.trust.key {
        put(key.identity.as_bytes());
        put(&key.key);
    }
    if let Some(keys) = &config.trust.public_keys {
        put(keys.name_expected().as_bytes());
        put(keys.credential(0, 0).map_or(&[], |own| own.content));
    }
    sha256(&text)
}

/// Returns the session in a file; `None` if there is no such file, or if the file cannot be used.
fn load(file: &Path) -> io::Result<Option<StoredSession>> {
    match File::open(file).and_then(read) {
        Ok(text) => Ok(text.and_then(|text| toml::from_str(&text).ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the text of a file; `None` if users other than its owner can read the file, or if it is damaged.
fn read(mut file: File) -> io::Result<Option<Zeroizing<String>>> {
    let mut text = Zeroizing::new(String::new());
    if private::exposed(&file)?.is_some() {
        return Ok(None);
    }
    // A file that is no text is damaged.
    Ok(file.read_to_string(&mut text).is_ok().then_some(text))
}

fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)
}

pub(super) fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(super) fn seconds() -> u64 {
    since_1970(SystemTime::now())
}
