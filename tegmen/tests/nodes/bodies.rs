//! Bodies that are longer than a message (RFC 7959).

use super::{Random, Table};
use tegmen::address::{Address, Path};
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Block, Builder, Code, Fixed, Handler, MessageRef, MessageType, OptionNumber, Response};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Environment;
use tegmen::dtls::{Both, Config, Extended};
use tegmen::endpoint::{Endpoint, Event};
use tegmen::node::{Application, BodyArray, Node, Parts};
use tegmen::time::{Duration, Instant};

type Memory<const UNPROTECTED: usize> = BodyArray<4, 300, UNPROTECTED>;
type Features<const UNPROTECTED: usize> = Parts<(), (), (), (), Memory<UNPROTECTED>>;

/// A resource that stores a body. PUT stores the body of the request. The response to GET has the stored body, and the
/// response to POST has the body of its request.
#[derive(Default)]
struct Store {
    body: Vec<u8>,
    executed: Vec<(Code, Vec<u8>)>,
    /// True if the handler acts upon each block separately.
    acts_on_blocks: bool,
}

impl Handler for Store {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if !message.path_is("store") {
            return Err(Code::NOT_FOUND);
        }
        self.executed.push((message.code(), message.payload().to_vec()));
        match message.code() {
            Code::GET => response.payload(&self.body),
            Code::PUT => {
                self.body = message.payload().to_vec();
                response.set_code(Code::CHANGED);
                Ok(())
            }
            Code::POST => {
                response.set_code(Code::CHANGED);
                response.payload(message.payload())
            }
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }

    fn acts_on_blocks(&self, request: &MessageRef<'_>) -> bool {
        self.acts_on_blocks && request.code() == Code::PUT
    }
}

impl Application for Store {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }
}

/// A server without protection.
struct Server<const UNPROTECTED: usize> {
    node: Node<Table, Extended<Both>, Features<UNPROTECTED>>,
    environment: Environment<RustCrypto>,
    store: Store,
    now: Instant,
    message_id: u16,
}

/// The parts of a response that the tests compare.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    code: Code,
    block1: Option<Block>,
    block2: Option<Block>,
    size1: Option<u32>,
    size2: Option<u32>,
    etag: Option<Vec<u8>>,
    payload: Vec<u8>,
}

impl<const UNPROTECTED: usize> Server<UNPROTECTED> {
    fn new() -> Self {
        let now = Instant::from_micros(5_000_000);
        let mut environment = Environment::new(RustCrypto::new([1; 32]));
        let endpoint = Endpoint::new(&mut environment.at(now), Table::new(), Config::default());
        let node = Node::with_features(endpoint, Fixed, Features::default());
        Self { node, environment, store: Store::default(), now, message_id: 0 }
    }

    /// Sends a request from the address `client`.
    fn ask(&mut self, client: u8, code: Code, options: &[(OptionNumber, u32)], payload: &[u8]) -> Seen {
        let mut bytes = [0; 400];
        let mut frame = tegmen::buf::Frame::new(&mut bytes, 0);
        self.message_id += 1;
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, self.message_id, &[client]).unwrap();
        builder.path("store").unwrap();
        for (number, value) in options {
            builder.uint(*number, *value).unwrap();
        }
        builder.payload(payload).unwrap();
        let address = |last| Address { ip: [last; 16], port: 5683, scope: 0 };
        let path = Path { local: address(9), remote: address(client) };
        let (cx, mut out) = (&mut self.environment.at(self.now), [0; 200]);
        let event = self.node.handle_plain(cx, &path, frame.bytes_mut(), &mut self.store, &mut out);
        let Some(Event::Transmit { len, .. }) = event else { panic!("{event:?}") };
        let response = MessageRef::parse(&out[..len.into()]).unwrap();
        let block = |number| response.block(number).unwrap();
        Seen {
            code: response.code(),
            block1: block(OptionNumber::BLOCK1),
            block2: block(OptionNumber::BLOCK2),
            size1: response.uint(OptionNumber::SIZE1),
            size2: response.uint(OptionNumber::SIZE2),
            etag: response.option(OptionNumber::ETAG).map(<[u8]>::to_vec),
            payload: response.payload().to_vec(),
        }
    }

    fn block1(&mut self, client: u8, code: Code, number: u32, more: bool, payload: &[u8]) -> Seen {
        let block = Block { number, more, size_exponent: 1 };
        self.ask(client, code, &[(OptionNumber::BLOCK1, block.value())], payload)
    }

    fn block2(&mut self, client: u8, code: Code, number: u32) -> Seen {
        let block = Block { number, more: false, size_exponent: 1 };
        self.ask(client, code, &[(OptionNumber::BLOCK2, block.value())], &[])
    }
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn the_handler_sees_a_body_in_blocks_once_and_whole() {
    let (mut server, body) = (Server::<4>::new(), body(70));
    for (number, block) in [&body[..32], &body[32..64]].into_iter().enumerate() {
        let seen = server.block1(1, Code::PUT, number as u32, true, block);
        let expected = Block { number: number as u32, more: true, size_exponent: 1 };
        assert_eq!((seen.code, seen.block1, seen.block2), (Code::CONTINUE, Some(expected), None));
        assert_eq!(server.store.executed, []);
    }
    let seen = server.block1(1, Code::PUT, 2, false, &body[64..]);
    assert_eq!((seen.code, seen.block1.map(|block| block.number)), (Code::CHANGED, Some(2)));
    assert_eq!(server.store.executed, [(Code::PUT, body)]);
}

#[test]
fn a_handler_that_acts_on_blocks_sees_each_by_itself_in_any_order() {
    let mut server = Server::<4>::new();
    server.store.acts_on_blocks = true;
    for (number, more) in [(2, false), (0, true), (7, true), (0, true)] {
        let seen = server.block1(1, Code::PUT, number, more, &body(32));
        // It was acted upon (RFC 7959, section 2.3).
        let expected = Block { number, more: false, size_exponent: 1 };
        assert_eq!((seen.code, seen.block1), (Code::CHANGED, Some(expected)));
    }
    assert_eq!(server.store.executed, vec![(Code::PUT, body(32)); 4]);
    // Blocks of other requests are put together.
    assert_eq!(server.block1(1, Code::POST, 0, true, &body(32)).code, Code::CONTINUE);
    assert_eq!(server.store.executed.len(), 4);
}

#[test]
fn a_block_out_of_turn_or_of_a_wrong_length_is_refused_and_the_body_can_go_on() {
    let mut server = Server::<4>::new();
    let code = |server: &mut Server<4>, number, more, len| server.block1(1, Code::PUT, number, more, &body(len)).code;
    assert_eq!(code(&mut server, 3, true, 32), Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(code(&mut server, 0, true, 31), Code::BAD_REQUEST);
    assert_eq!(code(&mut server, 1, true, 32), Code::REQUEST_ENTITY_INCOMPLETE, "nothing was begun");
    assert_eq!(code(&mut server, 0, true, 32), Code::CONTINUE);
    assert_eq!(code(&mut server, 2, true, 32), Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(code(&mut server, 1, true, 31), Code::BAD_REQUEST);
    assert_eq!(code(&mut server, 1, true, 32), Code::CONTINUE);
    // The first block begins again.
    assert_eq!(code(&mut server, 0, true, 32), Code::CONTINUE);
    assert_eq!(code(&mut server, 1, false, 4), Code::CHANGED);
    assert_eq!(server.store.body.len(), 36);
    let reserved = server.ask(1, Code::PUT, &[(OptionNumber::BLOCK1, 0x0f)], b"x");
    assert_eq!(reserved.code, Code::BAD_REQUEST);
    let reserved = server.ask(1, Code::GET, &[(OptionNumber::BLOCK2, 0x0f)], b"");
    assert_eq!(reserved.code, Code::BAD_REQUEST);
}

#[test]
fn a_body_that_is_too_long_is_refused_with_the_limit() {
    let mut server = Server::<4>::new();
    let block = Block { number: 0, more: true, size_exponent: 1 }.value();
    let announced = [(OptionNumber::BLOCK1, block), (OptionNumber::SIZE1, 301)];
    let seen = server.ask(1, Code::PUT, &announced, &body(32));
    assert_eq!((seen.code, seen.size1), (Code::REQUEST_ENTITY_TOO_LARGE, Some(300)));
    for number in 0..9 {
        assert_eq!(server.block1(1, Code::PUT, number, true, &body(32)).code, Code::CONTINUE);
    }
    let seen = server.block1(1, Code::PUT, 9, true, &body(32));
    assert_eq!((seen.code, seen.size1), (Code::REQUEST_ENTITY_TOO_LARGE, Some(300)));
    assert_eq!(server.block1(1, Code::PUT, 9, false, &body(12)).code, Code::REQUEST_ENTITY_INCOMPLETE);
    assert_eq!(server.store.executed, []);
}

#[test]
fn a_block_with_an_unknown_critical_option_takes_no_memory() {
    let mut server = Server::<4>::new();
    let block = Block { number: 0, more: true, size_exponent: 1 }.value();
    for unknown in [(OptionNumber(9001), Code::BAD_OPTION), (OptionNumber::PROXY_URI, Code::PROXYING_NOT_SUPPORTED)] {
        let seen = server.ask(1, Code::PUT, &[(OptionNumber::BLOCK1, block), (unknown.0, 1)], &body(32));
        assert_eq!(seen.code, unknown.1);
    }
    for client in 1..5 {
        assert_eq!(server.block1(client, Code::PUT, 0, true, &body(32)).code, Code::CONTINUE);
    }
}

#[test]
fn a_response_that_cannot_be_written_again_is_kept_for_its_blocks() {
    let (mut server, body) = (Server::<4>::new(), body(70));
    server.block1(1, Code::POST, 0, true, &body[..32]);
    server.block1(1, Code::POST, 1, true, &body[32..64]);
    let size = Block { number: 0, more: false, size_exponent: 1 }.value();
    let last = Block { number: 2, more: false, size_exponent: 1 }.value();
    let options = [(OptionNumber::BLOCK2, size), (OptionNumber::BLOCK1, last)];
    let first = server.ask(1, Code::POST, &options, &body[64..]);
    assert_eq!((first.code, first.size2, first.payload), (Code::CHANGED, Some(70), body[..32].to_vec()));
    assert!(first.block1.is_some() && first.block2.is_some_and(|block| block.more));
    let mut rest = Vec::new();
    for number in 1..3 {
        let seen = server.block2(1, Code::POST, number);
        assert_eq!((seen.code, seen.block1, &seen.etag), (Code::CHANGED, None, &first.etag));
        assert_eq!(seen.block2, Some(Block { number, more: number == 1, size_exponent: 1 }));
        rest.extend(seen.payload);
    }
    assert_eq!(rest, body[32..]);
    assert_eq!(server.block2(1, Code::POST, 3).code, Code::BAD_REQUEST, "beyond the end");
    assert_eq!(server.block2(2, Code::POST, 1).code, Code::REQUEST_ENTITY_INCOMPLETE, "another client");
    assert_eq!(server.store.executed, [(Code::POST, body)]);
    server.now = server.now.after(Duration::from_secs(247));
    assert_eq!(server.block2(1, Code::POST, 1).code, Code::REQUEST_ENTITY_INCOMPLETE, "too late");
}

#[test]
fn a_representation_is_written_again_for_each_block() {
    let mut server = Server::<4>::new();
    server.store.body = body(70);
    let mut got = Vec::new();
    for number in 0..3 {
        got.extend(server.block2(1, Code::GET, number).payload);
    }
    assert_eq!(got, body(70));
    assert_eq!(server.store.executed.len(), 3);
}

#[test]
fn bodies_that_nobody_continues_leave_their_places_to_others() {
    let mut server = Server::<4>::new();
    for client in 1..5 {
        assert_eq!(server.block1(client, Code::PUT, 0, true, &body(32)).code, Code::CONTINUE);
        server.now = server.now.after(Duration::from_secs(1));
    }
    // The peer table has two places; the bodies of the peers that are gone stay until their time is over.
    assert_eq!(server.block1(5, Code::PUT, 0, true, &body(32)).code, Code::SERVICE_UNAVAILABLE);
    // A request without blocks is answered nevertheless.
    assert_eq!(server.ask(5, Code::POST, &[], &body(20)).payload, body(20));
    server.now = server.now.after(Duration::from_secs(243));
    assert_eq!(server.block1(6, Code::PUT, 0, true, &body(32)).code, Code::CONTINUE);
    // The second transfer of a peer takes the place of its first.
    assert_eq!(server.block1(6, Code::POST, 0, true, &body(32)).code, Code::CONTINUE);
    assert_eq!(server.block1(6, Code::PUT, 1, true, &body(32)).code, Code::REQUEST_ENTITY_INCOMPLETE);
}

#[test]
fn peers_without_protection_have_half_of_all_places() {
    let mut server = Server::<2>::new();
    assert_eq!(server.block1(1, Code::PUT, 0, true, &body(32)).code, Code::CONTINUE);
    assert_eq!(server.block1(2, Code::PUT, 0, true, &body(32)).code, Code::CONTINUE);
    assert_eq!(server.block1(3, Code::PUT, 0, true, &body(32)).code, Code::SERVICE_UNAVAILABLE);
}

#[test]
fn whatever_blocks_come_are_answered() {
    let (mut server, mut random) = (Server::<4>::new(), Random(7));
    let methods = [Code::GET, Code::POST, Code::PUT, Code::FETCH];
    for _ in 0..20_000 {
        let code = methods[random.below(4) as usize];
        let mut options = Vec::new();
        for number in [OptionNumber::BLOCK2, OptionNumber::BLOCK1, OptionNumber::SIZE1] {
            let value = if random.below(20) == 0 { random.below(1 << 32) } else { random.below(1 << 5) };
            options.extend((random.below(2) == 0).then_some((number, value as u32)));
        }
        let payload = body([0, 16, 32, 64, random.below(200) as usize][random.below(5) as usize]);
        let seen = server.ask(1 + random.below(2) as u8, code, &options, &payload);
        assert_ne!(seen.code, Code::EMPTY);
        server.now = server.now.after(Duration::from_millis(random.below(9000)));
    }
    assert!(server.store.executed.iter().any(|(_, sent)| *sent != body(sent.len())), "no body was put together");
}
