//! CoAP messages, and two ends of exchanges.

use crate::Input;
use std::collections::HashMap;
use tegmen::buf::Frame;
use tegmen::coap::exchange::Due;
use tegmen::coap::handler::{AnyAuthenticated, Identity, Request, Served, serve};
use tegmen::coap::link::{self, Link};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Handler, MessageRef, MessageType, OptionNumber, Received, Response,
};
use tegmen::endpoint::{Principal, Protection};
use tegmen::time::{Duration, Instant};

/// One message: what was parsed and is built again says the same.
pub fn message(data: &[u8]) {
    let Ok(message) = MessageRef::parse(data) else { return };
    let mut storage = vec![0; data.len() + 8];
    let mut frame = Frame::new(&mut storage, 0);
    let (kind, code, id) = (message.message_type(), message.code(), message.message_id());
    let mut builder = Builder::new(&mut frame, kind, code, id, message.token()).expect("the same length");
    for (number, value) in message.options() {
        // An encoder may be shorter than what came, never longer.
        builder.option(number, value).expect("options come in order");
    }
    builder.payload(message.payload()).expect("the same length");
    let again = MessageRef::parse(frame.bytes()).expect("our own");
    assert!(again.options().eq(message.options()));
    assert_eq!((again.token(), again.payload()), (message.token(), message.payload()));
    assert_eq!((again.code(), again.message_id()), (code, id));
    let _ = (message.unknown_critical(&[]), message.path_is("a/b"), message.uint(OptionNumber::ACCEPT));
    if let Ok(inner) = message.with_plaintext(message.payload()) {
        assert!(inner.options().map(|(number, _)| number).is_sorted());
        assert!(inner.options().count() >= message.options().count());
    }
}

/// Lists links, and answers everything else as it is asked to.
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
            [0, code, ..] => Err(Code::new(4 + (code & 1), code >> 1)),
            [1, ..] => {
                response.defer();
                Ok(())
            }
            [2, rest @ ..] => response.payload(rest),
            _ => response.option(OptionNumber::ETAG, message.token()),
        }
    }
}

/// A script of datagrams, own messages and passing time.
pub fn exchange(data: &[u8]) {
    let mut input = Input::new(data);
    let mut now = Instant::from_micros(0);
    let mut exchanges = Exchanges::<2, 64, 4, 128>::new(input.word());
    let mut application = Application::default();
    // What was answered to the last messages, of which the exchanges remember at least four.
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
                let _ = exchanges.sent(now, datagram, operation);
            }
            1 => match exchanges.poll(now) {
                Some(Due::Retransmit(again)) => assert!(MessageRef::parse(again).is_ok()),
                Some(Due::TimedOut(id)) => exchanges.cancel(id),
                None => {}
            },
            _ => {
                let own_id = exchanges.message_id();
                match exchanges.receive(now, datagram) {
                    Received::Request(message) => {
                        let id = message.message_id();
                        let fresh =
                            |(seen, at, _): &(u16, Instant, Vec<u8>)| *seen == id && now.since(*at).as_secs() < 247;
                        assert!(!recent.iter().rev().take(4).any(fresh), "executed twice");
                        let reply = respond(message, operation & 64 == 0, own_id, &mut application);
                        exchanges.keep_reply(now, id, &reply);
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
        assert!(exchanges.outstanding() <= 2);
    }
    // Whatever is open ends by itself.
    for _ in 0..100 {
        let Some(at) = exchanges.next_deadline() else { break };
        now = now.max(at);
        let _ = exchanges.poll(now);
    }
    assert_eq!(exchanges.outstanding(), 0);
}

fn respond(message: MessageRef<'_>, known: bool, own_id: u16, application: &mut Application) -> Vec<u8> {
    let identity = match known {
        true => Identity { principal: Principal(1), protection: Protection::Dtls },
        false => Identity { principal: Principal::NOBODY, protection: Protection::Plain },
    };
    let mut storage = [0; 80];
    let mut frame = Frame::new(&mut storage, 0);
    match serve(Request::new(message, identity), &AnyAuthenticated, application, own_id, &mut frame) {
        Served::Responded { code, .. } => {
            let response = MessageRef::parse(frame.bytes()).expect("our own");
            assert_eq!(response.code(), code);
            assert!(code == Code::EMPTY || response.token() == message.token());
            assert!(known || code != Code::CONTENT);
        }
        Served::Deferred(token) => assert_eq!(token.as_bytes(), message.token()),
        Served::NoRoom => panic!("80 bytes hold an error with any token"),
    }
    frame.bytes().to_vec()
}
