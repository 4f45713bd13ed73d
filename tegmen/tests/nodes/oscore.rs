//! Two nodes that send requests to each other with OSCORE, in plaintext and over DTLS. The network loses, repeats and
//! reorders messages. Each crypto provider stores every nonce that it has used.

use super::{Counter, Random, Table, copy_of, decision_on, number_of};
use std::collections::{HashMap, HashSet, VecDeque};
use tegmen::address::{Address, Path};
use tegmen::coap::handler::Policy;
use tegmen::coap::{Builder, Code, Fixed, Handler, MessageRef, MessageType, OptionNumber, Request, RequestId};
use tegmen::crypto::{Ccm, Crypto, NotAuthentic, RustCrypto, Unsupported};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Config, Extended, Rank, Records};
use tegmen::endpoint::{Endpoint, Event, Peers as _};
use tegmen::identity::{PeerId, Principal, Protection};
use tegmen::node::{
    Application, Deferred, DeferredRequest, Node, Notification, Observation, ObserverArray, OneContext, Oscore, Parts,
    Reply, RequestHead, SendError,
};
use tegmen::oscore::{Aead, Context, Parameters, ProtectError, RequestBinding, UnprotectError};
use tegmen::time::{Duration, Instant};

/// A provider that fails if a nonce is used twice with one key.
struct Recorder {
    inner: RustCrypto,
    spent: HashSet<(Vec<u8>, Vec<u8>)>,
}

impl Crypto for Recorder {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        assert!(self.spent.insert((key.to_vec(), nonce.to_vec())), "a nonce twice under one key");
        self.inner.seal(RustCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.inner.open(RustCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.inner.random(out);
    }
}

/// Allows the requests of the other endpoint of the context, and no other request.
#[derive(Default)]
struct OtherEnd {
    is_later: bool,
}

impl Policy for OtherEnd {
    const LATER: bool = true;

    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        match (request.identity.protection, request.identity.principal) == (Protection::Oscore, OTHER_END) {
            true if self.is_later => None,
            allows => Some(allows),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Response(Code, Option<u32>),
    Challenge(Vec<u8>),
    Refused(UnprotectError, Code),
    Reset,
    TimedOut,
}

#[derive(Default)]
struct App {
    policy: OtherEnd,
    counter: Counter,
    deferred: VecDeque<(Deferred<RequestBinding>, u32)>,
    /// The requests on which the policy will decide later, with a copy of each.
    undecided: VecDeque<(Deferred<RequestBinding>, Vec<u8>)>,
    outcomes: HashMap<RequestId, Outcome>,
    observation: Option<Observation>,
    /// The states of the observed resource that the client treated as the newest.
    seen: Vec<u32>,
}

impl Application<RequestBinding> for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&self.policy, &mut self.counter))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_, RequestBinding>) {
        let message = request.message;
        match request.is_undecided {
            true => self.undecided.push_back((request.keep(), copy_of(message))),
            false => self.deferred.push_back((request.keep(), number_of(message).expect("a number"))),
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let observation = self.observation.as_mut();
        match (observation.and_then(|it| it.on_reply(Instant::AT_ONCE, peer, request, reply, 0)), reply) {
            (Some(Notification::Newest), Reply::Response(state)) => {
                return self.seen.push(number_of(state).expect("a state"));
            }
            (Some(_), _) => return,
            (None, _) => {}
        }
        let outcome = match reply {
            Reply::Response(response) => match response.option(OptionNumber::ECHO) {
                Some(echo) => Outcome::Challenge(echo.to_vec()),
                None => Outcome::Response(response.code(), number_of(response)),
            },
            Reply::Refused { reason, code } => Outcome::Refused(reason, code),
            Reply::TimedOut => Outcome::TimedOut,
            Reply::NotSent(error) => panic!("there is no queue: {error:?}"),
            Reply::Acknowledged | Reply::Cut(_) => return,
            // The client does not wait for a deferred response any more.
            Reply::Reset => Outcome::Reset,
        };
        assert_eq!(self.outcomes.insert(request, outcome), None, "one reply to a request");
    }
}

/// The features: OSCORE, and memory for one observer.
type Protects = Parts<(), (), OneContext<3>, ObserverArray<1, 64, RequestBinding>>;

struct End {
    node: Node<Table, Extended<Both>, Protects>,
    environment: Environment<Recorder>,
    last: u8,
    app: App,
    peer: Option<PeerId>,
    /// The numbers of the requests to send, each with the Echo value of a challenge if there was one.
    to_ask: VecDeque<(u32, Option<Vec<u8>>)>,
    asked: HashMap<RequestId, u32>,
}

/// Returns the context of the node with the number `last`: 1 or 2. If the context was used before, its sequence numbers
/// continue with `kept`.
fn context(last: u8, kept: Option<u64>) -> OneContext<3> {
    let (sender_id, recipient_id): (&[u8], &[u8]) = (&[last], &[3 - last]);
    let aead = Aead::AesCcm16_64_128;
    let parameters =
        Parameters { master_secret: &[7; 16], master_salt: &[], sender_id, recipient_id, id_context: None, aead };
    let context = match kept {
        Some(kept) => Context::resume::<Recorder>(&parameters, kept),
        None => Context::new::<Recorder>(&parameters),
    };
    let mut context = context.unwrap();
    context.lease_mut().extend(kept.unwrap_or(0) + 1000);
    OneContext::new(context, OTHER_END)
}

impl End {
    fn new(last: u8, seed: u64, now: Instant) -> Self {
        let mut bytes = [last; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let recorder = Recorder { inner: RustCrypto::new(bytes), spent: HashSet::new() };
        let mut environment = Environment::new(recorder);
        let endpoint = Endpoint::new(&mut environment.at(now), Table::new(), Config::default());
        let (oscore, observers) = (context(last, None), ObserverArray::default());
        let features =
            Parts { queue: (), pacing: (), oscore, observers, bodies: (), leisure: (), group_requests: (), groups: () };
        Self {
            node: Node::with_features(endpoint, Fixed, features),
            environment,
            last,
            app: App::default(),
            peer: None,
            to_ask: VecDeque::new(),
            asked: HashMap::new(),
        }
    }

    fn path(&self) -> Path {
        let address = |last| Address { ip: [last; 16], port: 5684, scope: 0 };
        Path { local: address(self.last), remote: address(3 - self.last) }
    }

    fn receive(&mut self, now: Instant, secure: bool, datagram: &mut [u8]) -> Vec<Vec<u8>> {
        let (path, mut sent, mut out) = (self.path(), Vec::new(), [0; 400]);
        if !secure {
            let cx = &mut self.environment.at(now);
            if let Some(event) = self.node.handle_plain(cx, &path, datagram, &mut self.app, &mut out) {
                self.on(now, event, &out, &mut sent);
            }
            return sent;
        }
        let mut records = Records::new(datagram);
        loop {
            let cx = &mut self.environment.at(now);
            let Some(event) = self.node.handle(cx, &path, &mut records, &mut self.app, &mut out) else { return sent };
            self.on(now, event, &out, &mut sent);
        }
    }

    fn poll(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), [0; 400]);
        while let Some(event) = self.node.poll(&mut self.environment.at(now), &mut self.app, &mut out) {
            self.on(now, event, &out, &mut sent);
        }
        sent
    }

    fn on(&mut self, now: Instant, event: Event, out: &[u8], sent: &mut Vec<Vec<u8>>) {
        match event {
            Event::Answer { len } | Event::Transmit { len, .. } => sent.push(out[..len.into()].to_vec()),
            Event::Need(id) => {
                let answer = Answer::Psk { identity: b"me", key: b"0123456789abcdef", principal: Principal(1) };
                if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on(now, event, out, sent);
                }
            }
            Event::Established(id) => self.peer = Some(id),
            Event::Closed { peer, reason } => assert_ne!(self.peer, Some(peer), "closed: {reason:?}"),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, now: Instant, number: u32, echo: Option<&[u8]>) -> Result<Vec<u8>, SendError> {
        let mut out = [0; 400];
        let write = |post: &mut Builder<'_, '_>| {
            post.path(if number.is_multiple_of(2) { "now" } else { "later" })?;
            if let Some(echo) = echo {
                post.option(OptionNumber::ECHO, echo)?;
            }
            post.payload(&number.to_be_bytes())
        };
        let (peer, head) = (self.peer.unwrap(), RequestHead::new(Code::POST).with_oscore());
        let (request, len) = self.node.request(&mut self.environment.at(now), peer, head, write, &mut out)?;
        self.asked.insert(request, number);
        Ok(out[..len].to_vec())
    }

    /// Sends the waiting requests, repeats requests with the Echo value of each challenge, and sends a deferred
    /// response.
    fn speak(&mut self, now: Instant, answer: bool) -> Vec<Vec<u8>> {
        let (mut sent, mut out) = (Vec::new(), [0; 400]);
        let Some(peer) = self.peer else { return sent };
        let challenged = self.app.outcomes.iter().filter_map(|(request, outcome)| match outcome {
            Outcome::Challenge(echo) => Some((*request, echo.clone())),
            _ => None,
        });
        for (request, echo) in challenged.collect::<Vec<_>>() {
            self.app.outcomes.remove(&request);
            self.to_ask.push_front((self.asked.remove(&request).unwrap(), Some(echo)));
        }
        while let Some((number, echo)) = self.to_ask.front().cloned() {
            match self.ask(now, number, echo.as_deref()) {
                Ok(datagram) => sent.push(datagram),
                Err(SendError::Busy) => break,
                Err(other) => panic!("{other:?}"),
            }
            self.to_ask.pop_front();
        }
        if answer && let Some((deferred, number)) = self.app.deferred.pop_front() {
            assert_eq!(deferred.peer, peer);
            let write = |changed: &mut Builder<'_, '_>| changed.payload(&number.to_be_bytes());
            let cx = &mut self.environment.at(now);
            match self.node.respond(cx, deferred, Code::CHANGED, write, &mut out) {
                Ok(len) => sent.push(out[..len].to_vec()),
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
        let (cx, mut out) = (&mut self.environment.at(now), [0; 400]);
        let sent = match decision {
            Some(allows) => self.node.decide(cx, undecided, &copy, allows, &mut self.app, &mut out),
            None => self.node.respond(cx, undecided, Code::SERVICE_UNAVAILABLE, |_| Ok(()), &mut out),
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

    /// Simulates a power cut: the replay window is lost, and the sequence numbers continue after the last reserved
    /// sequence number.
    fn lose_window(&mut self) {
        let end = self.node.features.oscore.context.lease().end();
        self.node.features.oscore.context = context(self.last, Some(end)).context;
    }
}

struct World {
    now: Instant,
    random: Random,
    loss: u64,
    secure: bool,
    ends: [End; 2],
    flying: Vec<(Instant, usize, usize, Vec<u8>)>,
    order: usize,
    next_answer: Instant,
    /// The time at which a node loses its replay window, and the node.
    power_cut: Option<(Instant, usize)>,
}

impl World {
    fn new(seed: u64, secure: bool) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let now = Instant::from_micros(5_000_000);
        let mut ends = [1, 2].map(|last| End::new(last, seed, now));
        for (number, end) in ends.iter_mut().enumerate() {
            let (path, cx) = (end.path(), &mut end.environment.at(now));
            if !secure {
                end.peer = Some(end.node.endpoint.plain(cx, &path, Rank::Ours).unwrap());
            } else if number == 0 {
                end.node.endpoint.connect(cx, &path).unwrap();
            }
        }
        let loss = random.below(if secure { 20 } else { 40 });
        Self { now, random, loss, secure, ends, flying: Vec::new(), order: 0, next_answer: now, power_cut: None }
    }

    /// Returns a network without faults and without DTLS.
    fn calm() -> Self {
        Self { loss: 0, ..Self::new(1, false) }
    }

    fn launch(&mut self, to: usize, datagrams: Vec<Vec<u8>>) {
        for datagram in datagrams {
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
        loop {
            let answer = self.now >= self.next_answer;
            if answer {
                self.next_answer = self.now.after(Duration::from_millis(1 + self.random.below(4000)));
            }
            if let Some((_, end)) = self.power_cut.take_if(|(at, _)| *at <= self.now) {
                self.ends[end].lose_window();
            }
            for end in 0..2 {
                let sent = self.ends[end].poll(self.now);
                self.launch(1 - end, sent);
                let sent = self.ends[end].speak(self.now, answer);
                self.launch(1 - end, sent);
            }
            let arrival = self.flying.iter().map(|flying| flying.0).min();
            let waits = self.ends.iter().any(|end| !end.app.deferred.is_empty() || !end.app.undecided.is_empty());
            let answer = waits.then_some(self.next_answer);
            let alarms = self.ends.iter().filter_map(|end| end.node.endpoint.next_alarm());
            let Some(next) = alarms.chain(arrival).chain(answer).min() else { return };
            self.now = self.now.max(next);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, to, mut datagram) = self.flying.remove(0);
                let sent = self.ends[to].receive(self.now, self.secure, &mut datagram);
                self.launch(1 - to, sent);
            }
        }
    }

    /// Delivers a request of the first node to the second. Returns the answer.
    fn answer(&mut self, mut request: Vec<u8>) -> Vec<u8> {
        let mut sent = self.ends[1].receive(self.now, false, &mut request);
        assert_eq!(sent.len(), 1);
        sent.remove(0)
    }

    /// Delivers a response to the first node. Returns the outcome of the only request of the first node.
    fn outcome(&mut self, mut response: Vec<u8>) -> Outcome {
        assert_eq!(self.ends[0].receive(self.now, false, &mut response), Vec::<Vec<u8>>::new());
        let outcomes: Vec<_> = self.ends[0].app.outcomes.drain().collect();
        assert_eq!(outcomes.len(), 1);
        outcomes[0].1.clone()
    }
}

/// Runs thousands of seeds. `TEGMEN_SEEDS` sets their number. In every second world, a node loses its replay window.
/// The policy of each node allows every request, or decides later.
fn both_ask_with_oscore(secure: bool, is_later: bool) {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500);
    let (mut answered, mut asked) = (0, 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, secure);
        for end in &mut world.ends {
            end.to_ask.extend((0..8).map(|number| (number, None)));
            end.node.set_nstart(1 + seed as usize % 2);
            end.app.policy.is_later = is_later;
        }
        if seed % 2 == 1 {
            let after = Duration::from_millis(world.random.below(20_000));
            world.power_cut = Some((world.now.after(after), (seed / 2 % 2) as usize));
        }
        world.run();
        for [asker, server] in [[0, 1], [1, 0]].map(|ends| ends.map(|end| &world.ends[end])) {
            if asker.peer.is_none() || server.peer.is_none() {
                continue; // the handshake was lost
            }
            assert!(asker.to_ask.is_empty(), "seed {seed}: requests were never sent");
            for (request, number) in &asker.asked {
                asked += 1;
                let executed = server.app.counter.executed.get(number).copied().unwrap_or(0);
                assert!(executed <= 1, "seed {seed}: request {number} was executed {executed} times");
                let expected = match if is_later { decision_on(*number) } else { Some(true) } {
                    Some(true) => (Code::CHANGED, Some(*number), 1),
                    Some(false) => (Code::FORBIDDEN, None, 0),
                    None => (Code::SERVICE_UNAVAILABLE, None, 0),
                };
                assert!(executed <= expected.2, "seed {seed}: request {number} was executed without a decision");
                match &asker.app.outcomes[request] {
                    Outcome::Response(code, of) => {
                        assert_eq!((*code, *of, executed), expected, "seed {seed}");
                        answered += 1;
                    }
                    Outcome::TimedOut => {}
                    // A request that another one overtook while the window was unknown counts as a replay.
                    Outcome::Refused(UnprotectError::Unprotected, Code::UNAUTHORIZED) => {
                        assert_eq!((seed % 2, executed), (1, 0), "seed {seed}: request {number} was refused");
                    }
                    other => panic!("seed {seed}: request {number} ended as {other:?}"),
                }
            }
        }
        for end in world.ends.iter_mut().filter(|end| end.peer.is_some()) {
            let exchanges = end.node.endpoint.peers.attached(end.peer.unwrap()).unwrap();
            assert_eq!(exchanges.open(&Fixed), 0, "seed {seed}: an exchange never ends");
        }
    }
    assert!(answered * 4 > asked * 3, "of {asked} requests only {answered} were answered");
}

#[test]
fn every_request_in_clear_is_executed_only_if_it_is_allowed_later() {
    both_ask_with_oscore(false, true);
}

#[test]
fn every_request_in_a_session_is_executed_only_if_it_is_allowed_later() {
    both_ask_with_oscore(true, true);
}

#[test]
fn every_request_with_oscore_in_clear_is_executed_at_most_once_and_no_nonce_is_used_twice() {
    both_ask_with_oscore(false, false);
}

#[test]
fn every_request_with_oscore_over_dtls_is_executed_at_most_once_and_no_nonce_is_used_twice() {
    both_ask_with_oscore(true, false);
}

#[test]
fn what_is_inside_is_seen_by_nobody_on_the_way() {
    let mut world = World::calm();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let outside = MessageRef::parse(&request).unwrap();
    assert_eq!((outside.code(), outside.path_is("now")), (Code::POST, false));
    let response = world.answer(request);
    assert_eq!(MessageRef::parse(&response).unwrap().code(), Code::CHANGED);
    assert_ne!(number_of(&MessageRef::parse(&response).unwrap()), Some(2));
    assert_eq!(world.outcome(response), Outcome::Response(Code::CHANGED, Some(2)));
}

#[test]
fn a_response_that_somebody_changed_is_refused() {
    let mut world = World::calm();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let mut response = world.answer(request);
    *response.last_mut().unwrap() ^= 1;
    assert_eq!(world.outcome(response), Outcome::Refused(UnprotectError::NotAuthentic, Code::CHANGED));
}

#[test]
fn a_response_without_protection_is_refused() {
    let mut world = World::calm();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let request = MessageRef::parse(&request).unwrap();
    let mut room = [0; 64];
    let mut frame = tegmen::buf::Frame::new(&mut room, 0);
    let (id, token) = (request.message_id(), request.token());
    let builder = Builder::new(&mut frame, MessageType::Acknowledgement, Code::CONTENT, id, token);
    builder.unwrap().payload(&2u32.to_be_bytes()).unwrap();
    let outcome = world.outcome(frame.bytes().to_vec());
    assert_eq!(outcome, Outcome::Refused(UnprotectError::Unprotected, Code::CONTENT));
}

#[test]
fn a_request_that_does_not_open_is_refused_and_counted_and_its_refusal_not_kept() {
    let mut world = World::calm();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let mut changed = request.clone();
    *changed.last_mut().unwrap() ^= 1;
    let refusal = world.answer(changed);
    let refusal = MessageRef::parse(&refusal).unwrap();
    let protected = refusal.option(OptionNumber::OSCORE).is_some();
    assert_eq!((refusal.code(), refusal.uint(OptionNumber::MAX_AGE), protected), (Code::BAD_REQUEST, Some(0), false));
    assert_eq!(world.ends[1].environment.counters.not_authentic, 1);
    // The true request has the same Message ID.
    let response = world.answer(request);
    assert_eq!(world.outcome(response), Outcome::Response(Code::CHANGED, Some(2)));
}

#[test]
fn a_request_without_protection_reaches_no_handler() {
    let mut world = World::calm();
    let (end, mut out) = (&mut world.ends[0], [0; 400]);
    let (peer, cx) = (end.peer.unwrap(), &mut end.environment.at(world.now));
    let write = |post: &mut Builder<'_, '_>| post.payload(&2u32.to_be_bytes());
    let (_, len) = end.node.request(cx, peer, Code::POST, write, &mut out).unwrap();
    let response = world.answer(out[..len].to_vec());
    assert_eq!(world.outcome(response), Outcome::Response(Code::UNAUTHORIZED, None));
    assert!(world.ends[1].app.counter.executed.is_empty());
}

#[test]
fn a_node_without_oscore_refuses_the_option() {
    let mut world = World::calm();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let mut other = super::World::<()>::new(1, false);
    let sent = other.ends[1].receive(other.now, false, &mut request.clone());
    assert_eq!(MessageRef::parse(&sent[0]).unwrap().code(), Code::BAD_OPTION);
}

#[test]
fn nothing_is_executed_after_a_lost_window_before_the_challenge_is_repeated() {
    let mut world = World::calm();
    world.ends[1].lose_window();
    let request = world.ends[0].ask(world.now, 2, None).unwrap();
    let challenge = world.answer(request.clone());
    assert_eq!(world.answer(request), challenge, "a repetition is answered with the same bytes");
    assert!(world.ends[1].app.counter.executed.is_empty());
    let Outcome::Challenge(echo) = world.outcome(challenge) else { panic!("no challenge") };
    let request = world.ends[0].ask(world.now, 2, Some(&echo)).unwrap();
    let response = world.answer(request);
    assert_eq!(world.outcome(response), Outcome::Response(Code::CHANGED, Some(2)));
    assert_eq!(world.ends[1].app.counter.executed[&2], 1);
}

#[test]
fn a_deferred_response_is_protected_whether_it_is_sent_at_once_or_after_another() {
    let mut world = World::calm();
    world.ends[0].to_ask.push_back((1, None));
    let later = world.ends[0].speak(world.now, false).remove(0);
    let acknowledgement = world.answer(later);
    assert_eq!(MessageRef::parse(&acknowledgement).unwrap().code(), Code::EMPTY);
    // A request of its own takes the place that NSTART allows.
    let asks = world.ends[1].ask(world.now, 2, None).unwrap();
    assert_eq!(world.ends[1].speak(world.now, true), Vec::<Vec<u8>>::new(), "NSTART is 1");
    let mut answer = world.ends[0].receive(world.now, false, &mut asks.clone()).remove(0);
    world.ends[1].receive(world.now, false, &mut answer);
    let mut response = world.ends[1].speak(world.now, true).remove(0);
    assert_ne!(number_of(&MessageRef::parse(&response).unwrap()), Some(1));
    world.ends[0].receive(world.now, false, &mut response);
    let outcomes: Vec<_> = world.ends[0].app.outcomes.values().collect();
    assert_eq!(outcomes, [&Outcome::Response(Code::CHANGED, Some(1))]);
}

#[test]
fn a_spent_lease_sends_nothing_and_leaves_no_exchange_open() {
    let mut world = World::calm();
    let end = &mut world.ends[0];
    end.node.features.oscore.context.lease_mut().stop();
    assert_eq!(end.ask(world.now, 2, None), Err(SendError::Oscore(ProtectError::LeaseSpent)));
    let peer = end.peer.unwrap();
    assert_eq!(end.node.endpoint.peers.attached(peer).unwrap().open(&Fixed), 0);
    assert!(end.asked.is_empty());
}

#[test]
fn a_request_that_was_given_up_leaves_its_place_in_the_context() {
    let mut world = World::calm();
    let end = &mut world.ends[0];
    for number in 0..5 {
        end.ask(world.now, 2 * number, None).unwrap();
        let request = *end.asked.keys().max_by_key(|request| request.0).unwrap();
        assert!(end.node.features.oscore.is_protected(end.peer.unwrap(), request));
        end.node.cancel(end.peer.unwrap(), request);
    }
}

#[path = "oscore/observe.rs"]
mod observe;

/// The principal of the other endpoint of the context.
const OTHER_END: Principal = Principal(9);
