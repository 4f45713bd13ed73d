//! Two CoAP peers with a fake clock. The network loses, repeats, delays and therefore reorders messages. The parent
//! module selects the storage of their exchanges.

use super::{Storage, storage};
use std::collections::HashMap;
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, Request, Served, serve};
use tegmen::coap::{
    Authorized, Builder, Code, Due, ExchangeStorage, Exchanges, Handler, MessageRef, MessageType, OptionNumber,
    Received, Repeat, RequestId, Response, Token, empty_message,
};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::{Duration, Instant};

/// Maximum number of exchanges that are open at the same time.
const NSTART: usize = 2;

/// The exchanges of one peer, and their storage.
struct Peer {
    storage: Storage,
    exchanges: Exchanges<Storage>,
}

impl Peer {
    fn new(first_message_id: u16) -> Self {
        Self { storage: storage(), exchanges: Exchanges::new(first_message_id) }
    }

    fn receive<'m>(&mut self, now: Instant, datagram: &'m [u8]) -> Received<'m, '_, Key> {
        self.exchanges.receive(&mut self.storage, now, datagram)
    }

    fn sent(&mut self, now: Instant, message: &[u8], random: u8) -> RequestId {
        self.exchanges.sent(&mut self.storage, now, message, random).unwrap()
    }

    fn open(&self) -> usize {
        self.exchanges.open(&self.storage)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.exchanges.next_deadline(&self.storage)
    }

    /// Returns the work that is due, and the message that must be sent again.
    fn poll(&mut self, now: Instant) -> Option<(Due, Vec<u8>)> {
        let mut bytes = [0; 64];
        let mut frame = Frame::new(&mut bytes, 0);
        let due = self.exchanges.poll(&mut self.storage, now, &mut frame)?;
        Some((due, frame.bytes().to_vec()))
    }
}

type Key = <Storage as ExchangeStorage>::Key;

/// The behaviour of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Piggybacked,
    SeparateConfirmable,
    SeparateNonConfirmable,
    Resets,
    Silent,
}

const MANNERS: [Manner; 5] =
    [Manner::Piggybacked, Manner::SeparateConfirmable, Manner::SeparateNonConfirmable, Manner::Resets, Manner::Silent];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Response(u32),
    Reset,
    TimedOut,
}

/// Counts the executions of each request. No request is idempotent, so none must be executed twice.
#[derive(Default)]
struct Counter {
    executed: HashMap<u32, u32>,
}

impl Handler for Counter {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let [manner, number @ ..] = request.message().payload() else { return Err(Code::BAD_REQUEST) };
        let number = u32::from_be_bytes(number.try_into().map_err(|_| Code::BAD_REQUEST)?);
        *self.executed.entry(number).or_default() += 1;
        if MANNERS[usize::from(*manner)] == Manner::Piggybacked {
            response.set_code(Code::CHANGED);
            return response.payload(&number.to_be_bytes());
        }
        response.defer();
        Ok(())
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

struct World {
    now: Instant,
    random: Random,
    loss: u64,
    client: Peer,
    server: Peer,
    counter: Counter,
    /// The datagrams on the network: time of arrival, number, true if the server receives it, bytes.
    flying: Vec<(Instant, usize, bool, Vec<u8>)>,
    order: usize,
    /// The deferred responses of the server: time, token, number of the request, true if the response is confirmable.
    deferred: Vec<(Instant, Token, u32, bool)>,
    /// The message that the server sent under each Message ID. All transmissions must have the same bytes.
    said: HashMap<u16, Vec<u8>>,
    outcomes: HashMap<RequestId, Outcome>,
    sent_by_client: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let loss = random.below(40);
        Self {
            now: Instant::from_micros(5_000_000),
            loss,
            client: Peer::new(65530u16.wrapping_add(random.below(6) as u16)),
            server: Peer::new(random.below(1 << 16) as u16),
            random,
            counter: Counter::default(),
            flying: Vec::new(),
            order: 0,
            deferred: Vec::new(),
            said: HashMap::new(),
            outcomes: HashMap::new(),
            sent_by_client: 0,
        }
    }

    fn launch(&mut self, to_server: bool, datagram: &[u8]) {
        if datagram.is_empty() {
            return;
        }
        self.sent_by_client += usize::from(to_server);
        if self.random.below(100) < self.loss {
            return;
        }
        let copies = if self.random.below(8) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let millis = if self.random.below(6) == 0 { self.random.below(1500) } else { 10 + self.random.below(30) };
            self.order += 1;
            let arrival = self.now.after(Duration::from_millis(millis));
            self.flying.push((arrival, self.order, to_server, datagram.to_vec()));
        }
    }

    fn ask(&mut self, number: u32, kind: MessageType, manner: Manner) -> RequestId {
        let mut storage = [0; 64];
        let mut frame = Frame::new(&mut storage, 0);
        let id = self.client.exchanges.message_id();
        let mut builder = Builder::new(&mut frame, kind, Code::POST, id, &number.to_be_bytes()[2..]).unwrap();
        builder.option(OptionNumber::URI_PATH, b"count").unwrap();
        builder.payload(&[MANNERS.iter().position(|m| *m == manner).unwrap() as u8]).unwrap();
        builder.payload(&number.to_be_bytes()).unwrap();
        let request = self.client.sent(self.now, frame.bytes(), self.random.below(256) as u8);
        self.launch(true, frame.bytes());
        request
    }

    fn server_says(&mut self, datagram: &[u8]) {
        if let Ok(message) = MessageRef::parse(datagram)
            && message.message_type() != MessageType::Reset
        {
            let before = self.said.insert(message.message_id(), datagram.to_vec());
            // A Message ID of the client's and one of the server's may be the same number.
            let own = |d: &[u8]| MessageRef::parse(d).unwrap().message_type() == MessageType::Acknowledgement;
            if let Some(before) = before.filter(|before| own(before) == own(datagram)) {
                assert_eq!(before, datagram, "answered again with other bytes");
            }
        }
        self.launch(false, datagram);
    }

    fn server_receives(&mut self, datagram: &[u8]) {
        let reply = match self.server.receive(self.now, datagram) {
            Received::Request(message, key) => {
                let manner = MANNERS[usize::from(message.payload()[0])];
                let number = u32::from_be_bytes(message.payload()[1..].try_into().unwrap());
                let id = message.message_id();
                match manner {
                    Manner::Silent => return,
                    Manner::Resets => empty_message(MessageType::Reset, id).to_vec(),
                    _ => {
                        let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
                        let mut storage = [0; 64];
                        let mut frame = Frame::new(&mut storage, 0);
                        let request = Request::new(message, identity);
                        let Peer { storage, exchanges } = &mut self.server;
                        assert!(exchanges.has_room(storage, self.now, Repeat::Never));
                        let own_id = exchanges.message_id();
                        match serve(request, &Anybody, &mut self.counter, own_id, &mut frame) {
                            Served::Responded { code, .. } => assert_eq!(code, Code::CHANGED),
                            Served::NoRoom => panic!("a small response in a large frame"),
                            Served::Deferred { token, .. } => {
                                let at = self.now.after(Duration::from_millis(self.random.below(4000)));
                                let confirmable = manner == Manner::SeparateConfirmable;
                                self.deferred.push((at, token, number, confirmable));
                            }
                        }
                        let reply = frame.finish().to_vec();
                        exchanges.keep_reply(storage, self.now, key, Repeat::Never, &reply);
                        reply
                    }
                }
            }
            Received::Duplicate(reply) => reply.to_vec(),
            Received::Reject(reset) => reset.to_vec(),
            Received::Acknowledged(_) | Received::Reset(_) | Received::Rejected { .. } | Received::Nothing => return,
            Received::Response { .. } => panic!("the server asked nothing"),
        };
        self.server_says(&reply);
    }

    fn client_receives(&mut self, datagram: &[u8]) {
        match self.client.receive(self.now, datagram) {
            Received::Response { request, message, acknowledge } => {
                let number = u32::from_be_bytes(message.payload().try_into().unwrap());
                let acknowledge = acknowledge.map(|bytes| bytes.to_vec()).unwrap_or_default();
                assert_eq!(self.outcomes.insert(request, Outcome::Response(number)), None);
                self.launch(true, &acknowledge);
            }
            Received::Duplicate(reply) => {
                let reply = reply.to_vec();
                self.launch(true, &reply);
            }
            Received::Reject(reset) => self.launch(true, &reset),
            Received::Reset(id) => assert_eq!(self.outcomes.insert(id, Outcome::Reset), None),
            Received::Acknowledged(_) | Received::Rejected { .. } | Received::Nothing => {}
            Received::Request(..) => panic!("the client serves nothing"),
        }
    }

    /// Sends the deferred responses that are due, and polls both peers.
    fn poll(&mut self) {
        while let Some(at) = self.deferred.iter().position(|(at, ..)| *at <= self.now) {
            if self.server.open() == NSTART {
                break; // later, when an older one was acknowledged or given up
            }
            let (_, token, number, confirmable) = self.deferred.remove(at);
            let mut storage = [0; 64];
            let mut frame = Frame::new(&mut storage, 0);
            let id = self.server.exchanges.message_id();
            if confirmable {
                let mut builder =
                    Builder::new(&mut frame, MessageType::Confirmable, Code::CHANGED, id, token.as_bytes()).unwrap();
                builder.payload(&number.to_be_bytes()).unwrap();
            } else {
                let kind = MessageType::NonConfirmable;
                let mut builder = Builder::new(&mut frame, kind, Code::CHANGED, id, token.as_bytes()).unwrap();
                builder.payload(&number.to_be_bytes()).unwrap();
            }
            self.server.sent(self.now, frame.bytes(), self.random.below(256) as u8);
            self.server_says(frame.bytes());
        }
        loop {
            let again = match self.client.poll(self.now) {
                None => break,
                Some((Due::Retransmit, bytes)) => bytes,
                Some((Due::TimedOut(id), _)) => {
                    assert_eq!(self.outcomes.insert(id, Outcome::TimedOut), None);
                    continue;
                }
            };
            self.launch(true, &again);
        }
        loop {
            let again = match self.server.poll(self.now) {
                None => break,
                Some((Due::Retransmit, bytes)) => bytes,
                Some((Due::TimedOut(_), _)) => continue,
            };
            self.server_says(&again);
        }
    }

    /// Advances the clock until `done` returns true, or until nothing more can happen.
    fn run(&mut self, mut done: impl FnMut(&Self) -> bool) {
        loop {
            self.poll();
            if done(self) {
                return;
            }
            let arrival = self.flying.iter().map(|flying| flying.0).min();
            let response = self.deferred.iter().map(|deferred| deferred.0).filter(|at| *at > self.now).min();
            let deadlines = [self.client.next_deadline(), self.server.next_deadline()];
            let Some(next) = [arrival, response].into_iter().chain(deadlines).flatten().min() else { return };
            self.now = self.now.max(next);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, to_server, datagram) = self.flying.remove(0);
                if to_server { self.server_receives(&datagram) } else { self.client_receives(&datagram) }
            }
        }
    }
}

/// Runs thousands of seeds. `TEGMEN_SEEDS` sets their number.
#[test]
fn every_request_has_one_outcome_and_is_executed_at_most_once() {
    let seeds = std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let mut answered = 0;
    for seed in 0..seeds {
        let mut world = World::new(seed);
        let mut asked = Vec::new();
        // More requests than Message IDs up to 65535 from where it starts: the ids wrap.
        for number in 0..10 {
            let manner = MANNERS[world.random.below(5) as usize];
            let kind = match world.random.below(4) {
                0 => MessageType::NonConfirmable,
                _ => MessageType::Confirmable,
            };
            let id = world.ask(number, kind, manner);
            asked.push((id, manner));
            if world.random.below(3) > 0 || world.client.open() == NSTART {
                world.run(|world| world.client.open() < 1 + number as usize % 2);
            }
        }
        world.run(|_| false);
        for (number, (id, manner)) in asked.into_iter().enumerate() {
            let outcome = world.outcomes.get(&id).copied();
            let executed = world.counter.executed.get(&(number as u32)).copied().unwrap_or(0);
            assert!(executed <= 1, "seed {seed}: request {number} was executed {executed} times");
            match outcome.unwrap_or_else(|| panic!("seed {seed}: request {number} has no outcome")) {
                Outcome::Response(of) => {
                    assert_eq!((of as usize, executed), (number, 1), "seed {seed}");
                    answered += 1;
                }
                Outcome::Reset => assert_eq!(manner, Manner::Resets, "seed {seed}"),
                Outcome::TimedOut => {}
            }
        }
        assert_eq!((world.client.open(), world.server.open()), (0, 0), "seed {seed}");
    }
    assert!(answered > seeds * 4, "of {} requests only {answered} were answered", seeds * 10);
}

#[test]
fn without_faults_every_manner_has_its_outcome() {
    for kind in [MessageType::Confirmable, MessageType::NonConfirmable] {
        for manner in MANNERS {
            let mut world = World::new(1);
            world.loss = 0;
            let id = world.ask(7, kind, manner);
            world.run(|_| false);
            let expected = match manner {
                Manner::Resets => Outcome::Reset,
                Manner::Silent => Outcome::TimedOut,
                _ => Outcome::Response(7),
            };
            assert_eq!(world.outcomes[&id], expected, "{kind:?} {manner:?}");
        }
    }
}

#[test]
fn a_dead_network_costs_five_datagrams_and_an_end() {
    let mut world = World::new(3);
    world.loss = 100;
    let start = world.now;
    let id = world.ask(1, MessageType::Confirmable, Manner::Piggybacked);
    world.run(|_| false);
    assert_eq!(world.outcomes[&id], Outcome::TimedOut);
    assert_eq!(world.sent_by_client, 5, "the first, and MAX_RETRANSMIT more");
    // MAX_TRANSMIT_WAIT is 93 s; without the random factor it is 62 s (RFC 7252, section 4.8.2).
    let waited = world.now.since(start);
    assert!((Duration::from_secs(62)..Duration::from_secs(94)).contains(&waited), "{waited:?}");
}
