//! The sockets of an endpoint, its peers, and the state that all its sessions share.

use super::arrivals::Arrivals;
use super::port::Port;
use super::serving::Serving;
use super::{Node, Tap, Tapped};
use crate::clock;
use crate::credentials::Held;
use crate::exchange_pool::ExchangePool;
use crate::provider::HostCrypto;
use crate::server::{CoapPeer, Forgettable, Forgotten};
use crate::udp::{MAX_DATAGRAM, Outbox};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind};
use std::task::Waker;
use tegmen::address::Path;
use tegmen::coap::{Exchanges, Freshness, PeerExchanges};
use tegmen::crypto::Crypto as _;
use tegmen::cx::Environment;
use tegmen::dtls::Rank;
use tegmen::endpoint::Peers as _;
use tegmen::identity::PeerId;
use tegmen::time::Instant;

/// Maximum number of datagrams that wait until the system can take them. Further datagrams are lost, as on the network.
const MAX_UNSENT: usize = 256;

/// The data that an endpoint stores in the entry of a peer in the peer table.
#[derive(Default)]
pub(super) struct Attached {
    heard: crate::server::Attached,
    session: Option<usize>,
}

impl PeerExchanges for Attached {
    type Storage = ExchangePool;
    type State = CoapPeer;
    const VERIFIES: bool = true;

    fn exchanges(&mut self) -> Option<&mut Exchanges<ExchangePool>> {
        self.heard.exchanges()
    }

    fn with_state(&mut self) -> Option<(&mut Exchanges<ExchangePool>, &mut CoapPeer)> {
        self.heard.with_state()
    }

    fn freshness(&mut self) -> Option<&mut Freshness> {
        self.heard.freshness()
    }

    fn begin(&mut self, now: Instant, random: impl FnOnce(&mut [u8])) -> bool {
        self.heard.begin(now, random)
    }

    fn heard(&mut self, now: Instant) {
        self.heard.heard(now);
    }
}

impl Attached {
    /// Stores the reservation of the number that identifies the peer's principal. No other principal gets this number
    /// until the peer leaves the peer table.
    pub(super) fn hold(&mut self, held: Option<Held>) {
        self.heard.hold(held);
    }
}

impl Forgettable for Attached {
    const IS_REMOVED: bool = true;

    fn is_remembered(&mut self) -> bool {
        self.session.is_none() && self.heard.is_remembered()
    }

    fn forget(&mut self) {
        self.heard.forget();
    }
}

/// The sockets of an endpoint, its peers, and the state that all its sessions share.
pub(super) struct Io {
    /// The sockets; empty after the endpoint was closed.
    pub(super) ports: Vec<Port>,
    pub(super) node: Node,
    pub(super) environment: Environment<HostCrypto>,
    pub(super) arrivals: Arrivals,
    pub(super) tap: Option<Tap>,
    /// The buffer for datagrams that are sent.
    pub(super) out: Vec<u8>,
    /// Datagrams that the system could not take yet.
    pub(super) unsent: VecDeque<(Path, Vec<u8>)>,
    /// The datagrams that the driver will send together; `None` if each datagram is sent at once.
    pub(super) outbox: Option<Outbox>,
    forgotten: Forgotten,
    /// Number of open sessions that will be stored in files when they are closed.
    pub(super) kept: usize,
    nstart: usize,
    /// The times at which sessions have to be handled next, the earliest first. The second value is the index of the
    /// session.
    pub(super) due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// True if a datagram has to be sent at once.
    pub(super) is_due: bool,
    /// The waker of the task that receives datagrams and handles timers.
    pub(super) driver: Option<Waker>,
    /// The time at which the timer wakes the task of `driver`.
    pub(super) armed: Instant,
}

impl Io {
    pub(super) fn new(
        node: Node,
        environment: Environment<HostCrypto>,
        tap: Option<Tap>,
        ports: Vec<Port>,
        serving: Option<Box<Serving>>,
    ) -> Self {
        let forgotten =
            serving.as_ref().map_or_else(Forgotten::default, |serving| serving.coap_server.forgotten.clone());
        Self {
            ports,
            node,
            environment,
            arrivals: Arrivals::new(serving),
            tap,
            out: vec![0; MAX_DATAGRAM],
            unsent: VecDeque::new(),
            outbox: None,
            forgotten,
            kept: 0,
            nstart: 0,
            due: BinaryHeap::new(),
            is_due: false,
            driver: None,
            armed: Instant::NEVER,
        }
    }

    /// Assigns a peer to a session.
    pub(super) fn attach(&mut self, peer: PeerId, session: usize) {
        let Self { node, environment, arrivals, forgotten, .. } = self;
        if let Some(attached) = node.endpoint.peers.attached(peer) {
            attached.session = Some(session);
            attached.begin(clock::now(), |random| environment.crypto.random(random));
            if let Some(coap_peer) = attached.heard.coap_peer() {
                coap_peer.forgotten = forgotten.clone();
                if let Some(serving) = &arrivals.serving {
                    serving.coap_server.begin(coap_peer);
                }
            }
        }
        node.features.oscore.attach(peer, session);
        self.give_back();
    }

    /// Ends the assignment of a peer to a session: see [`Self::attach`]. The peer remains in the peer table.
    pub(super) fn detach(&mut self, peer: PeerId) {
        if let Some(attached) = self.node.endpoint.peers.attached(peer) {
            attached.session = None;
        }
        self.node.features.oscore.detach(peer);
    }

    /// Removes a peer from the table without a message to the peer.
    pub(super) fn remove(&mut self, peer: PeerId) {
        self.node.endpoint.peers.remove(peer);
        self.node.features.pacing.forget(peer);
        self.node.features.oscore.detach(peer);
        self.give_back();
    }

    /// Frees the memory of removed peers in the exchange pool.
    pub(super) fn give_back(&mut self) {
        self.forgotten.give_back(&mut self.node.storage);
    }

    /// Raises the maximum number of concurrent requests to each peer to `nstart`, if the maximum was lower. Each
    /// session also has its own maximum.
    pub(super) fn allow_nstart(&mut self, nstart: usize) {
        self.nstart = self.nstart.max(nstart);
        self.node.set_nstart(self.nstart);
    }

    pub(super) fn is_shut(&self) -> bool {
        self.ports.is_empty()
    }

    pub(super) fn session_of(&mut self, peer: PeerId) -> Option<usize> {
        self.node.endpoint.peers.attached(peer)?.session
    }

    /// True if the peer is the server in its association with this endpoint.
    pub(super) fn is_server(&mut self, peer: PeerId) -> bool {
        self.node.endpoint.peers.peer(peer).is_some_and(|peer| peer.rank() == Rank::Ours)
    }

    pub(super) fn path_of(&mut self, peer: PeerId) -> Option<Path> {
        self.node.endpoint.peers.peer(peer).map(|peer| *peer.path())
    }

    /// Makes sure that the endpoint handles a session at the time `at`, or earlier.
    pub(super) fn arm(&mut self, (key, armed): (usize, &mut Instant), at: Instant) {
        if at < *armed {
            *armed = at;
            self.due.push(Reverse((at, key)));
        }
        self.rearm(at);
    }

    /// Wakes the driver (the task of the endpoint) if `at` is before the time at which the timer of the driver fires.
    fn rearm(&mut self, at: Instant) {
        if at < self.armed {
            self.armed = at;
            self.wake_driver();
        }
    }

    /// Wakes the driver (the task of the endpoint) if an alarm of the node is due before the time at which the timer of
    /// the driver fires.
    pub(super) fn rearm_for_alarm(&mut self) {
        self.rearm(self.node.endpoint.next_alarm().unwrap_or(Instant::NEVER));
    }

    pub(super) fn wake_driver(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Returns the earliest time at which the driver has to handle a session, an alarm, or the work that is due once a
    /// second.
    pub(super) fn next_wake(&self) -> Instant {
        let second = self.arrivals.serving.as_ref().map_or(Instant::NEVER, |serving| serving.second);
        let alarm = self.node.endpoint.next_alarm().unwrap_or(Instant::NEVER).min(second);
        self.due.peek().map_or(alarm, |Reverse((at, _))| alarm.min(*at))
    }

    /// Returns the maximum packet length of the path in bytes, if the system knows it.
    pub(super) fn known_mtu(&self, path: &Path) -> Option<u32> {
        self.ports.iter().find(|port| port.has(path))?.known_mtu()
    }

    pub(super) fn tap(&self, sent: bool, path: &Path, datagram: &[u8]) {
        if let Some(tap) = &self.tap {
            (tap.0)(Tapped::Datagram { sent, path: *path, datagram });
        }
    }

    /// Sends the first `len` bytes of the output buffer.
    pub(super) fn put_out(&mut self, path: &Path, len: usize) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let put = self.put(path, out.get(..len).unwrap_or(&[]));
        self.out = out;
        put
    }

    fn put(&mut self, path: &Path, datagram: &[u8]) -> io::Result<()> {
        self.tap(true, path, datagram);
        let Some(port) = self.ports.iter().find(|port| port.has(path)) else { return Ok(()) };
        if let (Some(outbox), Port::Open(_)) = (&mut self.outbox, port) {
            outbox.push(*path, datagram);
            self.wake_driver();
            return Ok(());
        }
        if self.unsent.is_empty() {
            match port.try_send(path, datagram) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
        self.keep_unsent(path, datagram);
        self.wake_driver();
        Ok(())
    }

    /// Stores a datagram that the system cannot take yet.
    pub(super) fn keep_unsent(&mut self, path: &Path, datagram: &[u8]) {
        if self.unsent.len() < MAX_UNSENT {
            self.unsent.push_back((*path, datagram.to_vec()));
        }
    }
}
