//! One session of an endpoint. All methods run under the lock of the endpoint, and none of them waits. A method
//! with a parameter `at: usize` is about one waiting request, and `at` is the index of this request in [`Places`].

mod persistence;
mod receive;
mod resumption;
mod send;
#[cfg(test)]
mod tests;

pub(super) use send::{Message, Turn};

use super::io::Io;
use super::oscore::OscoreClient;
use super::persistence::PersistentSession;
use super::places::{Arrived, Places};
use super::resumable::ResumableSession;
use super::resumption::ResumptionStore;
use super::session_context::SessionContext;
use super::{ClientConfig, ClientError, Handle};
use crate::clock;
use crate::exporter::Exported;
use crate::resumption::ended_in_alert;
use crate::udp::TOO_LONG;
use crate::x509::{CertificateInfo, Refusal};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::SystemTime;
use tegmen::address::Path;
use tegmen::coap::RequestId;
use tegmen::dtls::{CipherSuite, Fatal};
use tegmen::identity::{PeerId, Principal, Protection};
use tegmen::time::{Duration, Instant};

/// Returns an id for a session without a peer. No peer in a peer table has this id.
fn nobody() -> PeerId {
    PeerId::new(u32::MAX, 0)
}
/// Length of the UDP header of a datagram, in bytes.
const UDP_HEADER: u32 = 8;
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
/// Lower limit of the maximum datagram length, in bytes. The client does not reduce the maximum below this value, even
/// if the MTU of the path is smaller.
const LEAST_MTU: u16 = 128;
/// Minimum time from the first retransmission of a message to the retransmission after which the client waits for
/// [`LAST_WAIT`]. If no datagram of the server has come at the end of this wait, the server counts as silent. The wait
/// ends 8 to 11 seconds after the first transmission of the message.
const BETWEEN_REPEATS: Duration = Duration::from_secs(4);
/// Time from the retransmission that [`BETWEEN_REPEATS`] describes until the server counts as silent.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The entry of a session at its endpoint.
pub(super) struct SessionEntry {
    /// The index of the session among the entries of the endpoint.
    pub(super) key: usize,
    pub(super) handle: Weak<Handle>,
    pub(super) config: Arc<ClientConfig>,
    pub(super) path: Path,
    pub(super) remote: SocketAddr,
    pub(super) protection: Protection,
    pub(super) peer: PeerId,
    /// The principal that requests have if the server sends them to this client. The rights of the server depend on
    /// this principal.
    pub(super) principal: Principal,
    /// True if the peer opened the session.
    pub(super) is_accepted: bool,
    /// True if the peer began a handshake with this endpoint, and authenticated itself in this handshake as the server
    /// that the settings name.
    pub(super) is_proved: bool,
    /// True after the application closed or dropped the session.
    pub(super) is_shut: bool,
    pub(super) established: bool,
    /// The time limit of the handshake.
    pub(super) handshake_timeout: Duration,
    pub(super) handshake_time: Duration,
    pub(super) closed: Option<Fatal>,
    /// The error that occurred at this client in a handshake, or while the client stored the session; `None` without
    /// such an error.
    pub(super) failure: Option<ClientError>,
    pub(super) hint: Vec<u8>,
    /// The reason why the client does not trust the public key or the certificate of the server; `None` without such a
    /// reason.
    pub(super) refusal: Option<Refusal>,
    /// The authenticated name of the server; `None` if the server proved no name.
    pub(super) server: Option<String>,
    pub(super) chain: Vec<CertificateInfo>,
    pub(super) believed_until: Option<SystemTime>,
    pub(super) kept: Option<PersistentSession>,
    pub(super) resumption: Option<ResumptionStore>,
    /// The ticket or session id with which the application can resume the session later; `None` if there is none.
    pub(super) resumable: Option<ResumableSession>,
    pub(super) resumed: bool,
    pub(super) cipher_suite: Option<CipherSuite>,
    /// The keying material that the session exported; `None` if it exported nothing.
    pub(super) exported: Option<Exported>,
    pub(super) places: Places,
    /// Maximum length of a DTLS datagram that this client sends, in bytes.
    pub(super) mtu: u16,
    /// The time of the first retransmission since the last datagram from the server; `None` if there was no
    /// retransmission.
    first_repeat: Option<Instant>,
    /// The time from which the server counts as silent, if no datagram comes from it before.
    silent_at: Instant,
    /// Number of open observations.
    pub(super) observations: usize,
    pub(super) reconnects: u32,
    /// The next time at which the endpoint wakes futures of this session. It wakes each future whose waiting time has
    /// ended.
    pub(super) armed: Instant,
}

impl SessionEntry {
    /// Returns an entry without a peer.
    pub(super) fn new(key: usize, config: &Arc<ClientConfig>, (path, protection): (Path, Protection)) -> Self {
        Self {
            key,
            handle: Weak::new(),
            config: config.clone(),
            path,
            remote: path.remote.into(),
            protection,
            peer: nobody(),
            principal: Principal(0),
            is_accepted: false,
            is_proved: false,
            is_shut: false,
            established: false,
            handshake_timeout: config.dtls.handshake_timeout,
            handshake_time: Duration::ZERO,
            closed: None,
            failure: None,
            hint: Vec::new(),
            refusal: None,
            server: None,
            chain: Vec::new(),
            believed_until: None,
            kept: None,
            resumption: None,
            resumable: None,
            resumed: false,
            cipher_suite: None,
            exported: None,
            places: Places::default(),
            mtu: config.dtls.mtu,
            first_repeat: None,
            silent_at: Instant::NEVER,
            observations: 0,
            reconnects: 0,
            armed: Instant::NEVER,
        }
    }

    /// True if the entry already belongs to a session with these settings.
    pub(super) fn is_for(&self, config: &ClientConfig, protection: Protection) -> bool {
        let name =
            |config: &ClientConfig| config.trust.public_keys.as_ref().map(|keys| keys.name_expected().to_owned());
        let identity =
            |config: &ClientConfig| config.trust.key.as_ref().map(|key| (key.identity.clone(), key.key.clone()));
        let ours = &self.config;
        self.protection == protection
            && name(ours) == name(config)
            && identity(ours) == identity(config)
            && ours.oscore == config.oscore
            && ours.edhoc.as_ref().map(Arc::as_ptr) == config.edhoc.as_ref().map(Arc::as_ptr)
    }

    /// Wakes each future whose waiting time has ended. If the server is silent, wakes all futures.
    pub(super) fn wake_due(&mut self, now: Instant) {
        match self.is_silent() {
            true => self.places.wake_all(),
            false => self.places.wake_due(now),
        }
    }

    /// Returns the time at which the next future has to be woken.
    pub(super) fn next_wake(&self) -> Instant {
        let silent_at = if self.is_silent() { Instant::NEVER } else { self.silent_at };
        self.places.next_wake().min(silent_at)
    }

    /// True if the server answered neither a confirmable message nor its first retransmissions.
    pub(super) fn is_silent(&self) -> bool {
        clock::now() >= self.silent_at
    }

    /// Notes that a datagram came from the server.
    pub(super) const fn is_answered(&mut self) {
        (self.first_repeat, self.silent_at) = (None, Instant::NEVER);
    }

    /// Notes that a confirmable message was retransmitted at `now`.
    pub(super) fn is_repeated(&mut self, now: Instant) {
        let first = *self.first_repeat.get_or_insert(now);
        let finds_silence = self.protection == Protection::Dtls || self.observations > 0;
        let is_first = self.silent_at == Instant::NEVER;
        if self.config.recovery.reconnect && finds_silence && is_first && now.since(first) >= BETWEEN_REPEATS {
            self.silent_at = now.after(LAST_WAIT);
        }
    }
}

/// One session, with access to the endpoint of the session.
pub(super) struct Connection<'e> {
    pub(super) io: &'e mut Io,
    pub(super) entry: &'e mut SessionEntry,
}

impl Connection<'_> {
    /// Makes `peer`, which is in the peer table of the endpoint, the peer of this session.
    pub(super) fn talk_to(&mut self, peer: PeerId) {
        self.entry.peer = peer;
        self.io.attach(peer, self.entry.key);
    }

    /// Separates the session from its peer. Removes the peer from the peer table, unless the peer opened the session.
    /// Requests that were sent to this peer end with an error.
    pub(super) fn leave_peer(&mut self) {
        let Self { io, entry } = self;
        if entry.is_accepted {
            io.detach(entry.peer)
        } else {
            io.remove(entry.peer)
        }
        (entry.peer, entry.is_proved) = (nobody(), false);
        (entry.established, entry.closed, entry.failure, entry.refusal) = (false, None, None, None);
        (entry.exported, entry.resumable) = (None, None);
        entry.is_answered();
        if let Some(oscore) = io.node.features.oscore.get_mut(entry.key) {
            oscore.forget_all();
        }
        let remote = entry.remote;
        let detail = || "it answered nothing, and another session has begun".to_owned();
        entry.places.end_all(|| ClientError::Ended { remote, detail: detail() });
    }

    /// True if the session has ended, or if the server no longer answers in it.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.entry.protection == Protection::Dtls && self.entry.is_silent()
    }

    /// True if the session has ended.
    fn is_gone(&self) -> bool {
        self.entry.closed.is_some() || !self.entry.established
    }

    /// True if new OSCORE keys have to be derived before the next request.
    pub(super) fn has_lost_keys(&self) -> bool {
        match self.io.node.features.oscore.get(self.entry.key) {
            Some(oscore) => oscore.is_lost(),
            None => self.entry.config.edhoc.is_some() && self.entry.config.oscore.is_none(),
        }
    }

    /// Protects the requests of the session with this OSCORE context, if there is one.
    pub(super) fn protect_with(&mut self, oscore: Option<SessionContext>) {
        if let Some(oscore) = oscore {
            self.io.node.features.oscore.insert(self.entry.key, oscore);
        }
    }

    /// Protects the requests of the session with an OSCORE context on which client and server agreed. If `message_3` of
    /// EDHOC is not empty, the client sends `message_3` in front of the first request.
    pub(super) fn protect_with_agreed(&mut self, oscore: SessionContext, message_3: Vec<u8>) {
        let Self { io, entry } = self;
        io.node.features.oscore.insert(entry.key, oscore);
        io.node.features.oscore.attach(entry.peer, entry.key);
        if let Some(client) = self.oscore() {
            client.send_in_front(message_3);
        }
    }

    /// Returns the OSCORE context of the session; `None` if the session has no context.
    pub(super) fn oscore(&mut self) -> Option<&mut OscoreClient> {
        self.io.node.features.oscore.get_mut(self.entry.key)
    }

    /// Returns the error that ended the session; `None` if the session continues.
    pub(super) fn end(&self) -> Option<ClientError> {
        if self.entry.is_shut {
            return Some(ClientError::Closed { remote: self.entry.remote });
        }
        let reason = self.entry.closed?;
        Some(ClientError::Ended { remote: self.entry.remote, detail: reason.to_string() })
    }

    /// Returns the next response to the request with the index `at` in [`Places`]. Returns `Some(Ok(None))` if the
    /// server does not answer the request, and `None` while a response may still come.
    pub(super) fn arrived(&mut self, at: usize) -> Option<Result<Option<super::Response>, ClientError>> {
        let is_silent = self.entry.is_silent();
        let place = self.entry.places.get(at)?;
        if place.arrived.is_empty()
            && let Some(error) = self.entry.failure.take()
        {
            return Some(Err(error));
        }
        Some(match place.arrived.pop_front() {
            Some(Arrived::Response(response)) => Ok(Some(response)),
            Some(Arrived::Refused(error)) => Err(error),
            Some(Arrived::Unanswered) => Ok(None),
            None if is_silent => Ok(None),
            None => Err(self.end()?),
        })
    }

    /// Gives up the waiting request with the index `at`. The index remains taken.
    pub(super) fn forget(&mut self, at: usize) {
        let request = self.entry.places.forget_request(at);
        self.cancel(request);
        if let Some(place) = self.entry.places.get(at) {
            place.arrived.clear();
        }
    }

    /// Gives up the waiting request with the index `at`, and frees the index for another request.
    pub(super) fn give_back(&mut self, at: usize) {
        let request = self.entry.places.give_back(at);
        self.cancel(request);
    }

    fn cancel(&mut self, request: Option<RequestId>) {
        let Some(request) = request else { return };
        self.io.node.cancel(self.entry.peer, request);
        if let Some(oscore) = self.oscore() {
            oscore.retain(|other| other != request);
        }
    }

    /// Notes that the session ended. Its waiting requests end with an error.
    pub(super) fn on_closed(&mut self, reason: Fatal) {
        self.entry.closed = Some(reason);
        self.forget_session();
        // RFC 5246, section 7.2.2: a session that ended in a fatal alert is not resumed. From the end of the handshake the
        // store of this client has this session. But its file can have the session of another client.
        if self.entry.established
            && ended_in_alert(reason)
            && let Some(store) = &mut self.entry.resumption
        {
            let _ = store.forget(); // a file that cannot be removed is not read again by this client
        }
        let remote = self.entry.remote;
        self.entry.places.end_all(|| ClientError::Ended { remote, detail: reason.to_string() });
    }

    /// Ends the session with a message to the server. If the settings store sessions, sends no message, and stores the
    /// session for the next client.
    pub(super) fn close(&mut self) {
        if !self.entry.is_shut && !self.park() {
            self.io.node.endpoint.close(self.entry.peer);
            self.io.is_due = true;
        }
    }

    /// Continues the session over another path.
    pub(super) fn move_to(&mut self, path: Path) {
        self.entry.path = path;
        self.io.node.endpoint.move_session(self.entry.peer, &path);
        self.io.wake_driver();
    }

    /// Ends all waiting requests with an error, because the application closed or dropped the session.
    pub(super) fn shut(&mut self) {
        let Self { io, entry } = self;
        entry.is_shut = true;
        if entry.kept.take().is_some() {
            io.kept -= 1;
        }
        entry.resumption = None;
        io.node.features.oscore.remove(entry.key);
        let remote = entry.remote;
        entry.places.end_all(|| ClientError::Closed { remote });
    }

    /// Registers a future that waits for the request with the index `at`. The future is woken at `deadline` at the
    /// latest.
    pub(super) fn watch(&mut self, at: usize, waker: &Waker, deadline: Instant) {
        let wake_at = self.entry.places.get(at).map_or(deadline, |place| place.wake_at.min(deadline));
        self.entry.places.watch(at, waker, wake_at);
        self.arm(wake_at);
    }

    /// Makes sure that the endpoint handles this session at the time `at`, or earlier.
    pub(super) fn arm(&mut self, at: Instant) {
        self.io.arm((self.entry.key, &mut self.entry.armed), at);
    }

    /// Handles an error that the system reported for a sent datagram. If the datagram was too long, reduces the length
    /// of further datagrams. Otherwise returns the error for the requests of the session. But an established DTLS
    /// session ignores the error that nothing listens at the server's port, because an attacker can forge the ICMP
    /// message of this error.
    fn network_error(&mut self, source: &io::Error) -> Result<(), ClientError> {
        if source.raw_os_error() == Some(TOO_LONG) {
            self.follow_path_mtu();
            return Ok(());
        }
        match source.kind() {
            ErrorKind::ConnectionRefused if self.entry.protection == Protection::Dtls && self.entry.established => {
                Ok(())
            }
            _ => Err(explain_network(self.entry.remote, self.entry.protection, source)),
        }
    }

    /// Ends all waiting requests with a network error, unless [`Self::network_error`] ignores the error.
    pub(super) fn fail(&mut self, source: &io::Error) {
        if self.network_error(source).is_err() {
            let (remote, protection) = (self.entry.remote, self.entry.protection);
            self.entry.places.refuse_all(|| explain_network(remote, protection, source));
        }
    }

    /// Stores an error that occurred at this client, and wakes the waiting requests. One of these requests returns the
    /// error.
    pub(super) fn fail_here(&mut self, error: ClientError) {
        self.entry.failure = Some(error);
        self.entry.places.wake_all();
    }

    /// Reduces the size of handshake datagrams and of blocks, after a datagram was too long for the path. The system
    /// did not send the datagram, so the client sends the message of this datagram again when the retransmission timer
    /// ends.
    fn follow_path_mtu(&mut self) {
        let known = self.io.known_mtu(&self.entry.path);
        let headers = UDP_HEADER + if self.entry.remote.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let fits = known.and_then(|known| u16::try_from(known.saturating_sub(headers)).ok());
        self.entry.mtu = fits.filter(|fits| *fits < self.entry.mtu).unwrap_or(self.entry.mtu / 2).max(LEAST_MTU);
        self.io.node.endpoint.limit_mtu(self.entry.mtu);
    }
}

fn explain_network(remote: SocketAddr, protection: Protection, source: &io::Error) -> ClientError {
    if source.kind() == ErrorKind::ConnectionRefused {
        let other = match protection {
            Protection::Dtls => "the default of coaps is 5684",
            _ => "the default of coap is 5683",
        };
        return ClientError::Refused { remote, other };
    }
    let source = source.raw_os_error().map_or_else(|| source.kind().into(), io::Error::from_raw_os_error);
    ClientError::Unreachable { remote, source }
}
