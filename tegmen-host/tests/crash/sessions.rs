//! Tests power cuts and restores of DTLS sessions. Each end stores its session in a store. After a power cut a new
//! endpoint continues the stored session, and an attacker replays the old datagrams. The store in this file is in
//! memory; the stores in `stores` are on disk.

use crate::world::{Node, World};
use std::collections::HashSet;
use tegmen::address::Path;
use tegmen::buf::Writer;
use tegmen::cx::Cx;
use tegmen::dtls::record::CHUNK;
use tegmen::dtls::{Config, SEALED_SESSION_LEN, Session};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Duration;

/// The totals of the events. Repeated nonces have no total, because the cipher of this test panics at the first one.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) power_cuts: u64,
    pub(crate) orderly_moves: u64,
    pub(crate) exchanges: u64,
    pub(crate) challenges: u64,
    pub(crate) handshakes: u64,
    pub(crate) replays_tried: u64,
    pub(crate) replays_accepted: u64,
    pub(crate) most_round_trips: u64,
    pub(crate) restored_backups: u64,
    pub(crate) copies: u64,
    pub(crate) double_starts: u64,
    pub(crate) torn_files: u64,
}

impl Counts {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "events": self.events,
            "power_cuts": self.power_cuts,
            "orderly_moves": self.orderly_moves,
            "exchanges": self.exchanges,
            "challenges": self.challenges,
            "handshakes": self.handshakes,
            "replays_tried": self.replays_tried,
            "replays_accepted": self.replays_accepted,
            "repeated_nonces": 0,
            "most_round_trips": self.most_round_trips,
            "restored_backups": self.restored_backups,
            "copies": self.copies,
            "double_starts": self.double_starts,
            "torn_files": self.torn_files,
        })
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.power_cuts += other.power_cuts;
        self.orderly_moves += other.orderly_moves;
        self.exchanges += other.exchanges;
        self.challenges += other.challenges;
        self.handshakes += other.handshakes;
        self.replays_tried += other.replays_tried;
        self.replays_accepted += other.replays_accepted;
        self.most_round_trips = self.most_round_trips.max(other.most_round_trips);
        self.restored_backups += other.restored_backups;
        self.copies += other.copies;
        self.double_starts += other.double_starts;
        self.torn_files += other.torn_files;
    }
}

/// A store for the session of one endpoint. It can lose power, and can have other faults.
pub(crate) trait Store {
    /// Stores the session that was just established.
    fn keep(&mut self, node: &mut Node, path: &Path);

    /// Reserves more record numbers (extends the lease) if necessary, so that the next record has a reserved number.
    fn lease(&mut self, node: &mut Node);

    /// Ends the session in an orderly way: stores its next number and its replay window.
    fn park(&mut self, node: &mut Node);

    /// Closes the store as a power cut does. The session in the node is lost.
    fn cut(&mut self, draw: u64);

    /// Opens the store after [`Self::park`] or [`Self::cut`]. Returns the stored session, and the end of its reserved
    /// record numbers (its lease), which is already durable. Returns `None` if a handshake is needed.
    fn open(&mut self, node: &mut Node, path: &Path) -> Option<(Session, u32)>;

    /// Is called when the stored session continues in the node. `peer` is the peer of this session.
    fn opened(&mut self, node: &mut Node, peer: PeerId);

    /// Causes another fault of the store, for example a restored backup or a damaged file; `draw` selects the fault.
    /// Returns true if the fault lost the session.
    fn suffer(&mut self, draw: u64, counts: &mut Counts) -> bool;
}

/// A store in memory, which survives every power cut.
#[derive(Default)]
pub(crate) struct Memory {
    sealed: Vec<u8>,
    /// The end of the reserved record numbers (the lease). Every number below this end may have been used.
    end: u32,
}

impl Store for Memory {
    fn keep(&mut self, node: &mut Node, _: &Path) {
        let id = node.peer.unwrap();
        node.endpoint.lease_session(id, CHUNK);
        let session = node.endpoint.copy_session(id).unwrap();
        *self = Self { sealed: seal(node, &session), end: CHUNK };
    }

    fn lease(&mut self, _: &mut Node) {}

    fn park(&mut self, node: &mut Node) {
        let session = node.endpoint.take_session(node.peer.unwrap()).unwrap();
        self.sealed = seal(node, &session);
    }

    fn cut(&mut self, _: u64) {}

    fn open(&mut self, node: &mut Node, _: &Path) -> Option<(Session, u32)> {
        let mut session = Session::open(&mut node.crypto, &KEY, b"peer", &self.sealed).unwrap();
        let (next, window) = session.position();
        let begun = self.end.max(next).div_ceil(CHUNK) * CHUNK;
        session.go_on(begun, window);
        self.end = begun + CHUNK;
        Some((session, self.end))
    }

    fn opened(&mut self, node: &mut Node, peer: PeerId) {
        // After a power cut only this copy remains.
        let copy = node.endpoint.copy_session(peer).unwrap();
        self.sealed = seal(node, &copy);
    }

    fn suffer(&mut self, _: u64, _: &mut Counts) -> bool {
        false
    }
}

/// Two ends with their stores, and every datagram that they sent.
pub(crate) struct Scene {
    world: World,
    stores: [Box<dyn Store>; 2],
    seed: u64,
    next: u64,
    delivered: HashSet<u64>,
    pub(crate) counts: Counts,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;
const KEY: [u8; 16] = [5; 16];

impl Scene {
    pub(crate) fn new(seed: u64, stores: [Box<dyn Store>; 2]) -> Self {
        let world = World::new(seed, Config::default());
        let mut scene = Self { world, stores, seed, next: 0, delivered: HashSet::new(), counts: Counts::default() };
        scene.handshake();
        scene
    }

    fn random(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % end
    }

    fn node(&mut self, which: usize) -> &mut Node {
        if which == CLIENT { &mut self.world.client } else { &mut self.world.server }
    }

    /// Restarts both ends. They make a handshake, and store the session from its beginning.
    fn handshake(&mut self) {
        self.counts.handshakes += 1;
        let seed = self.random(u64::MAX >> 1);
        self.world.client = self.world.restarted_client(seed);
        self.world.server = self.world.restarted_server(seed + 1);
        self.world.connect();
        self.world.run(Duration::from_secs(5));
        assert!(self.world.client.established && self.world.server.established);
        for which in [CLIENT, SERVER] {
            let path = self.path(which);
            let Self { world, stores, .. } = self;
            let node = if which == CLIENT { &mut world.client } else { &mut world.server };
            stores[which].keep(node, &path);
        }
    }

    pub(crate) fn step(&mut self) {
        let which = self.random(2) as usize;
        let draw = self.random(1 << 30);
        match self.random(9) {
            0 => {
                self.counts.events += 1;
                self.counts.power_cuts += 1;
                self.stores[which].cut(draw);
                self.come_back(which);
            }
            1 => {
                self.counts.events += 1;
                self.counts.orderly_moves += 1;
                let Self { world, stores, .. } = self;
                let node = if which == CLIENT { &mut world.client } else { &mut world.server };
                stores[which].park(node);
                self.come_back(which);
            }
            2 => {
                let before = self.counts.events;
                let lost = self.stores[which].suffer(draw, &mut self.counts);
                if lost {
                    self.handshake();
                } else if self.counts.events > before {
                    self.come_back(which);
                }
            }
            3..=4 => self.replay(),
            _ => self.exchange(which),
        }
    }

    /// Replaces the endpoint of one end by a new endpoint, which continues the stored session. Before the session uses
    /// a number of its next lease (the next range of reserved record numbers), the end of this range is stored.
    fn come_back(&mut self, which: usize) {
        let seed = self.random(u64::MAX >> 1);
        let (mut node, remote) = match which {
            CLIENT => (self.world.restarted_client(seed), self.world.server.local),
            _ => (self.world.restarted_server(seed), self.world.client.local),
        };
        let path = node.path(remote);
        let store = &mut self.stores[which];
        let Some((session, lease_end)) = store.open(&mut node, &path) else { return self.handshake() };
        let mut cx = Cx { now: self.world.now, crypto: &mut node.crypto, counters: &mut node.counters };
        let Some(id) = node.endpoint.restore_session(&mut cx, &path, Principal(7), &session) else {
            // The key has no record numbers left after many restorations.
            return self.handshake();
        };
        node.endpoint.lease_session(id, lease_end);
        store.opened(&mut node, id);
        (node.peer, node.established) = (Some(id), true);
        *self.node(which) = node;
    }

    fn path(&mut self, which: usize) -> Path {
        let remote = if which == CLIENT { self.world.server.local } else { self.world.client.local };
        self.node(which).path(remote)
    }

    /// Sends a request, and repeats it after a challenge, until it is delivered. At most two round trips are allowed.
    fn exchange(&mut self, from: usize) {
        let (to, id) = (1 - from, self.next);
        self.next += 1;
        let (mut echo, mut round_trips) = (0u64, 0);
        loop {
            round_trips += 1;
            assert!(round_trips <= 2, "{id} is not delivered");
            let message = [id.to_be_bytes(), echo.to_be_bytes()].concat();
            let Self { world, stores, .. } = self;
            let node = if from == CLIENT { &mut world.client } else { &mut world.server };
            stores[from].lease(node);
            node.say(&message);
            self.world.run(Duration::from_millis(100));
            let to_node = self.node(to);
            assert_eq!(to_node.heard.last(), Some(&message), "nothing is lost here");
            let peer = to_node.peer.unwrap();
            if to_node.endpoint.is_unverified(peer) {
                if echo == 0 {
                    self.counts.challenges += 1;
                    echo = self.random(u64::MAX >> 1) | 1;
                    continue;
                }
                let to_node = self.node(to);
                to_node.endpoint.verify_session(peer);
            }
            break;
        }
        if !self.delivered.insert(id) {
            self.counts.replays_accepted += 1;
        }
        self.counts.exchanges += 1;
        self.counts.most_round_trips = self.counts.most_round_trips.max(round_trips);
    }

    /// Lets an attacker send an earlier datagram again, of this session or of an older session.
    fn replay(&mut self) {
        let at = self.random(self.world.sent.len() as u64) as usize;
        let (from_client, datagram) = self.world.sent[at].clone();
        let to = if from_client { SERVER } else { CLIENT };
        let before = self.node(to).heard.len();
        match from_client {
            true => drop(self.world.tell_server(self.world.client.local, &datagram)),
            false => drop(self.world.tell_client(&datagram)),
        }
        self.counts.replays_tried += 1;
        let node = self.node(to);
        let peer = node.peer.unwrap();
        let unverified = node.endpoint.is_unverified(peer);
        // A hello that comes again may begin a handshake, which leads to nothing.
        let lives = node.endpoint.peers.peer(peer).is_some_and(|peer| peer.phase() == Phase::Established);
        assert!(lives, "a replay ended the session: {:?}", node.closed);
        // What is heard while the window is lost is answered with a challenge, and not delivered.
        if node.heard.len() > before && !unverified {
            self.counts.replays_accepted += 1;
        }
    }
}

fn seal(node: &mut Node, session: &Session) -> Vec<u8> {
    let mut storage = [0; SEALED_SESSION_LEN];
    let mut writer = Writer::new(&mut storage);
    session.seal(&mut node.crypto, &KEY, b"peer", &mut writer).unwrap();
    writer.written().to_vec()
}
