//! The stack of a node above the radio: the real endpoint and exchanges of the core, and the cost of each call. Its
//! ciphers are those of the images, so that no feature of another crate in the same build changes its handshakes.

mod objects;
mod protection;

pub use protection::Protection;

use crate::cost::Costs;
use crate::sim::random::{Purpose, Stream};
use objects::{Kept, Objects, Opened};
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::exchange::Due;
use tegmen::coap::handler::{Anybody, Request, Served, serve};
use tegmen::coap::storage::Repeat;
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Received, RequestId,
    Response,
};
use tegmen::counters::Counters;
use tegmen::crypto::compact::Compact;
use tegmen::cx::Cx;
use tegmen::dtls::association::Rank;
use tegmen::dtls::need::Answer;
use tegmen::dtls::{Config, Profile, Records};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray, Peers as _, Phase, TAILROOM};
use tegmen::identity::{Identity, PeerId, Principal};
use tegmen::oscore::{OVERHEAD, Pending};
use tegmen::time::Instant;

/// A request of a node to the simulation, or a report.
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
        /// The time of the reading.
        made: Instant,
        /// It waited for no other reading, and was sent once.
        at_once: bool,
    },
    /// The node gave up a reading, because there was no answer.
    GivenUp,
    /// A session is ready.
    Established,
    /// The application served a request.
    Served,
    /// The node answered with a challenge, because it had lost its state for the sender.
    Challenged,
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
    /// Deletes all memory of the node.
    fn reboot(&mut self, now: Instant);
    /// Deletes the state of node `maker` in memory, and continues.
    fn forget(&mut self, maker: usize);
    /// Changes the address of the node, which knows of the change.
    fn moved(&mut self, now: Instant, local: Address, to: Address, wishes: &mut Vec<Wish>);
}

/// The settings of a node's stack.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The address of the node.
    pub local: Address,
    /// The protection of its readings.
    pub protection: Protection,
    /// The profile of DTLS.
    pub profile: Profile,
    /// Bytes of a reading.
    pub payload: usize,
    /// Bytes of the answer to a reading.
    pub response: usize,
    /// The costs of operations.
    pub costs: Costs,
}

/// A node with room for `PEERS` others.
pub struct Node<const PEERS: usize> {
    setup: Setup,
    endpoint: Endpoint<PeerArray<Attached, PEERS, PEERS>>,
    crypto: Compact,
    counters: Counters,
    messages: Stream,
    objects: Objects,
    readings: VecDeque<Reading>,
    /// The reading that waits for its answer.
    asked: Option<Asked>,
    server: Option<PeerId>,
    alarm: Option<Instant>,
    instructions: u64,
    reboots: u64,
    seed: u64,
    number: usize,
}

/// A reading: when it was made, and whether nothing has held it up since.
#[derive(Clone, Copy)]
struct Reading {
    made: Instant,
    at_once: bool,
}

/// A request that waits for its answer, its reading, and what OSCORE knows of it.
struct Asked {
    request: RequestId,
    reading: Reading,
    pending: Option<Pending>,
}

/// The exchanges of one peer, made when it first speaks.
#[derive(Default)]
struct Attached(Option<Box<Exchanges<Fixed<1, MESSAGE, 8, 1024>>>>);

impl<const PEERS: usize> Node<PEERS> {
    /// A node that has heard and said nothing.
    pub fn new(seed: u64, number: usize, setup: Setup) -> Self {
        Self::start(seed, number, 0, setup, Kept::default(), Instant::from_micros(1))
    }

    fn start(seed: u64, number: usize, reboots: u64, setup: Setup, kept: Kept, now: Instant) -> Self {
        let stream = |purpose| Stream::new(seed ^ reboots << 48, number, purpose);
        let mut crypto = Compact::new(stream(Purpose::Crypto).seed());
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
            objects: Objects::new(stream(Purpose::Crypto).seed(), setup.costs, kept),
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

    fn exchanges(&mut self, id: PeerId) -> Option<&mut Exchanges<Fixed<1, MESSAGE, 8, 1024>>> {
        let first = self.messages.below(1 << 16) as u16;
        let attached = self.endpoint.peers.attached(id)?;
        Some(attached.0.get_or_insert_with(|| Box::new(Exchanges::new(first))))
    }

    /// Sends the oldest reading, if none waits for its answer.
    fn ask(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let Some(reading) = self.readings.front().copied().filter(|_| self.asked.is_none()) else { return };
        let path = Path { local: self.setup.local, remote: to };
        let id = match (self.server, self.setup.protection) {
            (Some(id), _) => id,
            (None, Protection::Coap | Protection::CoapProtected | Protection::Oscore) => {
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
        self.readings.pop_front();
        if self.request(now, id, to, reading, None, wishes).is_none() {
            self.readings.push_front(reading);
        }
    }

    /// Sends a reading, with this Echo option if the other end wants one. Returns `None` if the reading cannot be sent
    /// now.
    fn request(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Address,
        reading: Reading,
        echo: Option<&[u8]>,
        wishes: &mut Vec<Wish>,
    ) -> Option<()> {
        let (token, random) = (self.messages.below(256) as u8, self.messages.below(256) as u8);
        let payload = self.setup.payload;
        let message_id = self.exchanges(id)?.message_id();
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM + OVERHEAD);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, message_id, &[token]).ok()?;
        builder.path(RESOURCE).ok()?;
        if let Some(echo) = echo {
            builder.option(OptionNumber::ECHO, echo).ok()?;
        }
        builder.payload(&[0x42; MESSAGE][..payload]).ok()?;
        let pending = match self.setup.protection {
            Protection::Oscore => Some(self.objects.protect_request(self.number as u16, &mut frame)?),
            _ => None,
        };
        let exchanges = self.exchanges(id)?;
        let request = exchanges.sent(&mut Fixed, now, frame.bytes(), random).ok()?;
        let deadline = exchanges.next_deadline(&Fixed);
        self.asked = Some(Asked { request, reading, pending });
        self.instructions += self.setup.costs.build + self.setup.costs.keep;
        self.endpoint.peers.schedule(id, deadline.unwrap_or(Instant::NEVER));
        self.say(now, id, to, frame, wishes);
        Some(())
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
        let Some(exchanges) = self.exchanges(id) else { return };
        let mut arrays = Fixed;
        let heard = match exchanges.receive(&mut arrays, now, bytes) {
            Received::Request(..) => Heard::Request,
            Received::Duplicate(again) => Heard::Again(again.to_vec()),
            Received::Response { request, .. } => Heard::Response(request),
            Received::Reject(reset) => Heard::Again(reset.to_vec()),
            _ => return,
        };
        match heard {
            // What cannot be opened is dropped.
            Heard::Request => drop(self.answer(now, id, bytes, wishes)),
            Heard::Again(again) => self.say_again(now, id, &again, wishes),
            Heard::Response(request) => drop(self.answered(now, id, request, bytes, wishes)),
        }
    }

    /// Answers a request.
    fn answer(&mut self, now: Instant, id: PeerId, bytes: &[u8], wishes: &mut Vec<Wish>) -> Option<()> {
        let peer = self.endpoint.peers.peer(id)?;
        let (identity, to) =
            (Identity { principal: peer.principal(), protection: peer.protection() }, peer.path().remote);
        let outer = MessageRef::parse(bytes).ok()?;
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM + OVERHEAD);
        let (opened, nonce) = match self.setup.protection {
            Protection::Oscore => match self.objects.unprotect_request(bytes)? {
                (maker, Opened::Fresh(opened, nonce)) => (Some(opened), Some((maker, nonce))),
                (maker, Opened::Unverified(binding)) => {
                    self.objects.challenge(maker, &binding, &outer, &mut frame)?;
                    wishes.push(Wish::Challenged);
                    return self.reply(now, id, to, outer.message_id(), frame, wishes);
                }
            },
            _ => (None, None),
        };
        let message = MessageRef::parse(opened.as_deref().unwrap_or(bytes)).ok()?;
        let mut payload = vec![0x24; self.setup.response];
        if self.setup.protection == Protection::CoapProtected && !payload.is_empty() {
            payload = self.objects.seal_payload(&payload);
        }
        let message_id = self.exchanges(id)?.message_id();
        let request = Request::new(message, identity);
        let served = serve(request, &Anybody, &mut Application { payload }, message_id, &mut frame);
        if !matches!(served, Served::Responded { .. }) {
            return None;
        }
        if let Some((maker, nonce)) = nonce {
            self.objects.protect_response(maker, nonce, &mut frame)?;
        }
        self.instructions += self.setup.costs.serve;
        wishes.push(Wish::Served);
        self.reply(now, id, to, message.message_id(), frame, wishes)
    }

    /// Keeps what is answered to a message, and says it.
    fn reply(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Address,
        message_id: u16,
        frame: Frame<'_>,
        wishes: &mut Vec<Wish>,
    ) -> Option<()> {
        self.exchanges(id)?.keep_reply(&mut Fixed, now, message_id, Repeat::Idempotent, frame.bytes());
        self.say(now, id, to, frame, wishes);
        Some(())
    }

    /// The response to a request is here.
    fn answered(
        &mut self,
        now: Instant,
        id: PeerId,
        request: RequestId,
        bytes: &[u8],
        wishes: &mut Vec<Wish>,
    ) -> Option<()> {
        self.instructions += self.setup.costs.hear;
        let to = self.endpoint.peers.peer(id)?.path().remote;
        if let Some(Asked { reading, pending, .. }) = self.asked.take_if(|asked| asked.request == request) {
            let mut good = true;
            if let Some(mut pending) = pending {
                let opened = self.objects.unprotect_response(self.number as u16, &mut pending, bytes);
                let message = opened.as_deref().and_then(|opened| MessageRef::parse(opened).ok());
                let challenge = message.filter(|message| message.code() == Code::UNAUTHORIZED);
                if let Some(echo) = challenge.and_then(|message| message.option(OptionNumber::ECHO)) {
                    return self.request(now, id, to, reading, Some(echo), wishes);
                }
                good = message.is_some();
            } else if self.setup.protection == Protection::CoapProtected {
                let payload = MessageRef::parse(bytes).map_or(&[][..], |message| message.payload());
                good = payload.is_empty() || self.objects.open_payload(payload);
            }
            let Reading { made, at_once } = reading;
            wishes.push(if good { Wish::Answered { made, at_once } } else { Wish::GivenUp });
        }
        self.ask(now, to, wishes);
        Some(())
    }

    fn on(&mut self, now: Instant, event: Event, wishes: &mut Vec<Wish>) {
        match event {
            Event::Need(id) => {
                let answer = Answer::Psk { identity: IDENTITY, key: KEY, principal: Principal(1) };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                if let Some(event) = self.endpoint.resume(&mut cx, id, answer) {
                    self.on(now, event, wishes);
                }
            }
            Event::Established(id) => {
                let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
                wishes.push(Wish::Established);
                if !self.readings.is_empty() {
                    self.server = Some(id);
                    self.ask(now, to, wishes);
                }
            }
            // No peer has a connection id, so none moves.
            Event::Alarm(id) | Event::Moved(id) => self.on_alarm(now, id, wishes),
            Event::Closed { peer, .. } => {
                if self.server == Some(peer) {
                    self.server = None;
                    if self.asked.take().is_some() {
                        wishes.push(Wish::GivenUp);
                    }
                } else if self.server.is_none() && self.readings.pop_front().is_some() {
                    wishes.push(Wish::GivenUp); // its handshake failed
                }
            }
            Event::Answer { .. } | Event::Transmit { .. } | Event::Message { .. } => {}
        }
    }

    fn on_alarm(&mut self, now: Instant, id: PeerId, wishes: &mut Vec<Wish>) {
        let Some(exchanges) = self.exchanges(id) else { return };
        let mut again = Vec::new();
        let mut over = None;
        let mut storage = [0; DATAGRAM];
        loop {
            let mut frame = Frame::new(&mut storage, 0);
            match exchanges.poll(&mut Fixed, now, &mut frame) {
                Some(Due::Retransmit) => again.push(frame.bytes().to_vec()),
                Some(Due::TimedOut(request)) => over = Some(request),
                None => break,
            }
        }
        let deadline = exchanges.next_deadline(&Fixed);
        if let Some(deadline) = deadline {
            self.endpoint.peers.schedule(id, deadline);
        }
        if let (false, Some(asked)) = (again.is_empty(), &mut self.asked) {
            asked.reading.at_once = false;
        }
        for bytes in again {
            self.say_again(now, id, &bytes, wishes);
        }
        if self.asked.take_if(|asked| Some(asked.request) == over).is_some() {
            wishes.push(Wish::GivenUp);
            if let Some(to) = self.endpoint.peers.peer(id).map(|peer| peer.path().remote) {
                self.ask(now, to, wishes);
            }
        }
    }
}

impl<const PEERS: usize> Mote for Node<PEERS> {
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let at_once = self.asked.is_none() && self.readings.is_empty();
        self.readings.push_back(Reading { made: now, at_once });
        self.ask(now, to, wishes);
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let path = Path { local: self.setup.local, remote: from };
        if self.setup.protection != Protection::CoapDtls {
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
                match event {
                    Event::Answer { len } => {
                        self.instructions += self.setup.costs.server / SERVER_FLIGHTS;
                        wishes.push(Wish::Send { to: from, datagram: out[..len.into()].to_vec() });
                    }
                    Event::Message { peer, bytes } => {
                        self.instructions += self.setup.costs.open_of(bytes.len());
                        self.hear(now, peer, records.bytes(bytes), wishes);
                    }
                    event => self.on(now, event, wishes),
                }
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
            let Event::Transmit { peer, len } = event else {
                self.on(now, event, wishes);
                continue;
            };
            flights = true;
            if let Some(peer) = self.endpoint.peers.peer(peer) {
                wishes.push(Wish::Send { to: peer.path().remote, datagram: out[..len.into()].to_vec() });
            }
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
        std::mem::take(&mut self.instructions) + std::mem::take(&mut self.objects.instructions)
    }

    fn reboot(&mut self, now: Instant) {
        *self = Self::start(self.seed, self.number, self.reboots + 1, self.setup, self.objects.kept(), now);
    }

    fn forget(&mut self, maker: usize) {
        self.objects.forget(maker as u16);
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
        if let Some(Asked { reading, .. }) = self.asked.take() {
            self.readings.push_front(reading);
        }
        self.ask(now, to, wishes);
        self.poll(now, wishes);
    }
}

/// What a message means to the exchanges of its peer, without its borrows.
enum Heard {
    Request,
    Again(Vec<u8>),
    Response(RequestId),
}

/// Takes readings, and answers with what it was told.
struct Application {
    payload: Vec<u8>,
}

impl Handler for Application {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is(RESOURCE) {
            return Err(Code::NOT_FOUND);
        }
        response.set_code(Code::CHANGED);
        if self.payload.is_empty() { Ok(()) } else { response.payload(&self.payload) }
    }
}

/// The path of the resource that takes readings.
pub const RESOURCE: &str = "blink";
/// Bytes of the longest CoAP message.
pub const MESSAGE: usize = 1152;
/// Bytes of the longest reading.
pub const MAX_PAYLOAD: usize = 1024;
const DATAGRAM: usize = HEADROOM + OVERHEAD + MESSAGE + TAILROOM + 64;
/// Peers of a node that makes readings.
pub const LEAF: usize = 2;
/// Peers of a node that takes them.
pub const HUB: usize = 1024;
/// Peers of a node that takes the readings of few: its table is searched from end to end.
pub const SMALL_HUB: usize = 128;
/// Nodes that make readings, at most.
pub const MAX_NODES: usize = 1000;
const CLIENT_FLIGHTS: u64 = 3;
const SERVER_FLIGHTS: u64 = 3;
const IDENTITY: &[u8] = b"Client_identity";
const KEY: &[u8] = b"0123456789abcdef";
