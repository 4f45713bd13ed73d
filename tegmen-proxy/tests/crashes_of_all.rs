//! Tests OSCORE between a client and a server through a proxy. The power of the client, the server and the proxy fails
//! at many points. The network loses and repeats messages, and an attacker replays old messages. After a power cut, the
//! client or the server continues only with the data on its disk: the end of the message numbers that it has leased
//! (RFC 8613, appendix B.1.1). A server that lost its replay window asks with Echo whether a request is fresh (appendix
//! B.1.2). The proxy stores nothing on disk.
//!
//! The test checks that no nonce is used twice, and that neither the client nor the server accepts a message twice. It
//! also makes the same runs with a client or a server that breaks one of these rules of RFC 8613 (`Fault`), and checks
//! that the runs detect the fault.

mod recorder;
mod scene;

use recorder::Recorder;
use scene::{HOST, ORIGIN, SCHEME, Scene, address};
use std::collections::{BTreeMap, HashSet};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto as _;
use tegmen::oscore::{Aead, Context, OVERHEAD, Parameters, Pending, ReplayWindow, Unprotected};

const CRASHES: u64 = 10_000;
/// The steps of one run.
const STEPS: u32 = 150;
/// Number of message numbers that an end reserves on its disk at once (a lease).
const LEASE: u64 = 4;
/// Number of tokens of the client. It is small, so that an old response often has the token of a new request.
const TOKENS: u32 = 8;
/// At each point where the power can fail, it fails with a probability of one divided by this number.
const POINTS: usize = 40;
const CLIENT: u8 = 2;
const ATTACKER: u8 = 7;

/// The rule that the client or the server breaks in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Nothing,
    ClientKeepsNoNumbers,
    ServerKeepsNoNumbers,
    /// The server accepts a request as fresh without Echo.
    ServerAsksForNothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Client,
    Server,
    Proxy,
}

/// The error that the power failed. Only the data on the disk remains.
struct Cut;

/// The client or the server, with its disk.
struct End {
    ids: (&'static [u8], &'static [u8]),
    context: Context,
    /// The end of the reserved message numbers (the lease) that is on the disk.
    kept: u64,
    keeps: bool,
    asks: bool,
}

impl End {
    fn new(ids: (&'static [u8], &'static [u8]), (keeps, asks): (bool, bool)) -> Self {
        let context = Context::new::<Recorder>(&parameters(ids)).unwrap();
        Self { ids, context, kept: 0, keeps, asks }
    }

    fn restart(&mut self) {
        let parameters = parameters(self.ids);
        self.context = match self.asks {
            true => Context::resume::<Recorder>(&parameters, self.kept).unwrap(),
            false => Context::restore::<Recorder>(&parameters, self.kept, ReplayWindow::new()).unwrap(),
        };
    }
}

fn parameters((sender_id, recipient_id): (&'static [u8], &'static [u8])) -> Parameters<'static> {
    let (master_secret, master_salt, aead) = (&[7; 16], &[], Aead::AesCcm16_64_128);
    Parameters { master_secret, master_salt, sender_id, recipient_id, id_context: None, aead }
}

/// A request of the client that waits for its response.
struct Waiting {
    pending: Pending,
    datagram: Vec<u8>,
    number: u32,
}

#[derive(Default, Debug)]
struct Counts {
    client_crashes: u64,
    server_crashes: u64,
    proxy_crashes: u64,
    answered: u64,
    challenges: u64,
    refused: u64,
    replays_tried: u64,
    replays_accepted: u64,
    nonces: u64,
    repeated_nonces: u64,
}

impl Counts {
    fn crashes(&self) -> u64 {
        self.client_crashes + self.server_crashes + self.proxy_crashes
    }

    fn add(&mut self, other: &Self) {
        self.client_crashes += other.client_crashes;
        self.server_crashes += other.server_crashes;
        self.proxy_crashes += other.proxy_crashes;
        self.answered += other.answered;
        self.challenges += other.challenges;
        self.refused += other.refused;
        self.replays_tried += other.replays_tried;
        self.replays_accepted += other.replays_accepted;
        self.nonces += other.nonces;
        self.repeated_nonces += other.repeated_nonces;
    }
}

struct World {
    crypto: Recorder,
    client: End,
    server: End,
    scene: Scene,
    /// The waiting requests of the client, by their tokens.
    waiting: BTreeMap<u8, Waiting>,
    /// The Echo value of the server's last challenge, which the next request must contain.
    echo: Option<Vec<u8>>,
    /// The number of the next request. The payload of the request is this number. Each request has a different number.
    next: u32,
    /// The numbers of the requests that the server accepted. `answered` has the numbers of the requests whose responses
    /// the client accepted.
    delivered: HashSet<u32>,
    answered: HashSet<u32>,
    /// The requests and the responses that were sent, which the attacker can replay.
    requests: Vec<Vec<u8>>,
    responses: Vec<Vec<u8>>,
    fails: bool,
    counts: Counts,
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        Self {
            crypto: Recorder::new(seed),
            client: End::new((b"c", b"s"), (fault != Fault::ClientKeepsNoNumbers, true)),
            server: End::new(
                (b"s", b"c"),
                (fault != Fault::ServerKeepsNoNumbers, fault != Fault::ServerAsksForNothing),
            ),
            scene: Scene::new(),
            waiting: BTreeMap::new(),
            echo: None,
            next: 0,
            delivered: HashSet::new(),
            answered: HashSet::new(),
            requests: Vec::new(),
            responses: Vec::new(),
            fails: true,
            counts: Counts::default(),
        }
    }

    /// Returns a random number less than `below`.
    fn draw(&mut self, below: usize) -> usize {
        let mut bytes = [0; 4];
        self.crypto.random(&mut bytes);
        u32::from_be_bytes(bytes) as usize % below
    }

    fn crash(&mut self, who: Who) {
        match who {
            Who::Client => {
                self.counts.client_crashes += 1;
                self.client.restart();
                self.waiting.clear();
                self.echo = None;
            }
            Who::Server => {
                self.counts.server_crashes += 1;
                self.server.restart();
            }
            Who::Proxy => {
                self.counts.proxy_crashes += 1;
                self.scene = Scene::new();
            }
        }
    }

    /// Lets the power of `who` fail at this point of the program, with the probability of one divided by [`POINTS`].
    /// Returns [`Cut`] if the power failed.
    fn point(&mut self, who: Who) -> Result<(), Cut> {
        if !self.fails || self.draw(POINTS) > 0 {
            return Ok(());
        }
        self.crash(who);
        Err(Cut)
    }

    fn end(&mut self, who: Who) -> &mut End {
        if who == Who::Client { &mut self.client } else { &mut self.server }
    }

    /// Reserves [`LEASE`] message numbers if no reserved number is left. Before the first of these numbers is used,
    /// writes the end of the reserved numbers to the disk.
    fn lease(&mut self, who: Who) -> Result<(), Cut> {
        if self.end(who).context.lease().left() > 0 {
            return Ok(());
        }
        self.point(who)?;
        let end = self.end(who);
        let until = end.context.lease().end() + LEASE;
        if end.keeps {
            end.kept = until;
        }
        self.point(who)?;
        self.end(who).context.lease_mut().extend(until);
        Ok(())
    }

    /// Lets the client send a request to the proxy, with the Echo value if the server asked for one.
    fn ask(&mut self) -> Result<(), Cut> {
        self.lease(Who::Client)?;
        self.point(Who::Client)?;
        let number = self.next;
        self.next += 1;
        let (token, mut storage) = ((number % TOKENS) as u8, [0; 140]);
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        let head = (MessageType::NonConfirmable, Code::POST);
        let mut request = Builder::new(&mut frame, head.0, head.1, number as u16, &[token]).unwrap();
        request.option(HOST.0, HOST.1).unwrap();
        request.option(SCHEME.0, SCHEME.1).unwrap();
        if let Some(echo) = self.echo.take() {
            request.option(OptionNumber::ECHO, &echo).unwrap();
        }
        request.payload(&number.to_be_bytes()).unwrap();
        let pending = self.client.context.protect_request(&mut self.crypto, &mut frame).unwrap();
        let datagram = frame.bytes().to_vec();
        self.point(Who::Client)?;
        self.waiting.insert(token, Waiting { pending, datagram: datagram.clone(), number });
        self.requests.push(datagram.clone());
        self.scene.give(CLIENT, datagram);
        Ok(())
    }

    /// Lets the server process a request. Returns the response.
    fn serve(&mut self, request: &[u8]) -> Result<Vec<u8>, Cut> {
        self.point(Who::Server)?;
        let outer = MessageRef::parse(request).unwrap();
        let head = (MessageType::Acknowledgement, outer.message_id());
        let (token, mut datagram, mut storage) = (Token::new(outer.token()), request.to_vec(), [0; 140]);
        let mut frame = Frame::new(&mut storage, OVERHEAD);
        match self.server.context.unprotect_request(&mut self.crypto, &mut datagram) {
            Ok(Unprotected::Fresh(message, nonce)) => {
                let number = u32::from_be_bytes(message.payload().try_into().unwrap());
                self.counts.replays_accepted += u64::from(!self.delivered.insert(number));
                self.point(Who::Server)?;
                // A response with a number of its own is right, too.
                let binding = nonce.binding();
                let nonce = if self.draw(2) == 0 { Some(nonce) } else { None };
                if nonce.is_none() {
                    self.lease(Who::Server)?;
                }
                let mut response = Builder::new(&mut frame, head.0, Code::CHANGED, head.1, token.as_bytes()).unwrap();
                response.payload(&number.to_be_bytes()).unwrap();
                self.server.context.protect_response(&mut self.crypto, &binding, nonce, &mut frame).unwrap();
            }
            Ok(Unprotected::Unverified(_, binding)) => {
                self.lease(Who::Server)?;
                self.point(Who::Server)?;
                let context = &mut self.server.context;
                context.write_challenge(&mut self.crypto, &binding, head, &token, &mut frame).unwrap();
                self.counts.challenges += 1;
            }
            Err(refused) => {
                self.counts.refused += 1;
                Builder::new(&mut frame, head.0, refused.code(), head.1, token.as_bytes()).unwrap();
            }
        }
        let response = frame.bytes().to_vec();
        self.point(Who::Server)?;
        if MessageRef::parse(&response).unwrap().option(OptionNumber::OSCORE).is_some() {
            self.responses.push(response.clone());
        }
        Ok(response)
    }

    /// Lets the client process a response.
    fn hear(&mut self, response: &[u8]) -> Result<(), Cut> {
        self.point(Who::Client)?;
        let Ok([token]) = <[u8; 1]>::try_from(MessageRef::parse(response).unwrap().token()) else { return Ok(()) };
        let Some(Waiting { pending, number, .. }) = self.waiting.get_mut(&token) else { return Ok(()) };
        let (number, mut datagram) = (*number, response.to_vec());
        // The client ignores an error that nothing protects.
        let opened = self.client.context.unprotect_response(&mut self.crypto, pending, &mut datagram);
        let Ok(message) = opened else { return Ok(()) };
        match message.option(OptionNumber::ECHO) {
            Some(echo) if message.code() == Code::UNAUTHORIZED => self.echo = Some(echo.to_vec()),
            _ => {
                let is_new = message.payload() == number.to_be_bytes() && self.answered.insert(number);
                self.counts.answered += u64::from(is_new);
                self.counts.replays_accepted += u64::from(!is_new);
            }
        }
        self.waiting.remove(&token);
        self.point(Who::Client)
    }

    /// Delivers the datagrams of the proxy to the client and to the server, and the responses of the server to the
    /// proxy.
    fn deliver(&mut self) {
        while let Some((to, datagram)) = self.scene.sent.pop() {
            let copies = if self.fails { [0, 1, 1, 1, 2][self.draw(5)] } else { 1 };
            for _ in 0..copies {
                let code = MessageRef::parse(&datagram).unwrap().code();
                if to == address(CLIENT) && code.is_response() {
                    let _ = self.hear(&datagram);
                } else if to == address(ORIGIN)
                    && code.is_request()
                    && let Ok(response) = self.serve(&datagram)
                {
                    self.scene.give(ORIGIN, response);
                }
            }
            let _ = self.point(Who::Proxy);
        }
    }

    /// Lets the attacker replay one old request and one old response. The request goes to the proxy, and also directly
    /// to the server. The response goes to the proxy, and also directly to the client.
    fn attack(&mut self) {
        self.counts.replays_tried += 1;
        if !self.requests.is_empty() {
            let at = self.draw(self.requests.len());
            let request = self.requests[at].clone();
            self.scene.give(ATTACKER, request.clone());
            self.deliver();
            let _ = self.serve(&request);
        }
        if !self.responses.is_empty() {
            let at = self.draw(self.responses.len());
            let response = self.responses[at].clone();
            self.scene.give(ORIGIN, response.clone());
            self.deliver();
            let _ = self.hear(&response);
            // With the token of a request that waits.
            if let Some(token) = self.waiting.keys().next().copied() {
                let mut forged = response;
                if let Some(place) = forged.get_mut(4) {
                    *place = token;
                }
                let _ = self.hear(&forged);
            }
        }
    }

    fn step(&mut self) {
        match self.draw(4) {
            0 | 1 => {
                let _ = self.ask();
            }
            2 => {
                let again = self.waiting.values().next_back().map(|waiting| waiting.datagram.clone());
                if let Some(again) = again {
                    self.scene.give(CLIENT, again);
                }
            }
            _ => self.attack(),
        }
        if self.draw(4) > 0 {
            self.deliver();
        }
    }

    /// Ends the power cuts, and restarts the proxy. Then lets the client send two requests, because the server may
    /// answer the first request with an Echo challenge. Returns true if the client accepts a response.
    fn is_back(&mut self) -> bool {
        (self.fails, self.scene) = (false, Scene::new());
        let before = self.counts.answered;
        for _ in 0..2 {
            let _ = self.ask();
            self.deliver();
        }
        self.counts.answered > before
    }
}

/// Makes runs with this fault, until there were at least `crashes` power cuts. Returns the counts of all runs.
fn run(crashes: u64, fault: Fault) -> Counts {
    let mut all = Counts::default();
    for seed in 0.. {
        let mut world = World::new(seed, fault);
        (0..STEPS).for_each(|_| world.step());
        assert!(world.is_back() || fault != Fault::Nothing, "run {seed}");
        (world.counts.nonces, world.counts.repeated_nonces) = (world.crypto.nonces(), world.crypto.repeated);
        all.add(&world.counts);
        if all.crashes() >= crashes {
            break;
        }
    }
    println!("{fault:?}: {all:?}");
    all
}

#[test]
fn ends_and_proxy_that_crash_use_no_nonce_twice_and_accept_no_message_twice() {
    let counts = run(CRASHES, Fault::Nothing);
    assert_eq!((counts.repeated_nonces, counts.replays_accepted), (0, 0));
    assert!([counts.client_crashes, counts.server_crashes, counts.proxy_crashes].iter().all(|count| *count > 1_500));
    assert!(counts.answered > 2_000 && counts.challenges > 2_000 && counts.replays_tried > 2_000, "{counts:?}");
}

#[test]
fn a_client_that_keeps_no_numbers_is_caught() {
    assert!(run(100, Fault::ClientKeepsNoNumbers).repeated_nonces > 0);
}

#[test]
fn a_server_that_keeps_no_numbers_is_caught() {
    assert!(run(100, Fault::ServerKeepsNoNumbers).repeated_nonces > 0);
}

#[test]
fn a_server_that_asks_for_no_echo_is_caught() {
    assert!(run(100, Fault::ServerAsksForNothing).replays_accepted > 0);
}
