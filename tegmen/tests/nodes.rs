//! Two CoAP nodes with a fake clock, which serve each other and send requests to each other at the same time. The
//! network loses, repeats, delays and therefore reorders datagrams.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::Policy;
use tegmen::coap::{
    Authorized, Code, Exchanges, Fixed, Handler, MessageRef, OptionNumber, PeerExchanges, Request, RequestId, Response,
};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::record::CHUNK;
use tegmen::dtls::{Answer, Both, Config, Extended, Rank, Records};
use tegmen::endpoint::{Endpoint, Event, PeerArray, Peers as _};
use tegmen::identity::{Identity, PeerId, Principal};
use tegmen::node::{
    Application, Deferred, DeferredRequest, Features, Node, Notification, Observation, Reply, SendError,
};
use tegmen::time::{Duration, Instant};

#[path = "nodes/bodies.rs"]
mod bodies;
#[path = "nodes/decisions.rs"]
mod decisions;
#[path = "nodes/group_oscore.rs"]
mod group_oscore;
#[path = "nodes/groups.rs"]
mod groups;
#[path = "nodes/observe.rs"]
mod observe;
#[path = "nodes/oscore.rs"]
mod oscore;
#[path = "nodes/queue.rs"]
mod queue;
#[path = "nodes/serving.rs"]
mod serving;
#[path = "nodes/tokens.rs"]
mod tokens;
#[path = "nodes/transfers.rs"]
mod transfers;

type Storage = Fixed<3, 64, 32, 512>;
type Table = PeerArray<Exchanges<Storage>, 2, 1>;

/// The type of a peer's entry at both nodes of a world.
trait Entry: PeerExchanges<Storage = Storage, State = ()> + Default {}
impl<E: PeerExchanges<Storage = Storage, State = ()> + Default> Entry for E {}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Response(Code, u32),
    Reset,
    TimedOut,
    NotSent(SendError),
}

/// Resources that count the executions of each request. No request is idempotent, so none must be executed twice.
#[derive(Default)]
struct Counter {
    executed: HashMap<u32, u32>,
    /// The state of a resource that can be observed; `None` if there is no such resource.
    temperature: Option<u32>,
    /// A resource that is longer than a message.
    store: transfers::Store,
}

impl Handler for Counter {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if message.path_is("store") {
            return self.store.handle(message, response);
        }
        if message.path_is("temperature") {
            response.observable();
            response.uint(OptionNumber::MAX_AGE, 30)?;
            return response.payload(&self.temperature.ok_or(Code::NOT_FOUND)?.to_be_bytes());
        }
        let number = number_of(message).ok_or(Code::BAD_REQUEST)?;
        *self.executed.entry(number).or_default() += 1;
        if message.path_is("later") {
            response.defer();
            return Ok(());
        }
        response.set_code(Code::CHANGED);
        response.payload(&number.to_be_bytes())
    }
}

/// The value that replaces the number of a response if the payload of the response has no number.
const NO_NUMBER: u32 = u32::MAX;

fn number_of(message: &MessageRef<'_>) -> Option<u32> {
    message.payload().try_into().ok().map(u32::from_be_bytes)
}

/// Returns a copy of a message, as an application stores it until the policy has decided.
fn copy_of(message: &MessageRef<'_>) -> Vec<u8> {
    let mut bytes = [0; 500];
    let mut frame = Frame::new(&mut bytes, 0);
    message.write(&mut frame).expect("a short message");
    frame.bytes().to_vec()
}

/// A policy that allows every request at once, or decides later.
#[derive(Default)]
struct Gate {
    is_later: bool,
    /// For each request, by its number: the number of times that the policy was asked about it.
    asked: RefCell<HashMap<u32, u32>>,
}

impl Policy for Gate {
    const LATER: bool = true;

    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        if let Some(number) = number_of(&request.message) {
            *self.asked.borrow_mut().entry(number).or_default() += 1;
        }
        (!self.is_later).then_some(true)
    }
}

/// Returns the later decision on the request with this number; `None` if the policy never decides.
fn decision_on(number: u32) -> Option<bool> {
    match number % 5 {
        2 => Some(false),
        3 => None,
        _ => Some(true),
    }
}

/// The application of one node.
struct App {
    serves: bool,
    policy: Gate,
    counter: Counter,
    /// The requests that will be answered later, with their numbers.
    deferred: VecDeque<(Deferred, u32)>,
    /// The requests on which the policy will decide later, with a copy of each.
    undecided: VecDeque<(Deferred, Vec<u8>)>,
    outcomes: HashMap<RequestId, Outcome>,
    now: Instant,
    observation: Option<Observation>,
    /// The states of the observed resource that the client treated as the newest.
    seen: Vec<u32>,
    /// The results of all replies to the registration that contain no newest state.
    others: Vec<Notification>,
    transfer: Option<transfers::Asking>,
    /// The members of a group that sent a response.
    members: Vec<(Address, Identity)>,
}

impl Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        self.serves.then_some((&self.policy, &mut self.counter))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        let message = request.message;
        match request.is_undecided {
            true => self.undecided.push_back((request.keep(), copy_of(message))),
            false => self.deferred.push_back((request.keep(), number_of(message).expect("a number"))),
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        if self.transfer.as_mut().is_some_and(|asking| asking.on_reply(peer, request, reply)) {
            return;
        }
        let observation = self.observation.as_mut();
        match (observation.and_then(|it| it.on_reply(self.now, peer, request, reply, 0)), reply) {
            (Some(Notification::Newest), Reply::Response(message)) => {
                return self.seen.push(number_of(message).expect("a number"));
            }
            (Some(other), _) => return self.others.push(other),
            (None, _) => {}
        }
        let outcome = match reply {
            Reply::Response(message) => Outcome::Response(message.code(), number_of(message).unwrap_or(NO_NUMBER)),
            Reply::Acknowledged => return,
            Reply::Reset => Outcome::Reset,
            Reply::TimedOut => Outcome::TimedOut,
            Reply::NotSent(error) => Outcome::NotSent(error),
            Reply::Refused { .. } | Reply::Cut(_) => panic!("nothing is protected with OSCORE"),
        };
        assert_eq!(self.outcomes.insert(request, outcome), None, "one reply to a request");
    }

    fn on_member_response(&mut self, _: RequestId, (path, identity): (&Path, Identity), _: &MessageRef<'_>) {
        self.members.push((path.remote, identity));
    }
}

type End<F> = EndOf<F, Exchanges<Storage>>;

struct EndOf<F: Features, E: Entry> {
    node: Node<PeerArray<E, 2, 1>, Extended<Both>, F>,
    crypto: RustCrypto,
    counters: Counters,
    local: Address,
    app: App,
    peer: Option<PeerId>,
    to_ask: VecDeque<u32>,
    asked: HashMap<u32, RequestId>,
}

impl<F: Features<Oscore = ()>, E: Entry> EndOf<F, E> {
    fn new(last: u8, seed: u64, now: Instant, features: F) -> Self {
        let mut bytes = [last; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let (mut crypto, mut counters) = (RustCrypto::new(bytes), Counters::default());
        let mut cx = Cx { now, crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, PeerArray::new(), Config::default());
        let counter = Counter { temperature: Some(0), ..Counter::default() };
        let (deferred, outcomes, observation) = (VecDeque::new(), HashMap::new(), None);
        let (seen, others) = (Vec::new(), Vec::new());
        let (transfer, members) = (None, Vec::new());
        let (policy, undecided) = (Gate::default(), VecDeque::new());
        let serves = true;
        let app = App {
            serves,
            policy,
            counter,
            deferred,
            undecided,
            outcomes,
            now,
            observation,
            seen,
            others,
            transfer,
            members,
        };
        let local = Address { ip: [last; 16], port: 5684, scope: 0 };
        let (to_ask, asked) = (VecDeque::new(), HashMap::new());
        let node = Node::with_features(endpoint, Fixed, features);
        Self { node, crypto, counters, local, app, peer: None, to_ask, asked }
    }

    fn path(&self) -> Path {
        let [last, ..] = self.local.ip;
        Path { local: self.local, remote: Address { ip: [3 - last; 16], ..self.local } }
    }

    /// Processes a datagram, and returns the datagrams that the node sends.
    fn receive(&mut self, now: Instant, secure: bool, datagram: &mut [u8]) -> Vec<Vec<u8>> {
        self.app.now = now;
        let (path, mut sent, mut out) = (self.path(), Vec::new(), [0; 400]);
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        if !secure {
            if let Some(event) = self.node.handle_plain(&mut cx, &path, datagram, &mut self.app, &mut out) {
                self.on(now, event, &out, &mut sent);
            }
            return sent;
        }
        let mut records = Records::new(datagram);
        loop {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.node.handle(&mut cx, &path, &mut records, &mut self.app, &mut out) {
                Some(event) => self.on(now, event, &out, &mut sent),
                None => return sent,
            }
        }
    }

    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.app.now = now;
        let (mut sent, mut out) = (Vec::new(), [0; 400]);
        loop {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.node.poll(&mut cx, &mut self.app, &mut out) {
                Some(event) => self.on(now, event, &out, &mut sent),
                None => return sent,
            }
        }
    }

    fn on(&mut self, now: Instant, event: Event, out: &[u8], sent: &mut Vec<Vec<u8>>) {
        match event {
            Event::Answer { len } | Event::Transmit { len, .. } => sent.push(out[..len.into()].to_vec()),
            Event::Need(id) => {
                let answer = Answer::Psk { identity: b"me", key: b"0123456789abcdef", principal: Principal(1) };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                if let Some(event) = self.node.endpoint.resume(&mut cx, id, answer) {
                    self.on(now, event, out, sent);
                }
            }
            Event::Established(id) => self.peer = Some(id),
            // A handshake that a late copy of a ClientHello begins comes to nothing.
            Event::Closed { peer, reason } => assert_ne!(self.peer, Some(peer), "closed: {reason:?}"),
            Event::Message { .. } | Event::Alarm(_) => panic!("a node handles these itself"),
            Event::Moved(_) => panic!("nobody moves"),
        }
    }

    /// Sends the waiting requests, and a deferred response if `answer` is true. Sends only messages that NSTART allows.
    fn speak(&mut self, now: Instant, answer: bool) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), [0; 400]);
        let Some(peer) = self.peer else { return sent };
        if let Some(asking) = &mut self.app.transfer {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            sent.extend(asking.send(&mut self.node, &mut cx, peer));
        }
        while let Some(number) = self.to_ask.front().copied() {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let path = if number % 2 == 0 { "now" } else { "later" };
            let write = |post: &mut tegmen::coap::Builder<'_, '_>| {
                post.path(path)?;
                post.payload(&number.to_be_bytes())
            };
            match self.node.request(&mut cx, peer, Code::POST, write, &mut out) {
                Ok((request, len)) => {
                    self.asked.insert(number, request);
                    self.to_ask.pop_front();
                    sent.extend((len > 0).then(|| out[..len].to_vec()));
                }
                Err(SendError::Busy) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        if answer && let Some((deferred, number)) = self.app.deferred.pop_front() {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let write = |changed: &mut tegmen::coap::Builder<'_, '_>| changed.payload(&number.to_be_bytes());
            match self.node.respond(&mut cx, deferred, Code::CHANGED, write, &mut out) {
                Ok(len) => sent.extend((len > 0).then(|| out[..len].to_vec())),
                Err((SendError::Busy, deferred)) => self.app.deferred.push_front((deferred, number)),
                Err((other, _)) => panic!("{other:?}"),
            }
        }
        if answer {
            sent.extend(self.decide(now));
        }
        sent
    }

    /// Gives the node the decision on its oldest undecided request. [`decision_on`] makes this decision. A request
    /// without a number is allowed.
    fn decide(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (undecided, copy) = self.app.undecided.pop_front()?;
        let decision = number_of(&MessageRef::parse(&copy).unwrap()).map_or(Some(true), decision_on);
        let (mut cx, mut out) = (Cx { now, crypto: &mut self.crypto, counters: &mut self.counters }, [0; 400]);
        let sent = match decision {
            Some(allows) => self.node.decide(&mut cx, undecided, &copy, allows, &mut self.app, &mut out),
            None => self.node.respond(&mut cx, undecided, Code::SERVICE_UNAVAILABLE, |_| Ok(()), &mut out),
        };
        match sent {
            Ok(len) => (len > 0).then(|| out[..len].to_vec()),
            Err((SendError::Busy, undecided)) => {
                self.app.undecided.push_front((undecided, copy));
                None
            }
            Err((other, _)) => panic!("{other:?}"),
        }
    }

    /// Simulates a power cut: the session continues from a copy, but its replay window and the exchanges are lost.
    fn lose_replay_window(&mut self, now: Instant) {
        let id = self.peer.expect("a session");
        self.node.endpoint.lease_session(id, CHUNK);
        let session = self.node.endpoint.copy_session(id).unwrap();
        self.node.endpoint.take_session(id).unwrap();
        let path = self.path();
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let id = self.node.endpoint.restore_session(&mut cx, &path, Principal(1), &session).unwrap();
        self.node.endpoint.lease_session(id, 2 * CHUNK);
        self.peer = Some(id);
    }

    /// Registers the observation if its registration is due.
    fn refresh(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut out = [0; 400];
        let observation = self.app.observation.as_mut().filter(|observation| observation.refresh_at() <= now);
        let (Some(peer), Some(observation)) = (self.peer, observation) else { return Vec::new() };
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let len = self.node.observe(&mut cx, peer, observation, Code::GET, |get| get.path("temperature"), &mut out);
        let len = len.expect("nothing keeps the registration from being sent or queued");
        Vec::from_iter((len > 0).then(|| out[..len].to_vec()))
    }

    /// Returns the number of confirmable messages to the peer that got no answer yet. NSTART limits this number.
    fn outstanding(&mut self) -> usize {
        let attached = self.peer.and_then(|peer| self.node.endpoint.peers.attached(peer));
        attached.and_then(PeerExchanges::exchanges).map_or(0, |exchanges| exchanges.outstanding(&Fixed))
    }

    fn open(&mut self) -> usize {
        let peer = self.peer.expect("a peer");
        self.node.endpoint.peers.attached(peer).expect("a peer").exchanges().expect("exchanges").open(&Fixed)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

type World<F> = WorldOf<F, Exchanges<Storage>>;

struct WorldOf<F: Features, E: Entry> {
    now: Instant,
    random: Random,
    loss: u64,
    secure: bool,
    ends: [EndOf<F, E>; 2],
    nstart: usize,
    /// The datagrams on the network: time of arrival, number, the node that receives it, bytes.
    flying: Vec<(Instant, usize, usize, Vec<u8>)>,
    /// The datagrams that were sent to each node, including lost ones.
    launched: Vec<(usize, Vec<u8>)>,
    order: usize,
    /// The time at which the nodes send their next deferred response.
    next_answer: Instant,
}

impl<F: Features<Oscore = ()> + Default, E: Entry> WorldOf<F, E> {
    fn new(seed: u64, secure: bool) -> Self {
        Self::with_features(seed, secure, F::default)
    }
}

impl<F: Features<Oscore = ()>, E: Entry> WorldOf<F, E> {
    fn with_features(seed: u64, secure: bool, features: impl Fn() -> F) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let now = Instant::from_micros(5_000_000);
        let mut ends = [1, 2].map(|last| EndOf::new(last, seed, now, features()));
        for (number, end) in ends.iter_mut().enumerate() {
            let path = end.path();
            let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
            if !secure {
                end.peer = Some(end.node.endpoint.plain(&mut cx, &path, Rank::Ours).unwrap());
            } else if number == 0 {
                end.node.endpoint.connect(&mut cx, &path).unwrap();
            }
        }
        // A handshake that loses too much is given up, and nothing is asked then.
        let loss = random.below(if secure { 20 } else { 40 });
        let (flying, launched) = (Vec::new(), Vec::new());
        Self { now, random, loss, secure, ends, nstart: 1, flying, launched, order: 0, next_answer: now }
    }

    fn launch(&mut self, to: usize, datagrams: Vec<Vec<u8>>) {
        for datagram in datagrams {
            self.launched.push((to, datagram.clone()));
            if self.random.below(100) < self.loss {
                continue;
            }
            for _ in 0..if self.random.below(8) == 0 { 2 } else { 1 } {
                let millis =
                    if self.random.below(6) == 0 { self.random.below(1500) } else { 10 + self.random.below(30) };
                self.order += 1;
                self.flying.push((self.now.after(Duration::from_millis(millis)), self.order, to, datagram.clone()));
            }
        }
    }

    /// Advances the clock until nothing more can happen.
    fn run(&mut self) {
        self.run_until(Instant::NEVER);
    }

    /// Advances the clock until `limit`. The nodes refresh their observations, unless `limit` is [`Instant::NEVER`].
    fn run_until(&mut self, limit: Instant) {
        let refreshes = limit < Instant::NEVER;
        loop {
            let answer = self.now >= self.next_answer;
            if answer {
                self.next_answer = self.now.after(Duration::from_millis(1 + self.random.below(4000)));
            }
            for end in 0..2 {
                let sent = self.ends[end].poll(self.now);
                self.launch(1 - end, sent);
                let sent = self.ends[end].speak(self.now, answer);
                self.launch(1 - end, sent);
                if refreshes {
                    let sent = self.ends[end].refresh(self.now);
                    self.launch(1 - end, sent);
                }
                assert!(self.ends[end].outstanding() <= self.nstart, "more than NSTART exchanges at the same time");
            }
            let arrival = self.flying.iter().map(|flying| flying.0).min();
            let waits = self.ends.iter().any(|end| !end.app.deferred.is_empty() || !end.app.undecided.is_empty());
            let answer = waits.then_some(self.next_answer);
            let alarms = self.ends.iter().filter_map(|end| end.node.endpoint.next_alarm());
            let observations = self.ends.iter().filter(|end| refreshes && end.peer.is_some());
            let refresh = observations.filter_map(|end| end.app.observation.as_ref()).map(Observation::refresh_at);
            let next = alarms.chain(arrival).chain(answer).chain(refresh).min().unwrap_or(Instant::NEVER);
            if next >= limit {
                self.now = if refreshes { limit } else { self.now };
                return;
            }
            self.now = self.now.max(next);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, to, mut datagram) = self.flying.remove(0);
                let sent = self.ends[to].receive(self.now, self.secure, &mut datagram);
                self.launch(1 - to, sent);
            }
        }
    }
}

/// Runs thousands of seeds. `TEGMEN_SEEDS` sets their number. The policy of each node allows every request, or decides
/// later.
fn both_ask_and_serve<F: Features<Oscore = ()> + Default>(secure: bool, is_later: bool) {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let mut answered = 0;
    for seed in 0..seeds {
        let mut world = World::<F>::new(seed, secure);
        world.nstart = 1 + seed as usize % 2;
        for end in &mut world.ends {
            end.to_ask.extend(0..8);
            end.node.set_nstart(world.nstart);
            end.app.policy.is_later = is_later;
        }
        world.run();
        for asking in 0..2 {
            let [asker, server] = if asking == 0 { [0, 1] } else { [1, 0] }.map(|end| &world.ends[end]);
            if asker.peer.is_none() {
                continue; // the handshake was lost
            }
            assert!(asker.to_ask.is_empty(), "seed {seed}: requests were never sent");
            for (number, request) in &asker.asked {
                let executed = server.app.counter.executed.get(number).copied().unwrap_or(0);
                assert!(executed <= 1, "seed {seed}: request {number} was executed {executed} times");
                let asked = server.app.policy.asked.borrow().get(number).copied().unwrap_or(0);
                assert!(asked <= 1, "seed {seed}: the policy was asked {asked} times about request {number}");
                let denial = if secure { Code::FORBIDDEN } else { Code::UNAUTHORIZED };
                let expected = match if is_later { decision_on(*number) } else { Some(true) } {
                    Some(true) => (Code::CHANGED, *number, 1),
                    Some(false) => (denial, NO_NUMBER, 0),
                    None => (Code::SERVICE_UNAVAILABLE, NO_NUMBER, 0),
                };
                assert!(executed <= expected.2, "seed {seed}: request {number} was executed without a decision");
                match asker.app.outcomes.get(request) {
                    Some(Outcome::Response(code, of)) => {
                        assert_eq!((*code, *of, executed), expected, "seed {seed}");
                        answered += 1;
                    }
                    Some(Outcome::TimedOut) => {}
                    other => panic!("seed {seed}: request {number} ended as {other:?}"),
                }
            }
        }
        for end in world.ends.iter_mut().filter(|end| end.peer.is_some()) {
            assert_eq!(end.open(), 0, "seed {seed}: an exchange never ends");
            assert!(end.app.undecided.is_empty(), "seed {seed}: a request is never decided on");
        }
    }
    assert!(answered > seeds * 12, "of {} requests only {answered} were answered", seeds * 16);
}

#[test]
fn every_request_in_clear_has_one_reply_and_is_executed_at_most_once() {
    both_ask_and_serve::<()>(false, false);
}

#[test]
fn every_request_in_a_session_has_one_reply_and_is_executed_at_most_once() {
    both_ask_and_serve::<()>(true, false);
}

#[test]
fn a_node_that_serves_nothing_rejects_requests() {
    let mut world = World::<()>::new(1, true);
    world.loss = 0;
    world.ends[1].app.serves = false;
    world.ends[0].to_ask.push_back(0);
    world.run();
    let outcomes: Vec<_> = world.ends[0].app.outcomes.values().collect();
    assert_eq!(outcomes, [&Outcome::Reset]);
}

#[test]
fn a_second_request_waits_for_the_first() {
    let mut world = World::<()>::new(1, false);
    let end = &mut world.ends[0];
    end.to_ask.extend([0, 2]);
    assert_eq!(end.speak(world.now, false).len(), 1);
    assert_eq!(end.to_ask.len(), 1, "NSTART is 1");
    end.node.set_nstart(2);
    assert_eq!(end.speak(world.now, false).len(), 1);
    assert!(end.to_ask.is_empty());
}

#[test]
fn a_request_that_is_given_up_leaves_its_place_to_the_next() {
    let mut world = World::<()>::new(1, false);
    let end = &mut world.ends[0];
    end.to_ask.extend([0, 2]);
    end.speak(world.now, false);
    let (peer, request) = (end.peer.unwrap(), end.asked[&0]);
    end.node.cancel(peer, request);
    assert_eq!(end.speak(world.now, false).len(), 1);
}

#[test]
fn a_node_executes_nothing_of_a_session_whose_replay_window_was_lost() {
    let mut world = World::<()>::new(1, true);
    world.loss = 0;
    world.ends[0].to_ask.push_back(0);
    world.run();
    let server = &mut world.ends[1];
    assert_eq!(server.app.counter.executed[&0], 1);
    let now = world.now;
    server.lose_replay_window(now);
    let replayed = world.launched.iter().filter(|(to, datagram)| *to == 1 && datagram[0] == APPLICATION_DATA);
    let mut replayed = replayed.map(|(_, datagram)| datagram.clone()).next().expect("a request");
    assert_eq!(server.receive(world.now, true, &mut replayed), Vec::<Vec<u8>>::new());
    assert_eq!(server.app.counter.executed[&0], 1, "the node executed a replay");
}

/// The content type of application data (RFC 5246, section 6.2.1).
const APPLICATION_DATA: u8 = 23;
