//! A node's stack above the radio: the real endpoint and exchanges of the core, and what each call costs.

use crate::cost::Costs;
use crate::sim::random::{Purpose, Stream};
use std::collections::VecDeque;
use tegmen::buf::Frame;
use tegmen::coap::exchange::Due;
use tegmen::coap::handler::{Anybody, Identity, Request, Served, serve};
use tegmen::coap::{Authorized, Builder, Code, Exchanges, Handler, MessageType, Received, RequestId, Response};
use tegmen::counters::Counters;
use tegmen::crypto::rustcrypto::RustCrypto;
use tegmen::dtls::state::Answer;
use tegmen::dtls::{Config, Profile, Records};
use tegmen::endpoint::{
    Address, Cx, Endpoint, Event, HEADROOM, Path, PeerArray, PeerId, Peers as _, Phase, Principal, Rank, TAILROOM,
};
use tegmen::time::Instant;

/// What protects the readings.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Protection {
    /// Nothing.
    #[serde(rename = "coap")]
    Coap,
    /// DTLS 1.2 with a pre-shared key and AES-128-CCM-8.
    #[serde(rename = "coap+dtls")]
    CoapDtls,
}

impl Protection {
    /// All that there are. What is added here is run by every plan that does not name its own.
    pub const ALL: [Self; 2] = [Self::Coap, Self::CoapDtls];

    /// Its name in plans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coap => "coap",
            Self::CoapDtls => "coap+dtls",
        }
    }

    /// The firmware image that shows what a client of this protection takes of a mote's memory.
    pub const fn image(self) -> &'static str {
        match self {
            Self::Coap => "coap",
            Self::CoapDtls => "dtls_psk_client",
        }
    }
}

/// What a node wants to be done, and what it tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Send this datagram.
    Send {
        /// To whom.
        to: Address,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// A reading that it made was answered.
    Answered {
        /// When it was made.
        made: Instant,
    },
    /// A reading was given up: nobody answered.
    GivenUp,
    /// A session is ready.
    Established,
    /// The application served a request.
    Served,
}

/// A node that makes readings, or takes them.
pub trait Mote {
    /// A reading is made now, and goes to `to`.
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>);
    /// A datagram came.
    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>);
    /// Time has passed.
    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>);
    /// When to call [`Self::poll`].
    fn next_alarm(&self) -> Option<Instant>;
    /// Instructions since the last call.
    fn take_instructions(&mut self) -> u64;
    /// It loses all that it had in memory.
    fn reboot(&mut self, now: Instant);
    /// Its address is another one from now on, and it knows.
    fn moved(&mut self, now: Instant, local: Address, to: Address, wishes: &mut Vec<Wish>);
}

/// The settings of a node's stack.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Where it is.
    pub local: Address,
    /// What protects its readings.
    pub protection: Protection,
    /// The profile of DTLS.
    pub profile: Profile,
    /// Bytes of a reading.
    pub payload: usize,
    /// Bytes of the answer to a reading.
    pub response: usize,
    /// What operations cost.
    pub costs: Costs,
}

/// A node with room for `PEERS` others.
pub struct Node<const PEERS: usize> {
    setup: Setup,
    endpoint: Endpoint<PeerArray<Attached, PEERS, PEERS>>,
    crypto: RustCrypto,
    counters: Counters,
    messages: Stream,
    readings: VecDeque<Instant>,
    /// The reading that waits for its answer.
    asked: Option<(RequestId, Instant)>,
    server: Option<PeerId>,
    alarm: Option<Instant>,
    instructions: u64,
    reboots: u64,
    seed: u64,
    number: usize,
}

/// The exchanges of one peer, made when it first speaks.
#[derive(Default)]
struct Attached(Option<Box<Exchanges<1, MESSAGE, 8, 1024>>>);

impl<const PEERS: usize> Node<PEERS> {
    /// A node that has heard and said nothing.
    pub fn new(seed: u64, number: usize, setup: Setup) -> Self {
        Self::start(seed, number, 0, setup, Instant::from_micros(1))
    }

    fn start(seed: u64, number: usize, reboots: u64, setup: Setup, now: Instant) -> Self {
        let stream = |purpose| Stream::new(seed ^ reboots << 48, number, purpose);
        let mut crypto = RustCrypto::new(stream(Purpose::Crypto).seed());
        let mut counters = Counters::default();
        let mut cx = Cx { now, crypto: &mut crypto, counters: &mut counters };
        let config = Config { profile: setup.profile, ..Config::default() };
        let endpoint = Endpoint::new(&mut cx, PeerArray::new(), config);
        Self {
            setup,
            endpoint,
            crypto,
            counters,
            messages: stream(Purpose::Messages),
            readings: VecDeque::new(),
            asked: None,
            server: None,
            alarm: None,
            instructions: 0,
            reboots,
            seed,
            number,
        }
    }

    fn exchanges(&mut self, id: PeerId) -> Option<&mut Exchanges<1, MESSAGE, 8, 1024>> {
        let first = self.messages.below(1 << 16) as u16;
        let attached = self.endpoint.peers.attached(id)?;
        Some(attached.0.get_or_insert_with(|| Box::new(Exchanges::new(first))))
    }

    /// Sends the oldest reading, if none waits for its answer.
    fn ask(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let Some(made) = self.readings.front().copied().filter(|_| self.asked.is_none()) else { return };
        let path = Path { local: self.setup.local, remote: to };
        let id = match (self.server, self.setup.protection) {
            (Some(id), _) => id,
            (None, Protection::Coap) => {
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let Ok(id) = self.endpoint.plain(&mut cx, &path, Rank::Ours) else { return };
                self.server = Some(id);
                id
            }
            (None, Protection::CoapDtls) => {
                if self.endpoint.peers.find(&path, Phase::Handshaking).is_none() {
                    let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                    let _ = self.endpoint.connect(&mut cx, &path);
                }
                return;
            }
        };
        let (token, random) = (self.messages.below(256) as u8, self.messages.below(256) as u8);
        let payload = self.setup.payload;
        let Some(exchanges) = self.exchanges(id) else { return };
        let message_id = exchanges.message_id();
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        let built = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, message_id, &[token]).and_then(
            |mut builder| {
                builder.path(RESOURCE)?;
                builder.payload(&[0x42; MESSAGE][..payload])
            },
        );
        let sent = built.ok().and_then(|()| exchanges.sent(now, frame.bytes(), random).ok());
        let Some(request) = sent else { return };
        let deadline = exchanges.next_deadline();
        self.readings.pop_front();
        self.asked = Some((request, made));
        self.instructions += self.setup.costs.build + self.setup.costs.keep;
        self.endpoint.peers.schedule(id, deadline.unwrap_or(Instant::NEVER));
        self.say(now, id, to, frame, wishes);
    }

    /// Seals a message and hands it out.
    fn say(&mut self, now: Instant, id: PeerId, to: Address, mut frame: Frame<'_>, wishes: &mut Vec<Wish>) {
        if self.setup.protection == Protection::CoapDtls {
            self.instructions += self.setup.costs.seal_of(frame.len());
        }
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        if self.endpoint.seal(&mut cx, id, &mut frame).is_ok() {
            wishes.push(Wish::Send { to, datagram: frame.finish().to_vec() });
        }
    }

    fn say_again(&mut self, now: Instant, id: PeerId, bytes: &[u8], wishes: &mut Vec<Wish>) {
        let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        if !bytes.is_empty() && frame.append(bytes).is_ok() {
            self.say(now, id, to, frame, wishes);
        }
    }

    /// A CoAP message of a peer.
    fn hear(&mut self, now: Instant, id: PeerId, bytes: &[u8], wishes: &mut Vec<Wish>) {
        let Some(peer) = self.endpoint.peers.peer(id) else { return };
        let (identity, to) =
            (Identity { principal: peer.principal(), protection: peer.protection() }, peer.path().remote);
        let mut application = Application { response: self.setup.response };
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        let Some(exchanges) = self.exchanges(id) else { return };
        match exchanges.receive(now, bytes) {
            Received::Request(message) => {
                let message_id = exchanges.message_id();
                let served = serve(Request::new(message, identity), &Anybody, &mut application, message_id, &mut frame);
                if matches!(served, Served::Responded { .. }) {
                    exchanges.keep_reply(now, message.message_id(), frame.bytes());
                    self.instructions += self.setup.costs.serve;
                    wishes.push(Wish::Served);
                    self.say(now, id, to, frame, wishes);
                }
            }
            Received::Duplicate(again) => {
                let again = again.to_vec();
                self.say_again(now, id, &again, wishes);
            }
            Received::Response { request, .. } => {
                self.instructions += self.setup.costs.hear;
                if let Some((_, made)) = self.asked.take_if(|(asked, _)| *asked == request) {
                    wishes.push(Wish::Answered { made });
                }
                self.ask(now, to, wishes);
            }
            Received::Reject(reset) => self.say_again(now, id, &reset, wishes),
            _ => {}
        }
    }

    fn on(&mut self, now: Instant, from: Option<Address>, noted: Noted, wishes: &mut Vec<Wish>) {
        match noted {
            Noted::Answer(datagram) => {
                if let Some(to) = from {
                    self.instructions += self.setup.costs.server / SERVER_FLIGHTS;
                    wishes.push(Wish::Send { to, datagram });
                }
            }
            Noted::Transmit(id, datagram) => {
                let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
                wishes.push(Wish::Send { to, datagram });
            }
            Noted::Need(id) => {
                let answer = Answer::Psk { identity: IDENTITY, key: KEY, principal: Principal(1) };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let more = self.endpoint.resume(&mut cx, id, answer).map(Noted::from);
                if let Some(more) = more {
                    self.on(now, from, more, wishes);
                }
            }
            Noted::Established(id) => {
                let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
                wishes.push(Wish::Established);
                if !self.readings.is_empty() {
                    self.server = Some(id);
                    self.ask(now, to, wishes);
                }
            }
            Noted::Message(id, bytes) => {
                if self.setup.protection == Protection::CoapDtls {
                    self.instructions += self.setup.costs.open_of(bytes.len());
                }
                self.hear(now, id, &bytes, wishes);
            }
            Noted::Alarm(id) => self.on_alarm(now, id, wishes),
            Noted::Closed(id) => {
                if self.server == Some(id) {
                    self.server = None;
                    if self.asked.take().is_some() {
                        wishes.push(Wish::GivenUp);
                    }
                } else if self.server.is_none() && self.readings.pop_front().is_some() {
                    wishes.push(Wish::GivenUp); // its handshake failed
                }
            }
        }
    }

    fn on_alarm(&mut self, now: Instant, id: PeerId, wishes: &mut Vec<Wish>) {
        let Some(exchanges) = self.exchanges(id) else { return };
        let mut again = Vec::new();
        let mut over = None;
        while let Some(due) = exchanges.poll(now) {
            match due {
                Due::Retransmit(bytes) => again.push(bytes.to_vec()),
                Due::TimedOut(request) => over = Some(request),
            }
        }
        let deadline = exchanges.next_deadline();
        if let Some(deadline) = deadline {
            self.endpoint.peers.schedule(id, deadline);
        }
        for bytes in again {
            self.say_again(now, id, &bytes, wishes);
        }
        if self.asked.take_if(|(asked, _)| Some(*asked) == over).is_some() {
            wishes.push(Wish::GivenUp);
            if let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) {
                self.ask(now, to, wishes);
            }
        }
    }
}

impl<const PEERS: usize> Mote for Node<PEERS> {
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        self.readings.push_back(now);
        self.ask(now, to, wishes);
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let path = Path { local: self.setup.local, remote: from };
        if self.setup.protection == Protection::Coap {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            if let Ok(id) = self.endpoint.plain(&mut cx, &path, Rank::Stranger) {
                self.hear(now, id, datagram, wishes);
            }
        } else {
            let mut records = Records::new(datagram);
            loop {
                let mut out = [0; DATAGRAM];
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let Some(event) = self.endpoint.handle(&mut cx, &path, &mut records, &mut out) else { break };
                let noted = Noted::from(event);
                self.on(now, Some(from), noted, wishes);
            }
        }
        self.poll(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        let mut flights = false;
        while self.endpoint.next_alarm().is_some_and(|alarm| alarm <= now) {
            let mut out = [0; DATAGRAM];
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let Some(event) = self.endpoint.poll(&mut cx, &mut out) else { break };
            let noted = Noted::from(event);
            flights |= matches!(noted, Noted::Transmit(..));
            self.on(now, None, noted, wishes);
        }
        if flights {
            let Costs { client, server, .. } = self.setup.costs;
            // A hub only answers; who makes readings opens the handshake.
            self.instructions += if PEERS > LEAF { server / SERVER_FLIGHTS } else { client / CLIENT_FLIGHTS };
        }
        self.alarm = self.endpoint.next_alarm();
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn take_instructions(&mut self) -> u64 {
        std::mem::take(&mut self.instructions)
    }

    fn reboot(&mut self, now: Instant) {
        *self = Self::start(self.seed, self.number, self.reboots + 1, self.setup, now);
    }

    fn moved(&mut self, now: Instant, local: Address, to: Address, wishes: &mut Vec<Wish>) {
        // A session without connection ids belongs to its addresses; the reading that waits is asked for again.
        let path = Path { local: self.setup.local, remote: to };
        for phase in [Phase::Handshaking, Phase::Established] {
            if let Some(old) = self.endpoint.peers.find(&path, phase) {
                self.endpoint.peers.remove(old);
            }
        }
        self.setup.local = local;
        self.server = None;
        if let Some((_, made)) = self.asked.take() {
            self.readings.push_front(made);
        }
        self.ask(now, to, wishes);
        self.poll(now, wishes);
    }
}

/// An event without its borrows.
enum Noted {
    Answer(Vec<u8>),
    Transmit(PeerId, Vec<u8>),
    Need(PeerId),
    Established(PeerId),
    Message(PeerId, Vec<u8>),
    Alarm(PeerId),
    Closed(PeerId),
}

impl From<Event<'_, '_>> for Noted {
    fn from(event: Event<'_, '_>) -> Self {
        match event {
            Event::Answer(datagram) => Self::Answer(datagram.to_vec()),
            Event::Transmit { peer, datagram } => Self::Transmit(peer, datagram.to_vec()),
            Event::Need(id) => Self::Need(id),
            Event::Established(id) => Self::Established(id),
            Event::Message { peer, bytes } => Self::Message(peer, bytes.to_vec()),
            Event::Alarm(id) => Self::Alarm(id),
            Event::Closed { peer, .. } => Self::Closed(peer),
        }
    }
}

/// Takes readings, and answers with as many bytes as it was told.
struct Application {
    response: usize,
}

impl Handler for Application {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is(RESOURCE) {
            return Err(Code::NOT_FOUND);
        }
        response.set_code(Code::CHANGED);
        if self.response == 0 { Ok(()) } else { response.payload(&[0x24; MESSAGE][..self.response]) }
    }
}

/// Where readings go.
pub const RESOURCE: &str = "blink";
/// Bytes of the longest CoAP message.
pub const MESSAGE: usize = 1152;
/// Bytes of the longest reading.
pub const MAX_PAYLOAD: usize = 1024;
const DATAGRAM: usize = HEADROOM + MESSAGE + TAILROOM + 64;
/// Peers of a node that makes readings.
pub const LEAF: usize = 2;
/// Peers of a node that takes them.
pub const HUB: usize = 128;
const CLIENT_FLIGHTS: u64 = 3;
const SERVER_FLIGHTS: u64 = 3;
const IDENTITY: &[u8] = b"Client_identity";
const KEY: &[u8] = b"0123456789abcdef";
