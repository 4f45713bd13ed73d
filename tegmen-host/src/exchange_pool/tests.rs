#[path = "../../../tegmen/tests/exchanges/messages.rs"]
mod messages;
#[path = "../../../tegmen/tests/exchanges/network.rs"]
mod network;

use super::*;
use proptest::prelude::*;
use tegmen::coap::{Token, Waiting};
use tegmen::time::Duration;

const START: Instant = Instant::from_micros(1_000_000_000);
/// The minimum number of bytes of a pool.
const SMALLEST: usize = (SAFE_MIN + BUSY_MIN) * SEGMENT;

/// The storage that the shared test modules test. The same modules also test other storages.
type Storage = ExchangePool;

fn storage() -> Storage {
    ExchangePool::new(SMALLEST, 4096)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the stored reply to a message; `None` if the pool has none.
fn reply(pool: &ExchangePool, now: Instant, peer: &PoolPeer, key: PoolKey) -> Option<Vec<u8>> {
    pool.handled(now, peer, key).map(|handled| pool.reply(peer, handled).to_vec())
}

/// Begins an exchange that waits for an acknowledgement.
fn open(pool: &mut ExchangePool, peer: &mut PoolPeer, id: u32, message: &[u8]) -> Result<(), Busy> {
    let place = pool.open(peer, message)?;
    *place = exchange(id, id as u16);
    Ok(())
}

/// Changes the event for which an exchange waits.
fn set(pool: &mut ExchangePool, peer: &mut PoolPeer, id: u32, waiting: Waiting) {
    if let Some(exchange) = pool.find(peer, |exchange| exchange.id == RequestId(id)) {
        exchange.waiting = waiting;
    }
    pool.settle(peer, RequestId(id));
}

/// A message that was answered. The test compares the pool with a list of these messages.
struct Answered {
    peer: usize,
    datagram: Vec<u8>,
    at: Instant,
    repeat: Repeat,
    reply: Vec<u8>,
}

/// A pool, its peers, and every message of the last EXCHANGE_LIFETIME.
struct World {
    pool: ExchangePool,
    peers: Vec<PoolPeer>,
    answered: Vec<Answered>,
    /// The messages whose reply is late: the index in `answered`, and the identification of the message.
    late: Vec<(usize, Late)>,
    now: Instant,
    refused: usize,
}

impl World {
    fn new(bytes: usize, peers: usize) -> Self {
        Self {
            pool: ExchangePool::new(bytes, 4096),
            peers: (0..peers).map(|_| PoolPeer::default()).collect(),
            answered: Vec::new(),
            late: Vec::new(),
            now: START,
            refused: 0,
        }
    }

    /// Receives a message, and answers it with `len` bytes unless it was answered before. Checks that the pool has the
    /// earlier answer.
    fn receive(&mut self, peer: usize, message_id: u16, token: u8, repeat: Repeat, len: usize) {
        let datagram = vec![0x41, 1, (message_id >> 8) as u8, message_id as u8, token];
        let key = self.pool.key(self.now, &mut self.peers[peer], message_id, &datagram);
        let known = reply(&self.pool, self.now, &self.peers[peer], key);
        let lives = |one: &&Answered| self.now.since(one.at) < EXCHANGE_LIFETIME - Duration::from_millis(2);
        let same = |one: &&Answered| one.peer == peer && one.datagram == datagram;
        let last = self.answered.iter().rev().filter(same).find(lives);
        match (&known, last) {
            (Some(known), Some(last)) => assert_eq!(*known, last.reply),
            (Some(_), None) => {
                let edge = self.answered.iter().rev().find(same).expect("a reply to what was never answered");
                assert!(self.now.since(edge.at) <= EXCHANGE_LIFETIME, "a reply that is too old");
            }
            (None, Some(last)) => assert_ne!(last.repeat, Repeat::Never, "executed a second time"),
            (None, None) => {}
        }
        if known.is_some() {
            return;
        }
        if !self.pool.has_room(self.now, &mut self.peers[peer], repeat) {
            assert_eq!(repeat, Repeat::Never, "refused what may be executed again");
            self.refused += 1;
            return;
        }
        let reply: Vec<u8> = (0..len).map(|i| (i + message_id as usize + peer) as u8).collect();
        self.pool.keep(self.now, &mut self.peers[peer], key, repeat, &reply);
        let last = self.pool.last_reply(self.now, &self.peers[peer]);
        // If replies that must be kept take all space, the others are lost at once.
        assert!(last == reply || repeat != Repeat::Never && last.is_empty());
        self.answered.push(Answered { peer, datagram, at: self.now, repeat, reply });
    }

    /// Receives a message. Its reply is late, unless it was answered before.
    fn defer(&mut self, peer: usize, message_id: u16, token: u8, repeat: Repeat) {
        let before = self.answered.len();
        self.receive(peer, message_id, token, repeat, 0);
        if self.answered.len() > before {
            let datagram = &self.answered[before].datagram;
            let key = self.pool.key(self.now, &mut self.peers[peer], message_id, datagram);
            self.late.push((before, ExchangePool::late(key, repeat).unwrap()));
        }
    }

    /// Answers all messages whose reply is late, without another message in between. Checks that the pool has each
    /// reply, if there is space for it.
    fn respond(&mut self, len: usize) {
        for (answered, late) in std::mem::take(&mut self.late) {
            let one = &mut self.answered[answered];
            let reply = vec![late.message_id as u8; len];
            self.pool.keep_late(self.now, &mut self.peers[one.peer], late, &reply);
            if self.pool.last_reply(self.now, &self.peers[one.peer]) == reply {
                (one.at, one.reply) = (self.now, reply);
            }
        }
    }

    fn forget(&mut self, peer: usize) {
        self.respond(1);
        self.pool.forget(&mut self.peers[peer]);
        self.answered.retain(|one| one.peer != peer);
    }
}

fn any_repeat() -> impl Strategy<Value = Repeat> {
    prop_oneof![Just(Repeat::Safe), Just(Repeat::Idempotent), Just(Repeat::Never)]
}

#[derive(Clone, Debug)]
enum Step {
    Receive { peer: usize, message_id: u16, token: u8, repeat: Repeat, len: usize },
    Defer { peer: usize, message_id: u16, token: u8, repeat: Repeat },
    Respond { len: usize },
    Wait { millis: u64 },
    Forget { peer: usize },
    Tick,
}

fn any_step() -> impl Strategy<Value = Step> {
    let receive = (0..4usize, 0..24u16, 0..2u8, any_repeat(), 0..=REPLY_MAX);
    prop_oneof![
        60 => receive.prop_map(|(peer, message_id, token, repeat, len)| Step::Receive { peer, message_id, token, repeat, len }),
        30 => (0..4usize, 0..24u16, 0..2u8, any_repeat())
            .prop_map(|(peer, message_id, token, repeat)| Step::Defer { peer, message_id, token, repeat }),
        4 => (0..=REPLY_MAX).prop_map(|len| Step::Respond { len }),
        6 => (0..30_000u64).prop_map(|millis| Step::Wait { millis }),
        1 => (0..4usize).prop_map(|peer| Step::Forget { peer }),
        1 => Just(Step::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_pool_knows_what_a_list_of_all_messages_knows(steps in proptest::collection::vec(any_step(), 1..800)) {
        let mut world = World::new(SMALLEST, 4);
        for step in steps {
            match step {
                Step::Receive { peer, message_id, token, repeat, len } => {
                    world.receive(peer, message_id, token, repeat, len);
                }
                Step::Defer { peer, message_id, token, repeat } => world.defer(peer, message_id, token, repeat),
                Step::Respond { len } => world.respond(len),
                Step::Wait { millis } => world.now = world.now.after(Duration::from_millis(millis)),
                Step::Forget { peer } => world.forget(peer),
                Step::Tick => world.pool.tick(world.now),
            }
        }
    }
}

#[test]
fn late_replies_are_known_at_once_and_replace_the_records_of_their_messages() {
    let mut world = World::new(SMALLEST, 4);
    for len in [0, 1, 60] {
        let before = world.answered.len();
        // More late replies than can wait for the index.
        for n in 0..3 * LATE_MAX as u16 {
            world.defer(usize::from(n) % 4, n + 1000 * len as u16, 1, Repeat::Never);
        }
        let in_index = world.pool.index.len();
        world.respond(len);
        assert!(world.answered[before..].iter().all(|one| one.reply.len() == len));
        for n in 0..3 * LATE_MAX as u16 {
            world.receive(usize::from(n) % 4, n + 1000 * len as u16, 1, Repeat::Never, 7);
        }
        assert_eq!((world.pool.index.len(), world.pool.late.len()), (in_index, 0));
    }
    // A late reply is also removed after EXCHANGE_LIFETIME if no message comes meanwhile.
    world.defer(0, 1, 2, Repeat::Never);
    world.respond(5);
    world.now = world.now.after(EXCHANGE_LIFETIME + seconds(1));
    world.pool.tick(world.now);
    assert!(world.pool.index.is_empty());
}

/// Number of peers. The maximum replies of all these peers together take more bytes than the pool has.
const CROWD: usize = 64;

#[test]
fn a_full_pool_refuses_what_must_not_be_executed_twice_and_forgets_none_of_it() {
    let mut world = World::new(SMALLEST, CROWD);
    for n in 0..2_000 {
        world.receive(n % CROWD, (n / CROWD) as u16, 1, Repeat::Never, 400);
        world.receive(n % CROWD, 1000 + (n / CROWD) as u16, 1, Repeat::Safe, 400);
    }
    let kept = world.answered.iter().filter(|one| one.repeat == Repeat::Never).count();
    assert!(world.refused > 0 && kept * (400 + HEADER) > SMALLEST * 4 / 5, "{kept} kept, {} refused", world.refused);
    // All of them are still known, as `receive` asserts, and nothing new is taken.
    let refused = world.refused;
    for n in 0..2_000 {
        world.receive(n % CROWD, (n / CROWD) as u16, 1, Repeat::Never, 400);
    }
    assert_eq!(world.refused, 2 * refused);
    // After EXCHANGE_LIFETIME there is space again.
    world.now = world.now.after(EXCHANGE_LIFETIME + seconds(1));
    world.refused = 0;
    for n in 0..500 {
        world.receive(n % CROWD, 5000 + (n / CROWD) as u16, 1, Repeat::Never, 400);
    }
    assert_eq!(world.refused, 0);
}

#[test]
fn one_peer_cannot_take_the_room_of_all() {
    let mut world = World::new(SMALLEST, 2);
    for n in 0..1_000 {
        world.receive(0, n, 1, Repeat::Never, 400);
    }
    assert!(world.refused > 0);
    world.refused = 0;
    world.receive(1, 0, 1, Repeat::Never, 400);
    assert_eq!(world.refused, 0);
}

#[test]
fn what_one_peer_asks_often_leaves_the_replies_to_others() {
    let mut world = World::new(SMALLEST, 2);
    world.receive(1, 7, 1, Repeat::Safe, 100);
    for n in 0..20_000 {
        world.receive(0, n, 1, Repeat::Safe, 100);
        world.now = world.now.after(Duration::from_micros(100));
    }
    let datagram = [0x41, 1, 0, 7, 1];
    let key = world.pool.key(world.now, &mut world.peers[1], 7, &datagram);
    assert!(world.pool.handled(world.now, &world.peers[1], key).is_some());
}

#[test]
fn a_reply_to_a_cheap_request_is_not_kept_and_displaces_the_last_reply() {
    let mut world = World::new(SMALLEST, 1);
    world.receive(0, 7, 1, Repeat::Safe, 10);
    let before = world.pool.heap_bytes();
    let datagram = [0x41, 1, 0, 8, 1];
    let key = world.pool.key(world.now, &mut world.peers[0], 8, &datagram);
    world.pool.keep(world.now, &mut world.peers[0], key, Repeat::Cheap, b"reply");
    assert_eq!(reply(&world.pool, world.now, &world.peers[0], key), None);
    assert!(world.pool.last_reply(world.now, &world.peers[0]).is_empty());
    assert_eq!(world.pool.heap_bytes(), before);
    // The other reply is still there.
    world.receive(0, 7, 1, Repeat::Never, 10);
    assert_eq!(world.answered.len(), 1);
}

#[test]
fn a_message_id_that_comes_with_other_bytes_is_another_message() {
    let mut world = World::new(SMALLEST, 1);
    world.receive(0, 7, 1, Repeat::Never, 10);
    world.receive(0, 7, 2, Repeat::Never, 20);
    assert_eq!(world.answered.len(), 2);
}

#[test]
fn an_entry_that_another_peer_takes_knows_nothing_of_the_one_before() {
    let mut world = World::new(SMALLEST, 1);
    world.receive(0, 7, 1, Repeat::Never, 10);
    world.forget(0);
    world.receive(0, 7, 1, Repeat::Never, 20);
    assert_eq!(world.answered.len(), 1);
}

#[test]
fn a_reply_that_is_too_long_to_be_kept_is_known_to_have_been_given() {
    let mut world = World::new(SMALLEST, 1);
    let datagram = [0x41, 2, 0, 7, 1];
    let key = world.pool.key(START, &mut world.peers[0], 7, &datagram);
    assert!(world.pool.has_room(START, &mut world.peers[0], Repeat::Never));
    world.pool.keep(START, &mut world.peers[0], key, Repeat::Never, &[0; REPLY_MAX + 1]);
    assert_eq!(reply(&world.pool, START, &world.peers[0], key), Some(Vec::new()));
}

#[test]
fn nothing_is_left_after_the_lifetime() {
    let mut world = World::new(1 << 20, 8);
    for n in 0..4_000 {
        world.receive(n % 8, n as u16, 1, [Repeat::Safe, Repeat::Idempotent, Repeat::Never][n % 3], n % 200);
    }
    world.pool.tick(START.after(EXCHANGE_LIFETIME + seconds(1)));
    assert!([&world.pool.lasting, &world.pool.safe, &world.pool.busy].iter().all(|ring| ring.segments() == 0));
    assert_eq!(world.pool.index.len(), 0);
}

fn exchange(id: u32, message_id: u16) -> Outgoing {
    Outgoing {
        id: RequestId(id),
        waiting: Waiting::Acknowledgement,
        is_request: true,
        registers: false,
        retransmissions: 0,
        message_id,
        timeout_ms: 2000,
        deadline: START,
        token: Token::new(&[1, 2]),
    }
}

fn written(pool: &ExchangePool, peer: &PoolPeer, id: u32) -> Vec<u8> {
    let mut storage = [0; 2048];
    let mut frame = Frame::new(&mut storage, 0);
    pool.write(peer, RequestId(id), &mut frame).unwrap();
    frame.bytes().to_vec()
}

#[test]
fn messages_of_every_length_come_back_as_they_were() {
    let mut pool = ExchangePool::new(SMALLEST, 1 << 20);
    let mut peers: Vec<PoolPeer> = (0..3).map(|_| PoolPeer::default()).collect();
    let message = |n: u32| -> Vec<u8> { (0..n * 7).map(|i| (i * 31 + n) as u8).collect() };
    for n in 0..180 {
        open(&mut pool, &mut peers[n as usize % 3], n, &message(n)).unwrap();
    }
    for n in (0..180).step_by(2) {
        set(&mut pool, &mut peers[n as usize % 3], n, Waiting::Nothing);
    }
    for n in 0..180u32 {
        let peer = &mut peers[n as usize % 3];
        let found = pool.find(peer, |exchange| exchange.message_id == n as u16).map(|exchange| exchange.id);
        assert_eq!(found, (n % 2 == 1).then_some(RequestId(n)));
        assert_eq!(written(&pool, peer, n), if n % 2 == 1 { message(n) } else { Vec::new() });
    }
    let order: Vec<u32> = pool.exchanges(&peers[1]).map(|exchange| exchange.id.0).collect();
    assert!(order.is_sorted() && order.len() == 30);
    set(&mut pool, &mut peers[1], 1, Waiting::Response);
    assert!(written(&pool, &peers[1], 1).is_empty() && pool.exchanges(&peers[1]).count() == 30);
    for peer in &mut peers {
        pool.forget(peer);
        assert_eq!(pool.exchanges(peer).count(), 0);
    }
    assert_eq!(pool.sent.used_bytes(), 0);
}

#[test]
fn messages_that_wait_take_no_more_than_they_may() {
    let mut pool = ExchangePool::new(SMALLEST, 4096);
    let mut peer = PoolPeer::default();
    let opened = (0..100).take_while(|n| open(&mut pool, &mut peer, *n, &[0; 200]).is_ok()).count();
    assert!((8..=16).contains(&opened), "{opened}");
    assert_eq!(open(&mut pool, &mut peer, 100, &[0; 200]), Err(Busy::Outstanding));
    set(&mut pool, &mut peer, 3, Waiting::Nothing);
    assert_eq!(open(&mut pool, &mut peer, 100, &[0; 200]), Ok(()));
    assert_eq!(open(&mut pool, &mut peer, 101, &[0; 70_000]), Err(Busy::TooLong));
}

#[test]
fn the_segments_take_no_more_memory_than_their_limit() {
    let (mut segments, mut ring) = (Segments::new(20), Ring::default());
    while ring.extend(&mut segments) {}
    assert_eq!(ring.segments(), 20);
    assert!((20 * SEGMENT..21 * SEGMENT).contains(&segments.heap_bytes()), "{}", segments.heap_bytes());
}
