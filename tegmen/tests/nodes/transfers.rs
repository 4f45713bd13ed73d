//! Transfers with bodies that are longer than a message, between two nodes (RFC 7959, RFC 9175).

use super::{Entry, Random, World};
use tegmen::coap::{Code, MessageRef, OptionNumber, RequestId, Response};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Cx;
use tegmen::dtls::{Both, Extended};
use tegmen::endpoint::PeerArray;
use tegmen::identity::PeerId;
use tegmen::node::{
    BodyArray, Features, Node, PacingArray, Parts, QueueArray, Reply, SendError, Transfer, TransferError, TransferStep,
};
use tegmen::time::Duration;

type Transfers = Parts<QueueArray<24, 64>, PacingArray<2>, (), (), BodyArray<4, 400, 4>>;

/// A resource that stores the body of a PUT request. The response to GET has the stored body. The response to POST or
/// FETCH has the body of its request.
#[derive(Default)]
pub(crate) struct Store {
    body: Vec<u8>,
    executed: Vec<(Code, Vec<u8>)>,
    /// All representations that the resource had.
    versions: Vec<Vec<u8>>,
    /// The random generator that decides at which requests the representation changes. `None` if it never changes by
    /// itself.
    restless: Option<Random>,
    /// The random generator that decides which requests get a challenge. `None` if no request gets a challenge.
    distrusts: Option<Random>,
}

impl Store {
    fn set(&mut self, body: Vec<u8>) {
        self.versions.push(body.clone());
        self.body = body;
    }

    pub(crate) fn handle(&mut self, message: &MessageRef<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if self.distrusts.as_mut().is_some_and(|random| random.below(3) == 0) && message.option(ECHO) != Some(b"e") {
            response.set_code(Code::UNAUTHORIZED);
            return response.option(ECHO, b"e");
        }
        if self.restless.as_mut().is_some_and(|random| random.below(16) == 0) {
            let version = self.versions.len() + 1;
            self.set(body(150 + version));
        }
        self.executed.push((message.code(), message.payload().to_vec()));
        match message.code() {
            Code::GET => return response.payload(&self.body),
            Code::PUT => self.body = message.payload().to_vec(),
            _ => return response.payload(message.payload()),
        }
        response.set_code(Code::CHANGED);
        Ok(())
    }
}

const ECHO: OptionNumber = OptionNumber::ECHO;

/// A transfer, and the bodies of its request and its response.
pub(crate) struct Asking {
    transfer: Transfer,
    body: Vec<u8>,
    received: Vec<u8>,
    code: Code,
    is_due: bool,
    outcome: Option<Result<Code, TransferError>>,
    /// Number of additional messages that the server made necessary.
    again: u64,
}

impl Asking {
    fn new(method: Code, body: Vec<u8>, block_size: usize) -> Self {
        let transfer = Transfer::new(method, body.len(), block_size, 400).unwrap();
        Self { transfer, body, received: Vec::new(), code: Code::EMPTY, is_due: true, outcome: None, again: 0 }
    }

    /// Processes a reply. Returns false if the reply belongs to another request.
    pub(crate) fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) -> bool {
        let Some(step) = self.transfer.on_reply(peer, request, reply) else { return false };
        let (payload, code) = match reply {
            Reply::Response(response) => (response.payload(), response.code()),
            _ => (&[][..], Code::EMPTY),
        };
        let mut keep = |at: usize, received: &mut Vec<u8>| {
            received.truncate(at);
            assert_eq!(received.len(), at);
            received.extend(payload);
            self.code = if at == 0 { code } else { self.code };
        };
        match step {
            Ok(TransferStep::Acknowledged) => return true,
            Ok(TransferStep::Again) => self.again += 1,
            Ok(TransferStep::Sent(len)) => assert!(len < self.body.len()),
            Ok(TransferStep::Received { at, .. }) => keep(at, &mut self.received),
            Ok(TransferStep::Complete(at)) => {
                keep(at, &mut self.received);
                self.outcome = Some(Ok(self.code));
            }
            Err(error) => self.outcome = Some(Err(error)),
        }
        self.is_due = self.outcome.is_none();
        true
    }

    /// Sends the next message, if it is due and NSTART allows it.
    pub(crate) fn send<F: Features, E: Entry>(
        &mut self,
        node: &mut Node<PeerArray<E, 2, 1>, Extended<Both>, F>,
        cx: &mut Cx<'_, RustCrypto>,
        peer: PeerId,
    ) -> Option<Vec<u8>> {
        let mut out = [0; 400];
        if !self.is_due {
            return None;
        }
        match node.transfer(cx, peer, &mut self.transfer, |request| request.path("store"), &self.body, &mut out) {
            Ok((_, len)) => {
                self.is_due = false;
                (len > 0).then(|| out[..len].to_vec())
            }
            Err(SendError::Busy) => None,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Returns a body whose bytes depend on its length.
fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + len) as u8).collect()
}

/// Returns the number of seeds: thousands, or the value of `TEGMEN_SEEDS`.
fn seeds() -> u64 {
    std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000)
}

/// Creates a world in which node 0 sends a request with this body to node 1. The seed determines the block size of the
/// client.
fn asking(seed: u64, secure: bool, method: Code, body: Vec<u8>) -> World<Transfers> {
    let mut world = World::<Transfers>::new(seed, secure);
    world.run();
    let block_size = if world.random.below(2) == 0 { 16 } else { 32 };
    world.ends[0].app.transfer = Some(Asking::new(method, body, block_size));
    world
}

/// Returns the outcome of the transfer; `None` if there was no session, or if too many messages were lost.
fn outcome(world: &World<Transfers>, seed: u64) -> Option<(Code, Vec<u8>)> {
    let asking = world.ends[0].app.transfer.as_ref().unwrap();
    match asking.outcome {
        Some(Ok(code)) => Some((code, asking.received.clone())),
        Some(Err(TransferError::Unanswered)) => None,
        None if world.ends[0].peer.is_none() => None,
        other => panic!("seed {seed}: {other:?}"),
    }
}

fn bodies_of_every_length_arrive_whole(secure: bool) {
    let (seeds, mut all) = (seeds(), 0);
    for seed in 0..seeds {
        let method = [Code::GET, Code::PUT, Code::POST, Code::FETCH][seed as usize % 4];
        let len = (seed / 4 % 200) as usize;
        let sent = if method == Code::GET { Vec::new() } else { body(len) };
        let mut world = asking(seed, secure, method, sent);
        world.ends[1].app.counter.store.set(body(len));
        // Both ask at the same time, too.
        world.ends.iter_mut().for_each(|end| end.to_ask.extend(0..3));
        world.run();
        let store = &world.ends[1].app.counter.store;
        let whole = store.executed.iter().all(|(_, sent)| method == Code::GET || *sent == body(len));
        assert!(whole, "seed {seed}: the handler saw a part of a body");
        if method == Code::PUT || method == Code::POST {
            assert!(store.executed.len() <= 1, "seed {seed}: it was executed again");
        }
        let Some((code, received)) = outcome(&world, seed) else { continue };
        assert!(code.is_success(), "seed {seed}: {}", code.name());
        let expected = if method == Code::PUT { Vec::new() } else { body(len) };
        assert!(received == expected, "seed {seed}: {} bytes of {len}", received.len());
        assert!(world.ends[1].app.counter.store.body == body(len), "seed {seed}");
        all += 1;
    }
    assert!(all > seeds * 2 / 3, "only {all} transfers of {seeds} were complete");
}

#[test]
fn bodies_of_every_length_arrive_whole_in_clear() {
    bodies_of_every_length_arrive_whole(false);
}

#[test]
fn bodies_of_every_length_arrive_whole_in_a_session() {
    bodies_of_every_length_arrive_whole(true);
}

#[test]
fn blocks_of_two_representations_are_never_put_together() {
    let (seeds, mut all, mut again) = (seeds(), 0, 0);
    for seed in 0..seeds {
        let mut world = asking(seed, seed % 2 == 0, Code::GET, Vec::new());
        world.loss /= 2;
        let store = &mut world.ends[1].app.counter.store;
        store.set(body(150));
        store.restless = Some(Random(seed + 1));
        world.run();
        let transfer = world.ends[0].app.transfer.as_ref().unwrap();
        again += transfer.again;
        if let Some(Err(TransferError::Changed | TransferError::Refused(_))) = transfer.outcome {
            continue;
        }
        let Some((_, received)) = outcome(&world, seed) else { continue };
        assert!(world.ends[1].app.counter.store.versions.contains(&received), "seed {seed}");
        all += 1;
    }
    assert!(all > seeds / 2 && again > seeds / 8, "{all} of {seeds} were complete, {again} began again");
}

#[test]
fn a_server_that_forgets_blocks_is_sent_the_body_again_and_executes_it_once() {
    let (seeds, mut all, mut again) = (seeds(), 0, 0);
    for seed in 0..seeds {
        let mut world = asking(seed, seed % 2 == 0, Code::PUT, body(100));
        for _ in 0..100 {
            let until = world.now.after(Duration::from_millis(1 + world.random.below(400)));
            world.run_until(until);
            if world.random.below(6) == 0 {
                world.ends[1].node.features.bodies = BodyArray::default();
            }
        }
        world.run();
        let executed = &world.ends[1].app.counter.store.executed;
        assert!(executed.len() <= 1 && executed.iter().all(|(_, sent)| *sent == body(100)), "seed {seed}");
        again += world.ends[0].app.transfer.as_ref().unwrap().again;
        let Some((code, _)) = outcome(&world, seed) else { continue };
        let expected = if executed.is_empty() { Code::REQUEST_ENTITY_INCOMPLETE } else { Code::CHANGED };
        assert_eq!(code, expected, "seed {seed}");
        all += u64::from(code == Code::CHANGED);
    }
    assert!(all > seeds / 2 && again > seeds / 8, "{all} of {seeds} were complete, {again} began again");
}

#[test]
fn a_server_that_asks_for_echo_at_any_message_gets_it() {
    let (seeds, mut all, mut again) = (seeds(), 0, 0);
    for seed in 0..seeds {
        let method = [Code::GET, Code::PUT, Code::FETCH][seed as usize % 3];
        let sent = if method == Code::GET { Vec::new() } else { body(70) };
        let mut world = asking(seed, seed % 2 == 0, method, sent);
        let asking = world.ends[0].app.transfer.as_mut().unwrap();
        // An Echo option and a Request-Tag fit beside blocks of 16 bytes only.
        *asking = Asking::new(method, asking.body.clone(), 16);
        let store = &mut world.ends[1].app.counter.store;
        store.set(body(70));
        store.distrusts = Some(Random(seed + 1));
        world.run();
        again += world.ends[0].app.transfer.as_ref().unwrap().again;
        let Some((code, received)) = outcome(&world, seed) else { continue };
        assert!(code.is_success(), "seed {seed}: {}", code.name());
        assert!(method == Code::PUT || received == body(70), "seed {seed}");
        all += 1;
    }
    assert!(all > seeds / 2 && again > seeds / 8, "{all} of {seeds} were complete, {again} were challenged");
}
