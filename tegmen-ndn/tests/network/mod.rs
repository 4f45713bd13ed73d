//! Networks of forwarders on a fake clock, with losses.

use std::cell::Cell;
use std::collections::BTreeMap;
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::{DIGEST_LEN, RustCrypto};
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::fixed::{FixedPit, FixedStore, Routes};
use tegmen_ndn::forwarder::{Faces, Forwarder, Outgoing, Times};
use tegmen_ndn::lp::NackReason;
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{Entry, FaceId, NextHop, Pit, PitId, Tick};
use tegmen_ndn::{Data, Interest, MAX_HEAD, Name, ReceivedInterest, write_uri};

pub(crate) fn name(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 10_000];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out).unwrap();
    out.written().to_vec()
}

pub(crate) fn interest(interest: &Interest<'_>) -> Vec<u8> {
    let mut storage = vec![0; 10_000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    interest.write::<RustCrypto>(&mut frame).unwrap();
    frame.bytes().to_vec()
}

pub(crate) fn data(text: &str, content: &[u8], freshness: Option<u64>) -> Vec<u8> {
    let name = name(text);
    data_of(&Name::of_checked(&name), content, freshness)
}

fn data_of(name: &Name<'_>, content: &[u8], freshness: Option<u64>) -> Vec<u8> {
    let mut storage = vec![0; 10_000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let data = Data { name: *name, freshness, content: Some(content), ..Data::default() };
    data.write(&mut RustCrypto::new([1; 32]), &DigestSha256, &mut frame).unwrap();
    frame.bytes().to_vec()
}

pub(crate) fn nonce(packet: &[u8]) -> [u8; 4] {
    ReceivedInterest::parse(packet).unwrap().interest.nonce.unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Interest,
    Data,
    Nack(NackReason),
}

/// A packet that a forwarder sent.
pub(crate) struct Sent {
    pub(crate) to: FaceId,
    pub(crate) kind: Kind,
    pub(crate) packet: Vec<u8>,
}

/// The faces of a forwarder under test: an outbox that keeps the packets that the forwarder sends.
pub(crate) struct Outbox<'o> {
    pub(crate) local: &'o [FaceId],
    pub(crate) sent: Vec<Sent>,
}

impl Faces<()> for Outbox<'_> {
    fn is_local(&self, face: FaceId) -> bool {
        self.local.contains(&face)
    }

    fn send(&mut self, to: FaceId, packet: Outgoing<'_, ()>) {
        let (kind, packet) = match packet {
            Outgoing::Interest(packet, _) => (Kind::Interest, packet),
            Outgoing::Data(packet, ()) => (Kind::Data, packet),
            Outgoing::Nack(packet, reason, ()) => (Kind::Nack(reason), packet),
        };
        self.sent.push(Sent { to, kind, packet: packet.to_vec() });
    }
}

/// Faults that a test can switch on in a table. The tests must notice each fault.
#[derive(Default)]
pub(crate) struct Faults {
    /// A Data packet counts as an answer even if it arrives from a face to which the Interest was not sent.
    pub(crate) any_face: bool,
    /// The Interests of one face may fill the whole table.
    pub(crate) every_place: bool,
    /// A search in the table finds no pending entry, and no nonce of a removed entry.
    pub(crate) forgets: bool,
    /// An Interest counts as a duplicate if its nonce was used before, even for another name.
    pub(crate) nonces_alone: bool,
    /// A name that is too long is cut to ten components.
    pub(crate) cuts: bool,
    /// The nonces of all Interests that were added. Only the fault `nonces_alone` reads them.
    nonces: Vec<[u8; 4]>,
    /// A counter for the fault `every_place`, which gives each Interest another face.
    faces: Cell<u16>,
}

/// A table in an array. The second value has the faults of the table.
#[derive(Default)]
pub(crate) struct TestPit(pub(crate) FixedPit<8, 64, 4, 4, 32>, pub(crate) Faults);

impl Pit for TestPit {
    type Token = ();
    type Asked = <FixedPit<8, 64, 4, 4, 32> as Pit>::Asked;
    type Sent = <FixedPit<8, 64, 4, 4, 32> as Pit>::Sent;

    fn find(&self, interest: &Interest<'_>) -> Option<PitId> {
        self.0.find(interest).filter(|_| !self.1.forgets)
    }

    fn insert(&mut self, from: FaceId, interest: &ReceivedInterest<'_>, expires: Tick) -> Option<PitId> {
        let from = if self.1.every_place {
            self.1.faces.set(self.1.faces.get() + 1);
            FaceId(1000 + self.1.faces.get())
        } else {
            from
        };
        self.1.nonces.extend(interest.interest.nonce);
        let whole = interest.interest.name;
        if self.1.cuts && whole.as_bytes().len() > 64 {
            let name = whole.prefix(10);
            let mut cut = *interest;
            cut.interest.name = name;
            return self.0.insert(from, &cut, expires);
        }
        self.0.insert(from, interest, expires)
    }

    fn entry(&mut self, id: PitId) -> Option<&mut Entry<Self::Asked, Self::Sent>> {
        self.0.entry(id)
    }

    fn name(&self, id: PitId) -> Option<Name<'_>> {
        self.0.name(id)
    }

    fn interest(&self, id: PitId) -> Option<Interest<'_>> {
        self.0.interest(id)
    }

    fn remove(&mut self, id: PitId) {
        self.0.remove(id);
    }

    fn is_dead(&self, name: &Name<'_>, nonce: [u8; 4]) -> bool {
        if self.1.nonces_alone {
            return self.1.nonces.contains(&nonce);
        }
        self.0.is_dead(name, nonce) && !self.1.forgets
    }

    fn has_digests(&self) -> bool {
        self.0.has_digests()
    }

    fn matching(&self, name: &Name<'_>, digest: Option<&[u8; DIGEST_LEN]>, from: FaceId) -> Option<PitId> {
        if self.1.any_face {
            return self.0.matching(name, digest, FaceId(9));
        }
        self.0.matching(name, digest, from)
    }

    fn set_timer(&mut self, id: PitId, at: Tick) {
        self.0.set_timer(id, at);
    }

    fn due(&mut self, now: Tick) -> Option<PitId> {
        self.0.due(now)
    }

    fn next_timer(&self) -> Option<Tick> {
        self.0.next_timer()
    }
}

type Node = Forwarder<Routes<'static>, TestPit, FixedStore<2, 300>>;

/// The face of a node to its consumer.
const CONSUMER: FaceId = FaceId(0);
/// The face of a node to the previous node.
const BACK: FaceId = FaceId(1);
/// The face of a node to the next node.
const NEXT: FaceId = FaceId(2);
/// The face of the last node to its producer.
const PRODUCER: FaceId = FaceId(3);

/// A time in microseconds, and a number that distinguishes packets with the same time.
type Moment = (u64, u64);

/// Nodes in a ring or a line. A link connects each node with the next node.
pub(crate) struct Network {
    nodes: Vec<Node>,
    is_ring: bool,
    /// The percentage of frames that a link loses.
    loss: u64,
    random: u64,
    now: Instant,
    /// Packets on their way, ordered by the time of arrival. Each has the node and the face that receive it.
    on_links: BTreeMap<Moment, (usize, FaceId, Kind, Vec<u8>)>,
    count: u64,
    /// The number of Interests that were sent over links.
    pub(crate) interests: usize,
    pub(crate) delivered: usize,
    pub(crate) nacks_to_consumers: usize,
}

const TO_NEXT: &[NextHop] = &[NextHop { face: NEXT, cost: 1 }];
const TO_PRODUCER: &[NextHop] = &[NextHop { face: PRODUCER, cost: 1 }];

impl Network {
    fn new(size: usize, loss: u64, seed: u64, is_ring: bool, retransmissions: u8) -> Self {
        let node = |number: usize| {
            let hops = if is_ring || number + 1 < size { TO_NEXT } else { TO_PRODUCER };
            let routes = Routes { routes: Vec::leak(vec![(Name::default(), hops)]), multicast: &[] };
            let times = Times { retransmission: Duration::from_millis(300), retransmissions, ..Times::default() };
            Forwarder {
                fib: routes,
                pit: TestPit::default(),
                store: FixedStore::default(),
                times,
                random: number as u32 * 0x1234_5678,
            }
        };
        Self {
            nodes: (0..size).map(node).collect(),
            is_ring,
            loss,
            random: seed << 32,
            now: Instant::from_micros(1 << 40),
            on_links: BTreeMap::new(),
            count: 0,
            interests: 0,
            delivered: 0,
            nacks_to_consumers: 0,
        }
    }

    pub(crate) fn ring(size: usize, loss: u64, seed: u64) -> Self {
        Self::new(size, loss, seed, true, 0)
    }

    pub(crate) fn line(size: usize, loss: u64, seed: u64, retransmissions: u8) -> Self {
        Self::new(size, loss, seed, false, retransmissions)
    }

    pub(crate) fn forget_loops(&mut self) {
        for node in &mut self.nodes {
            node.pit.1.forgets = true;
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Lets the consumer of a node send an Interest for a name.
    pub(crate) fn ask(&mut self, node: usize, text: &str, nonce: u8) {
        let name = name(text);
        let asked = Interest { name: Name::of_checked(&name), nonce: Some([nonce; 4]), ..Interest::default() };
        self.deliver_at(0, (node, CONSUMER, Kind::Interest, interest(&asked)));
    }

    fn deliver_at(&mut self, delay: u64, packet: (usize, FaceId, Kind, Vec<u8>)) {
        self.count += 1;
        self.on_links.insert((self.now.as_micros() + delay, self.count), packet);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.on_links.is_empty() && self.nodes.iter().all(|node| node.pit.0.is_empty())
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        loop {
            let timer = self.nodes.iter().filter_map(Node::next_timeout).map(|tick| tick.instant(self.now)).min();
            let arrival = self.on_links.keys().next().map(|(micros, _)| Instant::from_micros(*micros));
            let Some(next) = timer.into_iter().chain(arrival).min().filter(|next| *next <= end) else { return };
            self.now = self.now.max(next);
            for node in 0..self.nodes.len() {
                let mut faces = Outbox { local: &[], sent: Vec::new() };
                self.nodes[node].on_timeout(self.now, &mut [0; 500], &mut faces);
                self.carry(node, faces.sent);
            }
            while let Some(entry) = self.on_links.first_entry().filter(|entry| entry.key().0 <= self.now.as_micros()) {
                let (node, face, kind, packet) = entry.remove();
                self.receive(node, face, kind, packet);
            }
        }
    }

    fn receive(&mut self, node: usize, from: FaceId, kind: Kind, mut packet: Vec<u8>) {
        let mut faces = Outbox { local: &[], sent: Vec::new() };
        let forwarder = &mut self.nodes[node];
        let _ = match kind {
            Kind::Interest => forwarder.on_interest::<RustCrypto>(self.now, from, &mut packet, (), &mut faces),
            Kind::Data => forwarder.on_data::<RustCrypto>(self.now, from, &packet, &mut |_| true, &mut faces),
            Kind::Nack(reason) => forwarder.on_nack(self.now, from, &packet, reason, &mut faces),
        };
        self.carry(node, faces.sent);
    }

    /// Takes the packets that a node has sent over its links, and delivers them to the neighbours of the node. Each
    /// link loses some packets.
    fn carry(&mut self, node: usize, sent: Vec<Sent>) {
        let size = self.nodes.len();
        for Sent { to, kind, packet } in sent {
            match (to, kind) {
                (CONSUMER, Kind::Data) => self.delivered += 1,
                (CONSUMER, _) => self.nacks_to_consumers += 1,
                (PRODUCER, Kind::Interest) => {
                    self.interests += 1;
                    let name = ReceivedInterest::parse(&packet).unwrap().interest.name;
                    let answer = data_of(&name, b"content", None);
                    if self.draw(100) >= self.loss && self.draw(100) >= self.loss {
                        self.deliver_at(2_000, (node, PRODUCER, Kind::Data, answer));
                    }
                }
                _ => {
                    self.interests += usize::from(kind == Kind::Interest);
                    let (receiver, face) = match to {
                        NEXT => ((node + 1) % size, BACK),
                        _ => ((node + size - 1) % size, NEXT),
                    };
                    let exists = self.is_ring || (to == NEXT && node + 1 < size) || (to == BACK && node > 0);
                    let delay = 1_000 + self.draw(2_000);
                    if exists && self.draw(100) >= self.loss {
                        self.deliver_at(delay, (receiver, face, kind, packet));
                    }
                }
            }
        }
    }
}
