use super::*;
use tegmen::coap::exchange::Due;
use tegmen::coap::observe::REGISTER;
use tegmen::identity::{Identity, Principal};

/// A counter that can be observed.
#[derive(Clone, Default)]
struct Counter(u8);

impl Application for Counter {
    fn handle(&mut self, _: &Authorized<'_>, response: &mut Response<'_, '_>, _: &Exchange<'_>) -> Result<(), Code> {
        self.0 += 1;
        response.observable();
        response.payload(&[self.0])
    }
}

struct Scene {
    coap_server: CoapServer<Counter>,
    crypto: HostCrypto,
    coap_peer: CoapPeer,
    now: Instant,
    next_id: u16,
}

impl Scene {
    fn new() -> Self {
        let (commands, _) = mpsc::unbounded_channel();
        let credentials = Credentials::default();
        let config = ServerConfig { plain_allowed: true, ..ServerConfig::default() };
        let now = Instant::from_micros(1_000_000_000);
        let coap_server = CoapServer {
            application: Counter::default(),
            policy: FilePolicy { credentials: credentials.clone(), plain_allowed: true },
            credentials,
            events: Arc::new(|_| {}),
            notifier: Notifier { shards: Arc::new([]) },
            commands,
            limits: (&config).into(),
            bodies: Ledger::new(1 << 20),
            observations: Ledger::new(100),
            observers: Observers::default(),
            scratch: Scratch::default(),
            requests: 0,
            report: Report::default(),
            contexts: Contexts::default(),
            inside: Vec::new(),
        };
        let crypto = HostCrypto::new([0; 32], 4);
        Self { coap_server, crypto, coap_peer: CoapPeer::new(now, [7; 10]), now, next_id: 0 }
    }

    fn from(&self) -> Source {
        let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
        let remote = ([10, 0, 0, 1], 5683).into();
        Source {
            now: self.now,
            peer: PeerId::new(0, 0),
            identity,
            remote,
            headroom: 0,
            max_content: 1 << 14,
            unverified: false,
            to_group: false,
            oscore: None,
        }
    }

    fn receive(&mut self, message: &[u8]) -> Vec<u8> {
        let (from, mut storage) = (self.from(), [0; 1280]);
        let mut frame = Frame::new(&mut storage, 0);
        let (counters, mut message) = (&mut Counters::default(), message.to_vec());
        self.coap_server.receive(&from, &mut self.coap_peer, counters, &mut self.crypto, &mut message, &mut frame);
        frame.bytes().to_vec()
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

    fn notify(&mut self) -> Option<Vec<u8>> {
        let (from, mut storage) = (self.from(), [0; 1280]);
        let mut frame = Frame::new(&mut storage, 0);
        self.coap_server.notify(&from, &mut self.coap_peer, &mut self.crypto, 0, &mut frame)?;
        Some(frame.bytes().to_vec())
    }
}

#[test]
fn an_observer_that_never_acknowledges_is_forgotten_and_costs_one_message_until_then() {
    let mut scene = Scene::new();
    scene.register(b"t");
    assert!(scene.coap_peer.mark("n"));
    assert!(scene.notify().is_some());
    for _ in 0..1000 {
        scene.coap_peer.mark("n");
        assert!(scene.notify().is_none(), "one notification waits for its acknowledgement");
    }
    let mut repeated = 0;
    while let Some(at) = scene.coap_peer.exchanges.next_deadline(&Fixed) {
        scene.now = at;
        let mut storage = [0; 1280];
        match scene.coap_peer.exchanges.poll(&mut Fixed, at, &mut Frame::new(&mut storage, 0)) {
            Some(Due::Retransmit) => repeated += 1,
            Some(Due::TimedOut(id)) => scene.coap_peer.on_refused(id),
            None => {}
        }
    }
    assert_eq!((repeated, scene.coap_peer.observations.len(), scene.coap_server.observations.used()), (4, 0, 0));
    assert!(!scene.coap_peer.mark("n"));
}

#[test]
fn what_changed_while_one_waited_is_one_notification_with_the_newest() {
    let mut scene = Scene::new();
    scene.register(b"t");
    scene.coap_peer.mark("n");
    let first = scene.notify().unwrap();
    for _ in 0..10 {
        scene.coap_peer.mark("n");
    }
    let [_, _, high, low, ..] = first[..] else { unreachable!() };
    assert!(scene.receive(&[0x60, 0, high, low]).is_empty());
    assert_eq!(scene.coap_server.observers.next_due(), Some(PeerId::new(0, 0)));
    let second = scene.notify().unwrap();
    let number = |message: &[u8]| MessageRef::parse(message).unwrap().uint(OptionNumber::OBSERVE);
    assert_eq!((number(&first), number(&second)), (Some(2), Some(3)));
    assert!(scene.notify().is_none());
}

#[test]
fn a_peer_waits_for_its_notification_once_however_often_something_changes() {
    let mut scene = Scene::new();
    scene.register(b"t");
    for _ in 0..1000 {
        scene.coap_peer.mark("n");
        scene.coap_server.observers.queue(PeerId::new(0, 0), &mut scene.coap_peer);
    }
    assert!(scene.coap_server.observers.next_due().is_some());
    assert!(scene.coap_server.observers.is_idle());
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
    let ask = |scene: &mut Scene, message_type, code, path: &[u8]| {
        scene.next_id += 1;
        let (mut storage, mut answer) = ([0; 100], [0; 1280]);
        let from = Source { to_group: true, ..scene.from() };
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, message_type, code, scene.next_id, b"t").unwrap();
        builder.uint(OptionNumber::OBSERVE, REGISTER).unwrap();
        builder.option(OptionNumber::URI_PATH, path).unwrap();
        let mut answer = Frame::new(&mut answer, 0);
        for _ in 0..2 {
            scene.coap_server.receive_in_group(&from, &mut scene.coap_peer, frame.bytes(), &mut answer);
        }
        assert!(scene.coap_peer.observations.is_empty());
        let answer = MessageRef::parse(answer.bytes()).ok()?;
        Some((answer.message_type(), answer.code(), answer.payload().to_vec()))
    };
    let counted = ask(&mut scene, MessageType::NonConfirmable, Code::GET, b"n");
    assert_eq!(counted, Some((MessageType::NonConfirmable, Code::CONTENT, vec![1])), "and a copy is not answered");
    assert_eq!(ask(&mut scene, MessageType::Confirmable, Code::GET, b"n"), None, "a group is asked with NON");
    assert_eq!(ask(&mut scene, MessageType::NonConfirmable, Code::CONTENT, b"n"), None);
    scene.coap_server.policy.plain_allowed = false;
    assert_eq!(ask(&mut scene, MessageType::NonConfirmable, Code::GET, b"n"), None, "so is what nobody may");
    assert_eq!(scene.coap_server.application.0, 1);
}

#[test]
fn a_token_that_is_used_again_replaces_what_it_registered() {
    let mut scene = Scene::new();
    let mut numbers = Vec::new();
    for _ in 0..50 {
        let response = scene.register(b"same");
        numbers.push(MessageRef::parse(&response).unwrap().uint(OptionNumber::OBSERVE).unwrap());
        assert_eq!((scene.coap_peer.observations.len(), scene.coap_server.observations.used()), (1, 1));
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
    scene.coap_server.observations = Ledger::new(3);
    scene.coap_peer.observations.clear();
    for n in 0..10u8 {
        let response = scene.register(&[n]);
        let observed = MessageRef::parse(&response).unwrap().option(OptionNumber::OBSERVE).is_some();
        assert_eq!(observed, n < 3);
    }
    assert_eq!(scene.coap_peer.observations.len(), 3);
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
