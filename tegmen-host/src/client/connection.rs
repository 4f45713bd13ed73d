//! The datagrams of a session: everything that happens under its lock. Nothing here waits.

mod persistence;
mod receive;
mod resumption;
mod send;
#[cfg(test)]
mod tests;

pub(super) use receive::ServerPacing;
pub(super) use send::{Message, Turn};

use super::oscore::OscoreClient;
use super::persistence::PersistentSession;
use super::places::{Arrived, Places};
use super::resumption::ResumptionStore;
use super::{ClientConfig, ClientError, Node, Role, Table, Tapped};
use crate::clock;
use crate::exchange_pool::ExchangePool;
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use crate::x509::{CertificateInfo, Refusal};
use receive::Arrivals;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::SystemTime;
use tegmen::address::Path;
use tegmen::coap::{Exchanges, RequestId};
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::{CipherSuite, Fatal};
use tegmen::endpoint::{Endpoint, Peers as _};
use tegmen::identity::{PeerId, Protection};
use tegmen::node::Parts;
use tegmen::time::{Duration, Instant};
use tokio::net::UdpSocket;

/// EMSGSIZE.
const TOO_LONG: i32 = 90;
/// Bytes of headers before the payload of a datagram.
const UDP_HEADER: u32 = 8;
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
/// Datagrams do not become smaller than this, in bytes.
const LEAST_MTU: u16 = 128;
/// The time between the first and the second retransmission of a message is not shorter. A server that was sent messages
/// again for so long, and was not heard, counts as silent after the last wait: 8 to 11 seconds in all.
const BETWEEN_REPEATS: Duration = Duration::from_secs(4);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Bytes of the pool for requests that wait for their acknowledgement, and for replies that are sent again.
const POOL_BYTES: usize = 1 << 20;

/// One session with its socket.
pub(super) struct Connection {
    pub(super) config: Arc<ClientConfig>,
    /// `None` once the session was closed by its owner.
    pub(super) socket: Option<UdpSocket>,
    pub(super) node: Node,
    pub(super) crypto: HostCrypto,
    pub(super) counters: Counters,
    pub(super) path: Path,
    pub(super) remote: SocketAddr,
    pub(super) protection: Protection,
    pub(super) peer: PeerId,
    pub(super) established: bool,
    pub(super) handshake_time: Duration,
    pub(super) closed: Option<Fatal>,
    /// Why a handshake failed at our side.
    pub(super) failure: Option<ClientError>,
    pub(super) hint: Vec<u8>,
    /// Why the server is not believed.
    pub(super) refusal: Option<Refusal>,
    /// Authenticated name of the server.
    pub(super) server: Option<String>,
    pub(super) chain: Vec<CertificateInfo>,
    pub(super) believed_until: Option<SystemTime>,
    pub(super) kept: Option<PersistentSession>,
    pub(super) resumption: Option<ResumptionStore>,
    pub(super) resumed: bool,
    pub(super) cipher_suite: Option<CipherSuite>,
    pub(super) oscore: Option<OscoreClient>,
    pub(super) places: Places,
    arrivals: Arrivals,
    /// Longest datagram in bytes.
    pub(super) mtu: u16,
    /// For datagrams that are sent.
    out: Vec<u8>,
    /// Datagrams that the system could not take yet.
    unsent: VecDeque<Vec<u8>>,
    /// The first retransmission since the server was heard.
    first_repeat: Option<Instant>,
    /// When a server counts as silent that is not heard until then.
    silent_at: Instant,
    /// Observations that are open.
    pub(super) observations: usize,
    pub(super) reconnects: u32,
    /// The task that receives, and the time at which it wakes by itself.
    pub(super) driver: Option<Waker>,
    pub(super) armed: Instant,
}

impl Connection {
    pub(super) fn new(
        config: &Arc<ClientConfig>,
        socket: UdpSocket,
        (remote, path): (SocketAddr, Path),
        (endpoint, crypto, counters): (Endpoint<Table, Role>, HostCrypto, Counters),
        protection: Protection,
    ) -> Self {
        Self {
            config: config.clone(),
            socket: Some(socket),
            node: new_node(endpoint, config),
            crypto,
            counters,
            path,
            remote,
            protection,
            peer: PeerId::new(0, 0),
            established: false,
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
            resumed: false,
            cipher_suite: None,
            oscore: None,
            places: Places::default(),
            arrivals: Arrivals::default(),
            mtu: config.dtls.mtu,
            out: vec![0; MAX_DATAGRAM],
            unsent: VecDeque::new(),
            first_repeat: None,
            silent_at: Instant::NEVER,
            observations: 0,
            reconnects: 0,
            driver: None,
            armed: Instant::NEVER,
        }
    }

    /// Talks to `peer` of the endpoint from now on.
    pub(super) fn talk_to(&mut self, peer: PeerId) {
        self.peer = peer;
        let mut first_id = [0; 2];
        self.crypto.random(&mut first_id);
        if let Some(exchanges) = self.node.endpoint.peers.attached(peer) {
            *exchanges = Exchanges::new(u16::from_ne_bytes(first_id));
        }
    }

    /// Replaces the node by one without a session. Requests that were sent in the session before are ended.
    pub(super) fn replace_endpoint(&mut self, endpoint: Endpoint<Table, Role>) {
        self.node = new_node(endpoint, &self.config);
        (self.established, self.closed, self.failure, self.refusal) = (false, None, None, None);
        self.is_answered();
        if let Some(oscore) = &mut self.oscore {
            oscore.forget_all();
        }
        let remote = self.remote;
        let detail = || "it answered nothing, and another session has begun".to_owned();
        self.places.end_all(|| ClientError::Ended { remote, detail: detail() });
    }

    /// True if there is no session any more, or the server answers nothing in it.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.protection == Protection::Dtls && self.is_silent()
    }

    /// True if there is no session any more.
    fn is_gone(&self) -> bool {
        self.closed.is_some() || !self.established
    }

    /// True if the server did not answer a confirmable message and its first retransmissions.
    pub(super) fn is_silent(&self) -> bool {
        clock::now() >= self.silent_at
    }

    /// The server was heard.
    pub(super) const fn is_answered(&mut self) {
        (self.first_repeat, self.silent_at) = (None, Instant::NEVER);
    }

    /// A confirmable message was sent again at `now`.
    fn is_repeated(&mut self, now: Instant) {
        let first = *self.first_repeat.get_or_insert(now);
        let finds_silence = self.protection == Protection::Dtls || self.observations > 0;
        let is_first = self.silent_at == Instant::NEVER;
        if self.config.recovery.reconnect && finds_silence && is_first && now.since(first) >= BETWEEN_REPEATS {
            self.silent_at = now.after(LAST_WAIT);
        }
    }

    /// True if new OSCORE keys are to be derived before anything is asked.
    pub(super) fn has_lost_keys(&self) -> bool {
        self.oscore.as_ref().is_some_and(OscoreClient::is_lost)
    }

    /// The error of a session that is over; `None` if it is not.
    pub(super) fn end(&self) -> Option<ClientError> {
        if self.socket.is_none() {
            return Some(ClientError::Closed { remote: self.remote });
        }
        let reason = self.closed?;
        Some(ClientError::Ended { remote: self.remote, detail: reason.to_string() })
    }

    /// The next reply at a place: `Ok(None)` if there will be none. Nothing if it has to be waited for.
    pub(super) fn arrived(&mut self, at: usize) -> Option<Result<Option<super::Response>, ClientError>> {
        let is_silent = self.is_silent();
        let place = self.places.get(at)?;
        if place.arrived.is_empty()
            && let Some(error) = self.failure.take()
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

    /// Gives up the request of a place.
    pub(super) fn forget(&mut self, at: usize) {
        let request = self.places.forget_request(at);
        self.cancel(request);
        if let Some(place) = self.places.get(at) {
            place.arrived.clear();
        }
    }

    /// Gives up a place, and its request.
    pub(super) fn give_back(&mut self, at: usize) {
        let request = self.places.give_back(at);
        self.cancel(request);
    }

    fn cancel(&mut self, request: Option<RequestId>) {
        let Some(request) = request else { return };
        self.node.cancel(self.peer, request);
        if let Some(oscore) = &mut self.oscore {
            oscore.forget(request);
        }
    }

    /// The session ended.
    fn on_closed(&mut self, reason: Fatal) {
        self.closed = Some(reason);
        self.forget_session();
        let remote = self.remote;
        self.places.end_all(|| ClientError::Ended { remote, detail: reason.to_string() });
    }

    /// Continues from another socket.
    pub(super) fn move_to(&mut self, socket: UdpSocket, path: Path) {
        (self.socket, self.path) = (Some(socket), path);
        self.node.endpoint.move_session(self.peer, &path);
        self.wake_driver();
    }

    /// Ends everything: the owner closed the session or dropped it.
    pub(super) fn shut(&mut self) {
        (self.socket, self.kept, self.oscore, self.resumption) = (None, None, None, None);
        let remote = self.remote;
        self.places.end_all(|| ClientError::Closed { remote });
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Wakes the driver if something is due before it wakes by itself.
    pub(super) fn rearm(&mut self, at: Instant) {
        if at < self.armed {
            self.armed = at;
            self.wake_driver();
        }
    }

    /// The time at which the driver has to do something.
    pub(super) fn next_wake(&self) -> Instant {
        let silent_at = if self.is_silent() { Instant::NEVER } else { self.silent_at };
        let alarm = self.node.endpoint.next_alarm().unwrap_or(Instant::NEVER);
        alarm.min(self.places.next_wake()).min(silent_at)
    }

    /// Waits at a place on behalf of a future.
    pub(super) fn watch(&mut self, at: usize, waker: &Waker, deadline: Instant) {
        let wake_at = self.places.get(at).map_or(deadline, |place| place.wake_at.min(deadline));
        self.places.watch(at, waker, wake_at);
        self.rearm(wake_at);
    }

    fn tap(&self, sent: bool, datagram: &[u8]) {
        if let Some(tap) = &self.config.log.tap {
            (tap.0)(Tapped::Datagram { sent, path: self.path, datagram });
        }
    }

    /// Handles an error of the system for our datagrams. A refusal after the handshake may be forged by anybody.
    fn network_error(&mut self, source: &io::Error) -> Result<(), ClientError> {
        if source.raw_os_error() == Some(TOO_LONG) {
            self.follow_path_mtu();
            return Ok(());
        }
        match source.kind() {
            ErrorKind::ConnectionRefused if self.protection == Protection::Dtls && self.established => Ok(()),
            _ => Err(explain_network(self.remote, self.protection, source)),
        }
    }

    /// Gives an error of the network to all that wait.
    pub(super) fn fail(&mut self, source: &io::Error) {
        if self.network_error(source).is_err() {
            let (remote, protection) = (self.remote, self.protection);
            self.places.refuse_all(|| explain_network(remote, protection, source));
        }
    }

    /// Gives an error of our own side to one that waits.
    fn fail_here(&mut self, error: ClientError) {
        self.failure = Some(error);
        self.places.wake_all();
    }

    /// A datagram was longer than the path carries: those of handshakes, and blocks, become smaller. What was lost is sent
    /// again by the timers.
    fn follow_path_mtu(&mut self) {
        #[cfg(not(target_os = "linux"))]
        let known: Option<u32> = None;
        #[cfg(target_os = "linux")]
        let known = self.socket.as_ref().and_then(|socket| match self.remote.is_ipv4() {
            true => rustix::net::sockopt::ip_mtu(socket).ok(),
            false => rustix::net::sockopt::ipv6_mtu(socket).ok(),
        });
        let headers = UDP_HEADER + if self.remote.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let fits = known.and_then(|known| u16::try_from(known.saturating_sub(headers)).ok());
        self.mtu = fits.filter(|fits| *fits < self.mtu).unwrap_or(self.mtu / 2).max(LEAST_MTU);
        self.node.endpoint.limit_mtu(self.mtu);
    }
}

fn explain_network(remote: SocketAddr, protection: Protection, source: &io::Error) -> ClientError {
    if source.kind() == ErrorKind::ConnectionRefused {
        let other = match protection {
            Protection::Dtls => "coaps has 5684 unless a server says otherwise",
            _ => "coap has 5683 unless a server says otherwise",
        };
        return ClientError::Refused { remote, other };
    }
    let source = source.raw_os_error().map_or_else(|| source.kind().into(), io::Error::from_raw_os_error);
    ClientError::Unreachable { remote, source }
}

fn new_node(endpoint: Endpoint<Table, Role>, config: &ClientConfig) -> Node {
    let mut node = Node::with_features(endpoint, ExchangePool::new(0, POOL_BYTES), Parts::default());
    node.set_nstart(config.coap.nstart.max(1));
    node
}
