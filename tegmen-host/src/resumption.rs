//! Resumption at a server, without a key exchange: tickets (RFC 5077), which only the server can decrypt, and ids for
//! clients without support for tickets (RFC 5246, section 7.3).
//!
//! A ticket holds the session, the proved identity of its client, and the time of the proof. The server stores nothing
//! for it, so a ticket is also valid after a restart if its keys are in a file. Each resumption verifies that the
//! client is still allowed: its pre-shared key must be the same, or its raw public key on the list, or its certificate
//! neither expired nor revoked.

mod devices;
mod keys;

pub use keys::TicketKeyError;

use crate::credentials::Credentials;
use crate::delegate::Delegate;
use crate::digest::Digest;
use crate::public_keys::PublicKeys;
use devices::Devices;
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
    /// Tickets for clients that take them.
    pub tickets: bool,
    /// Sessions that are kept under an id for clients that take no tickets; 0 keeps none. Each takes about 250 bytes.
    pub max_ids: usize,
    /// The time for which a client may resume after it proved its key. Anyone who gets the server's ticket keys within
    /// this time, or half as much more, can read its sessions.
    pub lifetime: Duration,
    /// The file of the ticket keys. It lets tickets survive a restart, and every server with the same file accepts
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
    /// Tickets given.
    pub tickets_sealed: u64,
    /// Tickets taken.
    pub tickets_opened: u64,
    /// ClientHellos with tickets that this server did not issue, that were changed or are too old, or whose owner is
    /// no longer allowed. A handshake counts twice: its ClientHello without a cookie, and the one with it.
    pub tickets_refused: u64,
    /// Sessions found under an id.
    pub ids_found: u64,
    /// Ids under which there was none, or none that may be resumed.
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

/// The state of resumption that all shards of a server share.
#[derive(Clone)]
pub(crate) struct ServerResumption {
    /// Sessions with the server itself; `None` if it resumes none.
    own: Option<Arc<Inner>>,
    /// Sessions in the name of devices; `None` if there are none.
    devices: Option<Arc<Devices>>,
}

struct Inner {
    config: ResumptionConfig,
    ring: Mutex<Ring>,
    ids: Mutex<Ids>,
    credentials: Credentials,
    public_keys: PublicKeys,
    /// Identities that are not in the credentials may be in a store.
    store: bool,
    counts: Counts,
}

/// The counts of one kind of resumptions.
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

/// Maximum length of a sealed state: cipher suite (2), master secret (48), start of the session (4), and the client.
const STATE_MAX: usize = 2 + MASTER_LEN + 4 + 1 + 3 + crate::credentials::MAX_IDENTITY;
/// Bytes of a digest that stand for a pre-shared key: they distinguish a changed key from the old one.
const FINGERPRINT_LEN: usize = 3;
/// Bytes of a digest that stand for a raw public key.
const RAW_LEN: usize = 16;
const NOBODY: u8 = 0;
const RAW: u8 = 1;
const CERTIFICATE: u8 = 2;

impl ServerResumption {
    /// Nothing is resumed.
    pub(crate) const fn none() -> Self {
        Self { own: None, devices: None }
    }

    /// Opens and resumes sessions in the name of devices, too.
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
            credentials: credentials.clone(),
            public_keys: public_keys.clone(),
            store,
            counts: Counts::default(),
            config: config.clone(),
        };
        Ok(Self { own: Some(Arc::new(inner)), devices: None })
    }

    /// Changes the keys of tickets when it is time, and reads them again where others have; called each second.
    ///
    /// # Errors
    /// The problem with the file, reported once until the file changes. The keys that were read before stay in force.
    pub(crate) fn tick<C: Crypto>(&self, crypto: &mut C) -> Result<(), TicketKeyError> {
        let Some(inner) = &self.own else { return Ok(()) };
        let mut ring = lock(&inner.ring);
        ring.tick(crypto).or_else(|error| ring.reading.failed(error))
    }

    /// Returns the counts of sessions with the server itself.
    pub(crate) fn counters(&self) -> ResumptionCounters {
        self.own.as_ref().map(|inner| inner.counts.read()).unwrap_or_default()
    }

    /// Returns the counts of sessions in the name of devices.
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
    /// Writes the state of a session; `None` if its client cannot be identified again.
    fn write(&self, session: &SessionState, state: &mut Writer<'_>) -> Option<()> {
        state.u16(session.cipher_suite.0).ok()?;
        state.put(session.master.expose()).ok()?;
        state.put(&session.since.unwrap_or_else(seconds).to_be_bytes()).ok()?;
        if session.cipher_suite.has_certificate() {
            if session.principal == Principal::NOBODY {
                return state.u8(NOBODY).ok();
            }
            let (kind, digest) = self.credentials.certified(session.principal)?;
            return match kind {
                CertificateType::RAW_PUBLIC_KEY => state.put(&[&[RAW], &digest[..RAW_LEN]].concat()).ok(),
                _ => state.put(&[&[CERTIFICATE], &digest[..]].concat()).ok(),
            };
        }
        let identity = self.credentials.name_of(session.principal)?;
        state.put(&self.fingerprint(session.principal)).ok()?;
        state.put(identity.as_bytes()).ok()
    }

    /// The inverse of [`Self::write`]; `None` if its client is no longer allowed to resume.
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
                    None if self.store && fingerprint == [0; FINGERPRINT_LEN] => self.credentials.stored(identity)?,
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

    /// Distinguishes a key from others; zeros for a key that is not in the credentials file.
    fn fingerprint(&self, principal: Principal) -> [u8; FINGERPRINT_LEN] {
        let digest = self.credentials.fingerprint(principal);
        digest.and_then(|digest| digest.first_chunk().copied()).unwrap_or_default()
    }
}

/// Each server of a name is a device.
impl Resumption for ServerResumption {
    /// A device on a host resumes sessions that its delegation server opened with any suite.
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

/// Sessions under ids, in two halves: when the newer one is full it becomes the older, and what was in that is gone.
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
