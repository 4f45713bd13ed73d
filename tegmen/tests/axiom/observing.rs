//! A client that observes a group of servers, in plaintext and with Axiom. The network loses the datagrams that a test
//! determines. Members join late, leave, and are evicted. An attacker sends recorded datagrams again.

use crate::group::{Group, PORT, address};
use crate::recorder::{Recorder, Spent};
use std::cell::RefCell;
use std::convert::Infallible;
use tegmen::address::{Address, Path};
use tegmen::axiom::{Kept, Member, SealRefused, Suite};
use tegmen::coap::handler::Policy;
use tegmen::coap::observe::{DEREGISTER, REGISTER};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Request, RequestId,
    Response,
};
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Extended, Records};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::node::{
    Application, Deferred, DeferredRequest, GroupArray, GroupRequestArray, GroupRequests as _, LeisureArray,
    MemberRegistration, Node, ObserverArray, Observers as _, PacingArray, Parts, RequestHead,
};
use tegmen::time::{Duration, Instant};

/// Number of nodes. Node 0 is the client that observes; the others are servers.
const NODES: usize = 4;
const CLIENT: usize = 0;
const SERVERS: std::ops::Range<usize> = 1..NODES;
const PLACES: usize = 4;
const LEISURE: Duration = Duration::from_millis(250);
const GROUP: Principal = Principal(100);
const TOKEN: &[u8; 7] = b"observe";
const DAY: u64 = 24 * 60 * 60 * 1000;

type Observed = ObserverArray<PLACES, 64, Infallible, MemberRegistration>;
type Features =
    Parts<(), PacingArray<4>, (), Observed, (), LeisureArray<4, 160>, GroupRequestArray<2, 4, 4>, GroupArray<1, 4, 4>>;
type One = Node<PeerArray<Exchanges<Fixed<3, 64, 8, 512>>, 8, 1>, Extended<Both>, Features>;

fn group_address(is_protected: bool) -> Address {
    match is_protected {
        true => Group::new(Suite::Ccm).association(0).group,
        false => Address { ip: [0xff; 16], port: PORT, scope: 0 },
    }
}

/// A response that the client received.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Heard {
    from: usize,
    code: Code,
    number: Option<u32>,
    value: u32,
}

/// The application of a node. It has one value, which can be observed.
#[derive(Default)]
struct App {
    gate: Gate,
    resource: Resource,
    deferred: Vec<Deferred>,
    heard: Vec<Heard>,
    unsealed: usize,
}

#[derive(Default)]
struct Gate {
    denies: bool,
    /// The identities about which the policy was asked.
    asked: RefCell<Vec<Identity>>,
}

impl Policy for Gate {
    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        self.asked.borrow_mut().push(request.identity);
        Some(!self.denies)
    }
}

#[derive(Default)]
struct Resource {
    value: u32,
    defers: bool,
}

impl Handler for Resource {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is("v") {
            return Err(Code::NOT_FOUND);
        }
        response.observable();
        if self.defers {
            response.defer();
            return Ok(());
        }
        response.payload(&self.value.to_be_bytes())
    }
}

impl Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&self.gate, &mut self.resource))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        self.deferred.push(request.keep());
    }

    fn on_member_response(&mut self, _: RequestId, (path, who): (&Path, Identity), response: &MessageRef<'_>) {
        let from = usize::from(path.remote.ip[15]);
        assert_eq!(path.remote, address(from as u8));
        assert!(matches!(who.protection, Protection::Plain | Protection::GroupResponse));
        let number = response.uint(OptionNumber::OBSERVE);
        let value = response.payload().try_into().map_or(u32::MAX, u32::from_be_bytes);
        self.heard.push(Heard { from, code: response.code(), number, value });
    }

    fn on_unsealed_response(&mut self, _: &Address, refused: SealRefused) {
        assert_eq!(refused, SealRefused::LeaseSpent);
        self.unsealed += 1;
    }
}

struct End {
    node: One,
    environment: Environment<Recorder>,
    app: App,
    /// True if no datagram reaches the node.
    is_off: bool,
}

/// A datagram: source, destination, bytes.
type Datagram = (Address, Address, Vec<u8>);

struct World {
    now: Instant,
    is_protected: bool,
    ends: Vec<End>,
    flying: Vec<(Instant, Datagram)>,
    recorded: Vec<Datagram>,
    /// The open request of the client; `None` if there is none.
    request: Option<RequestId>,
    /// The percentage of datagrams that are lost.
    loss: u64,
    dice: Dice,
}

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

/// Returns the group in an epoch.
fn epoch(epoch: u16) -> Group {
    (1..epoch).fold(Group::new(Suite::Ccm), |group, _| group.next())
}

impl World {
    /// Creates a world. A server sends at most `unconfirmed` notifications in a row that need no acknowledgement.
    fn new(is_protected: bool, unconfirmed: u8) -> Self {
        let (now, spent) = (Instant::from_micros(5_000_000), Spent::default());
        let ends = (0..NODES).map(|number| {
            let mut environment = Environment::new(Recorder::new([number as u8; 32], spent.clone()));
            let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
            let mut groups = GroupArray::default();
            if is_protected {
                let group = epoch(1);
                let association = group.association(number as u8);
                let mut member = Member::new(&mut environment.crypto, &association, &Kept::default()).unwrap();
                member.extend(&member.reserve(1000, 1000));
                member.know_sender::<Recorder>(CLIENT as u8, 0).unwrap();
                groups.join(member, GROUP).unwrap();
            }
            let features = Parts {
                queue: (),
                pacing: PacingArray::default(),
                oscore: (),
                observers: ObserverArray::with_unconfirmed(unconfirmed),
                bodies: (),
                leisure: LeisureArray::new(LEISURE),
                group_requests: GroupRequestArray::default(),
                groups,
            };
            let app = App { resource: Resource { value: 1, defers: false }, ..App::default() };
            End { node: Node::with_features(endpoint, Fixed, features), environment, app, is_off: false }
        });
        let (flying, recorded) = (Vec::new(), Vec::new());
        Self { now, is_protected, ends: ends.collect(), flying, recorded, request: None, loss: 0, dice: Dice(1) }
    }

    fn launch(&mut self, from: Address, to: Address, datagram: &[u8]) {
        self.recorded.push((from, to, datagram.to_vec()));
        if self.dice.roll(100) >= self.loss {
            // A network that loses nothing keeps the order.
            let millis = 5 + if self.loss > 0 { self.dice.roll(10) } else { 0 };
            self.flying.push((self.now.after(Duration::from_millis(millis)), (from, to, datagram.to_vec())));
        }
    }

    /// Sends a request of the client with this value of the Observe option.
    fn ask_with(
        &mut self,
        token: &[u8],
        observe: u32,
        options: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), tegmen::coap::BuildError>,
    ) {
        let (to, mut out) = (group_address(self.is_protected), [0; 160]);
        let end = &mut self.ends[CLIENT];
        let cx = &mut end.environment.at(self.now);
        let head = RequestHead::new(Code::GET).with_token(token);
        let write = |builder: &mut Builder<'_, '_>| {
            builder.uint(OptionNumber::OBSERVE, observe)?;
            builder.path("v")?;
            options(builder)
        };
        let sent = match self.is_protected {
            true => end.node.request_protected_group(cx, &to, Instant::NEVER, head, write, &mut out),
            false => end.node.request_group(cx, Instant::NEVER, head, write, &mut out),
        };
        let (request, len) = sent.unwrap();
        self.request = Some(request);
        self.launch(address(CLIENT as u8), to, &out[..len]);
    }

    fn ask(&mut self, observe: u32) {
        self.ask_with(TOKEN, observe, |_| Ok(()));
    }

    /// Registers the client at all servers that datagrams reach, and waits for the responses.
    fn register(&mut self) {
        self.ask(REGISTER);
        self.advance(1000);
    }

    fn close(&mut self) {
        self.ends[CLIENT].node.features.group_requests.close(self.request.take().unwrap());
    }

    /// Changes the value of a server, and waits until its observers could receive it.
    fn change(&mut self, server: usize, value: u32) {
        self.ends[server].app.resource.value = value;
        self.ends[server].node.notify("v");
        self.advance(4000);
    }

    /// Begins an epoch at these nodes.
    fn rekey(&mut self, to: u16, nodes: impl IntoIterator<Item = usize>) {
        let group = epoch(to);
        for number in nodes {
            let End { node, environment, .. } = &mut self.ends[number];
            let member = node.features.groups.member(&group_address(true)).unwrap();
            member.rekey(&mut environment.crypto, &group.association(number as u8)).unwrap();
            member.extend(&member.reserve(1000, 1000));
        }
    }

    fn deliver(&mut self, (from, to, mut datagram): Datagram) {
        let now = self.now;
        if to == group_address(self.is_protected) {
            for number in SERVERS.filter(|number| !self.ends[*number].is_off).collect::<Vec<_>>() {
                let (End { node, environment, app, .. }, mut out) = (&mut self.ends[number], [0; 160]);
                let (cx, mut datagram) = (&mut environment.at(now), datagram.clone());
                match self.is_protected {
                    true => {
                        let path = Path { local: to, remote: from };
                        node.handle_protected_group(cx, &path, &mut datagram, app, &mut out);
                    }
                    false => {
                        let path = Path { local: address(number as u8), remote: from };
                        node.handle_group(cx, &path, &mut datagram, app, &mut out);
                    }
                }
            }
            return;
        }
        let (number, path, mut out) = (usize::from(to.ip[15]), Path { local: to, remote: from }, [0; 160]);
        let End { node, environment, app, is_off } = &mut self.ends[number];
        if *is_off {
            return;
        }
        let cx = &mut environment.at(now);
        let event = match self.is_protected {
            true => node.handle(cx, &path, &mut Records::new(&mut datagram), app, &mut out),
            false => node.handle_plain(cx, &path, &mut datagram, app, &mut out),
        };
        match event {
            None => {}
            Some(Event::Answer { len } | Event::Transmit { len, .. }) => self.launch(to, from, &out[..len.into()]),
            Some(other) => panic!("{other:?}"),
        }
    }

    fn poll(&mut self, number: usize) {
        let mut out = [0; 160];
        loop {
            let End { node, environment, app, .. } = &mut self.ends[number];
            let Some(event) = node.poll(&mut environment.at(self.now), app, &mut out) else { return };
            let Event::Transmit { peer, len } = event else { panic!("{event:?}") };
            let path = node.path(peer).unwrap();
            assert_eq!(path.local, address(number as u8), "a datagram from a group address");
            self.launch(path.local, path.remote, &out[..len.into()]);
        }
    }

    fn advance(&mut self, millis: u64) {
        let end = self.now.after(Duration::from_millis(millis));
        loop {
            let arrivals = self.flying.iter().map(|flight| flight.0);
            let alarms = self.ends.iter().filter_map(|end| end.node.endpoint.next_alarm());
            let Some(at) = arrivals.chain(alarms).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            while let Some(place) = self.flying.iter().position(|flight| flight.0 <= self.now) {
                let (_, datagram) = self.flying.remove(place);
                self.deliver(datagram);
            }
            (0..NODES).for_each(|number| self.poll(number));
        }
        self.now = end;
        (0..NODES).for_each(|number| self.poll(number));
    }

    /// Returns the responses that the client has received since the last call.
    fn heard(&mut self) -> Vec<Heard> {
        let mut heard = std::mem::take(&mut self.ends[CLIENT].app.heard);
        heard.sort_by_key(|one| one.from);
        heard
    }

    /// Returns the values that the client has received since the last call, each with its server. Each must be a
    /// notification.
    fn values(&mut self) -> Vec<(usize, u32)> {
        let heard = self.heard();
        assert!(heard.iter().all(|one| one.code == Code::CONTENT && one.number.is_some()), "{heard:?}");
        heard.iter().map(|one| (one.from, one.value)).collect()
    }

    /// Returns the datagrams that a server has sent. Omits the first `since` recorded datagrams.
    fn sent_by(&self, server: usize, since: usize) -> Vec<Vec<u8>> {
        let own = self.recorded[since..].iter().filter(|(from, ..)| *from == address(server as u8));
        own.map(|(.., datagram)| datagram.clone()).collect()
    }
}

const BOTH: [bool; 2] = [false, true];

#[test]
fn each_member_that_registers_a_client_notifies_it() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        world.register();
        assert_eq!(world.values(), [(1, 1), (2, 1), (3, 1)]);
        world.change(1, 10);
        world.change(2, 20);
        world.change(1, 11);
        assert_eq!(world.values(), [(1, 10), (1, 11), (2, 20)]);
    }
}

#[test]
fn changes_that_come_fast_become_one_notification_with_the_newest_value() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    for value in 2..20 {
        world.ends[1].app.resource.value = value;
        world.ends[1].node.notify("v");
        world.advance(100);
    }
    world.advance(4000);
    let values = world.values();
    assert!(values.len() <= 2 && values.last() == Some(&(1, 19)), "{values:?}");
}

#[test]
fn a_notification_waits_for_the_response_to_the_registration() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        world.ask(REGISTER);
        world.advance(16);
        // The leisure of the response is not over.
        SERVERS.for_each(|server| {
            world.ends[server].app.resource.value = 2;
            world.ends[server].node.notify("v");
        });
        world.advance(4000);
        let heard = world.heard();
        for server in SERVERS {
            let own: Vec<_> = heard.iter().filter(|one| one.from == server).map(|one| one.value).collect();
            assert_eq!(own, [1, 2], "protected: {is_protected}, server {server}");
        }
    }
}

#[test]
fn a_registration_that_was_lost_and_a_late_joiner_register_with_the_request_that_is_sent_again() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        world.ends[2].is_off = true;
        world.register();
        assert_eq!(world.values(), [(1, 1), (3, 1)]);
        world.ends[2].is_off = false;
        world.change(2, 5);
        assert_eq!(world.heard(), []);
        world.register();
        assert_eq!(world.values(), [(1, 1), (2, 5), (3, 1)]);
        let recorded = world.recorded.len();
        for server in SERVERS {
            world.change(server, 6);
            // The registration before it is replaced.
            let sent = world.sent_by(server, recorded).iter().filter(|sent| sent.len() > 4).count();
            assert_eq!(sent, 1, "protected: {is_protected}");
        }
        assert_eq!(world.values(), [(1, 6), (2, 6), (3, 6)]);
    }
}

#[test]
fn a_client_that_deregisters_is_notified_no_more() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        world.register();
        world.heard();
        // RFC 7967: nobody responds.
        world.ask_with(TOKEN, DEREGISTER, |builder| builder.uint(OptionNumber::NO_RESPONSE, 26));
        world.advance(1000);
        assert_eq!(world.heard(), []);
        let recorded = world.recorded.len();
        SERVERS.for_each(|server| world.change(server, 7));
        assert_eq!(world.recorded.len(), recorded);
    }
}

#[test]
fn a_client_rejects_a_notification_that_it_does_not_know_and_that_ends_the_registration() {
    // The first notification is confirmable, or it is not.
    for unconfirmed in [0, 5] {
        let mut world = World::new(false, unconfirmed);
        world.register();
        world.heard();
        world.close();
        world.change(1, 2);
        let [notification, rest @ ..] = &world.sent_by(1, 0)[1..] else { panic!("no notification") };
        assert!(rest.is_empty());
        let parsed = MessageRef::parse(notification).unwrap();
        let confirmable = parsed.message_type() == MessageType::Confirmable;
        assert_eq!(confirmable, unconfirmed == 0);
        let reset = [0x70, 0, notification[2], notification[3]];
        assert!(world.recorded.iter().any(|(.., sent)| *sent == reset));
        let recorded = world.recorded.len();
        world.change(1, 3);
        assert_eq!(world.recorded.len(), recorded);
        assert_eq!(world.heard(), []);
    }
}

#[test]
fn a_client_that_rejects_the_first_response_is_not_registered() {
    let mut world = World::new(false, 0);
    world.ask(REGISTER);
    world.close();
    world.advance(1000);
    assert_eq!(world.heard(), []);
    let recorded = world.recorded.len();
    SERVERS.for_each(|server| world.change(server, 2));
    assert_eq!(world.recorded.len(), recorded);
}

#[test]
fn a_server_without_a_place_answers_without_observe() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        // Members of protected groups have half of the places.
        let most = if is_protected { PLACES / 2 } else { PLACES };
        for number in 0..most {
            world.ask_with(&[number as u8; 7], REGISTER, |_| Ok(()));
            world.advance(1000);
            assert_eq!(world.values().len(), SERVERS.len());
            world.close();
        }
        world.ask(REGISTER);
        world.advance(1000);
        let heard = world.heard();
        assert!(heard.len() == SERVERS.len() && heard.iter().all(|one| one.number.is_none() && one.value == 1));
    }
}

#[test]
fn the_policy_is_asked_about_the_member_with_each_notification_and_an_error_is_the_last() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    world.change(1, 2);
    let asked = world.ends[1].app.gate.asked.take();
    assert_eq!(asked.len(), 2);
    for identity in asked {
        assert_eq!(identity.principal, GROUP);
        assert!(matches!(identity.protection, Protection::GroupRequest(sender) if sender.number() == CLIENT as u8));
    }
    world.ends[1].app.gate.denies = true;
    world.heard();
    world.change(1, 3);
    assert_eq!(world.heard().iter().map(|one| (one.code, one.number)).collect::<Vec<_>>(), [(Code::FORBIDDEN, None)]);
    world.ends[1].app.gate.denies = false;
    let recorded = world.recorded.len();
    world.change(1, 4);
    assert_eq!(world.recorded.len(), recorded);
}

#[test]
fn a_registration_that_wants_no_response_registers_nobody() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        world.ask_with(TOKEN, REGISTER, |builder| builder.uint(OptionNumber::NO_RESPONSE, 2));
        world.advance(1000);
        let recorded = world.recorded.len();
        SERVERS.for_each(|server| world.change(server, 2));
        assert_eq!((world.recorded.len(), world.heard().len()), (recorded, 0));
    }
}

#[test]
fn notifications_may_be_deferred() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 0);
        SERVERS.for_each(|server| world.ends[server].app.resource.defers = true);
        world.register();
        for value in [1, 2] {
            for server in SERVERS {
                let (mut out, end) = ([0; 160], &mut world.ends[server]);
                let deferred = end.app.deferred.pop().expect("a deferred response");
                let (peer, cx) = (deferred.peer, &mut end.environment.at(world.now));
                let write = |builder: &mut Builder<'_, '_>| builder.payload(&[0, 0, 0, value]);
                let len = end.node.respond(cx, deferred, Code::CONTENT, write, &mut out).unwrap();
                let path = end.node.path(peer).unwrap();
                world.launch(path.local, path.remote, &out[..len]);
                world.advance(1000);
                world.change(server, 9);
            }
            let value = u32::from(value);
            assert_eq!(world.values(), [(1, value), (2, value), (3, value)], "protected: {is_protected}");
        }
    }
}

#[test]
fn a_late_notification_and_a_repeated_one_are_not_delivered() {
    for is_protected in BOTH {
        let mut world = World::new(is_protected, 5);
        world.register();
        world.heard();
        world.ends[CLIENT].is_off = true;
        world.change(1, 2);
        world.change(1, 3);
        world.ends[CLIENT].is_off = false;
        let notifications = world.sent_by(1, 0);
        let [.., older, newer] = notifications.as_slice() else { panic!("no notifications") };
        for datagram in [newer, older, newer] {
            world.deliver((address(1), address(CLIENT as u8), datagram.clone()));
        }
        assert_eq!(world.values(), [(1, 3)], "protected: {is_protected}");
        // A notification of one member is in no order with that of another one.
        world.change(2, 9);
        assert_eq!(world.values(), [(2, 9)]);
    }
}

#[test]
fn after_a_rekey_notifications_have_the_new_keys_and_the_registration_of_the_epoch_proves_that_they_are_new() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    let before = world.recorded.len();
    world.rekey(2, 0..NODES);
    world.change(1, 2);
    let sent = world.sent_by(1, before);
    assert_eq!(sent[0][3..5], [0, 2], "a notification in an epoch that is over");
    // Nothing of this epoch proves to the client that the record is no replay.
    assert_eq!(world.heard(), []);
    world.register();
    assert_eq!(world.values(), [(1, 2), (2, 1), (3, 1)]);
    world.change(2, 3);
    assert_eq!(world.values(), [(2, 3)]);
    // A record of the first epoch is over, although its token is open.
    let old = world.sent_by(1, 0).into_iter().find(|sent| sent[3..5] == [0, 1]).unwrap();
    world.deliver((address(1), address(CLIENT as u8), old));
    assert_eq!(world.heard(), []);
}

#[test]
fn an_evicted_observer_reads_nothing_and_its_registration_ends() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    world.rekey(2, SERVERS);
    let before = world.recorded.len();
    world.change(1, 2);
    let sent = world.sent_by(1, before);
    assert_eq!(sent.len(), 1);
    // The client has all keys of the first epoch, and the numbers of its sender in it.
    assert_eq!(sent[0][3..5], [0, 2]);
    assert_eq!(world.heard(), []);
    // It cannot register again.
    world.register();
    assert_eq!(world.heard(), []);
    world.advance(5 * 60 * 1000);
    let before = world.recorded.len();
    for value in 3..6 {
        world.change(1, value);
    }
    assert_eq!(world.recorded.len(), before, "a notification to a member that was evicted");
    assert!(!world.ends[1].node.features.observers.is_full());
}

#[test]
fn an_evicted_server_notifies_nobody() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    // It did not learn that it is evicted, and has the keys that are over.
    world.rekey(2, [0, 2, 3]);
    world.register();
    assert_eq!(world.values(), [(2, 1), (3, 1)]);
    world.change(1, 2);
    assert_eq!(world.heard(), []);
    // It learned it.
    world.ends[2].node.features.groups.leave(&group_address(true));
    let before = world.recorded.len();
    world.change(2, 2);
    assert_eq!((world.recorded.len(), world.heard().len()), (before, 0));
}

#[test]
fn a_registration_in_a_protected_group_ends_a_day_after_the_last_request() {
    let mut world = World::new(true, 0);
    world.register();
    world.advance(DAY / 2);
    world.register();
    world.heard();
    world.advance(DAY / 2 + DAY / 4);
    world.change(1, 2);
    assert_eq!(world.values(), [(1, 2)]);
    world.advance(DAY / 4);
    let before = world.recorded.len();
    world.change(1, 3);
    assert_eq!(world.recorded.len(), before);
}

#[test]
fn a_replayed_notification_of_a_forgotten_member_is_refused() {
    let mut world = World::new(true, 0);
    world.register();
    world.change(1, 2);
    let old = world.sent_by(1, 0).pop().unwrap();
    world.heard();
    let End { node, environment, .. } = &mut world.ends[CLIENT];
    let member = node.features.groups.member(&group_address(true)).unwrap();
    (0..2).for_each(|_| member.forget_idle(&mut environment.crypto));
    world.advance(200_000);
    // The request is sent again with the token of the replay, which then is that of a request that no member has answered.
    world.ask(REGISTER);
    world.deliver((address(1), address(CLIENT as u8), old.clone()));
    assert_eq!(world.heard(), []);
    // Another token proves that the responses are new.
    world.advance(1000);
    world.close();
    world.ask_with(b"another", REGISTER, |_| Ok(()));
    world.deliver((address(1), address(CLIENT as u8), old));
    world.advance(1000);
    assert_eq!(world.values(), [(1, 2), (2, 1), (3, 1)]);
}

#[test]
fn a_notification_that_could_not_be_protected_is_made_again() {
    let mut world = World::new(true, 0);
    world.register();
    world.heard();
    let mut member = Member::new(
        &mut world.ends[1].environment.crypto,
        &epoch(2).association(1),
        &Kept { epoch: 2, requests: 0, responses: 50 },
    )
    .unwrap();
    let kept = member.reserve(10, 10);
    member.extend(&Kept { responses: 50, ..kept });
    let groups = &mut world.ends[1].node.features.groups;
    groups.leave(&group_address(true));
    groups.join(member, GROUP).unwrap();
    let before = world.recorded.len();
    world.change(1, 2);
    assert!(world.ends[1].app.unsealed > 0 && world.sent_by(1, before).is_empty());
    world.ends[1].node.features.groups.member(&group_address(true)).unwrap().extend(&kept);
    world.advance(4000);
    assert_eq!(world.sent_by(1, before).len(), 1);
}

/// Asserts two properties for any loss and order of datagrams. The client never treats an old value of a member as the
/// newest value. And a request that is sent again repairs all losses.
fn run(seed: u64, is_protected: bool) -> usize {
    let mut world = World::new(is_protected, (seed % 3) as u8);
    world.dice = Dice(seed);
    world.loss = 10 + world.dice.roll(40);
    world.ask(REGISTER);
    let (mut number, mut heard) = (1, 0);
    let mut last = [0; NODES];
    let mut check = |world: &mut World, last: &mut [u32; NODES]| {
        for one in std::mem::take(&mut world.ends[CLIENT].app.heard) {
            // The response to a request that is sent again may have the same value.
            assert!(one.value >= last[one.from], "seed {seed}: {one:?} behind {last:?}");
            last[one.from] = one.value;
            heard += 1;
        }
    };
    for _ in 0..30 {
        let server = 1 + world.dice.roll(SERVERS.len() as u64) as usize;
        number += 1;
        match world.dice.roll(6) {
            0 => world.ask(REGISTER),
            1 => world.ends[server].is_off ^= true,
            _ => {
                world.ends[server].app.resource.value = number;
                world.ends[server].node.notify("v");
            }
        }
        let millis = 1 + world.dice.roll(6000);
        world.advance(millis);
        check(&mut world, &mut last);
    }
    world.loss = 0;
    world.ends.iter_mut().for_each(|end| end.is_off = false);
    // Nothing that was sent before arrives later.
    world.advance(100_000);
    check(&mut world, &mut last);
    for server in SERVERS {
        world.ends[server].app.resource.value = 1000 + server as u32;
    }
    world.register();
    world.advance(4000);
    check(&mut world, &mut last);
    for server in SERVERS {
        assert_eq!(last[server], 1000 + server as u32, "seed {seed}, protected: {is_protected}");
        world.change(server, 2000);
        check(&mut world, &mut last);
        assert_eq!(last[server], 2000, "seed {seed}, protected: {is_protected}");
    }
    heard
}

#[test]
fn what_was_lost_is_repaired_and_no_old_value_follows_a_newer_one() {
    for is_protected in BOTH {
        let heard: usize = (0..500).map(|seed| run(seed, is_protected)).sum();
        assert!(heard > 500 * 10, "{heard}");
    }
}
