use super::*;
use crate::contexts::Contexts;
use crate::credentials::FilePolicy;
use crate::provider::HostCrypto;
use crate::server::coap_peer::Attached;
use crate::server::observers::MAX_OBSERVATIONS;
use crate::server::{AnyPolicy, HelloLimits, VirtualHosts};
use crate::slab::{Capacity, Slab};
use tegmen::address::Path;
use tegmen::buf::Frame;
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Builder, MessageType};
use tegmen::cx::Environment;
use tegmen::dtls::{Rank, ServerOnly};
use tegmen::endpoint::{Endpoint, Event as EndpointEvent};

use tegmen::node::Node;
use tegmen::time::Duration;

/// A counter that can be observed. The first field is its value. If the second field is true, the counter defers its
/// responses.
#[derive(Clone, Default)]
struct Counter(u8, bool);

impl Application for Counter {
    fn handle(&mut self, request: &crate::server::Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if self.1 {
            drop(request.defer(response));
            return Ok(());
        }
        self.0 = self.0.wrapping_add(1);
        response.observable();
        response.payload(&[self.0])
    }
}

/// Returns a policy that gives no rights.
fn refusing() -> Deciding {
    deciding(FilePolicy { credentials: Credentials::default(), plain_allowed: false })
}

fn deciding(policy: FilePolicy) -> Deciding {
    let (commands, _) = mpsc::unbounded_channel();
    Deciding::new(AnyPolicy::of(policy), commands, VirtualHosts::default())
}

/// A server with its node, and the peer that sends requests to it.
struct Scene {
    coap_server: CoapServer<Counter>,
    node: Node<Slab<Attached>, ServerOnly, Features>,
    environment: Environment<HostCrypto>,
    now: Instant,
    next_id: u16,
}

/// Returns the path between the peer and the server.
fn path() -> Path {
    let at = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port)).into();
    Path { local: at(5683), remote: at(5684) }
}

impl Scene {
    fn new() -> Self {
        let (commands, _) = mpsc::unbounded_channel();
        let credentials = Credentials::default();
        let config = ServerCoap::default();
        let now = Instant::from_micros(1_000_000_000);
        let ledger = Ledger::new(1 << 20);
        let bodies = |limit| ServerBodies::new(limit, ledger.clone());
        let features = Features {
            observers: Observers::new(Arc::default(), 100, config.unconfirmed_notifications),
            bodies: bodies(config.max_body),
            oscore: ServerOscore::new(Contexts::default(), None, bodies(MAX_UNFRAGMENTED_SIZE)),
            groups: Memberships::default(),
            leisure: Leisure::new(Duration::from_secs(0)),
            nothing: (),
        };
        let resources = Resources::new(Counter::default(), commands, Notifier { shards: Arc::new([]) });
        let policy = AnyPolicy::of(FilePolicy { credentials: credentials.clone(), plain_allowed: true });
        let limits = (
            ServerLimits::new(&config, HelloLimits::default(), true),
            Unauthenticated::new(config.max_unauthenticated),
        );
        let coap_server = CoapServer::new(resources, (policy, credentials), Arc::new(|_| {}), limits, &features.bodies);
        let mut environment = Environment::new(HostCrypto::new([0; 32], 4));
        let table = Slab::new(Capacity::default());
        let endpoint = Endpoint::new(&mut environment.at(now), table, tegmen::dtls::Config::default());
        let node = Node::with_features(endpoint, pool(&config, 1), features);
        Self { coap_server, node, environment, now, next_id: 0 }
    }

    fn peer(&mut self) -> PeerId {
        self.node.endpoint.plain(&mut self.environment.at(self.now), &path(), Rank::Stranger).unwrap()
    }

    fn observations(&self) -> usize {
        self.node.features.observers.len()
    }

    fn receive(&mut self, message: &[u8]) -> Vec<u8> {
        let (mut message, mut out) = (message.to_vec(), [0; 1280]);
        let cx = &mut self.environment.at(self.now);
        let event = self.node.handle_plain(cx, &path(), &mut message, &mut self.coap_server, &mut out);
        let Some(EndpointEvent::Transmit { len, .. }) = event else { return Vec::new() };
        out[..len.into()].to_vec()
    }

    fn is_forgotten(&mut self) -> bool {
        let peer = self.peer();
        self.node.endpoint.peers.attached(peer).unwrap().coap_peer().is_none()
    }

    fn register(&mut self, token: &[u8]) -> Vec<u8> {
        self.next_id += 1;
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, self.next_id, token).unwrap();
        builder.uint(OptionNumber::OBSERVE, REGISTER).unwrap();
        builder.option(OptionNumber::URI_PATH, b"n").unwrap();
        let message = frame.finish().to_vec();
        self.receive(&message)
    }

    /// Sends a request to the counter. Returns the code and the payload of the response.
    fn ask(&mut self, method: Code, message_id: u16) -> (Code, Vec<u8>) {
        let [high, low] = message_id.to_be_bytes();
        let response = self.receive(&[0x41, method.0, high, low, b't', 0xb1, b'n']);
        let response = MessageRef::parse(&response).unwrap();
        (response.code(), response.payload().to_vec())
    }

    /// Returns the next message that is due, for example a notification after a change.
    fn poll(&mut self) -> Option<Vec<u8>> {
        let mut out = [0; 1280];
        let Self { node, environment, coap_server, now, .. } = self;
        let event = node.poll(&mut environment.at(*now), coap_server, &mut out);
        let Some(EndpointEvent::Transmit { len, .. }) = event else { return None };
        Some(out[..len.into()].to_vec())
    }
}

#[test]
fn an_observer_that_never_acknowledges_is_forgotten_and_costs_one_message_until_then() {
    let mut scene = Scene::new();
    scene.register(b"t");
    scene.node.notify("n");
    assert!(scene.poll().is_some());
    for _ in 0..1000 {
        scene.node.notify("n");
        assert!(scene.poll().is_none(), "one notification waits for its acknowledgement");
    }
    let mut repeated = 0;
    for _ in 0..1000 {
        scene.now = scene.now.after(Duration::from_secs(1));
        while scene.poll().is_some() {
            repeated += 1;
        }
        if scene.is_forgotten() {
            break;
        }
    }
    assert_eq!((repeated, scene.observations()), (4, 0));
    assert!(scene.is_forgotten());
}

#[test]
fn what_changed_while_one_waited_is_one_notification_with_the_newest() {
    let mut scene = Scene::new();
    scene.register(b"t");
    scene.node.notify("n");
    let first = scene.poll().unwrap();
    for _ in 0..10 {
        scene.node.notify("n");
    }
    let [_, _, high, low, ..] = first[..] else { unreachable!() };
    assert!(scene.receive(&[0x60, 0, high, low]).is_empty());
    let second = scene.poll().unwrap();
    let number = |message: &[u8]| MessageRef::parse(message).unwrap().uint(OptionNumber::OBSERVE);
    assert_eq!((number(&first), number(&second)), (Some(2), Some(3)));
    assert!(scene.poll().is_none());
}

#[test]
fn a_peer_is_sent_one_notification_however_often_something_changes() {
    let mut scene = Scene::new();
    scene.register(b"t");
    for _ in 0..1000 {
        scene.node.notify("n");
    }
    assert!(scene.poll().is_some());
    assert!(scene.poll().is_none());
}

#[test]
fn who_proves_nothing_leaves_half_of_the_room_for_bodies() {
    let ledger = Ledger::new(1000);
    let shares: Vec<_> = std::iter::from_fn(|| ledger.share_of(Protection::Plain, 100)).collect();
    assert_eq!((shares.len(), ledger.used()), (5, 500));
    assert!(ledger.share_of(Protection::Dtls, 500).is_some());
}

#[test]
fn a_group_is_answered_where_that_is_of_use_and_never_with_an_error_or_a_reset() {
    let mut scene = Scene::new();
    let addresses = path();
    let ask = |scene: &mut Scene, message_type, code, path: &[u8]| {
        scene.next_id += 1;
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, message_type, code, scene.next_id, b"t").unwrap();
        builder.uint(OptionNumber::OBSERVE, REGISTER).unwrap();
        builder.option(OptionNumber::URI_PATH, path).unwrap();
        let Scene { node, environment, coap_server, now, .. } = scene;
        for _ in 0..2 {
            let (mut datagram, mut out) = (frame.bytes().to_vec(), [0; 1280]);
            node.handle_group(&mut environment.at(*now), &addresses, &mut datagram, coap_server, &mut out);
        }
        let answer = scene.poll()?;
        assert!(scene.poll().is_none(), "a copy is not answered");
        assert_eq!(scene.observations(), 1, "a request to a group registers");
        let answer = MessageRef::parse(&answer).ok()?;
        Some((answer.message_type(), answer.code(), answer.payload().to_vec()))
    };
    let counted = ask(&mut scene, MessageType::NonConfirmable, Code::GET, b"n");
    assert_eq!(counted, Some((MessageType::NonConfirmable, Code::CONTENT, vec![1])), "and a copy is not answered");
    assert_eq!(ask(&mut scene, MessageType::Confirmable, Code::GET, b"n"), None, "a group is asked with NON");
    assert_eq!(ask(&mut scene, MessageType::NonConfirmable, Code::CONTENT, b"n"), None);
    scene.coap_server.policy = refusing();
    assert_eq!(ask(&mut scene, MessageType::NonConfirmable, Code::GET, b"n"), None, "so is what nobody may");
    assert_eq!(scene.coap_server.resources.application.0, 1);
}

/// Gives the server a policy that never decides. Returns the receiver of the commands to its shard.
fn undecided(scene: &mut Scene) -> mpsc::UnboundedReceiver<Command> {
    let (commands, receiver) = mpsc::unbounded_channel();
    scene.coap_server.resources.commands = commands.clone();
    scene.coap_server.policy = Deciding::new(AnyPolicy::of_later(|_, _| None), commands, VirtualHosts::default());
    receiver
}

/// Returns the numbers of all deferred requests.
fn overdue(scene: &Scene) -> Vec<u64> {
    let (_, overdue) = scene.coap_server.deferrals.overdue(Instant::NEVER, std::time::Duration::ZERO);
    overdue.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn a_session_that_ends_with_an_undecided_request_leaves_nothing_behind() {
    let mut scene = Scene::new();
    let mut commands = undecided(&mut scene);
    let used = scene.coap_server.bodies.used();
    assert_eq!(scene.ask(Code::POST, 1).0, Code::EMPTY);
    assert_eq!(scene.ask(Code::POST, 1).0, Code::EMPTY, "a repetition");
    assert!(scene.coap_server.bodies.used() > used);
    let numbers = overdue(&scene);
    assert_eq!(numbers.len(), 1);
    scene.coap_server.deferrals.retain_peers(|_| false);
    assert!(scene.coap_server.deferrals.take(numbers[0]).is_none());
    assert_eq!((scene.coap_server.bodies.used(), scene.coap_server.resources.application.0), (used, 0));
    assert!(commands.try_recv().is_err());
}

/// Returns three values: a server that has deferred the response to a request and has not acknowledged the request yet,
/// the bytes of the request, and the stored deferred request.
fn unacknowledged() -> (Scene, [u8; 7], DeferredRequest) {
    let mut scene = Scene::new();
    scene.coap_server.deferrals.acknowledges_later = true;
    scene.coap_server.resources.application.1 = true;
    let request = [0x41, Code::POST.0, 0, 1, b't', 0xb1, b'n'];
    assert!(scene.receive(&request).is_empty());
    assert!(scene.receive(&request).is_empty(), "a repetition");
    let [number] = overdue(&scene)[..] else { panic!("it is deferred once") };
    assert!(scene.coap_server.deferrals.take_unacknowledged(Instant::AT_ONCE).is_none());
    assert!(scene.coap_server.deferrals.take_unacknowledged(Instant::NEVER).is_some());
    let deferred = scene.coap_server.deferrals.take(number).unwrap();
    (scene, request, deferred)
}

impl Scene {
    fn respond(&mut self, request: DeferredRequest) -> Vec<u8> {
        let (reply, mut out) = (super::super::Reply::new(Code::CHANGED).payload(b"5"), [0; 1280]);
        let Self { node, environment, coap_server, now, .. } = self;
        let sent = coap_server.deferrals.respond(node, &mut environment.at(*now), request, reply, &mut out);
        out[..sent.unwrap().1].to_vec()
    }
}

#[test]
fn a_deferred_response_that_comes_soon_is_the_acknowledgement() {
    let (mut scene, request, deferred) = unacknowledged();
    let response = scene.respond(deferred);
    assert_eq!(response, [0x61, Code::CHANGED.0, 0, 1, b't', 0xff, b'5']);
    assert_eq!(scene.receive(&request), response, "a repetition is answered again");
    let peer = scene.peer();
    let Node { endpoint, storage, .. } = &mut scene.node;
    let exchanges = endpoint.peers.attached(peer).unwrap().exchanges().unwrap();
    assert_eq!(exchanges.open(storage), 0, "nothing waits for an acknowledgement");
    assert!(overdue(&scene).is_empty());
}

#[test]
fn a_request_is_acknowledged_before_any_client_repeats_it() {
    // The lowest ACK_TIMEOUT that RFC 7252, section 4.8.1, allows is 1 s. Half of it is left for the datagrams.
    let mut scene = Scene::new();
    scene.coap_server.deferrals.acknowledges_later = true;
    scene.coap_server.resources.application.1 = true;
    let (wait, before) = (Duration::from_millis(500), crate::clock::now());
    assert!(scene.receive(&[0x41, Code::POST.0, 0, 1, b't', 0xb1, b'n']).is_empty());
    let at = scene.coap_server.deferrals.next_acknowledgement().unwrap();
    assert!((before.after(wait)..=crate::clock::now().after(wait)).contains(&at));
    assert!(scene.coap_server.deferrals.take_unacknowledged(Instant::AT_ONCE).is_none());
    assert!(scene.coap_server.deferrals.take_unacknowledged(at).is_some());
}

#[test]
fn a_request_whose_response_does_not_come_soon_is_acknowledged() {
    let (mut scene, request, mut deferred) = unacknowledged();
    let mut out = [0; 1280];
    let Scene { node, environment, now, .. } = &mut scene;
    let event = deferred.acknowledge(node, &mut environment.at(*now), &mut out);
    assert!(matches!(event, Some(EndpointEvent::Transmit { len: 4, .. })), "{event:?}");
    assert_eq!(out[..4], [0x60, 0, 0, 1]);
    assert!(deferred.acknowledge(node, &mut environment.at(*now), &mut out).is_none(), "once");
    assert_eq!(scene.receive(&request), [0x60, 0, 0, 1], "a repetition is acknowledged again");
    let response = scene.respond(deferred);
    let response = MessageRef::parse(&response).unwrap();
    assert_eq!((response.message_type(), response.payload()), (MessageType::Confirmable, &b"5"[..]));
}

#[test]
fn an_undecided_request_that_there_is_no_memory_for_is_5_03_at_once() {
    let mut scene = Scene::new();
    let mut commands = undecided(&mut scene);
    scene.coap_server.bodies = Ledger::new(0);
    assert_eq!(scene.ask(Code::GET, 1).0, Code::EMPTY);
    let numbers = overdue(&scene);
    let Ok(Command::Respond(number, reply)) = commands.try_recv() else { panic!("no response") };
    assert_eq!((vec![number], reply.code), (numbers, Code::SERVICE_UNAVAILABLE));
}

#[test]
fn a_token_that_is_used_again_replaces_what_it_registered() {
    let mut scene = Scene::new();
    let mut numbers = Vec::new();
    for _ in 0..50 {
        let response = scene.register(b"same");
        numbers.push(MessageRef::parse(&response).unwrap().uint(OptionNumber::OBSERVE).unwrap());
        assert_eq!(scene.observations(), 1);
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "a client takes each for newer: {numbers:?}");
}

#[test]
fn observations_are_bounded_for_each_peer_and_in_all() {
    let mut scene = Scene::new();
    for n in 0..100u8 {
        let response = scene.register(&[n]);
        let observed = MessageRef::parse(&response).unwrap().option(OptionNumber::OBSERVE).is_some();
        assert_eq!(observed, usize::from(n) < MAX_OBSERVATIONS);
    }
    scene.node.features.observers = Observers::new(Arc::default(), 3, 0);
    for n in 0..10u8 {
        let response = scene.register(&[n]);
        let observed = MessageRef::parse(&response).unwrap().option(OptionNumber::OBSERVE).is_some();
        assert_eq!(observed, n < 3);
    }
    assert_eq!(scene.observations(), 3);
}

#[test]
fn any_bytes_from_anybody_are_answered_or_not_and_nothing_else() {
    let mut scene = Scene::new();
    let mut state = 1u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let len = (state >> 40) as usize % 40;
        let bytes: Vec<u8> = (0..len).map(|i| (state >> (i % 8 * 7)) as u8 ^ (i as u8) << 3).collect();
        scene.receive(&bytes);
    }
    assert!(scene.coap_server.bodies.used() <= 1 << 20);
}

#[test]
fn a_post_is_executed_once_however_much_is_asked_until_it_is_repeated() {
    let mut scene = Scene::new();
    scene.node.storage = ExchangePool::new(0, 0);
    let first = scene.ask(Code::POST, 7);
    assert_eq!(first, (Code::CONTENT, vec![1]));
    for second in 0..200 {
        scene.now = scene.now.after(Duration::from_secs(1));
        for n in 0..100 {
            scene.ask(Code::GET, 1000 + second * 100 + n);
        }
    }
    let counted = scene.coap_server.resources.application.0;
    assert_eq!(scene.ask(Code::POST, 7), first);
    assert_eq!(scene.coap_server.resources.application.0, counted, "executed twice");
    // After EXCHANGE_LIFETIME it is another request.
    scene.now = scene.now.after(Duration::from_secs(48));
    scene.ask(Code::POST, 7);
    assert_eq!(scene.coap_server.resources.application.0, counted.wrapping_add(1));
}

#[test]
fn a_full_pool_refuses_only_what_must_not_be_executed_twice_and_not_for_ever() {
    let mut scene = Scene::new();
    scene.node.storage = ExchangePool::new(0, 0);
    let full = (0..10_000).find(|id| scene.ask(Code::POST, *id).0 == Code::SERVICE_UNAVAILABLE).unwrap();
    let counted = scene.coap_server.resources.application.0;
    assert_eq!(scene.ask(Code::POST, full).0, Code::SERVICE_UNAVAILABLE, "the refusal is not kept, but it is full");
    assert_eq!((scene.coap_server.resources.application.0, scene.coap_server.refused), (counted, 2));
    assert_eq!(scene.ask(Code::GET, 20_000).0, Code::CONTENT);
    assert_eq!(scene.ask(Code::PUT, 20_001).0, Code::CONTENT);
    // Each POST that was executed is still known.
    let counted = scene.coap_server.resources.application.0;
    assert!((0..full).all(|id| scene.ask(Code::POST, id).0 == Code::CONTENT));
    assert_eq!(scene.coap_server.resources.application.0, counted, "executed twice");
    // The share of a peer is counted in two lifetimes.
    scene.now = scene.now.after(Duration::from_secs(2 * 247 + 1));
    assert_eq!(scene.ask(Code::POST, full).0, Code::CONTENT);
}

#[test]
fn what_was_refused_before_it_was_executed_takes_no_room_for_long() {
    let mut scene = Scene::new();
    scene.node.storage = ExchangePool::new(0, 0);
    scene.coap_server.policy = refusing();
    assert!((0..20_000).all(|id| scene.ask(Code::POST, id).0 == Code::UNAUTHORIZED));
    assert_eq!((scene.coap_server.refused, scene.coap_server.resources.application.0), (0, 0));
}

#[test]
fn a_peer_that_is_forgotten_gives_back_its_messages() {
    let mut scene = Scene::new();
    scene.node.storage = ExchangePool::new(0, 1000);
    for _ in 0..100 {
        scene.register(b"t");
        scene.node.notify("n");
        assert!(scene.poll().is_some(), "there is room for the notification");
        let peer = scene.peer();
        scene.node.features.observers.forget(peer);
        scene.node.endpoint.peers.attached(peer).unwrap().forget();
        scene.coap_server.give_back(&mut scene.node.storage, scene.now);
    }
}

#[test]
fn a_request_whose_path_or_query_is_not_valid_reaches_no_handler_and_is_reported() {
    let mut scene = Scene::new();
    let reports = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = reports.clone();
    scene.coap_server.events = Arc::new(move |event| {
        if let Event::Request(answered) = event {
            sink.lock().unwrap().push((answered.path, answered.code));
        }
    });
    let mut ask = |options: &[(OptionNumber, &[u8])]| {
        scene.next_id += 1;
        let mut storage = [0; 100];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, scene.next_id, b"t").unwrap();
        for (number, value) in options {
            builder.option(*number, value).unwrap();
        }
        let answer = scene.receive(frame.finish());
        let code = MessageRef::parse(&answer).unwrap().code();
        let (path, reported) = reports.lock().unwrap().pop().unwrap();
        assert_eq!(code, reported);
        (code, path, scene.coap_server.resources.application.0)
    };
    let (path, query) = (OptionNumber::URI_PATH, OptionNumber::URI_QUERY);
    assert_eq!(ask(&[(path, b"a"), (path, b"b"), (query, b"n=1")]), (Code::CONTENT, "/a/b".to_owned(), 1));
    assert_eq!(ask(&[]), (Code::CONTENT, "/".to_owned(), 2));
    for (options, reported) in [
        (&[(path, &b"a/b"[..])][..], "/a/b"),
        (&[(path, b"a"), (path, b".."), (path, b"b")], "/a/../b"),
        (&[(path, b""), (path, b"b")], "//b"),
        (&[(path, b"\xff")], "/\u{fffd}"),
        (&[(path, b"a"), (query, b"\xff")], "/a"),
    ] {
        assert_eq!(ask(options), (Code::BAD_REQUEST, reported.to_owned(), 2));
    }
}

#[test]
fn a_notification_that_is_deferred_sends_nothing_before_the_response() {
    let mut scene = Scene::new();
    scene.register(b"t");
    scene.coap_server.resources.application.1 = true;
    scene.node.notify("n");
    assert!(scene.poll().is_none());
    let peer = scene.peer();
    let exchanges = scene.node.endpoint.peers.attached(peer).unwrap().exchanges().unwrap();
    assert_eq!(exchanges.outstanding(&scene.node.storage), 0, "there is nothing to send again");
    // The response that comes later is the last one.
    assert_eq!(scene.observations(), 0);
}
