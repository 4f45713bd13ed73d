//! Targets for CoAP messages, and for exchanges between two endpoints.

use crate::Input;
use std::collections::HashMap;
use tegmen::buf::Frame;
use tegmen::coap::handler::{AnyAuthenticated, Request, Served, serve};
use tegmen::coap::link::{self, Link};
use tegmen::coap::{
    Authorized, Block, Builder, Code, Due, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Received,
    Repeat, Response,
};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::{Duration, Instant};

/// Parses one message and builds it again. The new message must have the same content.
pub fn message(data: &[u8]) {
    let Ok(message) = MessageRef::parse(data) else { return };
    let mut storage = vec![0; data.len() + 8];
    let mut frame = Frame::new(&mut storage, 0);
    let (kind, code, id) = (message.message_type(), message.code(), message.message_id());
    let mut builder = Builder::new(&mut frame, kind, code, id, message.token()).expect("the same length");
    for (number, value) in message.options() {
        // The options that the builder writes can be shorter than the received options, but never longer.
        builder.option(number, value).expect("options come in order");
    }
    builder.payload(message.payload()).expect("the same length");
    let again = MessageRef::parse(frame.bytes()).expect("our own");
    assert!(again.options().eq(message.options()));
    assert_eq!((again.token(), again.payload()), (message.token(), message.payload()));
    assert_eq!((again.code(), again.message_id()), (code, id));
    let _ = (message.path_is("a/b"), message.uint(OptionNumber::ACCEPT));
    let _ = (message.block(OptionNumber::BLOCK1), message.block(OptionNumber::BLOCK2), message.operation());
    inserted(&message);
    if let Ok(inner) = message.with_plaintext(message.payload()) {
        assert!(inner.options().map(|(number, _)| number).is_sorted());
        assert!(inner.options().count() >= message.options().count());
    }
}

/// Checks that inserting the same options in another order results in the same message.
fn inserted(message: &MessageRef<'_>) {
    let options: Vec<_> = message.options().filter(|(_, value)| value.len() <= 8).collect();
    let mut storage = vec![0; 4096];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"t").expect("room");
    builder.payload(b"x").expect("room");
    // Options of one number keep the order in which they are inserted.
    for odd in [true, false] {
        for (number, value) in options.iter().filter(|(number, _)| (number.0 & 1 == 1) == odd) {
            if builder.insert(*number, value).is_err() {
                return;
            }
        }
    }
    let again = MessageRef::parse(frame.bytes()).expect("our own");
    assert!(again.options().eq(options));
    assert_eq!(again.payload(), b"x");
}

/// Requests a representation from a server whose response buffer has any size. All blocks together must be equal to the
/// representation.
pub fn response(data: &[u8]) {
    let mut input = Input::new(data);
    let (room, piece) = (usize::from(input.word() % 1300) + 48, usize::from(input.byte()) + 1);
    let (repeat, exponent) = (usize::from(input.byte() % 64) + 1, input.byte());
    let body: Vec<u8> = data.repeat(repeat).into_iter().take(1500).collect();
    let mut asked = (exponent < 7).then_some(Block { number: 0, more: false, size_exponent: exponent });
    let mut got = Vec::new();
    loop {
        let mut request = [0; 64];
        let mut frame = Frame::new(&mut request, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"tok").expect("room");
        if let Some(block) = asked {
            builder.uint(OptionNumber::BLOCK2, block.value()).expect("room");
        }
        let message = MessageRef::parse(frame.bytes()).expect("our own");
        let identity = Identity { principal: Principal(1), protection: Protection::Dtls };
        let (mut whole, mut storage) = (Whole { body: &body, piece }, vec![0; room]);
        let mut answer = Frame::new(&mut storage, 0);
        let served = serve(Request::new(message, identity), &AnyAuthenticated, &mut whole, 1, &mut answer);
        let Ok(reply) = MessageRef::parse(answer.bytes()) else { panic!("{served:?}") };
        if reply.code() != Code::CONTENT {
            // This is correct only if not even the smallest block fits.
            assert!(room < 80 && got.is_empty(), "{} in {} bytes", reply.code(), room);
            return;
        }
        got.extend_from_slice(reply.payload());
        match reply.block(OptionNumber::BLOCK2).expect("our own") {
            Some(block) if block.more => {
                assert_eq!(block.offset() + block.size(), got.len());
                asked = Some(Block { number: block.number + 1, more: false, ..block });
            }
            _ => break,
        }
    }
    assert!(got == body);
}

/// A handler that writes a body in pieces.
struct Whole<'a> {
    body: &'a [u8],
    piece: usize,
}

impl Handler for Whole<'_> {
    fn handle(&mut self, _: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.body.chunks(self.piece).try_for_each(|piece| response.payload(piece))
    }
}

/// A handler that lists links at `/.well-known/core`. The payload of any other request selects the answer.
#[derive(Default)]
struct Application {
    executed: HashMap<u16, u32>,
}

impl Handler for Application {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        *self.executed.entry(message.message_id()).or_default() += 1;
        if message.path_is(link::WELL_KNOWN_CORE) {
            let one = Link { path: "a", resource_type: "r s", content_format: Some(40), observable: false };
            let other = Link { path: "b/c", resource_type: "", content_format: None, observable: false };
            return link::respond(request, response, [one, other].into_iter());
        }
        match message.payload() {
            [0, code, ..] => Err(Code((4 + (code & 1)) << 5 | code >> 1 & 31)),
            [1, ..] => {
                response.defer();
                Ok(())
            }
            [2, rest @ ..] => {
                response.observable();
                response.payload(rest)
            }
            _ => response.option(OptionNumber::ETAG, message.token()),
        }
    }
}

/// Reads the bytes as a script for one endpoint: datagrams of the peer, messages that this endpoint sends, and passing
/// time.
pub fn exchange(data: &[u8]) {
    let mut input = Input::new(data);
    let mut now = Instant::from_micros(0);
    let mut exchanges = Exchanges::<Fixed<2, 64, 4, 128>>::new(input.word());
    let mut application = Application::default();
    // The replies to the most recent messages. `exchanges` stores at least four of these replies.
    let mut recent: Vec<(u16, Instant, Vec<u8>)> = Vec::new();
    while !input.is_empty() {
        let operation = input.byte();
        if operation & 3 == 3 {
            now = now.after(Duration::from_millis(u64::from(input.word())));
        }
        let len = usize::from(input.byte());
        let datagram = input.bytes(len);
        match operation >> 2 & 3 {
            0 => {
                let _ = exchanges.sent(&mut Fixed, now, datagram, operation);
            }
            1 => {
                let mut storage = [0; 64];
                let mut frame = Frame::new(&mut storage, 0);
                match exchanges.poll(&mut Fixed, now, &mut frame) {
                    Some(Due::TimedOut(id)) => exchanges.cancel(&mut Fixed, id),
                    Some(_) => assert!(MessageRef::parse(frame.bytes()).is_ok()),
                    None => {}
                }
            }
            _ => {
                let own_id = exchanges.message_id();
                let mut arrays = Fixed;
                match exchanges.receive(&mut arrays, now, datagram) {
                    Received::Request(message, key) => {
                        let id = message.message_id();
                        let fresh =
                            |(seen, at, _): &(u16, Instant, Vec<u8>)| *seen == id && now.since(*at).as_secs() < 247;
                        assert!(!recent.iter().rev().take(4).any(fresh), "executed twice");
                        let reply = respond(message, operation & 64 == 0, own_id, &mut application);
                        exchanges.keep_reply(&mut Fixed, now, key, Repeat::of(message.code()), &reply);
                        recent.push((id, now, reply));
                    }
                    Received::Duplicate(reply) => {
                        let id = MessageRef::parse(datagram).expect("it was parsed before").message_id();
                        let known = recent.iter().rev().find(|(seen, ..)| *seen == id);
                        assert!(
                            known.is_none_or(|(_, _, first)| reply.is_empty() || reply.len() == 4 || reply == first)
                        );
                    }
                    Received::Response { message, .. } => {
                        assert!(message.code().is_response());
                        if message.message_type() != MessageType::Acknowledgement {
                            recent.push((message.message_id(), now, Vec::new()));
                        }
                    }
                    _ => {}
                }
            }
        }
        assert!(exchanges.open(&Fixed) <= 2);
    }
    // Every exchange ends by itself, except observations.
    for _ in 0..100 {
        let Some(at) = exchanges.next_deadline(&Fixed) else { break };
        now = now.max(at);
        let mut storage = [0; 64];
        let _ = exchanges.poll(&mut Fixed, now, &mut Frame::new(&mut storage, 0));
    }
    assert_eq!(exchanges.next_deadline(&Fixed), None);
    assert_eq!(exchanges.outstanding(&Fixed), 0);
}

fn respond(message: MessageRef<'_>, known: bool, own_id: u16, application: &mut Application) -> Vec<u8> {
    let identity = match known {
        true => Identity { principal: Principal(1), protection: Protection::Dtls },
        false => Identity { principal: Principal::NOBODY, protection: Protection::Plain },
    };
    let mut storage = [0; 80];
    let mut frame = Frame::new(&mut storage, 0);
    let request = Request::new(message, identity).observable(own_id.into());
    match serve(request, &AnyAuthenticated, application, own_id, &mut frame) {
        // A response that the client does not want.
        Served::Responded { code, .. } if frame.bytes().get(1).is_none_or(|code| *code == 0) => {
            assert!(code == Code::EMPTY || message.option(OptionNumber::NO_RESPONSE).is_some());
        }
        Served::Responded { code, observed } => {
            assert!(!observed || message.uint(OptionNumber::OBSERVE) == Some(0));
            let response = MessageRef::parse(frame.bytes()).expect("our own");
            assert_eq!(response.code(), code);
            assert!(code == Code::EMPTY || response.token() == message.token());
            assert!(known || code != Code::CONTENT);
        }
        Served::Deferred { token, .. } => assert_eq!(token.as_bytes(), message.token()),
        Served::NoRoom => panic!("80 bytes hold an error with any token"),
    }
    frame.bytes().to_vec()
}
