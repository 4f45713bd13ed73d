//! A node that sends requests to groups. Members respond late, twice, or in confirmable messages. At the same time, the
//! node sends requests to single members, and an attacker forges responses.

use super::{End, Random, World};
use std::collections::{HashMap, HashSet};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, RequestId, Response,
};
use tegmen::crypto::RustCrypto;
use tegmen::cx::{Cx, Environment};
use tegmen::dtls::{Both, Config, Extended, Rank};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{Identity, PeerId, Principal, Protection};
use tegmen::node::{
    Application, Features, GroupRequestArray, GroupRequests as _, LeisureArray, Node, Parts, Reply, RequestHead,
    SendError,
};
use tegmen::time::{Duration, Instant};

/// Maximum number of open requests to groups in the memory of the asking node. The next constant is the maximum number
/// of members for each request.
const REQUESTS: usize = 2;
const MEMBERS: usize = 4;
const LEISURE: Duration = Duration::from_secs(5);
/// A lifetime of a request, in milliseconds, that is longer than any response needs: the leisure, and twice the maximum
/// delay of a datagram.
const LONG: u64 = 8500;

type Asks = Parts<(), (), (), (), (), (), GroupRequestArray<REQUESTS, MEMBERS>>;
type Answers = Parts<(), (), (), (), (), LeisureArray<4, 64>>;
type One<F> = Node<PeerArray<Exchanges<Fixed<3, 64, 32, 512>>, 8, 1>, Extended<Both>, F>;

fn node<F: Features>(environment: &mut Environment<RustCrypto>, now: Instant, features: F) -> One<F> {
    let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
    Node::with_features(endpoint, Fixed, features)
}

fn address(last: u8) -> Address {
    Address { ip: [last; 16], port: 5683, scope: 0 }
}

fn to_asker(from: u8) -> Path {
    Path { local: address(ASKER), remote: address(from) }
}

const ASKER: u8 = 100;

/// A member. It responds with the payload of the request, followed by the number of the member.
struct Member {
    node: One<Answers>,
    environment: Environment<RustCrypto>,
    app: Echoes,
}

struct Echoes(u8);

impl Handler for Echoes {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let mut payload = request.message().payload().to_vec();
        payload.push(self.0);
        response.payload(&payload)
    }
}

impl Application for Echoes {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }
}

impl Member {
    fn new(number: u8, seed: u64, now: Instant) -> Self {
        let mut environment = Environment::new(RustCrypto::new(random_of(seed, number)));
        let features = Parts {
            leisure: LeisureArray::new(LEISURE),
            queue: (),
            pacing: (),
            oscore: (),
            observers: (),
            bodies: (),
            group_requests: (),
            groups: (),
        };
        let node = node(&mut environment, now, features);
        Self { node, environment, app: Echoes(number) }
    }

    fn path(&self) -> Path {
        Path { local: address(self.app.0), remote: address(ASKER) }
    }

    /// Processes a datagram of the asking node.
    fn receive(&mut self, now: Instant, to_group: bool, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let (path, mut out) = (self.path(), [0; 100]);
        let cx = &mut self.environment.at(now);
        if to_group {
            self.node.handle_group(cx, &path, datagram, &mut self.app, &mut out);
            return None;
        }
        sent(self.node.handle_plain(cx, &path, datagram, &mut self.app, &mut out), &out)
    }

    fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut out = [0; 100];
        sent(self.node.poll(&mut self.environment.at(now), &mut self.app, &mut out), &out)
    }
}

fn random_of(seed: u64, number: u8) -> [u8; 32] {
    let mut bytes = [number; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes
}

fn sent(event: Option<Event>, out: &[u8]) -> Option<Vec<u8>> {
    match event? {
        Event::Transmit { len, .. } | Event::Answer { len } => Some(out[..len.into()].to_vec()),
        other => panic!("{other:?}"),
    }
}

/// The application of the asking node. It checks each response when it arrives.
#[derive(Default)]
struct Asking {
    now: Instant,
    /// For each request to the group: its payload, the time at which it ends, and true if this time is after the
    /// arrival of every response.
    to_group: HashMap<RequestId, (u32, Instant, bool)>,
    reported: HashSet<(RequestId, Address)>,
    to_one: HashMap<(PeerId, RequestId), (u32, u8)>,
    ended: HashSet<(PeerId, RequestId)>,
    answered: u32,
}

impl Application for Asking {
    fn on_member_response(
        &mut self,
        request: RequestId,
        (path, identity): (&Path, Identity),
        response: &MessageRef<'_>,
    ) {
        assert_eq!(identity, Identity { principal: Principal::NOBODY, protection: Protection::Plain });
        let (number, until, _) = self.to_group[&request];
        assert!(self.now < until, "a response after the end");
        assert_eq!(response.payload(), expected(number, path.remote.ip[0]), "a response to another request");
        assert!(self.reported.insert((request, path.remote)), "two responses of one member");
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let (number, member) = self.to_one[&(peer, request)];
        match reply {
            Reply::Response(response) => {
                assert_eq!(response.payload(), expected(number, member), "a response to another request");
                self.answered += 1;
            }
            Reply::TimedOut => {}
            other => panic!("{other:?}"),
        }
        assert!(self.ended.insert((peer, request)), "two replies to one request");
    }
}

fn expected(number: u32, member: u8) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.push(member);
    payload
}

/// The receiver of a datagram, with the information that the receiver needs to process it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Asker { from: u8 },
    Member { number: u8, to_group: bool },
}

struct Field {
    now: Instant,
    random: Random,
    loss: u64,
    node: One<Asks>,
    environment: Environment<RustCrypto>,
    app: Asking,
    members: Vec<Member>,
    flying: Vec<(Instant, usize, To, Vec<u8>)>,
    order: usize,
    /// The messages to the asking node that an attacker has recorded, each with its sender.
    recorded: Vec<(u8, Vec<u8>)>,
    asked: u32,
    acknowledged: usize,
    /// The Message IDs of requests to the group, and of requests to one member.
    message_ids: [HashSet<[u8; 2]>; 2],
}

impl Field {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let now = Instant::from_micros(5_000_000);
        let mut environment = Environment::new(RustCrypto::new(random_of(seed, ASKER)));
        let node = node(&mut environment, now, Asks::default());
        let count = 3 + (seed % 3) as u8;
        let members = (1..=count).map(|number| Member::new(number, seed, now)).collect();
        let loss = if seed.is_multiple_of(4) { 0 } else { random.below(40) };
        let (flying, recorded, app) = (Vec::new(), Vec::new(), Asking { now, ..Asking::default() });
        Self {
            now,
            random,
            loss,
            node,
            environment,
            app,
            members,
            flying,
            order: 0,
            recorded,
            asked: 0,
            acknowledged: 0,
            message_ids: Default::default(),
        }
    }

    fn launch(&mut self, to: To, datagram: &[u8]) {
        if self.random.below(100) < self.loss {
            return;
        }
        for _ in 0..if self.random.below(6) == 0 { 2 } else { 1 } {
            let millis = if self.random.below(6) == 0 { self.random.below(1500) } else { 10 + self.random.below(30) };
            self.order += 1;
            self.flying.push((self.now.after(Duration::from_millis(millis)), self.order, to, datagram.to_vec()));
        }
    }

    fn ask_group(&mut self) {
        let number = self.asked;
        self.asked += 1;
        let lifetime = if self.random.below(2) == 0 { LONG } else { 1000 + self.random.below(LONG) };
        let until = self.now.after(Duration::from_millis(lifetime));
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        let write = |builder: &mut Builder<'_, '_>| {
            builder.path("n")?;
            builder.payload(&number.to_be_bytes())
        };
        match self.node.request_group(cx, until, Code::GET, write, &mut out) {
            Ok((request, len)) => {
                self.message_ids[0].insert([out[2], out[3]]);
                assert_eq!(self.app.to_group.insert(request, (number, until, lifetime >= LONG)), None);
                for member in 1..=self.members.len() as u8 {
                    self.launch(To::Member { number: member, to_group: true }, &out[..len]);
                }
            }
            Err(error) => {
                let open = self.app.to_group.values().filter(|(_, until, _)| self.now < *until).count();
                assert_eq!((error, open), (SendError::Busy, REQUESTS));
            }
        }
    }

    fn ask_one(&mut self) {
        let number = self.asked | 1 << 31;
        self.asked += 1;
        let member = 1 + self.random.below(self.members.len() as u64) as u8;
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        let peer = self.node.endpoint.plain(cx, &to_asker(member), Rank::Ours).unwrap();
        let write = |builder: &mut Builder<'_, '_>| {
            builder.path("n")?;
            builder.payload(&number.to_be_bytes())
        };
        match self.node.request(cx, peer, Code::POST, write, &mut out) {
            Ok((request, len)) => {
                self.message_ids[1].insert([out[2], out[3]]);
                self.app.to_one.insert((peer, request), (number, member));
                self.launch(To::Member { number: member, to_group: false }, &out[..len]);
            }
            Err(error) => assert_eq!(error, SendError::Busy),
        }
    }

    /// Sends a message of a member to the asking node. Some members respond in a confirmable message, or twice.
    fn answer(&mut self, from: u8, mut datagram: Vec<u8>) {
        let is_to_group = datagram[0] & 0x30 == 0x10;
        if is_to_group && self.random.below(3) == 0 {
            datagram[0] &= 0xcf;
        }
        self.recorded.push((from, datagram.clone()));
        self.launch(To::Asker { from }, &datagram);
        if is_to_group && self.random.below(4) == 0 {
            datagram[3] ^= 0x55;
            self.launch(To::Asker { from }, &datagram);
        }
    }

    /// Forges a message to the asking node. If the message has the token of an open request to the group, the attacker
    /// sends it only from the address of the member that sent the recorded message.
    fn forge(&mut self) {
        let from = 1 + self.random.below(self.members.len() as u64) as u8;
        let at = self.random.below(1 + self.recorded.len() as u64) as usize;
        let Some((sender, mut datagram)) = self.recorded.get(at).cloned() else { return };
        let is_open = self.is_open(MessageRef::parse(&datagram).unwrap().token());
        let is_confirmable = datagram[0] & 0x30 == 0;
        match self.random.below(4) {
            // A token by chance.
            0 => datagram[4..].iter_mut().take(7).for_each(|byte| *byte ^= 1 + self.random.below(255) as u8),
            // The member rejects a request to the group.
            1 => {
                let Some(request) = self.app.to_group.keys().max_by_key(|request| request.0) else { return };
                let [_, _, high, low] = request.0.to_be_bytes();
                datagram = vec![0x70, 0, high, low];
            }
            // A piggybacked response as a separate one, and the reverse.
            2 if !is_confirmable => datagram[0] ^= 0x30,
            // Once more.
            _ if is_open => return self.launch(To::Asker { from: sender }, &datagram),
            // Late, or from another address.
            _ => {}
        }
        self.launch(To::Asker { from }, &datagram);
    }

    fn is_open(&self, token: &[u8]) -> bool {
        self.node.features.group_requests.find(self.now, |_, open| open.as_bytes() == token).is_some()
    }

    fn arrive(&mut self, to: To, mut datagram: Vec<u8>) {
        match to {
            To::Member { number, to_group } => {
                let reply = self.members[usize::from(number) - 1].receive(self.now, to_group, &mut datagram);
                if let Some(reply) = reply {
                    self.answer(number, reply);
                }
            }
            To::Asker { from } => {
                self.app.now = self.now;
                let message = MessageRef::parse(&datagram).unwrap();
                let is_open = self.is_open(message.token()) && message.code().is_response();
                let must = is_open && message.message_type() == MessageType::Confirmable;
                let acknowledgement = [&[0x60, 0][..], &message.message_id().to_be_bytes()].concat();
                let refused = self.environment.counters.no_room;
                let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
                let reply =
                    sent(self.node.handle_plain(cx, &to_asker(from), &mut datagram, &mut self.app, &mut out), &out);
                if must && self.environment.counters.no_room == refused {
                    assert_eq!(reply.as_ref(), Some(&acknowledgement), "a confirmable response");
                    self.acknowledged += 1;
                } else if is_open {
                    assert_eq!(reply, None);
                }
                if let Some(reply) = reply {
                    self.launch(To::Member { number: from, to_group: false }, &reply);
                }
            }
        }
    }

    /// Advances the clock, and sends requests to a group or a member at intervals, until nothing more can happen.
    fn run(&mut self) {
        let mut next_ask = self.now;
        loop {
            if self.asked < 16 && next_ask <= self.now {
                if self.random.below(2) == 0 {
                    self.ask_group()
                } else {
                    self.ask_one()
                }
                self.forge();
                next_ask = self.now.after(Duration::from_millis(100 + self.random.below(4000)));
            }
            self.app.now = self.now;
            loop {
                let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
                let Some(event) = self.node.poll(cx, &mut self.app, &mut out) else { break };
                let Event::Transmit { peer, len } = event else { panic!("{event:?}") };
                let number = self.app.to_one.iter().find(|((of, _), _)| *of == peer).unwrap().1.1;
                self.launch(To::Member { number, to_group: false }, &out[..len.into()]);
            }
            for index in 0..self.members.len() {
                while let Some(datagram) = self.members[index].poll(self.now) {
                    self.answer(index as u8 + 1, datagram);
                }
            }
            let arrival = self.flying.iter().map(|flying| flying.0).min();
            let alarms = self.members.iter().filter_map(|member| member.node.endpoint.next_alarm());
            let alarms = alarms.chain(self.node.endpoint.next_alarm());
            let ask = (self.asked < 16).then_some(next_ask);
            let next = alarms.chain(arrival).chain(ask).min().unwrap_or(Instant::NEVER);
            if next == Instant::NEVER {
                return;
            }
            self.now = self.now.max(next);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, to, datagram) = self.flying.remove(0);
                self.arrive(to, datagram);
            }
        }
    }
}

/// Runs thousands of seeds. `TEGMEN_SEEDS` sets their number.
#[test]
fn each_member_is_reported_at_most_once_and_never_for_another_request() {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let (mut reported, mut answered, mut acknowledged, mut full) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let mut field = Field::new(seed);
        field.run();
        let Field { app, members, loss, .. } = &field;
        assert_eq!(app.ended.len(), app.to_one.len(), "seed {seed}: an exchange never ends");
        for request in app.to_group.keys() {
            let count = app.reported.iter().filter(|(of, _)| of == request).count();
            assert!(count <= members.len().min(MEMBERS), "seed {seed}");
        }
        if *loss == 0 {
            for (request, (.., is_long)) in &app.to_group {
                let count = app.reported.iter().filter(|(of, _)| of == request).count();
                assert!(!is_long || count == members.len().min(MEMBERS), "seed {seed}: {count} members");
            }
            // A member takes a request for a repetition if an earlier one to the group had its Message ID.
            let [to_group, to_one] = &field.message_ids;
            let unanswered = app.to_one.len() - app.answered as usize;
            assert!(unanswered <= to_group.intersection(to_one).count(), "seed {seed}: a request has no response");
        }
        reported += app.reported.len();
        answered += app.answered;
        acknowledged += field.acknowledged;
        full += field.environment.counters.no_room as usize;
    }
    let seeds = seeds as usize;
    assert!(reported > seeds * 8 && answered as usize > seeds * 4, "{reported} and {answered} responses");
    assert!(acknowledged > seeds * 2 && full > seeds / 8, "{acknowledged} acknowledgements, {full} without a place");
}

/// Sends to a group a request that remains open for 10 seconds. Returns the id and the datagram of the request.
fn asked(field: &mut Field) -> (RequestId, Vec<u8>) {
    let until = field.now.after(Duration::from_secs(10));
    let (cx, mut out) = (&mut field.environment.at(field.now), [0; 100]);
    let (request, len) = field.node.request_group(cx, until, Code::GET, |get| get.path("n"), &mut out).unwrap();
    field.app.to_group.insert(request, (0, until, true));
    (request, out[..len].to_vec())
}

fn response(head: (MessageType, Code), message_id: u16, token: &[u8], option: Option<OptionNumber>) -> Vec<u8> {
    let mut bytes = [0; 100];
    let mut frame = Frame::new(&mut bytes, 0);
    let mut builder = Builder::new(&mut frame, head.0, head.1, message_id, token).unwrap();
    option.iter().for_each(|number| builder.option(*number, b"12345678").unwrap());
    builder.payload(&expected(0, 1)).unwrap();
    frame.bytes().to_vec()
}

const CONTENT: (MessageType, Code) = (MessageType::NonConfirmable, Code::CONTENT);

#[test]
fn each_request_to_a_group_has_a_token_and_a_message_id_of_its_own() {
    let mut seen = HashSet::new();
    for seed in 0..50 {
        let mut field = Field::new(seed);
        let [first, second] = [(); 2].map(|()| asked(&mut field).1);
        let [first, second] = [&first, &second].map(|datagram| MessageRef::parse(datagram).unwrap());
        assert_eq!(first.message_type(), MessageType::NonConfirmable);
        assert_eq!(second.message_id(), first.message_id().wrapping_add(1));
        // The tokens of requests to peers have 8 bytes in clear and 4 in a session.
        assert!(first.token().len() == 7 && second.token().len() == 7);
        assert!(seen.insert(first.token().to_vec()) && seen.insert(second.token().to_vec()));
    }
}

#[test]
fn a_request_to_a_group_keeps_its_place_until_its_end() {
    let mut field = Field::new(1);
    let (first, _) = asked(&mut field);
    asked(&mut field);
    let try_ask = |field: &mut Field, len: usize| {
        let until = field.now.after(Duration::from_secs(10));
        let (cx, mut out) = (&mut field.environment.at(field.now), vec![0; len]);
        field.node.request_group(cx, until, Code::GET, |get| get.path("n"), &mut out).map(|(_, len)| len)
    };
    assert_eq!(try_ask(&mut field, 100), Err(SendError::Busy));
    field.node.features.group_requests.close(first);
    assert_eq!(try_ask(&mut field, 12), Err(SendError::TooLong));
    assert_eq!(try_ask(&mut field, 13), Ok(13), "what was too long takes no place");
    assert_eq!(try_ask(&mut field, 100), Err(SendError::Busy));
    field.now = field.now.after(Duration::from_secs(10));
    assert_eq!(try_ask(&mut field, 100), Ok(13));
}

#[test]
fn a_peer_is_not_asked_with_the_token_of_an_open_request_to_a_group() {
    let mut field = Field::new(1);
    let (request, datagram) = asked(&mut field);
    let token = MessageRef::parse(&datagram).unwrap().token();
    let (cx, mut out) = (&mut field.environment.at(field.now), [0; 100]);
    let peer = field.node.endpoint.plain(cx, &to_asker(1), Rank::Ours).unwrap();
    let head = RequestHead::new(Code::GET).with_token(token);
    assert_eq!(field.node.request(cx, peer, head, |_| Ok(()), &mut out).map(drop), Err(SendError::Busy));
    field.node.features.group_requests.close(request);
    assert_eq!(field.node.request(cx, peer, head, |_| Ok(()), &mut out).map(drop), Ok(()));
}

#[test]
fn a_reset_of_a_request_to_a_group_ends_no_exchange_with_the_same_message_id() {
    let mut field = Field::new(1);
    let (request, datagram) = asked(&mut field);
    let message_id = MessageRef::parse(&datagram).unwrap().message_id();
    let (cx, mut out) = (&mut field.environment.at(field.now), [0; 100]);
    let peer = field.node.endpoint.plain(cx, &to_asker(1), Rank::Ours).unwrap();
    *tegmen::endpoint::Peers::attached(&mut field.node.endpoint.peers, peer).unwrap() = Exchanges::new(message_id);
    let (_, len) = field.node.request(cx, peer, Code::GET, |_| Ok(()), &mut out).unwrap();
    assert_eq!(MessageRef::parse(&out[..len]).unwrap().message_id(), message_id);
    let mut outcome = Outcome::default();
    let mut receive = |field: &mut Field, outcome: &mut Outcome| {
        let [high, low] = message_id.to_be_bytes();
        let cx = &mut field.environment.at(field.now);
        let event = field.node.handle_plain(cx, &to_asker(1), &mut [0x70, 0, high, low], outcome, &mut out);
        assert!(event.is_none(), "{event:?}");
    };
    receive(&mut field, &mut outcome);
    assert_eq!(outcome.0, 0);
    field.node.features.group_requests.close(request);
    receive(&mut field, &mut outcome);
    assert_eq!(outcome.0, 1);
}

/// An application that counts the Resets with which its requests were rejected.
#[derive(Default)]
struct Outcome(u32);

impl Application for Outcome {
    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        assert!(matches!(reply, Reply::Reset), "{reply:?}");
        self.0 += 1;
    }
}

#[test]
fn an_error_with_an_echo_is_a_response_and_a_message_with_oscore_is_none() {
    let mut field = Field::new(1);
    let (_, datagram) = asked(&mut field);
    let token = MessageRef::parse(&datagram).unwrap().token();
    field.arrive(To::Asker { from: 1 }, response(CONTENT, 1, token, Some(OptionNumber::OSCORE)));
    assert!(field.app.reported.is_empty());
    let unauthorized = (MessageType::Confirmable, Code::UNAUTHORIZED);
    field.arrive(To::Asker { from: 1 }, response(unauthorized, 2, token, Some(OptionNumber::ECHO)));
    assert_eq!(field.app.reported.len(), 1);
}

#[test]
fn nothing_in_clear_is_attributed_to_a_session_and_nothing_in_a_session_to_a_group() {
    let mut world = World::<Asks>::new(1, true);
    world.loss = 0;
    world.run();
    let now = world.now;
    let asker = &mut world.ends[0];
    asker.to_ask.push_back(0);
    assert_eq!(asker.speak(now, false).len(), 1);
    let asked = asker.asked[&0];
    let mut cx = Cx { now, crypto: &mut asker.crypto, counters: &mut asker.counters };
    let (until, mut out) = (now.after(Duration::from_secs(10)), [0; 100]);
    let (_, len) = asker.node.request_group(&mut cx, until, Code::GET, |_| Ok(()), &mut out).unwrap();
    let token = MessageRef::parse(&out[..len]).unwrap().token().to_vec();
    // The other end of the session sends the token of the group.
    let in_session = sealed(&mut world.ends[1], now, &response(CONTENT, 1, &token, None));
    let asker = &mut world.ends[0];
    assert_eq!(asker.receive(now, true, &mut in_session.clone()), Vec::<Vec<u8>>::new());
    assert!(asker.app.members.is_empty() && asker.app.outcomes.is_empty());
    // Anybody sends the same in clear from the address of the session's peer.
    let mut in_clear = response(CONTENT, 2, &token, None);
    assert_eq!(asker.receive(now, false, &mut in_clear), Vec::<Vec<u8>>::new());
    let nobody = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
    assert_eq!(asker.app.members, [(asker.path().remote, nobody)]);
    assert!(!asker.app.outcomes.contains_key(&asked));
}

/// Returns a message that one endpoint of a session has protected.
fn sealed(end: &mut End<Asks>, now: Instant, message: &[u8]) -> Vec<u8> {
    let (peer, mut out) = (end.peer.unwrap(), [0; 400]);
    let mut cx = Cx { now, crypto: &mut end.crypto, counters: &mut end.counters };
    let event = end.node.write(&mut cx, peer, &mut out, |_, _, _, frame| frame.append(message).unwrap());
    sent(event, &out).unwrap()
}
