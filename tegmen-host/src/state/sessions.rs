//! The DTLS sessions of a server, stored so that they survive a restart.
//!
//! A session is in the database from its establishment. The server reserves record numbers for each session in advance
//! (the lease of the session). The database contains the end of the lease: the session may use only record numbers
//! below this end. At the start of the server, stored sessions wait in memory until a peer sends a record. The server
//! finds such a session by the path or the connection id of the record. At its start the server has already reserved
//! new numbers for each session, so restoring a session costs no write. If the server was stopped properly, it stored
//! the next record number and the replay window of each session, and the session continues there. After a crash or a
//! power cut, a session continues after its lease, and its replay window is lost.

use crate::digest::{Digest, sha256};
use crate::hex::{from_hex, to_hex};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use tegmen::address::Path;
use tegmen::buf::Writer;
use tegmen::crypto::{Crypto, KEY_LEN};
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::dtls::{ContentType, SEALED_SESSION_LEN, Session};
use tegmen_store::database::Change;
use tegmen_store::{Database, Numbers, StateError};

/// The prefix of the names of sessions in the database.
const PREFIX: &str = "dtls/";
/// The offset of the connection id in a record.
const ID_AT: usize = 11;

/// The name of a session in the database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionName(u64);

impl SessionName {
    fn text(self) -> String {
        format!("{PREFIX}{:016x}", self.0)
    }
}

/// The peer of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct With {
    /// The local address.
    pub local: SocketAddr,
    /// The last known address of the peer.
    pub remote: SocketAddr,
    /// The identity of the peer.
    pub identity: String,
    /// True if the credentials file contains `identity`. The file then defines the rights of the peer.
    pub listed: bool,
    /// The [`Sessions::fingerprint`] of the peer's key in the credentials file or in the key store. The fingerprint
    /// changes if the identity gets another key. `None` if the peer proved no pre-shared key, or if the key is not known.
    #[serde(default)]
    pub key: Option<String>,
    /// The certificate type, and the hexadecimal digest of the certificate or raw public key with which the peer proved
    /// its identity. `None` if the peer proved its identity in another way.
    #[serde(default)]
    pub certified: Option<(u8, String)>,
    /// The connection id in the records of the peer, in hexadecimal; empty if these records have no connection id.
    #[serde(default)]
    pub connection_id: String,
}

impl With {
    /// Returns true if a key store has to confirm the key of the peer before the session continues.
    pub(crate) const fn needs_key_store(&self) -> bool {
        self.certified.is_none() && !self.listed && self.key.is_some()
    }

    fn path(&self) -> Path {
        Path { local: self.local.into(), remote: self.remote.into() }
    }
}

/// A stored session that continues after a restart of the server.
#[derive(Debug)]
pub struct Restored {
    /// The name of the session in the database.
    pub name: SessionName,
    /// The peer of the session.
    pub with: With,
    /// The keys and the record numbers of the session.
    pub session: Session,
    /// The end of the range of record numbers that is reserved for the session (the lease of the session): one more
    /// than the last record number that the session may use.
    pub lease_end: u32,
}

/// A stored session whose peer has not sent a record since the start of the server.
struct Waiting {
    name: SessionName,
    /// The [`With`] of the session as it is in the database. It is the additional data of the encryption of the session,
    /// and an earlier version may have stored fields that this version does not have.
    with: String,
    /// The connection id in the records of the peer; empty if these records have no connection id.
    connection_id: Vec<u8>,
    sealed: String,
    next: u32,
    window: Option<[u64; 2]>,
    lease_end: u32,
}

#[derive(Default)]
struct All {
    by_path: HashMap<Path, Waiting>,
    by_id: HashMap<Vec<u8>, Path>,
    /// The lengths of the connection ids. Usually all connection ids have the same length.
    id_lens: Vec<usize>,
}

impl All {
    fn remove(&mut self, path: &Path) -> Option<Waiting> {
        let waiting = self.by_path.remove(path)?;
        self.by_id.remove(&waiting.connection_id);
        Some(waiting)
    }

    /// Returns the path of the session to which this datagram belongs.
    fn find(&self, path: &Path, datagram: &[u8]) -> Option<Path> {
        if datagram.first() == Some(&ContentType::TLS12_CID.0) {
            let mut ids = self.id_lens.iter().filter_map(|len| datagram.get(ID_AT..ID_AT + len));
            return ids.find_map(|id| self.by_id.get(id)).copied();
        }
        self.by_path.contains_key(path).then_some(*path)
    }
}

/// The stored sessions of one server.
pub struct Sessions {
    database: Database,
    waiting: RwLock<All>,
    count: AtomicUsize,
    next_name: AtomicU64,
}

impl Sessions {
    /// Loads the newest sessions of the database, at most `most` sessions.
    ///
    /// # Errors
    /// [`StateError::File`] if the database cannot be written.
    pub fn open(database: Database, most: usize) -> Result<Self, StateError> {
        let (mut all, mut last) = (All::default(), 0);
        let mut rows = database.load(PREFIX);
        rows.reverse();
        for (text, numbers) in rows {
            let name = text.strip_prefix(PREFIX).and_then(|hex| u64::from_str_radix(hex, 16).ok());
            let with = serde_json::from_str::<With>(&numbers.with).ok();
            let (Some(name), Some(with)) = (name.map(SessionName), with) else { continue };
            last = last.max(name.0);
            let path = with.path();
            let lease_end = u32::try_from(numbers.next).ok().map(end_after).filter(|end| *end <= MAX_SEALED);
            let (Some(lease_end), true, false) = (lease_end, all.by_path.len() < most, all.by_path.contains_key(&path))
            else {
                database.change(Change::Remove(text), None);
                continue;
            };
            // Nothing of this lease is used before all that was asked for here is on the disk.
            database.change(Change::Move(text, lease_end.into(), None), None);
            let connection_id = from_hex(&with.connection_id).unwrap_or_default();
            if !connection_id.is_empty() {
                if !all.id_lens.contains(&connection_id.len()) {
                    all.id_lens.push(connection_id.len());
                }
                all.by_id.insert(connection_id.clone(), path);
            }
            let Numbers { next, window, sealed, with, .. } = numbers;
            all.by_path
                .insert(path, Waiting { name, with, connection_id, sealed, next: next as u32, window, lease_end });
        }
        database.flush()?;
        let count = AtomicUsize::new(all.by_path.len());
        Ok(Self { database, waiting: RwLock::new(all), count, next_name: AtomicU64::new(last + 1) })
    }

    /// Returns the value of [`With::key`] for a pre-shared key with this digest. The value also depends on the secret
    /// key of the database. So a person who reads the value, but not that key, cannot test guesses of the pre-shared
    /// key.
    pub fn fingerprint(&self, digest: &Digest) -> String {
        to_hex(&sha256(&[b"tegmen session ".as_slice(), self.database.key(), digest].concat())[..16])
    }

    /// Returns the number of sessions that wait for their peers.
    pub fn waiting(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Stores a session under a new name. After a power cut the session continues at the next record number
    /// ([`Session::next`]) of `session`. So this record number must be the first one that is not reserved for the
    /// session (the end of its lease).
    pub fn keep<C: Crypto>(&self, crypto: &mut C, session: &Session, with: &With) -> SessionName {
        let name = SessionName(self.next_name.fetch_add(1, Ordering::Relaxed));
        self.keep_as(name, crypto, session, with);
        name
    }

    /// Replaces a session that is stored under `name`, for example after a change of the address of its peer. Otherwise
    /// does the same as [`Self::keep`].
    pub fn keep_as<C: Crypto>(&self, name: SessionName, crypto: &mut C, session: &Session, with: &With) {
        let with = serde_json::to_string(with).unwrap_or_default();
        let Some(sealed) = seal(crypto, self.database.key(), &purpose(&name.text(), &with), session) else { return };
        let numbers = Numbers { next: session.position().0.into(), sealed, with, ..Numbers::default() };
        self.database.change(Change::Put(name.text(), numbers), None);
    }

    /// Reserves the record numbers below `end` for a session (extends its lease). Calls `then` on another thread when
    /// the new end is on disk, or with the reason if the write fails.
    pub fn extend(&self, name: SessionName, end: u32, then: impl FnOnce(Result<(), String>) + Send + 'static) {
        self.database.change(Change::Move(name.text(), end.into(), None), Some(Box::new(then)));
    }

    /// Removes a session that has ended.
    pub fn remove(&self, name: SessionName) {
        self.database.change(Change::Remove(name.text()), None);
    }

    /// Stores the next record number and the replay window of a session. Call this when the server stops, after the
    /// session has sent and received its last record.
    pub fn park(&self, name: SessionName, session: &Session) {
        let (next, window) = session.position();
        let window = window.map(<[u64; 2]>::from);
        self.database.change(Change::Move(name.text(), next.into(), window), None);
    }

    /// Returns the peer of the waiting session to which `datagram` belongs, and leaves the session waiting. Returns
    /// `None` if no waiting session matches the datagram.
    pub(crate) fn peer(&self, path: &Path, datagram: &[u8]) -> Option<With> {
        let all = self.waiting.read().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.by_path.get(&all.find(path, datagram)?)?;
        serde_json::from_str(&waiting.with).ok()
    }

    /// Returns the waiting session to which `datagram` belongs, and removes it from the waiting sessions. Returns
    /// `None` if no waiting session matches the datagram. If the stored session cannot be decrypted, removes the
    /// session from the database, and returns `None`.
    pub fn take<C: Crypto>(&self, crypto: &mut C, path: &Path, datagram: &[u8]) -> Option<Restored> {
        if self.waiting() == 0 {
            return None;
        }
        let path = self.waiting.read().unwrap_or_else(PoisonError::into_inner).find(path, datagram)?;
        let Waiting { name, with, sealed, next, window, lease_end, .. } = self.forget_waiting(&path)?;
        let session = open(crypto, self.database.key(), &purpose(&name.text(), &with), &sealed);
        let (Some(mut session), Ok(with)) = (session, serde_json::from_str(&with)) else {
            self.remove(name);
            return None;
        };
        session.go_on(next, window.map(<(u64, u64)>::from));
        Some(Restored { name, with, session, lease_end })
    }

    /// Removes a waiting session, because its peer has begun a new session on the same path.
    pub fn forget(&self, path: &Path) {
        if self.waiting() > 0
            && let Some(waiting) = self.forget_waiting(path)
        {
            self.remove(waiting.name);
        }
    }

    /// Removes all sessions whose peers have sent no record since the start of the server, in memory and in the
    /// database.
    pub fn forget_all(&self) {
        let all = std::mem::take(&mut *self.waiting.write().unwrap_or_else(PoisonError::into_inner));
        self.count.store(0, Ordering::Relaxed);
        all.by_path.values().for_each(|waiting| self.remove(waiting.name));
    }

    /// Closes the database in an orderly way. Sessions whose peers have sent no record since the start of the server
    /// stay stored with the same record numbers. When this method returns, all data is on disk.
    ///
    /// # Errors
    /// [`StateError::File`]. Sessions that are not on disk then continue as after a power cut.
    pub fn close(&self) -> Result<(), StateError> {
        let all = std::mem::take(&mut *self.waiting.write().unwrap_or_else(PoisonError::into_inner));
        self.count.store(0, Ordering::Relaxed);
        // In the order of the rows: what lies together is written together.
        let mut all: Vec<&Waiting> = all.by_path.values().collect();
        all.sort_unstable_by_key(|waiting| waiting.name);
        for waiting in all {
            let change = Change::Move(waiting.name.text(), waiting.next.into(), waiting.window);
            self.database.change(change, None);
        }
        self.database.flush()
    }

    fn forget_waiting(&self, path: &Path) -> Option<Waiting> {
        let mut all = self.waiting.write().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.remove(path);
        self.count.store(all.by_path.len(), Ordering::Relaxed);
        waiting
    }
}

/// Returns the end of the record numbers (of the lease) that the server reserves for a session which continues at the
/// record number `next`: the first record number that is not reserved.
pub(super) const fn end_after(next: u32) -> u32 {
    next.div_ceil(CHUNK).saturating_add(1).saturating_mul(CHUNK)
}

fn purpose(name: &str, with: &str) -> Vec<u8> {
    [name.as_bytes(), with.as_bytes()].concat()
}

/// Returns a session encrypted with `key`, in hexadecimal; `None` if the crypto provider fails.
pub(super) fn seal<C: Crypto>(
    crypto: &mut C,
    key: &[u8; KEY_LEN],
    purpose: &[u8],
    session: &Session,
) -> Option<String> {
    let mut storage = [0; SEALED_SESSION_LEN];
    let mut writer = Writer::new(&mut storage);
    session.seal(crypto, key, purpose, &mut writer).ok()?;
    Some(to_hex(writer.written()))
}

pub(super) fn open<C: Crypto>(crypto: &mut C, key: &[u8; KEY_LEN], purpose: &[u8], sealed: &str) -> Option<Session> {
    Session::open(crypto, key, purpose, &from_hex(sealed)?).ok()
}
