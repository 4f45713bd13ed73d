//! The protocol stack of a simulated node, above the radio. It is the real CoAP node of the core library. The
//! instructions that a mote needs for each call are counted. A node always uses the cryptographic provider of the
//! firmware images. So the cargo features that other crates enable do not change the handshakes of the node.

mod caching;
pub(crate) mod credentials;
pub(crate) mod delegated;
mod group;
pub mod named;
mod objects;
mod protection;
mod roles;
mod script;
pub(crate) mod sessions;

pub use caching::{ObjectNode, Part};
pub(crate) use group::is_handshake;
pub use group::{Asking, GroupNode};
pub use named::NamedNode;
pub use protection::Protection;
pub use roles::{Provisioned, node, returning};
pub use script::{Exchange, Script, Scripts, Turn};

use crate::cost::{Costs, HandshakeCosts};
use crate::sim::random::{Purpose, Stream};
use credentials::{WHO, answer};
use objects::{Contexts, Kept, Payloads};
use sessions::Resumed;
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{
    Authorized, Builder, Code, ExchangeStorage, Exchanges, Fixed, Handler, OptionNumber, PeerExchanges, RequestId,
    Response,
};
use tegmen::crypto::Compact;
use tegmen::cx::Counters;
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Need, Profile, Rank, Records, Resumable, record};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray, Peers as _, Phase, TAILROOM};
use tegmen::identity::PeerId;
use tegmen::node::{self, Parts, Reply, RequestHead};
use tegmen::oscore::{OVERHEAD, RequestBinding};
use tegmen::time::{Duration, Instant};
use tegmen_x509::PublicKey;

/// An action that a node requests from the simulation, or an event that it reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Send this datagram.
    Send {
        /// The address of the receiver.
        to: Address,
        /// The UDP payload.
        datagram: Vec<u8>,
    },
    /// A reading of the node was answered.
    Answered {
        /// The time at which the node made the reading.
        made: Instant,
        /// True if the reading was sent at once, without waiting for an earlier reading, and was sent only once.
        at_once: bool,
    },
    /// The node gave up a reading, because it received no valid answer.
    GivenUp,
    /// A session is established.
    Established,
    /// A handshake needed an operation with a public or a private key.
    UsedPublicKey,
    /// The application served a request.
    Served,
    /// The node answered a request with an OSCORE challenge, because it had lost its OSCORE state for the sender of the
    /// request.
    Challenged,
    /// A member answered a request to its group.
    Heard {
        /// The time of the request.
        made: Instant,
        /// The address of the member.
        member: Address,
    },
    /// The node that sends requests to a group reached a milestone: an event whose time and energy the simulation
    /// records.
    Noted(Milestone),
}

/// A milestone of the node that sends requests to a group: an event at which the simulation records the time and the
/// activity of all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Milestone {
    /// The application makes a request.
    Asked,
    /// The node has opened a session with one more member.
    Opened,
    /// The node has opened all sessions that a request needs.
    Connected,
    /// All members have answered a request.
    Answered,
}

/// A node of the simulation: it makes readings, receives readings, or sends requests to a group.
pub trait Mote {
    /// Makes a reading, and sends it to `to`.
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>);
    /// Processes a datagram.
    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>);
    /// Processes a datagram that was sent to a group. `path` contains the address of the group as its local address.
    fn receive_group(&mut self, now: Instant, path: &Path, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let _ = (now, path, datagram, wishes);
    }
    /// Does all work that is due at the time `now`.
    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>);
    /// Returns the time at which [`Self::poll`] must be called next; `None` if no work is planned.
    fn next_alarm(&self) -> Option<Instant>;
    /// Returns the number of instructions that the node has executed since the last call of this function.
    fn take_instructions(&mut self) -> u64;
    /// Deletes the memory of the node, as a restart does.
    fn reboot(&mut self, now: Instant);
    /// Deletes only the state that this node has for the node with the number `maker`. All other state stays in memory.
    fn forget(&mut self, maker: usize);
    /// Gives the node the new address `local`. The node knows of the change, and may send a datagram to `to`.
    fn moved(&mut self, now: Instant, local: Address, to: Address, wishes: &mut Vec<Wish>);
}

/// The settings of a node's stack.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The address of the node.
    pub local: Address,
    /// The protection of the readings that the node makes or receives.
    pub protection: Protection,
    /// The profile of DTLS.
    pub profile: Profile,
    /// Length of a reading, in bytes.
    pub payload: usize,
    /// Length of the answer to a reading, in bytes.
    pub response: usize,
    /// The costs of operations.
    pub costs: Costs,
}

/// A node that has space for `PEERS` other nodes. Only the first `IDS` of them can have connection ids. During a
/// handshake the node has a buffer of `OUTGOING` bytes for sent messages, and one of `INCOMING` bytes for received
/// messages.
pub struct Node<
    const PEERS: usize,
    R: Provisioned = Both,
    const OUTGOING: usize = 64,
    const INCOMING: usize = 128,
    const IDS: usize = 0,
> {
    setup: Setup,
    node: node::Node<PeerArray<Attached, PEERS, PEERS, OUTGOING, INCOMING, IDS>, R, Features>,
    environment: Environment<Compact>,
    application: Application,
    messages: Stream,
    readings: VecDeque<Reading>,
    /// The request that waits for its answer; `None` if no request waits.
    asked: Option<Asked>,
    server: Option<PeerId>,
    /// The DTLS session that the node resumes; `None` if it begins with a full handshake. The session survives a
    /// restart.
    resumed: Option<Resumed>,
    /// The session that the node resumes after its peer has refused to resume [`Self::resumed`]; `None` if there is
    /// none.
    renewed: Option<Resumed>,
    /// The pause after the next failed handshake. Each failure doubles the pause. With `None` the node does not try
    /// again.
    pause: Option<Duration>,
    /// The time of the next attempt to open a session, and the address of the peer; `None` if no attempt is planned.
    returns: Option<(Instant, Address)>,
    /// The receiver of the node's next reading, if a flight of the handshake must be sent before the reading; `None` if
    /// no flight is due.
    asks_after_flight: Option<Address>,
    alarm: Option<Instant>,
    instructions: u64,
    reboots: u64,
    seed: u64,
    number: usize,
}

/// A value that the application of the mote has read, and sends to its server. `made` is the time when the application
/// read the value. `at_once` is true if the value has neither waited for an earlier value nor been sent again.
#[derive(Clone, Copy)]
struct Reading {
    made: Instant,
    at_once: bool,
}

/// A request that waits for its answer, and the value that the request carries.
struct Asked {
    request: RequestId,
    reading: Reading,
}

/// The CoAP exchanges with one peer. They are created when they are first used.
#[derive(Default)]
struct Attached<S: ExchangeStorage = Storage>(Option<Box<Exchanges<S>>>);

type Storage = Fixed<1, MESSAGE, 8, 1024>;

/// The optional features of a node. The only such feature is OSCORE.
type Features = Parts<(), (), Contexts>;

const fn features(oscore: Contexts) -> Features {
    Parts { oscore, queue: (), pacing: (), observers: (), bodies: (), leisure: (), group_requests: (), groups: () }
}

impl<S: ExchangeStorage> PeerExchanges for Attached<S> {
    type Storage = S;
    type State = ();

    fn exchanges(&mut self) -> Option<&mut Exchanges<S>> {
        Some(self.0.get_or_insert_default())
    }
}

impl<const PEERS: usize> Node<PEERS> {
    /// Creates a node that has received and sent nothing.
    pub fn new(seed: u64, number: usize, setup: Setup) -> Self {
        Self::with_role(seed, number, setup)
    }
}

impl<R: Provisioned, const PEERS: usize, const OUTGOING: usize, const INCOMING: usize, const IDS: usize>
    Node<PEERS, R, OUTGOING, INCOMING, IDS>
{
    /// True for a node that receives readings. Such a node begins no handshake, and only answers the handshakes of
    /// other nodes.
    const TAKES: bool = PEERS > LEAF;

    /// Creates a node with the DTLS roles `R`. The node has not received or sent anything yet.
    fn with_role(seed: u64, number: usize, setup: Setup) -> Self {
        let mut node = Self::start(seed, number, 0, setup, &Kept::default(), Instant::from_micros(1));
        if setup.protection == Protection::Delegation && !Self::TAKES {
            node.resumed = Some(roles::handed_over(number, node.messages.seed()));
        }
        node
    }

    /// Lets the node try again after a failed handshake, or after a request without a response. The first pause has the
    /// length `pause`, and each further pause is twice as long. A node with a ticket first uses a ticket of an ended
    /// epoch. The server refuses this ticket. After the first pause the node uses its valid ticket.
    fn returns(&mut self, pause: Duration) {
        if self.resumed.is_some() {
            let stale = roles::of_earlier_epoch(self.number, self.messages.seed());
            self.renewed = self.resumed.replace(stale);
        }
        self.pause = Some(pause);
    }

    /// Plans the next attempt to open a session with the node at the address `to`. The attempt begins when the current
    /// pause is over. Does nothing if the node does not try again.
    fn return_later(&mut self, now: Instant, to: Address) {
        let Some(pause) = self.pause else { return };
        self.resumed = self.renewed.take().or_else(|| self.resumed.take());
        self.returns = Some((now.after(pause), to));
        self.pause = Some(pause.saturating_add(pause));
    }

    fn start(seed: u64, number: usize, reboots: u64, setup: Setup, kept: &Kept, now: Instant) -> Self {
        let stream = |purpose| Stream::new(seed ^ reboots << 48, number, purpose);
        let random = stream(Purpose::Crypto).seed();
        let mut environment = Environment::new(Compact::new(random));
        let config = roles::config(number, &setup);
        let role = R::provisioned(number, &setup, &config, random);
        let endpoint = Endpoint::with_roles(&mut environment.at(now), PeerArray::new(), config, role);
        let oscore = Contexts::new(number as u16, setup.costs, kept);
        let payloads = Payloads::new(random, setup.costs, kept);
        Self {
            setup,
            node: node::Node::with_features(endpoint, Fixed, features(oscore)),
            environment,
            application: Application { setup, payloads, served: 0, replies: VecDeque::new() },
            messages: stream(Purpose::Messages),
            readings: VecDeque::new(),
            asked: None,
            server: None,
            resumed: None,
            renewed: None,
            pause: None,
            returns: None,
            asks_after_flight: None,
            alarm: None,
            instructions: 0,
            reboots,
            seed,
            number,
        }
    }

    /// Sends the oldest of the readings that are not yet sent, unless a reading that was sent still waits for its
    /// answer.
    fn ask(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let Some(reading) = self.readings.front().copied().filter(|_| self.asked.is_none()) else { return };
        let path = Path { local: self.setup.local, remote: to };
        let cx = &mut self.environment.at(now);
        let id = match (self.server, self.setup.protection) {
            (Some(id), _) => id,
            (None, protection) if protection.has_sessions() => {
                let endpoint = &mut self.node.endpoint;
                if endpoint.peers.find(&path, Phase::Handshaking).is_none() && self.returns.is_none() {
                    let _ = match &self.resumed {
                        Some(resumed) => endpoint.connect_again(cx, &path, &resumed.session, resumed.handle()),
                        None => endpoint.connect(cx, &path),
                    };
                }
                return;
            }
            (None, _) => {
                let Ok(id) = self.node.endpoint.plain(cx, &path, Rank::Ours) else { return };
                self.server = Some(id);
                id
            }
        };
        self.readings.pop_front();
        if self.request(now, id, to, reading, None, wishes).is_none() {
            self.readings.push_front(reading);
        }
    }

    /// Sends a reading. `echo` is the value of the Echo option that the receiver has required, or `None`. Returns
    /// `None` if the reading cannot be sent now.
    fn request(
        &mut self,
        now: Instant,
        id: PeerId,
        to: Address,
        reading: Reading,
        echo: Option<&[u8]>,
        wishes: &mut Vec<Wish>,
    ) -> Option<()> {
        let token = [self.messages.below(256) as u8];
        let exchanges = &mut self.node.endpoint.peers.attached(id)?.0;
        if exchanges.is_none() {
            *exchanges = Some(Box::new(Exchanges::new(self.messages.below(1 << 16) as u16)));
        }
        let payload = &[0x42; MESSAGE][..self.setup.payload];
        let write = |put: &mut Builder<'_, '_>| {
            put.path(RESOURCE)?;
            if let Some(echo) = echo {
                put.option(OptionNumber::ECHO, echo)?;
            }
            put.payload(payload)
        };
        let mut out = [0; DATAGRAM];
        let cx = &mut self.environment.at(now);
        let head = RequestHead::new(Code::PUT).with_token(&token);
        let head = if self.setup.protection == Protection::Oscore { head.with_oscore() } else { head };
        let (request, len) = self.node.request(cx, id, head, write, &mut out).ok()?;
        self.asked = Some(Asked { request, reading });
        self.instructions += self.setup.costs.build + self.setup.costs.keep;
        self.send(to, &out[..len], wishes);
        Some(())
    }

    /// Passes a datagram to the simulation, and counts the instructions that the protection of the datagram needs.
    fn send(&mut self, to: Address, datagram: &[u8], wishes: &mut Vec<Wish>) {
        if let Some(content) = self.application_data(datagram) {
            self.instructions += self.setup.costs.seal_of(content);
        }
        wishes.push(Wish::Send { to, datagram: datagram.to_vec() });
    }

    /// Returns the length of the content if the datagram is a record with application data. Returns `None` for any
    /// other datagram.
    fn application_data(&self, datagram: &[u8]) -> Option<usize> {
        let overhead = match *datagram.first()? {
            APPLICATION_DATA => record::OVERHEAD,
            // The real content type follows the content (RFC 9146, section 4).
            WITH_CONNECTION_ID => record::OVERHEAD + usize::from(roles::CONNECTION_ID) + 1,
            _ => return None,
        };
        self.setup.protection.has_sessions().then(|| datagram.len().saturating_sub(overhead))
    }

    /// Returns the costs of this node for its handshake with `peer`, in instructions.
    fn handshake_costs(&mut self, peer: PeerId) -> HandshakeCosts {
        let is_resumed = self.resumed.is_some() || self.node.endpoint.is_resumed(peer);
        self.setup.protection.handshake(&self.setup.costs.handshakes, !Self::TAKES, is_resumed)
    }

    /// Processes the results of the last call of the CoAP node. Reports the requests that the node served, and handles
    /// the replies that it received.
    fn settle(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        for _ in 0..std::mem::take(&mut self.application.served) {
            self.instructions += self.setup.costs.serve;
            wishes.push(Wish::Served);
        }
        for _ in 0..std::mem::take(&mut self.node.features.oscore.challenges) {
            wishes.push(Wish::Challenged);
        }
        while let Some((id, request, outcome)) = self.application.replies.pop_front() {
            if outcome != Outcome::TimedOut {
                self.instructions += self.setup.costs.hear;
            }
            let Some(to) = self.node.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { continue };
            if let Some(Asked { reading, .. }) = self.asked.take_if(|asked| asked.request == request) {
                let Reading { made, at_once } = reading;
                match outcome {
                    Outcome::Challenge(echo) => {
                        let _ = self.request(now, id, to, reading, Some(&echo), wishes);
                        continue;
                    }
                    Outcome::TimedOut if self.pause.is_some() => {
                        // The peer has no session if the last flight was lost.
                        self.node.endpoint.close(id);
                        self.server = None;
                        self.readings.push_front(reading);
                        self.return_later(now, to);
                        continue;
                    }
                    Outcome::Answered => wishes.push(Wish::Answered { made, at_once }),
                    Outcome::Refused | Outcome::TimedOut => wishes.push(Wish::GivenUp),
                }
            }
            self.ask(now, to, wishes);
        }
    }

    /// Sends the last reply again to a peer whose address has changed, because the first copy went to the old address.
    fn repeat_reply(&mut self, now: Instant, peer: PeerId, wishes: &mut Vec<Wish>) {
        let mut out = [0; DATAGRAM];
        let cx = &mut self.environment.at(now);
        let event = self.node.write(cx, peer, &mut out, |cx, attached, storage, frame| {
            if let Some(exchanges) = attached.exchanges() {
                // If the reply does not fit, the frame is empty, and is not sent.
                let _ = frame.append(exchanges.last_reply(storage, cx.now));
            }
        });
        let to = self.node.endpoint.peers.peer(peer).map(|peer| peer.path().remote);
        if let (Some(Event::Transmit { len, .. }), Some(to)) = (event, to) {
            self.send(to, &out[..len.into()], wishes);
        }
    }

    /// Calls [`Mote::poll`] immediately if the protection has no public-key operations. Such an operation keeps the
    /// processor busy for seconds. With a protection that has public-key operations, this function does not call
    /// [`Mote::poll`]; the simulation calls it when the processor has finished. So the retransmission timer of a flight
    /// begins when the flight is sent.
    fn poll_after_receipt(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        if self.setup.protection.has_public_keys() {
            self.alarm = self.node.endpoint.next_alarm();
        } else {
            self.poll(now, wishes);
        }
    }

    fn on(&mut self, now: Instant, event: Event, wishes: &mut Vec<Wish>) {
        match event {
            Event::Need(id) => {
                let costs = self.handshake_costs(id);
                let mut room = [0; size_of::<PublicKey>()];
                let Some(need) = self.node.endpoint.need(id) else { return };
                let (instructions, has_public_key) = match need {
                    Need::VerifyPeer { .. } => (costs.verify, true),
                    Need::Sign { .. } => (costs.sign, true),
                    _ => (0, false),
                };
                self.instructions += instructions;
                if has_public_key {
                    wishes.push(Wish::UsedPublicKey);
                }
                let answer = match need {
                    Need::PskForServer { .. } | Need::PskOfClient { .. } => {
                        Answer::Psk { identity: IDENTITY, key: KEY, principal: WHO }
                    }
                    need => answer(&mut self.environment.crypto, need, &mut room),
                };
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on(now, event, wishes);
                }
            }
            Event::Established(id) => {
                let Some(to) = self.node.endpoint.peers.peer(id).map(|peer| peer.path().remote) else { return };
                wishes.push(Wish::Established);
                if let Some(Resumable::With { session, handle, .. }) = self.node.endpoint.resumable(id) {
                    self.resumed = Some(Resumed::new(session, handle));
                }
                if !self.readings.is_empty() {
                    self.server = Some(id);
                    // In a resumed handshake the client sends the last flight. It sends this flight before the reading.
                    match self.node.endpoint.is_resumed(id) {
                        true => self.asks_after_flight = Some(to),
                        false => self.ask(now, to, wishes),
                    }
                }
            }
            Event::Closed { peer, .. } => {
                if self.server == Some(peer) {
                    self.server = None;
                    if self.asked.take().is_some() {
                        wishes.push(Wish::GivenUp);
                    }
                } else if let Some(to) = self.node.endpoint.peers.peer(peer).map(|peer| peer.path().remote)
                    && self.pause.is_some()
                    && self.server.is_none()
                {
                    self.return_later(now, to);
                } else if self.server.is_none() && self.readings.pop_front().is_some() {
                    wishes.push(Wish::GivenUp); // its handshake failed
                }
            }
            Event::Moved(peer) => self.repeat_reply(now, peer, wishes),
            // The node handles messages and alarms itself.
            Event::Answer { .. } | Event::Transmit { .. } | Event::Message { .. } | Event::Alarm(_) => {}
        }
    }
}

impl<R: Provisioned, const PEERS: usize, const OUTGOING: usize, const INCOMING: usize, const IDS: usize> Mote
    for Node<PEERS, R, OUTGOING, INCOMING, IDS>
{
    fn read(&mut self, now: Instant, to: Address, wishes: &mut Vec<Wish>) {
        let at_once = self.asked.is_none() && self.readings.is_empty();
        self.readings.push_back(Reading { made: now, at_once });
        self.ask(now, to, wishes);
        self.poll(now, wishes);
    }

    fn receive(&mut self, now: Instant, from: Address, datagram: &mut [u8], wishes: &mut Vec<Wish>) {
        let path = Path { local: self.setup.local, remote: from };
        let mut out = [0; DATAGRAM];
        if !self.setup.protection.has_sessions() {
            let cx = &mut self.environment.at(now);
            let event = self.node.handle_plain(cx, &path, datagram, &mut self.application, &mut out);
            self.settle(now, wishes);
            if let Some(Event::Transmit { len, .. }) = event {
                self.send(from, &out[..len.into()], wishes);
            }
            return self.poll(now, wishes);
        }
        let (content, before) = (self.application_data(datagram), dropped(&self.environment.counters));
        let mut records = Records::new(datagram);
        loop {
            let cx = &mut self.environment.at(now);
            let event = self.node.handle(cx, &path, &mut records, &mut self.application, &mut out);
            self.settle(now, wishes);
            match event {
                None => break,
                Some(Event::Answer { len }) => {
                    let datagram = &out[..len.into()];
                    if self.application_data(datagram).is_none() {
                        self.instructions +=
                            self.setup.protection.handshake(&self.setup.costs.handshakes, false, false).answer;
                    }
                    self.send(from, datagram, wishes);
                }
                Some(Event::Transmit { len, .. }) => self.send(from, &out[..len.into()], wishes),
                Some(event) => self.on(now, event, wishes),
            }
        }
        if let Some(content) = content.filter(|_| before == dropped(&self.environment.counters)) {
            self.instructions += self.setup.costs.open_of(content);
        }
        self.poll_after_receipt(now, wishes);
    }

    fn poll(&mut self, now: Instant, wishes: &mut Vec<Wish>) {
        if let Some((_, to)) = self.returns.take_if(|(at, _)| *at <= now) {
            self.ask(now, to, wishes);
        }
        let mut flights = 0;
        let mut out = [0; DATAGRAM];
        while self.node.endpoint.next_alarm().is_some_and(|alarm| alarm <= now) {
            let event = self.node.poll(&mut self.environment.at(now), &mut self.application, &mut out);
            self.settle(now, wishes);
            match event {
                None => break,
                Some(Event::Transmit { peer, len }) => {
                    let datagram = &out[..len.into()];
                    let Some(to) = self.node.endpoint.peers.peer(peer).map(|peer| peer.path().remote) else { continue };
                    if self.setup.protection.has_sessions() && self.application_data(datagram).is_none() {
                        flights = self.handshake_costs(peer).flight;
                    } else if let Some(asked) = &mut self.asked {
                        asked.reading.at_once = false;
                    }
                    self.send(to, datagram, wishes);
                }
                Some(event) => self.on(now, event, wishes),
            }
        }
        self.instructions += flights;
        if let Some(to) = self.asks_after_flight.take() {
            self.ask(now, to, wishes);
        }
        let returns = self.returns.map(|(at, _)| at);
        self.alarm = self.node.endpoint.next_alarm().into_iter().chain(returns).min();
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.alarm
    }

    fn take_instructions(&mut self) -> u64 {
        let (oscore, payloads) = (&mut self.node.features.oscore, &mut self.application.payloads);
        [&mut self.instructions, &mut oscore.instructions, &mut payloads.instructions].map(std::mem::take).iter().sum()
    }

    fn reboot(&mut self, now: Instant) {
        let kept = Kept::of(&self.node.features.oscore, &self.application.payloads);
        let resumed = self.resumed.take();
        *self = Self::start(self.seed, self.number, self.reboots + 1, self.setup, &kept, now);
        self.resumed = resumed;
    }

    fn forget(&mut self, maker: usize) {
        self.node.features.oscore.forget(maker as u16);
    }

    fn moved(&mut self, now: Instant, local: Address, to: Address, wishes: &mut Vec<Wish>) {
        if let Some(id) = self.server.filter(|_| self.setup.protection == Protection::ConnectionId) {
            self.node.endpoint.move_session(id, &Path { local, remote: to });
            self.setup.local = local;
            return;
        }
        // A session without connection ids ends when an address changes. The reading that waits for its answer is sent
        // again.
        let path = Path { local: self.setup.local, remote: to };
        for phase in [Phase::Handshaking, Phase::Established] {
            if let Some(old) = self.node.endpoint.peers.find(&path, phase) {
                self.node.endpoint.peers.remove(old);
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

/// The application of a node. It answers the readings of other nodes, and stores the replies to the node's own
/// readings.
struct Application {
    setup: Setup,
    payloads: Payloads,
    /// Number of requests that were served, but are not yet reported to the simulation.
    served: u32,
    replies: VecDeque<(PeerId, RequestId, Outcome)>,
}

/// The outcome of a request that the node sent.
#[derive(PartialEq, Eq)]
enum Outcome {
    Answered,
    /// The receiver requires that the request is sent again with this Echo option.
    Challenge(Vec<u8>),
    /// The response is not authentic, or the receiver could not process the request.
    Refused,
    TimedOut,
}

impl node::Application<(u16, RequestBinding)> for Application {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let outcome = match reply {
            Reply::Response(response) => match (self.setup.protection, response.option(OptionNumber::ECHO)) {
                (Protection::Oscore, Some(echo)) if response.code() == Code::UNAUTHORIZED => {
                    Outcome::Challenge(echo.to_vec())
                }
                (Protection::CoapProtected, _)
                    if !response.payload().is_empty() && !self.payloads.open(response.payload()) =>
                {
                    Outcome::Refused
                }
                _ => Outcome::Answered,
            },
            Reply::Refused { .. } | Reply::Reset | Reply::NotSent(_) | Reply::Cut(_) => Outcome::Refused,
            Reply::TimedOut => Outcome::TimedOut,
            Reply::Acknowledged => return,
        };
        self.replies.push_back((peer, request, outcome));
    }
}

impl Handler for Application {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.served += 1;
        if !request.message().path_is(RESOURCE) {
            return Err(Code::NOT_FOUND);
        }
        response.set_code(Code::CHANGED);
        let payload = vec![0x24; self.setup.response];
        match self.setup.protection {
            _ if payload.is_empty() => Ok(()),
            Protection::CoapProtected => response.payload(&self.payloads.seal(&payload)),
            _ => response.payload(&payload),
        }
    }
}

/// Returns the number of received records and messages that the node has dropped.
fn dropped(counters: &Counters) -> u32 {
    let Counters { malformed, unknown_peer, replayed, not_authentic, unexpected, no_room, .. } = counters;
    [malformed, unknown_peer, replayed, not_authentic, unexpected, no_room].into_iter().sum()
}

/// The path of the resource that receives readings.
pub const RESOURCE: &str = "blink";
/// Maximum length of a CoAP message, in bytes.
pub const MESSAGE: usize = 1152;
/// Maximum length of a reading, in bytes.
pub const MAX_PAYLOAD: usize = 1024;
const DATAGRAM: usize = HEADROOM + OVERHEAD + MESSAGE + TAILROOM + 64;
/// Maximum number of peers of a node that makes readings.
pub const LEAF: usize = 2;
/// Maximum number of peers of a node that receives readings.
pub const HUB: usize = 1024;
/// Maximum number of peers of a node that receives readings from few nodes. A search for a peer reads all entries of
/// the table, so a smaller table makes a run faster.
pub const SMALL_HUB: usize = 128;
/// Maximum number of nodes that make readings.
pub const MAX_NODES: usize = 1000;
/// The content type of application data (RFC 5246, section 6.2.1).
const APPLICATION_DATA: u8 = 23;
/// The content type of a record with a connection id (RFC 9146, section 4).
const WITH_CONNECTION_ID: u8 = 25;
const IDENTITY: &[u8] = b"Client_identity";
const KEY: &[u8] = b"0123456789abcdef";
