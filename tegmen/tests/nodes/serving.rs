//! A node that serves: deferred responses in blocks and to observers, requests to a group, and clients that must prove
//! their address.

use super::{Gate, copy_of};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::Policy;
use tegmen::coap::{
    Authorized, Block, Builder, Code, Exchanges, Fixed, Freshness, Handler, MessageRef, MessageType, OptionNumber,
    PeerExchanges, Response,
};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Extended};
use tegmen::endpoint::{Endpoint, Event, PeerArray};
use tegmen::node::{
    Application, BodyArray, Deferred, DeferredRequest, LeisureArray, Node, ObserverArray, Parts, SendError,
};
use tegmen::time::{Duration, Instant};

type Storage = Fixed<3, 128, 32, 1024>;

/// A peer that must prove its address.
pub(super) struct Entry {
    exchanges: Exchanges<Storage>,
    freshness: Freshness,
}

impl Default for Entry {
    fn default() -> Self {
        let mut freshness = Freshness::new(*b"repeat i");
        freshness.verify_address(true);
        Self { exchanges: Exchanges::default(), freshness }
    }
}

impl PeerExchanges for Entry {
    type Storage = Storage;
    type State = ();
    const VERIFIES: bool = true;

    fn exchanges(&mut self) -> Option<&mut Exchanges<Storage>> {
        Some(&mut self.exchanges)
    }

    fn freshness(&mut self) -> Option<&mut Freshness> {
        Some(&mut self.freshness)
    }
}

type Features = Parts<(), (), (), ObserverArray<2, 64>, BodyArray<4, 300, 4>, LeisureArray<2, 100>>;
type Server = Node<PeerArray<Entry, 2, 1>, Extended<Both>, Features>;

/// Resources. `later` defers each response. `long` needs more than three messages. `body` returns the length of the
/// request body. `changing` can be observed. `too long` is longer than the storage allows. Every other resource counts
/// its requests.
#[derive(Default)]
pub(super) struct Resources {
    pub(super) counted: u8,
}

#[derive(Default)]
pub(super) struct App {
    pub(super) policy: Gate,
    pub(super) resources: Resources,
    pub(super) deferred: Vec<Deferred>,
    /// The requests on which the policy has not decided, with a copy of each.
    pub(super) undecided: Vec<(Deferred, Vec<u8>)>,
}

impl Handler for Resources {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.counted += 1;
        if request.message().path_is("body") {
            return response.payload(&[request.message().payload().len() as u8]);
        }
        if request.message().path_is("too long") {
            return response.payload(&[7; 200]);
        }
        if request.message().path_is("changing") {
            response.observable();
        }
        if request.message().path_is("later") {
            response.observable();
            response.defer();
            return Ok(());
        }
        let len = if request.message().path_is("long") { 40 } else { 1 };
        response.payload(&vec![self.counted; len])
    }
}

impl Application for App {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&self.policy, &mut self.resources))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        let message = request.message;
        match request.is_undecided {
            true => self.undecided.push((request.keep(), copy_of(message))),
            false => self.deferred.push(request.keep()),
        }
    }
}

/// A server without protection, and one client.
pub(super) struct Scene {
    pub(super) node: Server,
    environment: Environment<RustCrypto>,
    pub(super) app: App,
    pub(super) now: Instant,
    message_id: u16,
    /// The payload of the client's requests.
    pub(super) body: Vec<u8>,
}

/// A message that the server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) message_type: MessageType,
    pub(super) message_id: u16,
    pub(super) code: Code,
    pub(super) observe: Option<u32>,
    pub(super) block: Option<Block>,
    pub(super) echo: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

pub(super) const GET: (MessageType, Code) = (MessageType::Confirmable, Code::GET);
pub(super) const POST: (MessageType, Code) = (MessageType::Confirmable, Code::POST);

impl Scene {
    pub(super) fn new() -> Self {
        let now = Instant::from_micros(5_000_000);
        let mut environment = Environment::new(RustCrypto::new([1; 32]));
        let endpoint = Endpoint::new(&mut environment.at(now), PeerArray::new(), Config::default());
        let (observers, bodies) = (ObserverArray::default(), BodyArray::default());
        let leisure = LeisureArray::new(Duration::from_secs(5));
        let features =
            Parts { queue: (), pacing: (), oscore: (), observers, bodies, leisure, group_requests: (), groups: () };
        let node = Node::with_features(endpoint, Fixed, features);
        Self { node, environment, app: App::default(), now, message_id: 0, body: Vec::new() }
    }

    /// Creates a server to which the client has proved its address.
    pub(super) fn shown() -> Self {
        let mut scene = Self::new();
        assert_eq!(scene.ask(POST, "n", &[(OptionNumber::ECHO, b"repeat i")]).map(|it| it.code), Some(Code::CONTENT));
        scene.app.resources.counted = 0;
        scene
    }

    pub(super) fn message(
        &mut self,
        head: (MessageType, Code),
        path: &str,
        options: &[(OptionNumber, &[u8])],
    ) -> Vec<u8> {
        let mut bytes = [0; 100];
        let mut frame = Frame::new(&mut bytes, 0);
        self.message_id += 1;
        let mut builder = Builder::new(&mut frame, head.0, head.1, self.message_id, b"t").unwrap();
        builder.path(path).unwrap();
        for (number, value) in options {
            builder.insert(*number, value).unwrap();
        }
        builder.payload(&self.body).unwrap();
        frame.bytes().to_vec()
    }

    fn path() -> Path {
        let address = |last| Address { ip: [last; 16], port: 5683, scope: 0 };
        Path { local: address(9), remote: address(1) }
    }

    pub(super) fn receive(&mut self, message: &mut [u8]) -> Option<Seen> {
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        seen(self.node.handle_plain(cx, &Self::path(), message, &mut self.app, &mut out), &out)
    }

    pub(super) fn ask(
        &mut self,
        head: (MessageType, Code),
        path: &str,
        options: &[(OptionNumber, &[u8])],
    ) -> Option<Seen> {
        let mut message = self.message(head, path, options);
        self.receive(&mut message)
    }

    /// Sends a request to the group of which the server is a member.
    pub(super) fn ask_group(&mut self, head: (MessageType, Code), path: &str) {
        let mut message = self.message(head, path, &[]);
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        self.node.handle_group(cx, &Self::path(), &mut message, &mut self.app, &mut out);
    }

    /// Returns the next message that the server sends at the present time.
    pub(super) fn poll(&mut self) -> Option<Seen> {
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        seen(self.node.poll(cx, &mut self.app, &mut out), &out)
    }

    /// Sends the response to the oldest deferred request.
    pub(super) fn respond(&mut self, code: Code, payload: &[u8]) -> Option<Seen> {
        let deferred = self.app.deferred.remove(0);
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 100]);
        let write = |builder: &mut Builder<'_, '_>| {
            builder.uint(OptionNumber::CONTENT_FORMAT, 42)?;
            builder.payload(payload)
        };
        let len = self.node.respond(cx, deferred, code, write, &mut out).unwrap();
        (len > 0).then(|| seen_in(&out[..len]))
    }

    /// Gives the node the decision on its oldest undecided request.
    pub(super) fn decide(&mut self, allows: bool) -> Option<Seen> {
        let (undecided, copy) = self.app.undecided.remove(0);
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 300]);
        match self.node.decide(cx, undecided, &copy, allows, &mut self.app, &mut out) {
            Ok(len) => (len > 0).then(|| seen_in(&out[..len])),
            Err((error, undecided)) => {
                assert_eq!(error, SendError::Busy);
                self.app.undecided.insert(0, (undecided, copy));
                None
            }
        }
    }

    /// Responds to the oldest undecided request with 5.03.
    pub(super) fn give_up(&mut self) -> Option<Seen> {
        let (undecided, _) = self.app.undecided.remove(0);
        self.app.deferred.insert(0, undecided);
        self.respond(Code::SERVICE_UNAVAILABLE, b"")
    }

    pub(super) fn acknowledge(&mut self, message_id: u16) {
        let [high, low] = message_id.to_be_bytes();
        assert_eq!(self.receive(&mut [0x60, 0, high, low]), None);
    }
}

fn seen(event: Option<Event>, out: &[u8]) -> Option<Seen> {
    match event? {
        Event::Transmit { len, .. } => Some(seen_in(&out[..len.into()])),
        other => panic!("{other:?}"),
    }
}

fn seen_in(message: &[u8]) -> Seen {
    let message = MessageRef::parse(message).unwrap();
    Seen {
        message_type: message.message_type(),
        message_id: message.message_id(),
        code: message.code(),
        observe: message.uint(OptionNumber::OBSERVE),
        block: message.block(OptionNumber::BLOCK2).unwrap(),
        echo: message.option(OptionNumber::ECHO).unwrap_or_default().to_vec(),
        payload: message.payload().to_vec(),
    }
}

#[test]
fn a_deferred_response_that_is_longer_than_a_message_comes_in_blocks() {
    let mut scene = Scene::shown();
    let body: Vec<u8> = (0..200).collect();
    assert_eq!(scene.ask(POST, "later", &[]).map(|it| it.code), Some(Code::EMPTY));
    let first = scene.respond(Code::CHANGED, &body).unwrap();
    assert_eq!((first.message_type, first.code), (MessageType::Confirmable, Code::CHANGED));
    let block = first.block.unwrap();
    assert!(block.more && block.number == 0, "{block:?}");
    let mut got = first.payload;
    while got.len() < body.len() {
        let number = (got.len() / block.size()) as u32;
        let asked = Block { number, more: false, ..block }.value().to_be_bytes();
        let next = scene.ask(POST, "later", &[(OptionNumber::BLOCK2, &asked[2..])]).unwrap();
        assert_eq!((next.code, next.block.map(|block| block.number)), (Code::CHANGED, Some(number)));
        got.extend(next.payload);
    }
    assert_eq!((got, scene.app.resources.counted), (body, 1));
}

#[test]
fn a_short_deferred_response_is_one_message_and_takes_no_place() {
    let mut scene = Scene::shown();
    for _ in 0..10 {
        scene.ask(POST, "later", &[]);
        let response = scene.respond(Code::CHANGED, b"done").unwrap();
        assert_eq!((response.block, &response.payload[..]), (None, &b"done"[..]));
        scene.acknowledge(response.message_id);
    }
}

#[test]
fn a_deferred_response_completes_a_registration_and_notifications_may_be_deferred() {
    let mut scene = Scene::shown();
    let registered = scene.ask(GET, "later", &[(OptionNumber::OBSERVE, b"")]).unwrap();
    assert_eq!((registered.code, registered.observe), (Code::EMPTY, None));
    scene.node.notify("later");
    assert_eq!(scene.poll(), None, "its response is not sent yet");
    let first = scene.respond(Code::CONTENT, b"1").unwrap();
    assert_eq!((first.observe, &first.payload[..]), (Some(1), &b"1"[..]));
    assert_eq!(scene.poll(), None, "it is not acknowledged");
    scene.acknowledge(first.message_id);
    assert_eq!((scene.poll(), scene.app.deferred.len()), (None, 1), "the handler is asked, and defers again");
    scene.node.notify("later");
    assert_eq!((scene.poll(), scene.app.deferred.len()), (None, 1), "one at a time");
    let second = scene.respond(Code::CONTENT, b"2").unwrap();
    assert_eq!((second.message_type, second.observe), (MessageType::Confirmable, Some(2)));
    scene.acknowledge(second.message_id);
    assert_eq!((scene.poll(), scene.app.deferred.len()), (None, 1), "the change since then");
    let last = scene.respond(Code::NOT_FOUND, b"").unwrap();
    assert_eq!((last.code, last.observe), (Code::NOT_FOUND, None));
    scene.acknowledge(last.message_id);
    scene.node.notify("later");
    assert_eq!((scene.poll(), scene.app.deferred.len()), (None, 0), "an error is the last response");
}

#[test]
fn a_client_that_wants_no_response_is_sent_none_and_observes_nothing() {
    let mut scene = Scene::shown();
    scene.ask(GET, "later", &[(OptionNumber::OBSERVE, b""), (OptionNumber::NO_RESPONSE, &[2])]);
    assert_eq!(scene.respond(Code::CONTENT, b"1"), None);
    scene.node.notify("later");
    assert_eq!((scene.poll(), scene.app.deferred.len()), (None, 0));
}

#[test]
fn a_group_is_answered_later_and_never_with_an_error() {
    const ASK: (MessageType, Code) = (MessageType::NonConfirmable, Code::GET);
    let mut scene = Scene::shown();
    scene.ask_group(ASK, "n");
    scene.ask_group(GET, "n");
    assert_eq!(scene.app.resources.counted, 1, "a group is asked with messages that are not confirmable");
    let mut answers = Vec::new();
    for _ in 0..60 {
        scene.now = scene.now.after(Duration::from_millis(100));
        answers.extend(std::iter::from_fn(|| scene.poll()));
    }
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((answer.message_type, answer.code), (MessageType::NonConfirmable, Code::CONTENT));
    scene.ask_group(ASK, "later");
    assert_eq!(scene.respond(Code::NOT_FOUND, b""), None);
    scene.ask_group(ASK, "later");
    assert_eq!(scene.respond(Code::CONTENT, b"1").map(|it| (it.code, it.observe)), Some((Code::CONTENT, None)));
}

#[test]
fn a_client_shows_its_address_before_it_changes_something_or_is_sent_much() {
    let mut scene = Scene::new();
    let challenge = scene.ask(POST, "n", &[]).unwrap();
    assert_eq!((challenge.code, &challenge.echo[..]), (Code::UNAUTHORIZED, &b"repeat i"[..]));
    assert_eq!(scene.app.resources.counted, 0);
    assert_eq!(scene.ask(GET, "n", &[]).map(|it| it.code), Some(Code::CONTENT));
    let challenge = scene.ask(GET, "long", &[]).unwrap();
    assert_eq!(
        (challenge.code, &challenge.echo[..], challenge.payload.len()),
        (Code::UNAUTHORIZED, &b"repeat i"[..], 0)
    );
    let shown = scene.ask(GET, "long", &[(OptionNumber::ECHO, b"repeat i")]).unwrap();
    assert_eq!((shown.code, shown.payload.len()), (Code::CONTENT, 40));
    assert_eq!(scene.ask(POST, "n", &[]).map(|it| it.code), Some(Code::CONTENT));
}
