#![allow(unreachable_pub, dead_code, reason = "a module of several test binaries, none of which uses all of it")]
//! A test world of two endpoints. Only the test moves its clock, and the test controls its network.

use std::collections::BTreeMap;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::crypto::{Crypto as _, MAX_SIGNATURE};
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{
    AlertDescription, Answer, Both, CertificateType, Config, Extended, Fatal, Need, PREMASTER_LEN, PublicKeys, Records,
    Resuming, Suites,
};
use tegmen::endpoint::{Endpoint, Event, MAX_HEADROOM, Misuse, PeerArray, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};

pub mod puppet;
pub mod recorder;

pub mod badge;
pub mod memory;

use badge::{Badge, Worn};
use memory::{Kept, SessionStore};
use recorder::{Recorder, Spent};

pub type Table = PeerArray<(), 4, 3, 900, 512, 4>;
pub type Role<const IN_PARTS: bool> = PublicKeys<Extended<Resuming<Both, SessionStore>>, Worn<IN_PARTS>>;

/// The damage to the bytes of a datagram on the network. A position is taken modulo the length of the datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Damage {
    Intact,
    Flipped { at: usize, bit: u8 },
    CutTo(usize),
}

/// The delivery of a datagram by the network. Each element is one copy: its delay, and its damage. Without elements,
/// the datagram is lost.
pub struct Fate(pub Vec<(Duration, Damage)>);

impl Fate {
    pub const LOST: Self = Self(Vec::new());

    pub fn arrives() -> Self {
        Self::after(DELAY)
    }

    pub fn after(delay: Duration) -> Self {
        Self(vec![(delay, Damage::Intact)])
    }
}

/// One of the two endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Client,
    Server,
}

/// One endpoint with its socket address, credentials and results. It verifies whole lists of certificates, or with
/// `IN_PARTS` each certificate as it arrives.
pub struct Node<const IN_PARTS: bool = false> {
    pub endpoint: Endpoint<Table, Role<IN_PARTS>>,
    pub crypto: Recorder,
    pub counters: Counters,
    pub local: Address,
    /// The address at which the network sees this node. Behind a NAT, it differs from the node's own address.
    pub seen_at: Address,
    pub identity: Vec<u8>,
    pub key: Vec<u8>,
    /// A second key that a server accepts for the identity of a client. A client with this key becomes `Principal(8)`.
    pub previous_key: Option<Vec<u8>>,
    pub peer: Option<PeerId>,
    pub established: bool,
    pub closed: Option<Fatal>,
    /// The associations that have ended, each with the reason.
    pub ended: Vec<(PeerId, Fatal)>,
    pub heard: Vec<Vec<u8>>,
    /// The time after which the owner of this endpoint answers a question of a handshake; `None` if it answers at once.
    pub store_delay: Option<Duration>,
    /// Number of bytes of the buffer for datagrams that this node writes.
    pub buffer: usize,
    waiting: Option<(Instant, PeerId)>,
    to_say: Vec<Vec<u8>>,
    config: Config,
    badge: Badge,
    pub memory: SessionStore,
    /// The data to resume the last session of this node. The next field, `resumed`, is true if that session was itself
    /// resumed.
    pub kept: Option<Kept>,
    pub resumed: bool,
    /// Number of inputs that the endpoint of this node has requested from its owner ([`Need`]).
    pub needs: usize,
    /// Number of signatures that this node made for its endpoint.
    pub signatures: usize,
    /// The list of certificates that this node verified as they arrived.
    pub list: Vec<u8>,
    /// The first two bytes of this client's premaster secrets; `None` for the version that the handshake demands.
    pub premaster_version: Option<[u8; 2]>,
}

impl<const IN_PARTS: bool> Node<IN_PARTS> {
    fn new(seed: u64, port: u16, now: Instant, config: Config, spent: &Spent) -> Self {
        let mut bytes = [port as u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut crypto = Recorder::new(bytes, spent.clone());
        let mut counters = Counters::default();
        let mut cx = Cx { now, crypto: &mut crypto, counters: &mut counters };
        let memory = SessionStore::default();
        let endpoint = Self::endpoint(&mut cx, config, Badge::default(), memory.clone());
        let local = Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, port as u8], port, scope: 0 };
        Self {
            endpoint,
            crypto,
            counters,
            local,
            seen_at: local,
            identity: b"Client_identity".to_vec(),
            key: b"0123456789abcdef".to_vec(),
            previous_key: None,
            peer: None,
            established: false,
            closed: None,
            ended: Vec::new(),
            heard: Vec::new(),
            store_delay: None,
            buffer: 1500,
            waiting: None,
            to_say: Vec::new(),
            config,
            badge: Badge::default(),
            memory,
            kept: None,
            resumed: false,
            needs: 0,
            signatures: 0,
            list: Vec::new(),
            premaster_version: None,
        }
    }

    pub fn credentials(&mut self, identity: &str, key: impl Into<Vec<u8>>) {
        self.identity = identity.into();
        self.key = key.into();
    }

    pub fn limit_mtu(&mut self, mtu: u16) {
        self.config.mtu = mtu;
        self.configure();
    }

    /// Replaces the endpoint by a new one with this configuration.
    pub fn configure_as(&mut self, config: Config) {
        self.config = config;
        self.configure();
    }

    /// Sets the cipher suites that this node offers and accepts.
    pub fn offer(&mut self, suites: Suites) {
        self.config.suites = suites;
        self.configure();
    }

    /// Sets the maximum number of bytes of content in a record that this node accepts; 0 if it announces no limit.
    pub fn limit_records(&mut self, limit: u16) {
        self.config.record_size_limit = limit;
        self.configure();
    }

    fn configure(&mut self) {
        let mut cx = Cx { now: Instant::default(), crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint = Self::endpoint(&mut cx, self.config, self.badge.clone(), self.memory.clone());
    }

    fn endpoint(
        cx: &mut Cx<'_, Recorder>,
        config: Config,
        badge: Badge,
        sessions: SessionStore,
    ) -> Endpoint<Table, Role<IN_PARTS>> {
        let keys = Badge { suites: config.suites, ..badge };
        let role = Extended::with(Resuming { role: Both, sessions }, &config);
        Endpoint::with_roles(cx, Table::new(), config, PublicKeys { role, keys: Worn(keys) })
    }

    /// Sets the credentials of the node.
    pub fn wear(&mut self, badge: Badge) {
        self.badge = badge;
        self.configure();
    }

    /// Sends `bytes` as soon as there is a session.
    pub fn say(&mut self, bytes: &[u8]) {
        self.to_say.push(bytes.to_vec());
    }

    /// Seals a content of `len` bytes for the peer. The record is never sent.
    pub fn try_to_seal(&mut self, now: Instant, len: usize) -> Result<(), Misuse> {
        let mut storage = vec![0; len + 100];
        let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
        frame.append(&vec![0; len]).unwrap();
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.seal(&mut cx, self.peer.unwrap(), &mut frame)
    }

    /// Returns the maximum number of bytes of content that the peer of this node accepts in a record.
    pub fn max_content(&mut self) -> usize {
        self.endpoint.peers.peer(self.peer.unwrap()).unwrap().max_content()
    }

    pub fn close(&mut self) {
        self.endpoint.close(self.peer.unwrap());
    }

    pub fn path(&self, remote: Address) -> Path {
        Path { local: self.local, remote }
    }

    /// Answers the question that a handshake asks its owner. Returns the event that follows, if there is one.
    fn answer(&mut self, now: Instant, id: PeerId) -> Option<Event> {
        self.needs += 1;
        let (identity, key) = (self.identity.clone(), self.key.clone());
        let principal = Principal(7);
        let mut signature = [0; MAX_SIGNATURE];
        let (trusted, encrypted, psks);
        let mut drawn = Secret::<PREMASTER_LEN>::zeroed();
        let answer = match self.endpoint.need(id)? {
            Need::VerifyPeer { certificate_type, content } => match self.badge.trusts(certificate_type, content) {
                Some(public_key) => {
                    trusted = public_key;
                    Answer::Peer { public_key: &trusted, principal }
                }
                None => Answer::Refused(AlertDescription::CERTIFICATE_UNKNOWN),
            },
            Need::VerifyCertificate { certificate, is_first, is_last } => {
                if is_first {
                    self.list.clear();
                }
                self.list.extend(&(certificate.len() as u32).to_be_bytes()[1..]);
                self.list.extend(certificate);
                match self.badge.trusts(CertificateType::X509, &self.list) {
                    _ if !is_last => Answer::Continue,
                    Some(public_key) => {
                        trusted = public_key;
                        Answer::Peer { public_key: &trusted, principal }
                    }
                    None => Answer::Refused(AlertDescription::CERTIFICATE_UNKNOWN),
                }
            }
            Need::Sign { server, credential, digest } => {
                assert_eq!(credential, 0);
                self.signatures += 1;
                Answer::Signature(self.badge.of(server).sign(&digest, &mut signature))
            }
            Need::Encrypt { public_key, version } => {
                self.crypto.random(drawn.expose_mut());
                let [major, minor, ..] = drawn.expose_mut();
                [*major, *minor] = self.premaster_version.unwrap_or(version);
                encrypted = Badge::encrypt(public_key, drawn.expose());
                Answer::Encrypted { premaster: &drawn, encrypted: &encrypted }
            }
            Need::Decrypt { server, credential, encrypted, version } => {
                assert_eq!(credential, 0);
                self.crypto.random(drawn.expose_mut());
                drawn = self.badge.of(server).decrypt(encrypted, version, &drawn);
                Answer::Premaster(&drawn)
            }
            Need::PskForServer { .. } => Answer::Psk { identity: &identity, key: &key, principal },
            Need::PskOfClient { identity: theirs } if theirs == self.identity => match &self.previous_key {
                None => Answer::Psk { identity: &[], key: &key, principal },
                Some(previous) => {
                    psks = [(&key[..], principal), (&previous[..], Principal(8))];
                    Answer::Psks(&psks)
                }
            },
            Need::PskOfClient { .. } => Answer::Unknown,
        };
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.resume(&mut cx, id, answer)
    }

    fn on(&mut self, now: Instant, event: Event, sent: &[u8], out: &mut Vec<(Address, Vec<u8>)>) {
        match event {
            Event::Transmit { peer, len } => {
                let to = self.endpoint.peers.peer(peer).expect("still there").path().remote;
                out.push((to, sent[..len.into()].to_vec()));
            }
            Event::Need(id) => match self.store_delay {
                Some(delay) => self.waiting = Some((now.after(delay), id)),
                None => {
                    if let Some(event) = self.answer(now, id) {
                        self.on(now, event, &[], out);
                    }
                }
            },
            Event::Established(id) => {
                (self.established, self.peer, self.closed) = (true, Some(id), None);
                self.resumed = self.endpoint.is_resumed(id);
                if let Some(kept) = Kept::of(self.endpoint.resumable(id)) {
                    self.kept = kept;
                }
            }
            Event::Closed { peer, reason } => {
                self.closed = Some(reason);
                self.ended.push((peer, reason));
            }
            Event::Answer { .. } | Event::Message { .. } => panic!("only a received datagram leads to this"),
            Event::Alarm(_) | Event::Moved(_) => {}
        }
    }

    pub fn receive(&mut self, now: Instant, from: Address, mut datagram: Vec<u8>, out: &mut Vec<(Address, Vec<u8>)>) {
        let path = self.path(from);
        let mut records = Records::new(&mut datagram);
        loop {
            let mut answer = vec![0; self.buffer];
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let Some(event) = self.endpoint.handle(&mut cx, &path, &mut records, &mut answer) else { break };
            match event {
                Event::Answer { len } => out.push((from, answer[..len.into()].to_vec())),
                Event::Message { bytes, .. } => self.heard.push(records.bytes(bytes).to_vec()),
                event => self.on(now, event, &answer, out),
            }
        }
    }

    pub fn poll(&mut self, now: Instant, out: &mut Vec<(Address, Vec<u8>)>) {
        if let Some((at, id)) = self.waiting
            && at <= now
        {
            self.waiting = None;
            if let Some(event) = self.answer(now, id) {
                self.on(now, event, &[], out);
            }
        }
        loop {
            let mut buffer = vec![0; self.buffer];
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            let Some(event) = self.endpoint.poll(&mut cx, &mut buffer) else { break };
            self.on(now, event, &buffer, out);
        }
        if self.established
            && let Some(id) = self.peer
        {
            for text in core::mem::take(&mut self.to_say) {
                let mut storage = [0; 1500];
                let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
                frame.append(&text).unwrap();
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                self.endpoint.seal(&mut cx, id, &mut frame).unwrap();
                let to = self.endpoint.peers.peer(id).unwrap().path().remote;
                out.push((to, frame.finish().to_vec()));
            }
        }
    }

    pub fn next(&self) -> Option<Instant> {
        [self.endpoint.next_alarm(), self.waiting.map(|(at, _)| at)].into_iter().flatten().min()
    }
}

/// Decides about the delivery of a datagram. The first argument is the number of the datagram.
pub type Network = Box<dyn FnMut(usize, &[u8]) -> Fate>;

/// A datagram on the network: its time of arrival, its number in the order of sending, its source, its destination, and
/// its bytes.
type Flying = (Instant, usize, Address, Address, Vec<u8>);

pub struct World<const IN_PARTS: bool = false> {
    pub now: Instant,
    pub client: Node<IN_PARTS>,
    pub server: Node<IN_PARTS>,
    pub network: Network,
    /// All datagrams that were sent. The first value is true if the client sent the datagram.
    pub sent: Vec<(bool, Vec<u8>)>,
    /// The server's traffic with each address: the number of bytes that it received from the address, and the number of
    /// bytes that it sent there.
    pub at_server: BTreeMap<Address, (usize, usize)>,
    flying: Vec<Flying>,
    config: Config,
    seed: u64,
    spent: Spent,
}

const DELAY: Duration = Duration::from_millis(10);

impl World {
    pub fn new(seed: u64, config: Config) -> Self {
        Self::begin(seed, config)
    }
}

impl World<true> {
    /// Creates a world in which both endpoints verify certificates as they arrive.
    pub fn in_parts(seed: u64, config: Config) -> Self {
        Self::begin(seed, config)
    }
}

impl<const IN_PARTS: bool> World<IN_PARTS> {
    fn begin(seed: u64, config: Config) -> Self {
        let now = Instant::from_micros(1_000_000);
        let spent = Spent::default();
        Self {
            now,
            client: Node::new(seed, 1, now, config, &spent),
            server: Node::new(seed, 2, now, config, &spent),
            network: Box::new(|_, _| Fate::arrives()),
            sent: Vec::new(),
            at_server: BTreeMap::new(),
            flying: Vec::new(),
            config,
            seed,
            spent,
        }
    }

    pub fn connect(&mut self) {
        let path = self.client.path(self.server.local);
        let mut cx = Cx { now: self.now, crypto: &mut self.client.crypto, counters: &mut self.client.counters };
        self.client.peer = Some(self.client.endpoint.connect(&mut cx, &path).unwrap());
    }

    /// Makes the network lose nothing from now on. Then sends a message in each direction.
    pub fn speak(&mut self) {
        self.network = Box::new(|_, _| Fate::arrives());
        self.client.say(b"ping");
        self.run(Duration::from_secs(1));
        assert_eq!(self.server.heard, [b"ping"]);
        self.server.say(b"pong");
        self.run(Duration::from_secs(1));
        assert_eq!(self.client.heard, [b"pong"]);
    }

    /// Begins a session that the server opens with the client.
    pub fn connect_from_server(&mut self) {
        let path = self.server.path(self.client.local);
        let mut cx = Cx { now: self.now, crypto: &mut self.server.crypto, counters: &mut self.server.counters };
        self.server.peer = Some(self.server.endpoint.connect(&mut cx, &path).unwrap());
    }

    /// Begins a session in which the client offers to resume its last session.
    pub fn connect_again(&mut self) {
        let path = self.client.path(self.server.local);
        let kept = self.client.kept.clone().expect("something to resume");
        let mut cx = Cx { now: self.now, crypto: &mut self.client.crypto, counters: &mut self.client.counters };
        let id = self.client.endpoint.connect_again(&mut cx, &path, &kept.session(), kept.handle());
        self.client.peer = Some(id.unwrap());
        for node in [&mut self.client, &mut self.server] {
            (node.established, node.needs) = (false, 0);
            node.heard.clear();
        }
    }

    /// Makes both endpoints write their datagrams to buffers of `len` bytes.
    pub fn buffers(&mut self, len: usize) {
        (self.client.buffer, self.server.buffer) = (len, len);
    }

    /// Returns a client at the same address that has lost its state.
    pub fn restarted_client(&self, seed: u64) -> Node<IN_PARTS> {
        Node::new(seed, 1, self.now, self.config, &self.spent)
    }

    /// Returns a server at the same address that has lost its state.
    pub fn restarted_server(&self, seed: u64) -> Node<IN_PARTS> {
        Node::new(seed, 2, self.now, self.config, &self.spent)
    }

    /// Passes a datagram with any source address to the server at once. Returns the datagrams that the server sends
    /// back at once.
    pub fn tell_server(&mut self, from: Address, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.server.receive(self.now, from, datagram.to_vec(), &mut out);
        self.server.poll(self.now, &mut out);
        out.into_iter().filter(|(to, _)| *to == from).map(|(_, datagram)| datagram).collect()
    }

    /// Passes a datagram with any source address to one endpoint at once. Returns the datagrams that this endpoint
    /// sends at once. The network does not deliver the returned datagrams.
    pub fn spoof(&mut self, to: Side, from: Address, datagram: &[u8]) -> Vec<Vec<u8>> {
        let node = match to {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        let mut out = Vec::new();
        node.receive(self.now, from, datagram.to_vec(), &mut out);
        out.into_iter().map(|(_, datagram)| datagram).collect()
    }

    /// Passes a datagram with the server's address to the client at once. Returns the datagrams that the client sends
    /// at once.
    pub fn tell_client(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.client.receive(self.now, self.server.local, datagram.to_vec(), &mut out);
        self.client.poll(self.now, &mut out);
        out.into_iter().map(|(_, datagram)| datagram).collect()
    }

    /// Makes the network lose, repeat, delay and damage datagrams, as the seed of the world determines.
    pub fn random_faults(&mut self) {
        let mut state = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let loss = draw(30);
        self.network = Box::new(move |_, _| {
            if draw(100) < loss {
                return Fate::LOST;
            }
            let copies = if draw(10) == 0 { 2 } else { 1 };
            Fate(
                (0..copies)
                    .map(|_| {
                        let delay = Duration::from_millis(5 + if draw(5) == 0 { draw(400) } else { draw(10) });
                        let damage = match draw(40) {
                            0 | 1 => Damage::Flipped { at: draw(1 << 16) as usize, bit: draw(8) as u8 },
                            2 => Damage::CutTo(draw(1 << 16) as usize),
                            _ => Damage::Intact,
                        };
                        (delay, damage)
                    })
                    .collect(),
            )
        });
    }

    /// Changes the port at which the network sees the client. The endpoint of the client does not notice the change.
    pub fn rebind(&mut self, port: u16) {
        self.client.seen_at.port = port;
    }

    /// Moves the client to another port, and informs the endpoint of the client.
    pub fn move_client(&mut self, port: u16) {
        self.client.local.port = port;
        self.client.seen_at = self.client.local;
        let path = self.client.path(self.server.local);
        self.client.endpoint.move_session(self.client.peer.unwrap(), &path);
    }

    fn launch(&mut self, from_client: bool, to: Address, datagram: Vec<u8>) {
        let from = if from_client { self.client.seen_at } else { self.server.seen_at };
        if !from_client {
            self.at_server.entry(to).or_default().1 += datagram.len();
        }
        let n = self.sent.len();
        self.sent.push((from_client, datagram.clone()));
        let Fate(copies) = (self.network)(n, &datagram);
        for (delay, damage) in copies {
            let mut copy = datagram.clone();
            match damage {
                Damage::Intact => {}
                Damage::Flipped { at, bit } => {
                    let at = at % copy.len();
                    copy[at] ^= 1 << bit;
                }
                Damage::CutTo(len) => copy.truncate(len % copy.len()),
            }
            self.flying.push((self.now.after(delay), n, from, to, copy));
        }
    }

    /// Lets `time` pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let mut out = Vec::new();
            self.client.poll(self.now, &mut out);
            for (to, datagram) in out.drain(..) {
                self.launch(true, to, datagram);
            }
            self.server.poll(self.now, &mut out);
            for (to, datagram) in out.drain(..) {
                self.launch(false, to, datagram);
            }
            let arrival = self.flying.iter().map(|flying| flying.0).min();
            let next = [arrival, self.client.next(), self.server.next()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            self.flying.sort();
            while self.flying.first().is_some_and(|flying| flying.0 <= self.now) {
                let (_, _, from, to, datagram) = self.flying.remove(0);
                let mut out = Vec::new();
                // A datagram to an address that is no longer in use is lost.
                let to_server = to == self.server.seen_at;
                if to_server {
                    self.at_server.entry(from).or_default().0 += datagram.len();
                    self.server.receive(self.now, from, datagram, &mut out);
                } else if to == self.client.seen_at {
                    self.client.receive(self.now, from, datagram, &mut out);
                }
                for (to, datagram) in out {
                    self.launch(!to_server, to, datagram);
                }
            }
        }
    }
}
