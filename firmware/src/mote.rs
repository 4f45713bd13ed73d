//! What a mote does on any board: IPv6 packets on a serial line, DTLS on its port, and an application above.
//!
//! The clock is an argument, so whoever has one lets the mote run: [`Mote::on_time`] ten times a second,
//! [`Mote::on_packet`] for what came over the line. It needs of the board what stands beside this file: the `Provider`
//! of its crypto, and `uart::send`.

use super::{Provider, uart};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::Exchanges;
use tegmen::counters::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::need::{Answer, Need};
use tegmen::dtls::{self, Config, Fatal, Records};
use tegmen::endpoint::{self, Configured, Endpoint, Event, Misuse, PeerArray, PeerId, Peers};
use tegmen::ip::{self, Datagram};
use tegmen::slip::{Start, encode};
use tegmen::time::Instant;

/// What an image does with its mote.
pub trait Application: Sized {
    /// Its roles in DTLS.
    type Roles: Configured;

    /// Made from the bridge's answer; `None` if that lacks something, and the mote asks again.
    fn start(start: &Start) -> Option<Self>;

    /// The key that a handshake waits for.
    fn key(&self, need: Need<'_>) -> Answer<'static>;

    /// A session is ready.
    fn on_established(&mut self, _mote: &mut Mote<Self::Roles>, _now: Instant, _peer: PeerId) {}

    /// A session, or the attempt to open one, is over.
    fn on_closed(&mut self, _now: Instant, _peer: PeerId, _why: Fatal) {}

    /// A peer's authentic CoAP message.
    fn on_message(&mut self, mote: &mut Mote<Self::Roles>, now: Instant, peer: PeerId, message: &[u8]);

    /// Ten times a second, and after everything that was received.
    fn look(&mut self, _mote: &mut Mote<Self::Roles>, _now: Instant) {}
}

/// The mote's endpoint and what it stands on.
pub struct Mote<R: Configured> {
    /// Sessions, and the CoAP exchanges of each.
    pub endpoint: Endpoint<Table, R>,
    /// Ciphers and randomness.
    pub crypto: Provider,
    /// What was dropped and done.
    pub counters: Counters,
    /// Packets refused before the endpoint saw them.
    pub refused: u32,
    ip: [u8; 16],
}

/// Three peers, one of them in a handshake.
pub type Table = PeerArray<OneExchange, 3, 1, 32, 96>;
/// One message of ours under way, four of the peer remembered, 64 bytes of replies.
pub type OneExchange = Exchanges<1, 64, 4, 64>;

impl<R: Configured> Mote<R> {
    /// A mote that has heard and said nothing, with the randomness and the address of the bridge's answer.
    pub fn new(now: Instant, start: Start) -> Self {
        let mut crypto = Provider::new(*start.seed.expose());
        let mut counters = Counters::default();
        let mut cx = Cx { now, crypto: &mut crypto, counters: &mut counters };
        let config = Config { mtu: DATAGRAM_LEN as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut cx, Table::new(), config);
        Self { endpoint, crypto, counters, refused: 0, ip: start.ip }
    }

    /// Opens a session with the DTLS server at `remote`; false if there is no room for it.
    pub fn connect(&mut self, now: Instant, remote: Address) -> bool {
        let local = Address { ip: self.ip, port: DTLS_PORT, scope: 0 };
        let Self { endpoint, crypto, counters, .. } = self;
        endpoint.connect(&mut Cx { now, crypto, counters }, &Path { local, remote }).is_ok()
    }

    /// Protects the message that `write` makes, and sends it to `peer`.
    ///
    /// # Errors
    /// [`Misuse`] if there is no session, or no room for the message.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerId,
        write: impl FnOnce(&mut Self, &mut Frame<'_>) -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        let mut storage = [0; endpoint::HEADROOM + MESSAGE_LEN + endpoint::TAILROOM];
        let mut frame = Frame::new(&mut storage, endpoint::HEADROOM);
        write(self, &mut frame)?;
        let path = *self.endpoint.peers.peer(peer).ok_or(Misuse::NotEstablished)?.path();
        let Self { endpoint, crypto, counters, .. } = self;
        endpoint.seal(&mut Cx { now, crypto, counters }, peer, &mut frame)?;
        send_datagram(&path, frame.bytes());
        Ok(())
    }

    /// Time has passed: the application looks at it, and what is due is sent.
    pub fn on_time<A: Application<Roles = R>>(&mut self, application: &mut A, now: Instant) {
        application.look(self, now);
        self.send_what_is_due(application, now);
    }

    /// A packet came over the line.
    pub fn on_packet<A: Application<Roles = R>>(&mut self, application: &mut A, now: Instant, packet: &mut [u8]) {
        let datagram = match Datagram::parse(packet) {
            Ok(datagram) if datagram.path.local.ip == self.ip && datagram.path.local.port == DTLS_PORT => datagram,
            _ => {
                self.refused = self.refused.saturating_add(1);
                return;
            }
        };
        let mut records = Records::new(datagram.payload);
        let mut answer = [0; ANSWER_LEN];
        loop {
            let Self { endpoint, crypto, counters, .. } = &mut *self;
            let mut cx = Cx { now, crypto, counters };
            let Some(event) = endpoint.handle(&mut cx, &datagram.path, &mut records, &mut answer) else { break };
            match event {
                Event::Answer { len } => send_datagram(&datagram.path, answer.get(..len.into()).unwrap_or(&[])),
                Event::Message { peer, bytes } => application.on_message(self, now, peer, records.bytes(bytes)),
                event => self.on_event(application, now, event, &[]),
            }
        }
        self.on_time(application, now);
    }

    /// Flights of handshakes, alerts, CoAP messages that were not acknowledged.
    fn send_what_is_due<A: Application<Roles = R>>(&mut self, application: &mut A, now: Instant) {
        let mut datagram = [0; DATAGRAM_LEN];
        loop {
            let Self { endpoint, crypto, counters, .. } = &mut *self;
            let Some(event) = endpoint.poll(&mut Cx { now, crypto, counters }, &mut datagram) else { break };
            self.on_event(application, now, event, &datagram);
        }
    }

    fn on_event<A: Application<Roles = R>>(&mut self, application: &mut A, now: Instant, event: Event, out: &[u8]) {
        match event {
            Event::Transmit { peer, len } => {
                if let (Some(peer), Some(datagram)) = (self.endpoint.peers.peer(peer), out.get(..len.into())) {
                    send_datagram(peer.path(), datagram);
                }
            }
            Event::Need(id) => {
                let Some(answer) = self.endpoint.need(id).map(|need| application.key(need)) else { return };
                let Self { endpoint, crypto, counters, .. } = &mut *self;
                if let Some(event) = endpoint.resume(&mut Cx { now, crypto, counters }, id, answer) {
                    self.on_session(application, now, event);
                }
            }
            event => self.on_session(application, now, event),
        }
    }

    fn on_session<A: Application<Roles = R>>(&mut self, application: &mut A, now: Instant, event: Event) {
        match event {
            Event::Established(id) => application.on_established(self, now, id),
            Event::Closed { peer, reason } => application.on_closed(now, peer, reason),
            Event::Alarm(id) => self.send_again(now, id),
            Event::Answer { .. }
            | Event::Transmit { .. }
            | Event::Need(_)
            | Event::Message { .. }
            | Event::Moved(_) => {}
        }
    }

    /// The alarm of a peer's exchanges: what was not acknowledged goes out again.
    fn send_again(&mut self, now: Instant, peer: PeerId) {
        use tegmen::coap::exchange::Due;
        loop {
            let again = self.send(now, peer, |mote, frame| {
                let exchanges = mote.endpoint.peers.attached(peer).ok_or(Misuse::NotEstablished)?;
                match exchanges.poll(now) {
                    Some(Due::Retransmit(message)) => frame.append(message).map_err(|_| Misuse::Full),
                    Some(Due::TimedOut(_)) | None => Err(Misuse::NotEstablished),
                }
            });
            if again.is_err() {
                break;
            }
        }
        self.wake_for_exchanges(peer);
    }

    /// Sets the alarm for the next message to be sent again; to be called after a message of ours was sent.
    pub fn wake_for_exchanges(&mut self, peer: PeerId) {
        let deadline = self.endpoint.peers.attached(peer).and_then(|exchanges| exchanges.next_deadline());
        if let Some(deadline) = deadline {
            self.endpoint.peers.schedule(peer, deadline);
        }
    }
}

/// Sends one UDP datagram over the line.
fn send_datagram(path: &Path, payload: &[u8]) {
    if let Ok(headers) = ip::headers(path, HOP_LIMIT, payload) {
        encode(headers.iter().chain(payload)).for_each(uart::send);
    }
}

/// The port of CoAP over DTLS (RFC 7252, section 12.7).
const DTLS_PORT: u16 = 5684;
/// As RFC 4861 gives to hosts.
const HOP_LIMIT: u8 = 64;
/// Longest DTLS datagram that is sent.
const DATAGRAM_LEN: usize = 256;
/// Longest DTLS datagram that is received. Clients that offer every suite they know say hello at length: libcoap over
/// OpenSSL takes 281 bytes, cookie included, and a hello without a cookie is never put together from fragments.
const RECEIVED_LEN: usize = 320;
/// Longest IPv6 packet that is received.
pub const PACKET_LEN: usize = ip::HEADROOM + RECEIVED_LEN;
/// Longest CoAP message that is sent.
const MESSAGE_LEN: usize = 96;
/// A HelloVerifyRequest or an alert.
const ANSWER_LEN: usize = 64;
const _: () = assert!(dtls::record::OVERHEAD + MESSAGE_LEN <= DATAGRAM_LEN);
