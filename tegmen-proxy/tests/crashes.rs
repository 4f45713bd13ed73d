//! Tests OSCORE between a client and a server through a proxy that crashes. The network loses and repeats messages, and
//! an attacker replays old messages.

mod scene;

use scene::{HOST, ORIGIN, SCHEME, Scene, address};
use std::collections::{BTreeMap, BTreeSet};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType};
use tegmen::crypto::{Crypto as _, RustCrypto};
use tegmen::oscore::{Aead, Context, OVERHEAD, Parameters, Pending, Unprotected};

/// The number of runs. Each run has [`STEPS`] steps.
const RUNS: u8 = 250;
const STEPS: u16 = 100;
const CLIENT: u8 = 2;
const ATTACKER: u8 = 7;

/// The client and the server, and the messages that they accepted.
struct Ends {
    client: Context,
    server: Context,
    crypto: RustCrypto,
    /// The requests that wait for a response, by their tokens, each with its datagram.
    waiting: BTreeMap<u16, (Pending, Vec<u8>)>,
    delivered: BTreeSet<u16>,
    answered: BTreeSet<u16>,
    /// The responses of the server, which the attacker can replay.
    responses: Vec<Vec<u8>>,
    refused: u32,
}

impl Ends {
    fn new(seed: u8) -> Self {
        let context = |sender_id, recipient_id| {
            let (master_secret, master_salt) = (&[7; 16], &[]);
            let aead = Aead::AesCcm16_64_128;
            let parameters = Parameters { master_secret, master_salt, sender_id, recipient_id, id_context: None, aead };
            let mut context = Context::new::<RustCrypto>(&parameters).unwrap();
            context.lease_mut().extend(u64::from(STEPS) * 2);
            context
        };
        Self {
            client: context(b"c", b"s"),
            server: context(b"s", b"c"),
            crypto: RustCrypto::new([seed; 32]),
            waiting: BTreeMap::new(),
            delivered: BTreeSet::new(),
            answered: BTreeSet::new(),
            responses: Vec::new(),
            refused: 0,
        }
    }

    /// Returns a random number less than `below`.
    fn draw(&mut self, below: usize) -> usize {
        let mut bytes = [0; 4];
        self.crypto.random(&mut bytes);
        u32::from_be_bytes(bytes) as usize % below
    }

    /// Makes the request with this number, which is also its token and its payload.
    fn ask(&mut self, number: u16) -> Vec<u8> {
        let mut storage = [0; 120];
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        let token = number.to_be_bytes();
        let mut request = Builder::new(&mut frame, MessageType::NonConfirmable, Code::POST, number, &token).unwrap();
        request.option(HOST.0, HOST.1).unwrap();
        request.option(SCHEME.0, SCHEME.1).unwrap();
        request.payload(&token).unwrap();
        let pending = self.client.protect_request(&mut self.crypto, &mut frame).unwrap();
        let datagram = frame.bytes().to_vec();
        self.waiting.insert(number, (pending, datagram.clone()));
        datagram
    }

    /// Lets the server process a request. Returns the response.
    fn serve(&mut self, request: &[u8]) -> Vec<u8> {
        let outer = MessageRef::parse(request).unwrap();
        let (id, token) = (outer.message_id(), outer.token().to_vec());
        let mut storage = [0; 120];
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        let mut datagram = request.to_vec();
        match self.server.unprotect_request(&mut self.crypto, &mut datagram) {
            Ok(Unprotected::Fresh(message, nonce)) => {
                let number = u16::from_be_bytes(message.payload().try_into().unwrap());
                assert!(self.delivered.insert(number), "request {number} is delivered twice");
                let head = (MessageType::Acknowledgement, Code::CHANGED);
                let mut response = Builder::new(&mut frame, head.0, head.1, id, &token).unwrap();
                response.payload(&number.to_be_bytes()).unwrap();
                let binding = nonce.binding();
                self.server.protect_response(&mut self.crypto, &binding, Some(nonce), &mut frame).unwrap();
                self.responses.push(frame.bytes().to_vec());
            }
            other => {
                self.refused += 1;
                let code = other.err().map_or(Code::UNAUTHORIZED, |refused| refused.code());
                Builder::new(&mut frame, MessageType::Acknowledgement, code, id, &token).unwrap();
            }
        }
        frame.bytes().to_vec()
    }

    /// Lets the client process a response.
    fn hear(&mut self, response: &[u8]) {
        let Ok(token) = MessageRef::parse(response).unwrap().token().try_into() else { return };
        let number = u16::from_be_bytes(token);
        let Some((pending, _)) = self.waiting.get_mut(&number) else { return };
        let mut datagram = response.to_vec();
        // The client ignores an error that nothing protects.
        let Ok(message) = self.client.unprotect_response(&mut self.crypto, pending, &mut datagram) else { return };
        assert_eq!(message.payload(), number.to_be_bytes(), "the response of another request");
        assert!(self.answered.insert(number), "a response to {number} is taken twice");
        self.waiting.remove(&number);
    }
}

/// Delivers the datagrams of the proxy to the client and to the server, and the responses of the server to the proxy.
fn deliver(ends: &mut Ends, scene: &mut Scene) {
    while let Some((to, datagram)) = scene.sent.pop() {
        let copies = [0, 1, 1, 1, 2][ends.draw(5)];
        for _ in 0..copies {
            if to == address(CLIENT) {
                if MessageRef::parse(&datagram).unwrap().code().is_response() {
                    ends.hear(&datagram);
                }
            } else if to == address(ORIGIN) && MessageRef::parse(&datagram).unwrap().code().is_request() {
                let response = ends.serve(&datagram);
                scene.give(ORIGIN, response);
            }
        }
    }
}

#[test]
fn a_proxy_that_crashes_lets_nobody_accept_a_message_twice() {
    let (mut crashes, mut answered, mut refused) = (0, 0, 0);
    for seed in 0..RUNS {
        let (mut ends, mut scene) = (Ends::new(seed), Scene::new());
        let mut recorded: Vec<Vec<u8>> = Vec::new();
        for number in 0..STEPS {
            let request = ends.ask(number);
            recorded.push(request.clone());
            scene.give(CLIENT, request);
            let (hears, crashes_now) = [(false, true), (true, true), (true, false), (true, false)][ends.draw(4)];
            if hears {
                deliver(&mut ends, &mut scene);
            }
            if crashes_now {
                scene = Scene::new();
                crashes += 1;
            }
            // The client repeats a request that has no response, and the attacker any other.
            let again = ends.waiting.values().map(|(_, datagram)| datagram.clone()).next_back();
            let replayed = ends.draw(recorded.len());
            let replayed = recorded[replayed].clone();
            for (from, datagram) in again.map(|again| (CLIENT, again)).into_iter().chain([(ATTACKER, replayed)]) {
                scene.give(from, datagram);
                deliver(&mut ends, &mut scene);
            }
            if !ends.responses.is_empty() {
                let at = ends.draw(ends.responses.len());
                let response = ends.responses[at].clone();
                scene.give(ORIGIN, response.clone());
                ends.hear(&response);
            }
        }
        answered += ends.answered.len();
        refused += ends.refused;
    }
    println!("{crashes} crashes, {answered} requests answered, {refused} replays refused");
    assert!(crashes >= 10_000 && answered > 5_000 && refused > 5_000);
}
