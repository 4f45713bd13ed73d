//! A mote on any board: IPv6 packets on a serial line, DTLS on its port, and an application.
//!
//! The clock is an argument. The caller calls [`Mote::on_time`] ten times a second, and [`Mote::on_packet`] for each
//! packet from the serial line. This module needs two items of the board from its parent module: the cryptographic
//! `Provider`, and `uart::send`.

use super::{Provider, uart};
use tegmen::address::{Address, Path};
use tegmen::coap::{BuildError, Builder, Code, ExchangeStorage, Exchanges, Fixed, RequestId};
use tegmen::cx::Environment;
use tegmen::dtls::{self, Answer, Config, Configured, Fatal, Need, Records};
use tegmen::endpoint::{self, Endpoint, Event, PeerArray, Peers};
use tegmen::identity::PeerId;
use tegmen::node::{self, Features, Node, Observation, Oscore, Queue, RequestHead, SendError};
use tegmen::time::Instant;
use tegmen_lowpan::ip::{self, Datagram};
use tegmen_lowpan::slip::{Start, encode};

/// The memory of a mote's node. The type `()` implements it for a node that sends and serves requests, and has no
/// optional parts. Such a node keeps for each peer one message that it sent and that waits for an acknowledgement or a
/// response. It also keeps the Message IDs of the last four messages of the peer, and 64 bytes of replies to them.
pub trait Memory {
    /// The exchanges with a peer.
    type Storage: ExchangeStorage + Default;
    /// The optional parts of the node, which an image may leave out.
    type Features: Features;
}

impl Memory for () {
    type Storage = Fixed<1, 64, 4, 64>;
    type Features = ();
}

/// The identity of a request that a node with this memory has decrypted with OSCORE.
pub type ExchangeOf<M> = <<<M as Memory>::Features as Features>::Oscore as Oscore>::Exchange;

/// The application of an image, which runs on a mote.
pub trait Application<M: Memory = ()>: node::Application<ExchangeOf<M>> + Sized {
    /// The DTLS roles of the application.
    type Roles: Configured;

    /// Creates the application from the [`Start`], which the bridge has sent over the serial line. Returns `None` if
    /// the [`Start`] lacks a value that the application needs. The mote then requests another [`Start`].
    fn start(start: &Start) -> Option<Self>;

    /// Returns the key that a handshake needs.
    fn key<'a>(&'a self, need: Need<'_>) -> Answer<'a>;

    /// Called when a session is established.
    fn on_established(&mut self, _mote: &mut Mote<Self::Roles, M>, _now: Instant, _peer: PeerId) {}

    /// Called when a session, or the attempt to open one, has ended.
    fn on_closed(&mut self, _now: Instant, _peer: PeerId, _why: Fatal) {}

    /// Called ten times a second, and after each received packet.
    fn look(&mut self, _mote: &mut Mote<Self::Roles, M>, _now: Instant) {}
}

/// A mote: its node, the environment of the node, and its address.
pub struct Mote<R: Configured, M: Memory = ()> {
    /// The sessions, and the CoAP exchanges of each session.
    pub node: Node<Table<M::Storage>, R, M::Features>,
    /// The cryptographic provider, and counters of events and of dropped datagrams.
    pub environment: Environment<Provider>,
    /// Number of packets that were refused before they reached the endpoint.
    pub refused: u32,
    ip: [u8; 16],
}

/// A table for three peers, of which one can be in a handshake.
pub type Table<S> = PeerArray<Exchanges<S>, 3, 1, 32, 96>;

impl<R: Configured, M: Memory> Mote<R, M> {
    /// Creates a mote without sessions. `start` contains the seed and the address that the bridge has sent.
    pub fn new(now: Instant, start: Start, features: M::Features) -> Self {
        let mut environment = Environment::new(Provider::new(*start.seed.expose()));
        let config = Config { mtu: DATAGRAM_LEN as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(now), Table::new(), config);
        let node = Node::with_features(endpoint, M::Storage::default(), features);
        Self { node, environment, refused: 0, ip: start.ip }
    }

    /// Opens a session with the DTLS server at `remote`. Returns false if there is no space for it.
    pub fn connect(&mut self, now: Instant, remote: Address) -> bool {
        let local = Address { ip: self.ip, port: DTLS_PORT, scope: 0 };
        self.node.endpoint.connect(&mut self.environment.at(now), &Path { local, remote }).is_ok()
    }

    /// Sends a request to `peer`, or adds it to the queue of the node. `write` adds the options and the payload of the
    /// request.
    ///
    /// # Errors
    /// [`SendError`] if there is no session, or no space for the request.
    pub fn request(
        &mut self,
        now: Instant,
        peer: PeerId,
        head: RequestHead<'_>,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
    ) -> Result<RequestId, SendError> {
        let mut datagram = [0; endpoint::HEADROOM + MESSAGE_LEN + endpoint::TAILROOM];
        let cx = &mut self.environment.at(now);
        let (request, len) = self.node.request(cx, peer, head, write, &mut datagram)?;
        self.send_unless_queued(peer, &datagram, len);
        Ok(request)
    }

    /// Sends a GET to `peer`, which registers an observation of the resource `path`.
    ///
    /// # Errors
    /// [`SendError`] if there is no session, or no space for the registration.
    pub fn observe(
        &mut self,
        now: Instant,
        peer: PeerId,
        observation: &mut Observation,
        path: &str,
    ) -> Result<(), SendError> {
        let mut datagram = [0; endpoint::HEADROOM + MESSAGE_LEN + endpoint::TAILROOM];
        let cx = &mut self.environment.at(now);
        let write = |get: &mut Builder<'_, '_>| get.path(path);
        let len = self.node.observe(cx, peer, observation, Code::GET, write, &mut datagram)?;
        self.send_unless_queued(peer, &datagram, len);
        Ok(())
    }

    /// Sends the first `len` bytes of `datagram` to `peer`. If the node has a queue, a `len` of 0 means that the
    /// message waits in the queue, and nothing is sent.
    fn send_unless_queued(&mut self, peer: PeerId, datagram: &[u8], len: usize) {
        let is_queued = <M::Features as Features>::Queue::PLACES > 0 && len == 0;
        if !is_queued {
            self.send(peer, datagram.get(..len).unwrap_or(&[]));
        }
    }

    /// Sends a datagram to `peer`.
    fn send(&mut self, peer: PeerId, datagram: &[u8]) {
        if let Some(peer) = self.node.endpoint.peers.peer(peer) {
            send_datagram(peer.path(), datagram);
        }
    }

    /// Calls [`Application::look`], and sends all datagrams that the mote has to send now. The board calls this after
    /// each tenth of a second.
    pub fn on_time<A: Application<M, Roles = R>>(&mut self, application: &mut A, now: Instant) {
        application.look(self, now);
        self.send_what_is_due(application, now);
    }

    /// Handles a packet from the serial line.
    pub fn on_packet<A: Application<M, Roles = R>>(&mut self, application: &mut A, now: Instant, packet: &mut [u8]) {
        let datagram = match Datagram::parse(packet) {
            Ok(datagram) if datagram.path.local.ip == self.ip && datagram.path.local.port == DTLS_PORT => datagram,
            _ => {
                self.refused = self.refused.saturating_add(1);
                return;
            }
        };
        let mut records = Records::new(datagram.payload);
        let mut out = [0; DATAGRAM_LEN];
        loop {
            let (cx, path) = (&mut self.environment.at(now), &datagram.path);
            let Some(event) = self.node.handle(cx, path, &mut records, application, &mut out) else { break };
            self.on_event(application, now, event, Some(path), &out);
        }
        self.on_time(application, now);
    }

    /// Sends all datagrams that must be sent now: flights of handshakes, alerts, and unacknowledged CoAP messages.
    fn send_what_is_due<A: Application<M, Roles = R>>(&mut self, application: &mut A, now: Instant) {
        let mut out = [0; DATAGRAM_LEN];
        while let Some(event) = self.node.poll(&mut self.environment.at(now), application, &mut out) {
            self.on_event(application, now, event, None, &out);
        }
    }

    fn on_event<A: Application<M, Roles = R>>(
        &mut self,
        application: &mut A,
        now: Instant,
        event: Event,
        path: Option<&Path>,
        out: &[u8],
    ) {
        match event {
            Event::Answer { len } => {
                if let (Some(path), Some(datagram)) = (path, out.get(..len.into())) {
                    send_datagram(path, datagram);
                }
            }
            Event::Transmit { peer, len } => self.send(peer, out.get(..len.into()).unwrap_or(&[])),
            Event::Need(id) => {
                let Some(answer) = self.node.endpoint.need(id).map(|need| application.key(need)) else { return };
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on_session(application, now, event);
                }
            }
            event => self.on_session(application, now, event),
        }
    }

    fn on_session<A: Application<M, Roles = R>>(&mut self, application: &mut A, now: Instant, event: Event) {
        match event {
            Event::Established(id) => application.on_established(self, now, id),
            Event::Closed { peer, reason } => application.on_closed(now, peer, reason),
            _ => {}
        }
    }
}

/// Sends one UDP datagram over the serial line.
fn send_datagram(path: &Path, payload: &[u8]) {
    if let Ok(headers) = ip::headers(path, HOP_LIMIT, payload) {
        encode(headers.iter().chain(payload)).for_each(uart::send);
    }
}

/// The port of CoAP over DTLS (RFC 7252, section 12.7).
const DTLS_PORT: u16 = 5684;
/// The hop limit of packets, which is the default for hosts (RFC 4861).
const HOP_LIMIT: u8 = 64;
/// Maximum length of a DTLS datagram that is sent, in bytes.
const DATAGRAM_LEN: usize = 256;
/// Maximum length of a DTLS datagram that is received, in bytes. A client that offers all its suites has a long
/// ClientHello: that of libcoap with OpenSSL has 281 bytes with the cookie. The server never reassembles a ClientHello
/// without a cookie from fragments.
const RECEIVED_LEN: usize = 320;
/// Maximum length of an IPv6 packet that is received, in bytes.
pub const PACKET_LEN: usize = ip::HEADROOM + RECEIVED_LEN;
/// Maximum length of a CoAP message that is sent, in bytes.
const MESSAGE_LEN: usize = 96;
const _: () = assert!(dtls::record::OVERHEAD + MESSAGE_LEN <= DATAGRAM_LEN);
