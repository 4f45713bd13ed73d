//! Nodes that are members of two groups. Two of them also have a DTLS session with each other over the same addresses
//! and ports. The network loses, repeats and reorders datagrams. An attacker sends garbage, and sends recorded
//! datagrams from any address. One member restarts. The test runs over thousands of seeds.

use crate::group::{Group, address, hear_request};
use crate::recorder::{Recorder, Spent};
use std::collections::{HashMap, HashSet};
use tegmen::address::{Address, Path};
use tegmen::axiom::{Association, Kept, Member, SealRefused, Suite};
use tegmen::buf::{Frame, Full};
use tegmen::coap::handler::Policy;
use tegmen::coap::{
    Authorized, BuildError, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Request,
    RequestId, Response,
};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Both, Config, Extended, Records};
use tegmen::endpoint::{Endpoint, Event, Misuse, PeerArray};
use tegmen::identity::{Identity, PeerId, Principal, Protection, SenderId};
use tegmen::node::{
    Application, Deferred, DeferredRequest, GroupArray, GroupRequestArray, Incoming, LeisureArray, Node, Parts,
    Refusal, Reply, SendError,
};
use tegmen::time::{Duration, Instant};

const NODES: usize = 3;
const GROUPS: usize = 2;
/// The node that restarts. It has no session.
const RESTARTS: usize = 2;
const LEISURE: Duration = Duration::from_millis(250);
const LEASE: u64 = 6;

type Features = Parts<(), (), (), (), (), LeisureArray<12, 160>, GroupRequestArray<4, NODES>, GroupArray<GROUPS, 4, 4>>;
type One = Node<PeerArray<Exchanges<Fixed<3, 64, 32, 512>>, 10, 2>, Extended<Both>, Features>;

/// A random generator: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % sides
    }
}

/// Returns the group with this number in an epoch.
fn group(number: usize, group_id: u8, epoch: u16) -> Group {
    let mut group = Group::new(if number == 0 { Suite::Ccm } else { Suite::Ccm8 });
    group.group_id = group_id;
    group.master_secret[2] = number as u8;
    (1..epoch).fold(group, |group, _| group.next())
}

fn group_address(number: usize) -> Address {
    Address { ip: [0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number as u8], port: port(number), scope: 0 }
}

const fn port(group: usize) -> u16 {
    5684 + group as u16
}

fn principal(group: usize) -> Principal {
    Principal(100 + group as u32)
}

/// Returns the address of a node with the port of a group.
fn node_address(node: usize, group: usize) -> Address {
    Address { port: port(group), ..address(node as u8) }
}

/// Calls `use_it` with the association of a node in a group.
fn with_association<T>(
    (node, number): (usize, usize),
    (group_id, epoch): (u8, u16),
    use_it: impl FnOnce(&Association<'_>) -> T,
) -> T {
    let group = group(number, group_id, epoch);
    let mut association = group.association(node as u8);
    association.group = group_address(number);
    use_it(&association)
}

/// Creates a member in the epoch of its durable values `kept`; at first this is epoch 1.
fn member(crypto: &mut Recorder, node: usize, number: usize, (group_id, kept): (u8, &Kept)) -> Member<4, 4> {
    let make = |association: &Association<'_>| Member::new(crypto, association, kept).unwrap();
    with_association((node, number), (group_id, kept.epoch.max(1)), make)
}

/// A request: the node that asked, and the group that it asked. Over a session, there is no group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    number: u32,
    asker: usize,
    /// The group; `None` over a session.
    group: Option<usize>,
}

impl Asked {
    fn payload(self) -> [u8; 6] {
        let [a, b, c, d] = self.number.to_be_bytes();
        [a, b, c, d, self.asker as u8, self.group.map_or(0xff, |group| group as u8)]
    }

    fn of(payload: &[u8]) -> Self {
        let [a, b, c, d, asker, group] = *payload.first_chunk().unwrap();
        let group = (group != 0xff).then_some(usize::from(group));
        Self { number: u32::from_be_bytes([a, b, c, d]), asker: asker.into(), group }
    }
}

/// The application of a node. It checks each request and each response when it arrives. It survives a restart of the
/// node.
struct App {
    number: usize,
    served: HashSet<Asked>,
    by_group: HashMap<RequestId, Asked>,
    by_peer: HashMap<RequestId, Asked>,
    answered: HashSet<(Asked, usize)>,
    /// The challenges that members sent: the group, and the Echo value.
    challenges: Vec<(usize, Vec<u8>)>,
    deferred: Vec<(Deferred, Asked)>,
    spent: HashSet<usize>,
    undecided: Vec<(Deferred, Vec<u8>)>,
    /// The table entry of the last sender of a request, for each group.
    entries: HashMap<usize, PeerId>,
    clashes: Vec<Option<u8>>,
    sessions_answered: usize,
}

/// A policy that checks the identity of each request: the group, and the SenderID that the sender claims.
struct Rights;

/// Decides about a request, at once or later. One of eight requests is denied. If such a request was sent to a group,
/// it gets no response.
fn allows(asked: Asked) -> bool {
    !asked.number.is_multiple_of(8)
}

impl Policy for Rights {
    const LATER: bool = true;

    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        let asked = Asked::of(request.message.payload());
        let Identity { principal: who, protection } = request.identity;
        match (protection, asked.group) {
            (Protection::GroupRequest(sender), Some(group)) => {
                assert_eq!((who, usize::from(sender.number())), (principal(group), asked.asker));
            }
            (Protection::Dtls, None) => assert_eq!(who, Principal(1)),
            other => panic!("{other:?}"),
        }
        (asked.number % 7 != 3).then_some(allows(asked))
    }
}

impl Handler for App {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let asked = Asked::of(request.message().payload());
        assert_ne!(asked.asker, self.number, "a request of our own");
        assert!(self.served.insert(asked), "{asked:?} served twice");
        if asked.number % 5 == 1 {
            response.defer();
            return Ok(());
        }
        response.payload(&answer_to(asked, self.number))
    }
}

fn answer_to(asked: Asked, member: usize) -> Vec<u8> {
    let mut payload = asked.payload().to_vec();
    payload.push(member as u8);
    payload
}

impl Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Rights, self))
    }

    fn admit(&mut self, incoming: &Incoming<'_>, _: Option<&mut ()>) -> Result<(), Refusal> {
        let asked = Asked::of(incoming.message.payload());
        assert_eq!(incoming.to_group, asked.group.is_some());
        if let Some(group) = asked.group {
            self.entries.insert(group, incoming.peer);
        }
        Ok(())
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        let asked = Asked::of(request.message.payload());
        if request.is_undecided {
            let (mut message, mut storage) = (Vec::new(), [0; 160]);
            let mut frame = Frame::new(&mut storage, 0);
            request.message.write(&mut frame).unwrap();
            message.extend_from_slice(frame.bytes());
            return self.undecided.push((request.keep(), message));
        }
        self.deferred.push((request.keep(), asked));
    }

    fn on_reply(&mut self, _: PeerId, request: RequestId, reply: Reply<'_>) {
        if let Reply::Response(response) = reply {
            let asked = self.by_peer[&request];
            let allowed = allows(asked);
            assert_eq!(response.code(), if allowed { Code::CONTENT } else { Code::FORBIDDEN });
            if allowed {
                assert_eq!(response.payload(), answer_to(asked, 1 - self.number));
            }
            self.sessions_answered += 1;
        }
    }

    fn on_member_response(&mut self, request: RequestId, (path, who): (&Path, Identity), response: &MessageRef<'_>) {
        let asked = self.by_group[&request];
        let group = asked.group.unwrap();
        assert_eq!(who, Identity { principal: principal(group), protection: Protection::GroupResponse });
        assert_eq!(path.local, node_address(self.number, group));
        let from = usize::from(path.remote.ip[15]);
        assert_eq!(path.remote, node_address(from, group));
        assert!(self.answered.insert((asked, from)), "two responses of one member");
        match response.code() {
            Code::CONTENT => assert_eq!(response.payload(), answer_to(asked, from)),
            Code::UNAUTHORIZED => {
                let echo = response.option(OptionNumber::ECHO).unwrap();
                self.challenges.push((group, echo.to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }

    fn on_group_clash(&mut self, _: &Address, sender: Option<SenderId>) {
        self.clashes.push(sender.map(SenderId::number));
    }

    fn on_unsealed_response(&mut self, group: &Address, refused: SealRefused) {
        assert_eq!(refused, SealRefused::LeaseSpent);
        self.spent.insert(usize::from(group.ip[15]));
    }
}

struct End {
    node: One,
    environment: Environment<Recorder>,
    app: App,
    ids: GroupIds,
    /// For each group: the ends of the record numbers that are reserved for the requests and for the responses of the
    /// member, as they were last stored durably.
    kept: [Kept; GROUPS],
    session: Option<PeerId>,
}

/// The GroupIDs of the groups in a world. The port of the first group is also the port of the session.
type GroupIds = [u8; GROUPS];

fn node(
    environment: &mut Environment<Recorder>,
    number: usize,
    (ids, kept): (GroupIds, &[Kept; GROUPS]),
    now: Instant,
) -> One {
    let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
    let mut groups = GroupArray::default();
    for (number_of_group, kept) in kept.iter().enumerate() {
        let member = member(&mut environment.crypto, number, number_of_group, (ids[number_of_group], kept));
        groups.join(member, principal(number_of_group)).unwrap();
    }
    let features = Parts {
        queue: (),
        pacing: (),
        oscore: (),
        observers: (),
        bodies: (),
        leisure: LeisureArray::new(LEISURE),
        group_requests: GroupRequestArray::default(),
        groups,
    };
    Node::with_features(endpoint, Fixed, features)
}

impl End {
    fn new(number: usize, seed: u64, (ids, spent): (GroupIds, &Spent), now: Instant) -> Self {
        let mut random = [number as u8; 32];
        random[..8].copy_from_slice(&seed.to_le_bytes());
        let mut environment = Environment::new(Recorder::new(random, spent.clone()));
        let kept = [Kept::default(); GROUPS];
        let app = App {
            number,
            served: HashSet::new(),
            by_group: HashMap::new(),
            by_peer: HashMap::new(),
            answered: HashSet::new(),
            challenges: Vec::new(),
            deferred: Vec::new(),
            spent: HashSet::new(),
            undecided: Vec::new(),
            entries: HashMap::new(),
            clashes: Vec::new(),
            sessions_answered: 0,
        };
        let mut end = Self {
            node: node(&mut environment, number, (ids, &kept), now),
            environment,
            app,
            ids,
            kept,
            session: None,
        };
        (0..GROUPS).for_each(|group| end.lease(group));
        end
    }

    /// Stores a new reservation of record numbers durably, and then allows the member to use these record numbers.
    fn lease(&mut self, group: usize) {
        let member = self.node.features.groups.member(&group_address(group)).unwrap();
        self.kept[group] = member.reserve(LEASE, LEASE);
        let kept = self.kept[group];
        member.extend(&kept);
    }

    /// Begins the next epoch of a group.
    fn rekey(&mut self, group: usize) {
        let End { node, environment, .. } = self;
        let member = node.features.groups.member(&group_address(group)).unwrap();
        let epoch = self.kept[group].epoch + 1;
        let rekey = |association: &Association<'_>| member.rekey(&mut environment.crypto, association).unwrap();
        with_association((self.app.number, group), (self.ids[group], epoch), rekey);
        self.lease(group);
    }

    fn restart(&mut self, now: Instant) {
        self.node = node(&mut self.environment, self.app.number, (self.ids, &self.kept), now);
        self.app.deferred.clear();
        self.app.undecided.clear();
        self.app.by_group.clear();
        self.app.challenges.clear();
        (0..GROUPS).for_each(|group| self.lease(group));
    }
}

struct World {
    now: Instant,
    dice: Dice,
    loss: u64,
    attacks: bool,
    /// The epoch of each group at the controller.
    rekeying: [u16; GROUPS],
    ends: Vec<End>,
    /// The datagrams on the network: time of arrival, number, source, destination, bytes.
    flying: Vec<(Instant, usize, Address, Address, Vec<u8>)>,
    recorded: Vec<(Address, Address, Vec<u8>)>,
    order: usize,
    asked: u32,
}

impl World {
    fn new(seed: u64, ids: GroupIds) -> Self {
        let mut dice = Dice(seed);
        let (now, spent) = (Instant::from_micros(5_000_000), Spent::default());
        let loss = if seed.is_multiple_of(3) { 0 } else { dice.roll(40) };
        let attacks = !seed.is_multiple_of(3);
        let ends = (0..NODES).map(|number| End::new(number, seed, (ids, &spent), now)).collect();
        Self {
            now,
            dice,
            loss,
            attacks,
            rekeying: [1; GROUPS],
            ends,
            flying: Vec::new(),
            recorded: Vec::new(),
            order: 0,
            asked: 0,
        }
    }

    fn launch(&mut self, from: Address, to: Address, datagram: &[u8]) {
        self.recorded.push((from, to, datagram.to_vec()));
        if self.dice.roll(100) < self.loss {
            return;
        }
        for _ in 0..if self.dice.roll(6) == 0 { 2 } else { 1 } {
            let millis = if self.dice.roll(6) == 0 { self.dice.roll(900) } else { 5 + self.dice.roll(20) };
            self.order += 1;
            self.flying.push((self.now.after(Duration::from_millis(millis)), self.order, from, to, datagram.to_vec()));
        }
    }

    fn ask(&mut self, asker: usize, group: usize, echo: Option<&[u8]>) {
        self.ask_with(asker, group, |builder| match echo {
            Some(echo) => builder.option(OptionNumber::ECHO, echo),
            None => Ok(()),
        });
    }

    /// Sends a request to a group. `options` adds options after the path.
    fn ask_with(
        &mut self,
        asker: usize,
        group: usize,
        options: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
    ) {
        let asked = Asked { number: self.asked, asker, group: Some(group) };
        self.asked += 1;
        let until = self.now.after(Duration::from_millis(3000));
        let end = &mut self.ends[asker];
        let mut out = [0; 160];
        let write = |builder: &mut Builder<'_, '_>| {
            builder.path("n")?;
            options(builder)?;
            builder.payload(&asked.payload())
        };
        let cx = &mut end.environment.at(self.now);
        let address = group_address(group);
        match end.node.request_protected_group(cx, &address, until, Code::POST, write, &mut out) {
            Ok((request, len)) => {
                assert_eq!(end.app.by_group.insert(request, asked), None);
                self.launch(node_address(asker, group), address, &out[..len]);
            }
            Err(SendError::Group(SealRefused::LeaseSpent)) => end.lease(group),
            Err(error) => assert_eq!(error, SendError::Busy),
        }
    }

    fn ask_peer(&mut self, asker: usize) {
        let end = &mut self.ends[asker];
        let Some(peer) = end.session else { return };
        let asked = Asked { number: self.asked, asker, group: None };
        self.asked += 1;
        let mut out = [0; 160];
        let cx = &mut end.environment.at(self.now);
        let sent = end.node.request(cx, peer, Code::POST, |post| post.payload(&asked.payload()), &mut out);
        match sent {
            Ok((request, len)) => {
                end.app.by_peer.insert(request, asked);
                self.launch(node_address(asker, 0), node_address(1 - asker, 0), &out[..len]);
            }
            Err(error) => assert_eq!(error, SendError::Busy),
        }
    }

    fn deliver(&mut self, from: Address, to: Address, mut datagram: Vec<u8>) {
        if to.ip[0] == 0xff {
            for number in 0..NODES {
                let end = &mut self.ends[number];
                let (mut datagram, mut out) = (datagram.clone(), [0; 160]);
                let path = Path { local: to, remote: from };
                let cx = &mut end.environment.at(self.now);
                end.node.handle_protected_group(cx, &path, &mut datagram, &mut end.app, &mut out);
            }
            return;
        }
        let number = usize::from(to.ip[15]);
        if number >= NODES {
            return;
        }
        let path = Path { local: to, remote: from };
        let mut records = Records::new(&mut datagram);
        let mut out = [0; 1024];
        loop {
            let end = &mut self.ends[number];
            let cx = &mut end.environment.at(self.now);
            let Some(event) = end.node.handle(cx, &path, &mut records, &mut end.app, &mut out) else { break };
            self.on(number, event, Some(path), &out);
        }
    }

    fn on(&mut self, number: usize, event: Event, path: Option<Path>, out: &[u8]) {
        let end = &mut self.ends[number];
        match event {
            Event::Answer { len } => {
                let path = path.unwrap();
                self.launch(path.local, path.remote, &out[..len.into()]);
            }
            Event::Transmit { peer, len } => {
                let path = end.node.path(peer).unwrap();
                assert_eq!(path.local.ip, address(number as u8).ip, "a datagram from a group address");
                self.launch(path.local, path.remote, &out[..len.into()]);
            }
            Event::Need(id) => {
                let answer = Answer::Psk { identity: b"me", key: b"0123456789abcdef", principal: Principal(1) };
                if let Some(event) = end.node.endpoint.resume(&mut end.environment.at(self.now), id, answer) {
                    self.on(number, event, path, out);
                }
            }
            Event::Established(id) => end.session = Some(id),
            Event::Closed { peer, .. } => end.session = end.session.filter(|session| *session != peer),
            other => panic!("{other:?}"),
        }
    }

    fn poll(&mut self, number: usize) {
        let mut out = [0; 1024];
        loop {
            let end = &mut self.ends[number];
            let event = end.node.poll(&mut end.environment.at(self.now), &mut end.app, &mut out);
            let Some(event) = event else { break };
            self.on(number, event, None, &out);
        }
        self.respond(number);
        self.decide(number);
        // The owner acts upon what the node reports.
        for group in std::mem::take(&mut self.ends[number].app.spent) {
            self.ends[number].lease(group);
        }
    }

    /// Sends the responses that were deferred.
    fn respond(&mut self, number: usize) {
        for (deferred, asked) in std::mem::take(&mut self.ends[number].app.deferred) {
            let (mut out, end) = ([0; 160], &mut self.ends[number]);
            let (peer, payload) = (deferred.peer, answer_to(asked, number));
            let cx = &mut end.environment.at(self.now);
            match end.node.respond(cx, deferred, Code::CONTENT, |content| content.payload(&payload), &mut out) {
                Ok(0) => {}
                Ok(len) => {
                    let path = end.node.path(peer).unwrap();
                    self.launch(path.local, path.remote, &out[..len]);
                }
                Err((SendError::Group(SealRefused::LeaseSpent), deferred)) => {
                    end.lease(asked.group.unwrap());
                    end.app.deferred.push((deferred, asked));
                }
                Err((SendError::Busy, deferred)) => end.app.deferred.push((deferred, asked)),
                // The entry was displaced, or the session is over.
                Err((error, _)) => assert_eq!(error, SendError::Misuse(Misuse::NotEstablished)),
            }
        }
    }

    /// Gives the node the decision of the policy on each undecided request.
    fn decide(&mut self, number: usize) {
        for (deferred, message) in std::mem::take(&mut self.ends[number].app.undecided) {
            let (mut out, end) = ([0; 160], &mut self.ends[number]);
            let peer = deferred.peer;
            let asked = Asked::of(MessageRef::parse(&message).unwrap().payload());
            let cx = &mut end.environment.at(self.now);
            match end.node.decide(cx, deferred, &message, allows(asked), &mut end.app, &mut out) {
                Ok(0) => {}
                Ok(len) => {
                    let path = end.node.path(peer).unwrap();
                    self.launch(path.local, path.remote, &out[..len]);
                }
                Err((SendError::Busy, deferred)) => end.app.undecided.push((deferred, message)),
                Err((error, _)) => assert_eq!(error, SendError::Misuse(Misuse::NotEstablished)),
            }
        }
    }

    /// Sends a recorded datagram from any address to any address, perhaps with a changed bit.
    fn attack(&mut self) {
        let len = self.recorded.len() as u64;
        if len == 0 {
            return;
        }
        let (mut from, mut to, mut datagram) = self.recorded[self.dice.roll(len) as usize].clone();
        let is_handshake = datagram[0] != 23;
        match self.dice.roll(5) {
            0 => from.ip[15] = self.dice.roll(5) as u8,
            1 if !is_handshake => to = group_address(self.dice.roll(GROUPS as u64) as usize),
            2 if !is_handshake => to = node_address(self.dice.roll(NODES as u64) as usize, self.dice.roll(2) as usize),
            3 if !is_handshake => {
                let bit = self.dice.roll(8 * datagram.len() as u64) as usize;
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            _ => {}
        }
        let order = self.order;
        self.order += 1;
        let at = self.now.after(Duration::from_millis(self.dice.roll(50)));
        self.flying.push((at, order, from, to, datagram));
    }

    fn act(&mut self) {
        let (asker, group) = (self.dice.roll(NODES as u64) as usize, self.dice.roll(GROUPS as u64) as usize);
        match self.dice.roll(4) {
            0 | 1 => {
                let echo = self.ends[asker].app.challenges.pop();
                match echo {
                    Some((group, echo)) => self.ask(asker, group, Some(&echo)),
                    None => self.ask(asker, group, None),
                }
            }
            2 => self.ask_peer(asker),
            _ if self.attacks => (0..3).for_each(|_| self.attack()),
            _ => {}
        }
        if self.attacks && self.dice.roll(60) == 0 {
            self.ends[RESTARTS].restart(self.now);
        }
        if self.attacks && self.dice.roll(60) == 0 {
            self.rekeying[group] += 1;
        }
        // The message of the controller reaches the members one after the other.
        for number in 0..NODES {
            let is_behind = self.ends[number].kept[group].epoch < self.rekeying[group];
            if is_behind && self.dice.roll(3) == 0 {
                self.ends[number].rekey(group);
            }
        }
    }

    fn advance(&mut self, millis: u64) {
        let end = self.now.after(Duration::from_millis(millis));
        loop {
            let next = self.flying.iter().map(|flight| flight.0);
            let alarms = self.ends.iter().filter_map(|end| end.node.endpoint.next_alarm());
            let Some(at) = next.chain(alarms).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            while let Some(place) = self.flying.iter().position(|flight| flight.0 <= self.now) {
                let (.., from, to, datagram) = self.flying.remove(place);
                self.deliver(from, to, datagram);
            }
            (0..NODES).for_each(|number| self.poll(number));
        }
        self.now = end;
        (0..NODES).for_each(|number| self.poll(number));
    }

    fn connect(&mut self) {
        let path = Path { local: node_address(0, 0), remote: node_address(1, 0) };
        let end = &mut self.ends[0];
        end.node.endpoint.connect(&mut end.environment.at(self.now), &path).unwrap();
        self.poll(0);
    }
}

/// The number of events of each kind in all seeds.
#[derive(Default)]
struct Counts {
    served: usize,
    answered: usize,
    sessions_answered: usize,
}

fn run(seed: u64, counts: &mut Counts) {
    let mut world = World::new(seed, [9, 0]);
    world.connect();
    for _ in 0..40 {
        world.act();
        let millis = 1 + world.dice.roll(400);
        world.advance(millis);
    }
    world.advance(5000);
    for end in &world.ends {
        assert_eq!(end.app.clashes, [], "seed {seed}");
        counts.served += end.app.served.len();
        counts.answered += end.app.answered.len();
        counts.sessions_answered += end.app.sessions_answered;
    }
}

#[test]
fn nodes_serve_and_ask_in_groups_and_over_a_session_at_once() {
    let mut counts = Counts::default();
    for seed in 0..2000 {
        run(seed, &mut counts);
    }
    // Without this a world in which nothing arrives would pass.
    let Counts { served, answered, sessions_answered } = counts;
    assert!(
        served > 20_000 && answered > 20_000 && sessions_answered > 2000,
        "{served} {answered} {sessions_answered}"
    );
}

/// Creates three nodes on a network without loss. They know the TSNs of each other.
fn quiet(ids: GroupIds) -> World {
    let mut world = World::new(0, ids);
    for end in &mut world.ends {
        for group in 0..GROUPS {
            let member = end.node.features.groups.member(&group_address(group)).unwrap();
            (0..NODES as u8).for_each(|sender| member.know_sender::<Recorder>(sender, 0).unwrap());
        }
    }
    world
}

impl World {
    /// Sends a request to a group, and waits for the responses. The policy does not deny this request, and no member
    /// defers the response.
    fn ask_now(&mut self, asker: usize, group: usize, echo: Option<&[u8]>) -> Asked {
        self.asked = (self.asked..).find(|number| number % 8 != 0 && number % 5 != 1 && number % 7 != 3).unwrap();
        let asked = Asked { number: self.asked, asker, group: Some(group) };
        self.ask(asker, group, echo);
        self.advance(2000);
        asked
    }

    fn has_served(&self, node: usize, asked: Asked) -> bool {
        self.ends[node].app.served.contains(&asked)
    }

    fn has_answer(&self, asked: Asked, from: usize) -> bool {
        self.ends[asked.asker].app.answered.contains(&(asked, from))
    }

    /// Returns the last datagram that was sent to a group.
    fn last_to(&self, group: usize) -> Vec<u8> {
        let to = group_address(group);
        self.recorded.iter().rev().find(|(_, receiver, _)| *receiver == to).unwrap().2.clone()
    }
}

#[test]
fn a_request_to_a_group_is_served_once_by_each_member() {
    let mut world = quiet([9, 0]);
    let asked = world.ask_now(0, 0, None);
    for listener in [1, 2] {
        assert!(world.has_served(listener, asked) && world.has_answer(asked, listener));
    }
    let (datagram, recorded) = (world.last_to(0), world.recorded.len());
    for from in 0..5 {
        // A request that is served twice would fail in the handler.
        world.deliver(node_address(from, 0), group_address(0), datagram.clone());
    }
    world.advance(2000);
    assert_eq!(world.recorded.len(), recorded, "an answer to a replay");
}

#[test]
fn a_record_that_does_not_open_changes_nothing_and_is_not_answered() {
    let mut world = quiet([9, 0]);
    world.asked = 2;
    world.ask(0, 0, None);
    let (request, recorded) = (world.last_to(0), world.recorded.len());
    world.flying.clear();
    for bit in 0..8 * request.len() {
        let mut spoiled = request.clone();
        spoiled[bit / 8] ^= 1 << (bit % 8);
        world.deliver(node_address(0, 0), group_address(0), spoiled);
    }
    for len in 0..request.len() {
        world.deliver(node_address(0, 0), group_address(0), request[..len].to_vec());
    }
    // The keys of the other group do not open it.
    world.deliver(node_address(0, 1), group_address(1), request.clone());
    world.advance(2000);
    assert!(world.ends.iter().all(|end| end.app.served.is_empty() && end.app.entries.is_empty()));
    assert_eq!(world.recorded.len(), recorded);
    world.deliver(node_address(0, 0), group_address(0), request);
    world.advance(2000);
    let asked = Asked { number: 2, asker: 0, group: Some(0) };
    assert!(world.has_answer(asked, 1) && world.has_answer(asked, 2), "the request itself is still new");
    let response = world.recorded.iter().find(|(from, ..)| from.ip == address(1).ip).unwrap().2.clone();
    let answered = world.ends[0].app.answered.len();
    for from in 0..5 {
        // A response from another address has another key.
        world.deliver(node_address(from, 0), node_address(0, 0), response.clone());
        world.deliver(node_address(from, 1), node_address(0, 0), response.clone());
    }
    assert_eq!(world.ends[0].app.answered.len(), answered);
}

#[test]
fn a_message_in_clear_to_the_address_of_a_protected_group_is_dropped() {
    let mut world = quiet([9, 0]);
    let mut storage = [0; 160];
    let mut frame = Frame::new(&mut storage, 0);
    let asked = Asked { number: 2, asker: 0, group: Some(0) };
    let built = Builder::new(&mut frame, MessageType::NonConfirmable, Code::POST, 1, b"t");
    built.unwrap().payload(&asked.payload()).unwrap();
    let end = &mut world.ends[1];
    let path = Path { local: group_address(0), remote: node_address(0, 0) };
    let (cx, mut out) = (&mut end.environment.at(world.now), [0; 160]);
    let mut datagram = frame.bytes().to_vec();
    end.node.handle_group(cx, &path, &mut datagram, &mut end.app, &mut out);
    end.node.handle_protected_group(cx, &path, &mut datagram, &mut end.app, &mut out);
    assert!(end.app.served.is_empty() && end.app.entries.is_empty());
}

#[test]
fn a_member_that_restarts_serves_a_request_only_after_an_echo() {
    let mut world = quiet([9, 0]);
    world.ask_now(0, 0, None);
    let old = world.last_to(0);
    world.ends[RESTARTS].restart(world.now);
    world.deliver(node_address(0, 0), group_address(0), old);
    world.advance(2000);
    let asked = world.ask_now(0, 0, None);
    assert!(world.has_served(1, asked) && !world.has_served(RESTARTS, asked));
    let (group, echo) = world.ends[0].app.challenges.pop().expect("a challenge");
    // The member that knows the sender does not look at the Echo option.
    let again = world.ask_now(0, group, Some(&echo));
    assert!(world.has_served(1, again) && world.has_served(RESTARTS, again) && world.has_answer(again, RESTARTS));
    let known = world.ask_now(0, 0, None);
    assert!(world.has_served(RESTARTS, known));
}

#[test]
fn replays_take_one_number_of_a_response_in_a_second() {
    let mut world = quiet([9, 0]);
    world.ask_now(0, 0, None);
    let old = world.last_to(0);
    world.ends[RESTARTS].restart(world.now);
    let left =
        |world: &mut World| world.ends[RESTARTS].node.features.groups.member(&group_address(0)).unwrap().left().1;
    let before = left(&mut world);
    for from in 0..100 {
        world.deliver(node_address(from, 0), group_address(0), old.clone());
    }
    assert_eq!(left(&mut world), before - 1);
}

#[test]
fn a_response_that_nobody_wants_is_not_sent() {
    let mut world = quiet([9, 0]);
    let recorded = world.recorded.len();
    world.asked = 2;
    // No response at all (RFC 7967, section 2.1).
    world.ask_with(0, 0, |builder| builder.uint(OptionNumber::NO_RESPONSE, 26));
    world.advance(2000);
    assert!(world.has_served(1, Asked { number: 2, asker: 0, group: Some(0) }));
    // A member that restarts sends no challenge either.
    world.ends[RESTARTS].restart(world.now);
    world.asked = 4;
    world.ask_with(0, 0, |builder| builder.uint(OptionNumber::NO_RESPONSE, 26));
    world.advance(2000);
    assert!(!world.has_served(RESTARTS, Asked { number: 4, asker: 0, group: Some(0) }));
    assert_eq!(world.recorded.len(), recorded + 2, "only the requests were sent");
}

#[test]
fn nothing_is_sent_in_clear_to_a_sender_of_a_group() {
    let mut world = quiet([9, 0]);
    world.ask_now(0, 0, None);
    let end = &mut world.ends[1];
    let (peer, mut out) = (end.app.entries[&0], [0; 160]);
    let cx = &mut end.environment.at(world.now);
    let sent = end.node.request(cx, peer, Code::GET, |_| Ok(()), &mut out).map(drop);
    assert_eq!(sent, Err(SendError::Misuse(Misuse::NotEstablished)));
    assert_eq!(end.node.ping(cx, peer, &mut out).map(drop), Err(SendError::Misuse(Misuse::NotEstablished)));
}

#[test]
fn a_response_in_clear_does_not_answer_a_protected_request() {
    let mut world = quiet([9, 0]);
    world.asked = 2;
    world.ask(0, 0, None);
    // A listener learns the token; an outsider does not.
    let mut crypto = Recorder::new([7; 32], Spent::default());
    let mut listener = member(&mut crypto, 1, 0, (9, &Kept::default()));
    listener.extend(&listener.reserve(0, 0));
    let (_, heard) = hear_request(&mut listener, &mut crypto, &world.last_to(0)).unwrap();
    let (request, _) = heard.unverified();
    let mut storage = [0; 160];
    let mut frame = Frame::new(&mut storage, 0);
    let token = MessageRef::parse(&request).unwrap().token().to_vec();
    Builder::new(&mut frame, MessageType::NonConfirmable, Code::CONTENT, 1, &token)
        .unwrap()
        .payload(b"forged")
        .unwrap();
    let end = &mut world.ends[0];
    let path = Path { local: node_address(0, 0), remote: node_address(1, 0) };
    let cx = &mut end.environment.at(world.now);
    assert_eq!(end.node.handle_member(cx, &path, frame.bytes_mut(), &mut end.app, &mut [0; 16]), None);
    assert!(end.app.answered.is_empty());
}

#[test]
fn a_response_of_another_group_does_not_answer_a_request() {
    let mut world = quiet([9, 0]);
    // The listener is known in both groups.
    for group in 0..GROUPS {
        let asked = world.ask_now(0, group, None);
        assert!(world.has_answer(asked, 1));
    }
    world.asked = 20;
    world.ask(0, 0, None);
    world.flying.clear();
    let mut crypto = Recorder::new([7; 32], Spent::default());
    let kept = |responses| Kept { epoch: 1, requests: 0, responses };
    let mut listener = member(&mut crypto, 1, 0, (9, &kept(0)));
    let (sender, heard) = hear_request(&mut listener, &mut crypto, &world.last_to(0)).unwrap();
    let (request, _) = heard.unverified();
    let token = MessageRef::parse(&request).unwrap().token().to_vec();
    for (number, is_answered) in [(1, false), (0, true)] {
        let mut other = member(&mut crypto, 1, number, ([9, 0][number], &kept(50)));
        other.extend(&other.reserve(0, 1));
        let mut storage = [0; 160];
        let mut frame = Frame::new(&mut storage, other.overhead().0);
        let asked = Asked { number: 20, asker: 0, group: Some(0) };
        let built = Builder::new(&mut frame, MessageType::NonConfirmable, Code::CONTENT, 1, &token);
        built.unwrap().payload(&answer_to(asked, 1)).unwrap();
        other.seal_response(&mut crypto, sender, &mut frame).unwrap();
        world.deliver(node_address(1, number), node_address(0, number), frame.bytes().to_vec());
        assert_eq!(world.has_answer(asked, 1), is_answered, "in the group {number}");
    }
}

#[test]
fn a_session_takes_precedence_over_a_group_with_the_group_id_0() {
    let mut world = quiet([0, 9]);
    world.connect();
    world.advance(2000);
    assert!(world.ends[0].session.is_some() && world.ends[1].session.is_some());
    let asked = world.ask_now(0, 0, None);
    assert!(world.has_served(1, asked) && world.has_served(2, asked));
    // Only the other member has no session whose records look like the response.
    assert!(!world.has_answer(asked, 1) && world.has_answer(asked, 2));
    world.asked = 2;
    world.ask_peer(0);
    world.advance(2000);
    assert_eq!(world.ends[0].app.sessions_answered, 1);
}

#[test]
fn a_session_and_a_group_with_another_group_id_share_addresses_and_ports() {
    let mut world = quiet([9, 0]);
    world.connect();
    world.advance(2000);
    let asked = world.ask_now(0, 0, None);
    assert!(world.has_answer(asked, 1) && world.has_answer(asked, 2));
    world.asked = 2;
    world.ask_peer(0);
    world.advance(2000);
    assert_eq!(world.ends[0].app.sessions_answered, 1);
}

#[test]
fn a_node_reports_that_the_lease_of_its_responses_is_spent() {
    let mut world = quiet([9, 0]);
    let end = &mut world.ends[1];
    let mut restarted = member(&mut end.environment.crypto, 1, 0, (9, &end.kept[0]));
    // Its numbers are not extended. The sender proves that it is new.
    restarted.extend(&Kept { responses: 0, ..restarted.reserve(0, 0) });
    let challenge = *restarted.challenge();
    end.node.features.groups.leave(&group_address(0));
    end.node.features.groups.join(restarted, principal(0)).unwrap();
    world.asked = 2;
    world.ask(0, 0, Some(&challenge));
    let at = world.now.after(Duration::from_millis(100));
    while let Some(place) = world.flying.iter().position(|flight| flight.0 <= at) {
        let (.., from, to, datagram) = world.flying.remove(place);
        world.deliver(from, to, datagram);
    }
    assert!(world.ends[1].app.spent.contains(&0), "a spent lease is reported");
    assert!(world.has_served(1, Asked { number: 2, asker: 0, group: Some(0) }));
    // The next response has numbers again.
    world.advance(2000);
    let asked = world.ask_now(0, 0, None);
    assert!(world.has_answer(asked, 1));
}

#[test]
fn groups_that_cannot_be_told_apart_are_refused() {
    let mut crypto = Recorder::new([7; 32], Spent::default());
    let kept = Kept::default();
    let mut groups = GroupArray::<3, 4, 4>::default();
    groups.join(member(&mut crypto, 1, 0, (9, &kept)), principal(0)).unwrap();
    // The same address.
    assert_eq!(groups.join(member(&mut crypto, 1, 0, (8, &kept)), principal(0)), Err(Full));
    // Another port with the same GroupID can be told apart.
    groups.join(member(&mut crypto, 1, 1, (9, &kept)), principal(1)).unwrap();
    groups.leave(&group_address(0));
    assert!(groups.member(&group_address(0)).is_none());
    groups.join(member(&mut crypto, 1, 0, (8, &kept)), principal(0)).unwrap();
}
