//! Resumption of sessions at a server, without a key exchange. The server supports tickets (RFC 5077), which only the
//! server can decrypt, and session ids for clients without support for tickets (RFC 5246, section 7.3).
//!
//! A ticket contains the session, the proved identity of its client, and the time of the proof. The server stores
//! nothing for a ticket. If the ticket keys are in a file, tickets also remain valid after a restart. At each
//! resumption the server verifies that the client is still allowed: its pre-shared key must be the same, its raw public
//! key must be on the list, or its certificate must be neither expired nor revoked.

mod devices;
mod ended;
mod keys;

pub(crate) use ended::ended_in_alert;
pub use keys::TicketKeyError;

use crate::credentials::Credentials;
use crate::delegate::Delegate;
use crate::digest::Digest;
use crate::public_keys::PublicKeys;
use devices::Devices;
use ended::Ended;
use keys::Ring;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{
    CertificateType, CipherSuite, ClientAuthentication, Found, Keys as _, MASTER_LEN, Resumption, SessionState, Suites,
};
use tegmen::identity::Principal;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use zeroize::Zeroizing;

/// The settings of resumption at a server.
#[derive(Clone, Debug)]
pub struct ResumptionConfig {
    /// True to issue tickets to clients that support them.
    pub tickets: bool,
    /// Maximum number of sessions that the server stores under a session id, for clients that do not support tickets; 0
    /// stores none. Each session takes about 250 bytes.
    pub max_ids: usize,
    /// The time for which a client may resume after it proved its key. The server encrypts tickets under one ticket key
    /// for half of this time. After the next key has replaced this key, the server still decrypts the tickets under the
    /// old key for the full `lifetime`. An attacker that gets the ticket keys can read the sessions of all tickets that
    /// are encrypted under these keys.
    pub lifetime: Duration,
    /// The file of the ticket keys. With a file, tickets survive a restart, and every server with the same file accepts
    /// them. `None` keeps the keys in memory.
    pub keys: Option<PathBuf>,
}

impl Default for ResumptionConfig {
    fn default() -> Self {
        Self { tickets: true, max_ids: 1 << 14, lifetime: Duration::from_secs(24 * 3600), keys: None }
    }
}

/// The counts of resumptions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResumptionCounters {
    /// The number of tickets that the server issued.
    pub tickets_sealed: u64,
    /// The number of tickets that the server accepted.
    pub tickets_opened: u64,
    /// The number of tickets that the server refused. The server refuses a ticket that it did not issue, that was
    /// changed or is too old, or whose client is no longer allowed to resume. A refused ticket counts twice in a
    /// handshake with a cookie, because both ClientHello messages contain it.
    pub tickets_refused: u64,
    /// The number of session ids for which the server found a session.
    pub ids_found: u64,
    /// The number of session ids for which the server had no session, or a session that the client is not allowed to
    /// resume.
    pub ids_refused: u64,
}

impl ResumptionCounters {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.tickets_sealed += other.tickets_sealed;
        self.tickets_opened += other.tickets_opened;
        self.tickets_refused += other.tickets_refused;
        self.ids_found += other.ids_found;
        self.ids_refused += other.ids_refused;
    }
}

/// The state of resumption that all shards (tasks) of a server share.
#[derive(Clone)]
pub(crate) struct ServerResumption {
    /// The resumption of sessions with the server itself; `None` if the server resumes no such session.
    own: Option<Arc<Inner>>,
    /// The resumption of sessions in the name of devices; `None` if there are no devices.
    devices: Option<Arc<Devices>>,
}

struct Inner {
    config: ResumptionConfig,
    ring: Mutex<Ring>,
    ids: Mutex<Ids>,
    ended: Mutex<Ended>,
    credentials: Credentials,
    public_keys: PublicKeys,
    /// True if the server has a key store. Pre-shared keys can then belong to identities that are not in the
    /// credentials file.
    store: bool,
    counts: Counts,
}

/// The counts of [`ResumptionCounters`], either for sessions with the server itself, or for sessions with its devices.
#[derive(Default)]
struct Counts([AtomicU64; 5]);

impl Counts {
    fn count(&self, which: usize) {
        self.0[which].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> ResumptionCounters {
        let [sealed, opened, refused, found, lost] =
            [SEALED, OPENED, REFUSED, FOUND, LOST].map(|at| self.0[at].load(Ordering::Relaxed));
        ResumptionCounters {
            tickets_sealed: sealed,
            tickets_opened: opened,
            tickets_refused: refused,
            ids_found: found,
            ids_refused: lost,
        }
    }
}

const SEALED: usize = 0;
const OPENED: usize = 1;
const REFUSED: usize = 2;
const FOUND: usize = 3;
const LOST: usize = 4;

/// Maximum length in bytes of the state of a session before it is encrypted in a ticket: cipher suite (2), master
/// secret (48), start of the session (4), and the proof and the identity of the client.
const STATE_MAX: usize = 2 + MASTER_LEN + 4 + 1 + 3 + crate::credentials::MAX_IDENTITY;
/// Number of bytes in a ticket that come from the digest of the client's pre-shared key. The server compares these
/// bytes to find out whether the key of the identity has changed.
const FINGERPRINT_LEN: usize = 3;
/// Number of bytes in a ticket that come from the digest of the client's raw public key.
const RAW_LEN: usize = 16;
const NOBODY: u8 = 0;
const RAW: u8 = 1;
const CERTIFICATE: u8 = 2;

impl ServerResumption {
    /// Returns the state of a server that resumes no session.
    pub(crate) const fn none() -> Self {
        Self { own: None, devices: None }
    }

    /// Returns this state with the devices of `delegate`, so that the server also opens and resumes sessions in their
    /// name.
    pub(crate) fn with_devices(self, delegate: Option<Arc<dyn Delegate>>, credentials: &Credentials) -> Self {
        let devices = |delegate| Devices { delegate, credentials: credentials.clone(), counts: Counts::default() };
        Self { devices: delegate.map(|delegate| Arc::new(devices(delegate))), ..self }
    }

    pub(crate) fn new<C: Crypto>(
        crypto: &mut C,
        config: &ResumptionConfig,
        credentials: &Credentials,
        public_keys: &PublicKeys,
        store: bool,
    ) -> Result<Self, TicketKeyError> {
        let inner = Inner {
            ring: Mutex::new(Ring::new(crypto, config.keys.clone(), config.lifetime / 2)?),
            ids: Mutex::new(Ids { half: config.max_ids / 2, ..Ids::default() }),
            ended: Mutex::default(),
            credentials: credentials.clone(),
            public_keys: public_keys.clone(),
            store,
            counts: Counts::default(),
            config: config.clone(),
        };
        Ok(Self { own: Some(Arc::new(inner)), devices: None })
    }

    /// Changes the ticket keys when their period ends, and reads the file again if another server changed it. Call this
    /// each second.
    ///
    /// # Errors
    /// The problem with the file. The same problem is returned only once until the file changes. The keys in memory
    /// remain valid.
    pub(crate) fn tick<C: Crypto>(&self, crypto: &mut C) -> Result<(), TicketKeyError> {
        let Some(inner) = &self.own else { return Ok(()) };
        let mut ring = lock(&inner.ring);
        ring.tick(crypto).or_else(|error| ring.reading.failed(error))
    }

    /// Notes that a session of this client ended in a fatal alert. The server then resumes no session that the client
    /// opened before (RFC 5246, section 7.2.2). The client must have proved its identity in the session. Does nothing
    /// for a session in the name of a device.
    pub(crate) fn end(&self, principal: Principal) {
        let Some(inner) = &self.own else { return };
        if inner.credentials.delegated(principal).is_some() {
            return;
        }
        if let Some(peer) = inner.peer(principal) {
            lock(&inner.ended).add(peer, seconds(), inner.config.lifetime);
        }
    }

    /// Returns the counts of tickets and session ids for sessions with the server itself, not for sessions in the name
    /// of devices.
    pub(crate) fn counters(&self) -> ResumptionCounters {
        self.own.as_ref().map(|inner| inner.counts.read()).unwrap_or_default()
    }

    /// Returns the counts of tickets and session ids for sessions that the server opens in the name of devices: see
    /// [`Delegate`].
    pub(crate) fn device_counters(&self) -> ResumptionCounters {
        self.devices.as_ref().map(|devices| devices.counts.read()).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}

impl Inner {
    /// Writes the state of a session. Returns `None` if the client cannot be identified at a later resumption.
    fn write(&self, session: &SessionState, state: &mut Writer<'_>) -> Option<()> {
        state.u16(session.cipher_suite.0).ok()?;
        state.put(session.master.expose()).ok()?;
        state.put(&session.since.unwrap_or_else(seconds).to_be_bytes()).ok()?;
        if session.principal == Principal::NOBODY && session.cipher_suite.has_certificate() {
            return state.u8(NOBODY).ok();
        }
        state.put(&self.peer(session.principal)?).ok()
    }

    /// Returns the proof and the identity of a client that proved an identity, in the form of the state of a session.
    fn peer(&self, principal: Principal) -> Option<Vec<u8>> {
        Some(match self.credentials.certified(principal) {
            Some((CertificateType::RAW_PUBLIC_KEY, digest)) => [&[RAW], &digest[..RAW_LEN]].concat(),
            Some((_, digest)) => [&[CERTIFICATE], &digest[..]].concat(),
            None => {
                let identity = self.credentials.name_of(principal)?;
                [&self.fingerprint(principal), identity.as_bytes()].concat()
            }
        })
    }

    /// Reads a state that [`Self::write`] wrote. Returns `None` if the client is no longer allowed to resume.
    fn read(&self, state: &[u8]) -> Option<SessionState> {
        let mut reader = Reader::new(state);
        let cipher_suite = CipherSuite(reader.u16().ok()?);
        // The suites of a device that the role resumes without an offer are not those of the server itself.
        if !self.public_keys.suites(0).0.contains(&cipher_suite) {
            return None;
        }
        let master = Secret::new(reader.array().ok()?);
        let since = reader.array().map(u32::from_be_bytes).ok()?;
        // A clock that went back makes nothing younger.
        let age = u64::from(seconds().wrapping_sub(since));
        if age > self.config.lifetime.as_secs() {
            return None;
        }
        if lock(&self.ended).has(reader.rest(), since) {
            return None;
        }
        let principal = match cipher_suite.has_certificate() {
            true => self.certified(reader.u8().ok()?, reader.rest())?,
            false => {
                let fingerprint = reader.array::<FINGERPRINT_LEN>().ok()?;
                let identity = std::str::from_utf8(reader.rest()).ok()?;
                match self.credentials.keys_of(identity.as_bytes()) {
                    Some(keys) => {
                        let mut principals = keys.iter().map(|key| key.principal);
                        principals.find(|principal| self.fingerprint(*principal) == fingerprint)?
                    }
                    // The key store was asked for its rights in the full handshake.
                    None if self.store => {
                        let stored = self.credentials.stored(identity);
                        stored.filter(|principal| self.fingerprint(*principal) == fingerprint)?
                    }
                    None => return None,
                }
            }
        };
        Some(SessionState { cipher_suite, master, principal, since: Some(since) })
    }

    fn certified(&self, kind: u8, digest: &[u8]) -> Option<Principal> {
        let kind = match kind {
            // A client that did not authenticate itself resumes only where that is still allowed.
            NOBODY => {
                let allowed = self.public_keys.client_authentication() != ClientAuthentication::Required;
                return (allowed && digest.is_empty()).then_some(Principal::NOBODY);
            }
            RAW if digest.len() == RAW_LEN => CertificateType::RAW_PUBLIC_KEY,
            CERTIFICATE if digest.len() == size_of::<Digest>() => CertificateType::X509,
            _ => return None,
        };
        let (name, digest) = self.public_keys.recall(kind, digest)?;
        Some(self.credentials.certified_as(&name, kind, digest))
    }

    /// Returns the first [`FINGERPRINT_LEN`] bytes of the digest of a peer's pre-shared key. Each ticket of the peer
    /// contains these bytes. Returns zeros if the key is not known.
    fn fingerprint(&self, principal: Principal) -> [u8; FINGERPRINT_LEN] {
        let digest = self.credentials.fingerprint(principal);
        digest.and_then(|digest| digest.first_chunk().copied()).unwrap_or_default()
    }
}

/// In these methods the argument `server` is the number of a device, or 0 for the server itself.
impl Resumption for ServerResumption {
    /// The cipher suites of sessions that can be resumed: all suites. A device on a host resumes a session that its
    /// delegation server opened, even if the device itself does not offer the cipher suite of this session.
    const SUITES: Suites = Suites::ALL;

    fn gives_tickets(&self, server: u32) -> bool {
        server != 0 || self.own.as_ref().is_some_and(|inner| inner.config.tickets)
    }

    fn gives_ids(&self, server: u32) -> bool {
        server != 0 || self.own.as_ref().is_some_and(|inner| inner.config.max_ids > 0)
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        if server != 0 {
            return self.devices.as_ref()?.open(server, ticket);
        }
        let inner = self.own.as_ref().filter(|inner| inner.config.tickets)?;
        let mut room = Zeroizing::new([0; STATE_MAX]);
        let opened = lock(&inner.ring).open(cx.crypto, ticket, &mut *room);
        let found = opened.and_then(|(state, renew)| Some(Found { session: inner.read(state)?, renew }));
        inner.counts.count(if found.is_some() { OPENED } else { REFUSED });
        found
    }

    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        server: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        if server != 0 {
            return self.devices.as_ref()?.seal(server, session, ticket);
        }
        let inner = self.own.as_ref()?;
        let mut room = Zeroizing::new([0; STATE_MAX]);
        let mut state = Writer::new(&mut *room);
        inner.write(session, &mut state)?;
        lock(&inner.ring).seal(cx.crypto, state.written(), ticket)?;
        inner.counts.count(SEALED);
        let age = seconds().saturating_sub(session.since.unwrap_or_else(seconds));
        Some((inner.config.lifetime.as_secs().min(7 * 24 * 3600) as u32).saturating_sub(age))
    }

    fn find(&self, _: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        if server != 0 {
            return self.devices.as_ref()?.find(server, id);
        }
        let inner = self.own.as_ref()?;
        let state = lock(&inner.ids).get(id);
        let session = state.and_then(|state| inner.read(&state));
        inner.counts.count(if session.is_some() { FOUND } else { LOST });
        session
    }

    fn remember(&self, _: Instant, server: u32, id: &[u8], session: &SessionState) {
        if server != 0 {
            return self.devices.iter().for_each(|devices| devices.remember(server, id, session));
        }
        let Some(inner) = &self.own else { return };
        let mut room = Zeroizing::new([0; STATE_MAX]);
        let mut state = Writer::new(&mut *room);
        if inner.write(session, &mut state).is_some() {
            lock(&inner.ids).insert(id, state.written());
        }
    }
}

/// Sessions by their session ids, in two maps. When the newer map is full, it replaces the older map, whose sessions
/// are lost.
#[derive(Default)]
struct Ids {
    half: usize,
    newer: HashMap<Vec<u8>, Zeroizing<Vec<u8>>>,
    older: HashMap<Vec<u8>, Zeroizing<Vec<u8>>>,
}

impl Ids {
    fn get(&self, id: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.newer.get(id).or_else(|| self.older.get(id)).cloned()
    }

    fn insert(&mut self, id: &[u8], state: &[u8]) {
        if self.half == 0 {
            return;
        }
        if self.newer.len() >= self.half {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(id.to_vec(), Zeroizing::new(state.to_vec()));
    }
}

#[cfg(test)]
mod tests;
