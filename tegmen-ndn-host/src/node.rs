//! A node: a forwarder with faces over UDP, TCP and Unix sockets.

use crate::datagrams::{Inbound, Port};
use crate::faces::{Face, FaceTable, Link, MANAGEMENT, Outbox};
use crate::management::{self, FaceStatus, Request, Status};
use crate::stream::Framed;
use crate::tables::{HostFib, HostPit, HostStore, Limits, Token};
use crate::uri::FaceUri;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::RustCrypto;
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::forwarder::{Dropped, Forwarder, Outcome, Times};
use tegmen_ndn::lp::{LpPacket, NackReason, acks};
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{FaceId, NextHop, Store as _, Strategy};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{
    Component, Data, MAX_HEAD, MAX_PACKET, Name, ReceivedData, ReceivedInterest, write_uri, write_with_nonce,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{LocalSet, spawn_local};

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// UDP addresses on which neighbours reach the node.
    pub udp: Vec<SocketAddr>,
    /// TCP addresses on which neighbours reach the node.
    pub tcp: Vec<SocketAddr>,
    /// Paths of Unix sockets for applications.
    pub unix: Vec<PathBuf>,
    /// Routes. The values of a route are the prefix (the value of a Name element), the next hop, and the cost.
    pub routes: Vec<(Vec<u8>, FaceUri, u16)>,
    /// Prefixes with the multicast strategy. An Interest with such a prefix goes to all next hops.
    pub multicast: Vec<Vec<u8>>,
    /// Maximum sizes of the tables.
    pub limits: Limits,
    /// Maximum number of faces.
    pub faces: usize,
    /// Length of the longest datagram in bytes. Longer packets are sent in fragments.
    pub mtu: usize,
    /// True if UDP faces acknowledge LpPackets, and retransmit LpPackets that the neighbour does not acknowledge. The
    /// neighbour must have the same setting.
    pub reliable: bool,
    /// The maximum number of repetitions of an Interest, from 0 to 63. The node repeats an Interest each time that the
    /// next hop does not answer within half a second. The neighbour does not need this setting.
    pub retransmissions: u8,
    /// True if neighbours may register prefixes.
    pub neighbours_register: bool,
    /// The time after which the node removes a UDP face that a neighbour opened, if no packet arrives at the face.
    pub idle: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            udp: Vec::new(),
            tcp: Vec::new(),
            unix: Vec::new(),
            routes: Vec::new(),
            multicast: Vec::new(),
            limits: Limits::default(),
            faces: 16_384,
            mtu: 1_400,
            reliable: false,
            retransmissions: 0,
            neighbours_register: false,
            idle: Duration::from_secs(600),
        }
    }
}

/// The reason why a node cannot start.
#[derive(Debug)]
pub struct NotBound {
    place: String,
    error: io::Error,
}

impl fmt::Display for NotBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, error } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(f, "{place} is in use: end the program that has it, or choose another"),
            io::ErrorKind::NotFound => {
                write!(f, "{place}: the folder of the socket is missing: create it, or choose another path")
            }
            io::ErrorKind::InvalidInput => {
                write!(f, "{place}: the path is longer than the 107 bytes that a socket allows")
            }
            io::ErrorKind::PermissionDenied => {
                write!(f, "{place}: not permitted: choose another path, or a port above 1023")
            }
            _ => write!(f, "{place}: {error}"),
        }
    }
}

impl std::error::Error for NotBound {}

/// A forwarder with its faces.
pub struct Node {
    shared: Rc<RefCell<Shared>>,
    udp: Vec<Rc<Port>>,
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, PathBuf)>,
    config: Config,
}

/// The state that all tasks of a node share.
struct Shared {
    forwarder: Forwarder<HostFib, HostPit, HostStore>,
    faces: FaceTable,
    crypto: RustCrypto,
    begun: std::time::Instant,
    started: u64,
    satisfied: u64,
    unsatisfied: u64,
    next_version: u64,
    buffer: Box<[u8]>,
}

impl Node {
    /// Opens the sockets.
    ///
    /// # Errors
    /// [`NotBound`] with the first socket that cannot be opened.
    pub async fn bind(config: Config) -> Result<Self, NotBound> {
        let refused = |place: String| move |error| NotBound { place, error };
        let (mut udp, mut tcp, mut unix) = (Vec::new(), Vec::new(), Vec::new());
        for address in &config.udp {
            udp.push(Rc::new(Port::bind(*address).await.map_err(refused(format!("udp://{address}")))?));
        }
        for address in &config.tcp {
            tcp.push(TcpListener::bind(address).await.map_err(refused(format!("tcp://{address}")))?);
        }
        for path in &config.unix {
            remove_stale(path).await;
            let listener = UnixListener::bind(path).map_err(refused(format!("unix://{}", path.display())))?;
            unix.push((listener, path.clone()));
        }
        let mut seed = [0; 36];
        getrandom::fill(&mut seed).map_err(|error| NotBound {
            place: "the random numbers of the system".into(),
            error: io::Error::other(error.to_string()),
        })?;
        let (key, rest) = seed.split_at(32);
        let mut random = [0; 4];
        random.copy_from_slice(rest);
        let forwarder = Forwarder {
            fib: HostFib::default(),
            pit: HostPit::new(config.limits),
            store: HostStore::new(config.limits.stored_bytes),
            times: Times { retransmissions: config.retransmissions.min(63), ..Times::default() },
            random: u32::from_ne_bytes(random),
        };
        let mut shared = Shared {
            forwarder,
            faces: FaceTable::new(config.faces, config.mtu, config.reliable, Instant::AT_ONCE),
            crypto: RustCrypto::new(key.try_into().unwrap_or([0; 32])),
            begun: std::time::Instant::now(),
            started: unix_millis(),
            satisfied: 0,
            unsatisfied: 0,
            next_version: unix_millis() * 1000,
            buffer: vec![0; MAX_PACKET + 200].into(),
        };
        shared.add_management(config.neighbours_register);
        for prefix in &config.multicast {
            shared.forwarder.fib.set_strategy(&Name::of_checked(prefix), Some(Strategy::Multicast));
        }
        Ok(Self { shared: Rc::new(RefCell::new(shared)), udp, tcp, unix, config })
    }

    /// Returns the addresses of the open sockets, in the order of the settings.
    pub fn addresses(&self) -> Vec<FaceUri> {
        let udp = self.udp.iter().filter_map(|socket| socket.local_addr().ok()).map(FaceUri::Udp);
        let tcp = self.tcp.iter().filter_map(|socket| socket.local_addr().ok()).map(FaceUri::Tcp);
        udp.chain(tcp).chain(self.unix.iter().map(|(_, path)| FaceUri::Unix(path.clone()))).collect()
    }

    /// Forwards packets until the future `end` is ready. The node then removes the files of its Unix sockets.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Self { shared, udp, tcp, unix, config } = self;
        let local = LocalSet::new();
        let paths: Vec<PathBuf> = unix.iter().map(|(_, path)| path.clone()).collect();
        let tasks = async {
            for (number, socket) in udp.iter().enumerate() {
                spawn_local(receive_datagrams(Rc::clone(&shared), Rc::clone(socket), number));
            }
            for listener in tcp {
                spawn_local(accept_tcp(Rc::clone(&shared), listener));
            }
            for (listener, path) in unix {
                spawn_local(accept_unix(Rc::clone(&shared), listener, path));
            }
            for (prefix, next_hop, cost) in config.routes {
                open_route(&shared, &udp, prefix, next_hop, cost).await;
            }
            spawn_local(keep_time(Rc::clone(&shared), config.idle));
            end.await;
        };
        local.run_until(tasks).await;
        for path in paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the file of a Unix socket if no program listens at it any more.
async fn remove_stale(path: &Path) {
    let exists = path.exists();
    if exists && UnixStream::connect(path).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        let _ = std::fs::remove_file(path);
    }
}

fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Adds a route. Opens the face of the route, unless the node already has this face.
async fn open_route(shared: &Rc<RefCell<Shared>>, udp: &[Rc<Port>], prefix: Vec<u8>, to: FaceUri, cost: u16) {
    let now = shared.borrow().now();
    let known = shared.borrow().faces.iter().find(|(_, face)| face.remote == to).map(|(id, _)| id);
    let face = match (&to, known) {
        (_, Some(known)) => Some(known),
        (FaceUri::Udp(remote), None) => {
            let fits = |socket: &&Rc<Port>| socket.local_addr().is_ok_and(|local| local.is_ipv4() == remote.is_ipv4());
            let bound = udp.iter().position(|socket| fits(&socket));
            let (number, socket) = match bound.and_then(|number| Some((number, udp.get(number)?))) {
                Some((number, socket)) => (number, Rc::clone(socket)),
                None => {
                    let any: SocketAddr = if remote.is_ipv4() {
                        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
                    } else {
                        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
                    };
                    let Ok(socket) = Port::bind(any).await else {
                        tracing::warn!("no socket for {to}");
                        return;
                    };
                    let (socket, number) = (Rc::new(socket), usize::MAX - usize::from(cost));
                    spawn_local(receive_datagrams(Rc::clone(shared), Rc::clone(&socket), number));
                    (number, socket)
                }
            };
            let local = socket.local_addr().map(|local| format!("udp://{local}")).unwrap_or_default();
            let link = Link::Udp(socket, *remote);
            let mut shared = shared.borrow_mut();
            let id = shared.faces.add(Face::new(link, to.clone(), local, false, now));
            if let Some(id) = id {
                shared.faces.set_remote(number, *remote, id);
            }
            id
        }
        (FaceUri::Tcp(_) | FaceUri::Unix(_), None) => {
            let outbox = Rc::new(Outbox::default());
            let link = Link::Stream(Rc::clone(&outbox));
            let id = shared.borrow_mut().faces.add(Face::new(link, to.clone(), String::new(), false, now));
            if let Some(id) = id {
                spawn_local(keep_connected(Rc::clone(shared), to.clone(), id, outbox));
            }
            id
        }
    };
    match face {
        Some(face) => shared.borrow_mut().forwarder.fib.add(&Name::of_checked(&prefix), NextHop { face, cost }),
        None => tracing::warn!("too many faces: no face for {to}"),
    }
}

/// Keeps the face of a route connected: when its stream ends, connects again after a second.
async fn keep_connected(shared: Rc<RefCell<Shared>>, to: FaceUri, id: FaceId, outbox: Rc<Outbox>) {
    loop {
        match &to {
            FaceUri::Tcp(address) => {
                if let Ok(stream) = TcpStream::connect(address).await {
                    let _ = stream.set_nodelay(true);
                    let (reader, writer) = stream.into_split();
                    pass(&shared, id, reader, writer, &outbox).await;
                }
            }
            FaceUri::Unix(path) => {
                if let Ok(stream) = UnixStream::connect(path).await {
                    let (reader, writer) = stream.into_split();
                    pass(&shared, id, reader, writer, &outbox).await;
                }
            }
            FaceUri::Udp(_) => return,
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

async fn accept_tcp(shared: Rc<RefCell<Shared>>, listener: TcpListener) {
    let local = listener.local_addr().map(|local| format!("tcp://{local}")).unwrap_or_default();
    loop {
        let Ok((stream, remote)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let (reader, writer) = stream.into_split();
        spawn_local(serve_stream(Rc::clone(&shared), FaceUri::Tcp(remote), local.clone(), reader, writer));
    }
}

async fn accept_unix(shared: Rc<RefCell<Shared>>, listener: UnixListener, path: PathBuf) {
    let local = format!("unix://{}", path.display());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (reader, writer) = stream.into_split();
        spawn_local(serve_stream(Rc::clone(&shared), FaceUri::Unix(path.clone()), local.clone(), reader, writer));
    }
}

/// Serves a stream that a remote peer opened.
async fn serve_stream(
    shared: Rc<RefCell<Shared>>,
    remote: FaceUri,
    local: String,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) {
    let outbox = Rc::new(Outbox::default());
    let id = {
        let mut shared = shared.borrow_mut();
        let face = Face::new(Link::Stream(Rc::clone(&outbox)), remote, local, true, shared.now());
        shared.faces.add(face)
    };
    let Some(id) = id else { return };
    pass(&shared, id, reader, writer, &outbox).await;
    shared.borrow_mut().remove_face(id);
}

/// Receives packets from a stream and sends packets to it, until the stream ends.
async fn pass(
    shared: &RefCell<Shared>,
    id: FaceId,
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    outbox: &Outbox,
) {
    outbox.bytes.borrow_mut().clear();
    outbox.is_open.set(true);
    let receive = async {
        let mut framed = Framed::new(reader);
        while let Some(packet) = framed.next().await {
            {
                let mut shared = shared.borrow_mut();
                shared.begin();
                shared.receive(id, packet);
                for _ in 1..TURN {
                    let Some(packet) = framed.next_arrived() else { break };
                    shared.receive(id, packet);
                }
                shared.faces.flush();
            }
            // Other tasks have their turn although packets wait.
            tokio::task::yield_now().await;
        }
    };
    let send = async {
        let mut bytes = Vec::new();
        loop {
            outbox.added.notified().await;
            std::mem::swap(&mut bytes, &mut outbox.bytes.borrow_mut());
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
            bytes.clear();
        }
    };
    tokio::select! {
        () = receive => {}
        () = send => {}
    }
    outbox.is_open.set(false);
}

/// Receives the datagrams of a socket. Each remote address has its own face.
async fn receive_datagrams(shared: Rc<RefCell<Shared>>, socket: Rc<Port>, number: usize) {
    let local = socket.local_addr().map(|local| format!("udp://{local}")).unwrap_or_default();
    let mut inbound = Inbound::default();
    while socket.readable().await.is_ok() {
        socket.receive(&mut inbound);
        {
            let mut shared = shared.borrow_mut();
            shared.begin();
            for (remote, datagram) in inbound.datagrams() {
                let known = shared.faces.of_remote(number, remote);
                let id = known.or_else(|| {
                    let link = Link::Udp(Rc::clone(&socket), remote);
                    let face = Face::new(link, FaceUri::Udp(remote), local.clone(), true, shared.now());
                    let id = shared.faces.add(face)?;
                    shared.faces.set_remote(number, remote, id);
                    Some(id)
                });
                if let Some(id) = id {
                    shared.receive(id, datagram);
                }
            }
            shared.faces.flush();
        }
        tokio::task::yield_now().await;
    }
}

/// Maximum number of packets of a stream that are processed before other tasks have their turn.
const TURN: usize = 64;

/// Every 20 ms, removes Interests whose lifetime has passed, and sends acknowledgements and retransmissions that are
/// due. Every ten seconds, removes UDP faces that received nothing for the time `idle`.
async fn keep_time(shared: Rc<RefCell<Shared>>, idle: Duration) {
    const TICK: std::time::Duration = std::time::Duration::from_millis(20);
    let mut ticks = 0u64;
    loop {
        tokio::time::sleep(TICK).await;
        let mut shared = shared.borrow_mut();
        shared.on_timeout();
        let now = shared.now();
        shared.faces.repeat(now);
        shared.faces.flush();
        ticks += 1;
        if ticks.is_multiple_of(500) {
            shared.remove_idle(idle);
        }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        // The first second is left, so that no time is before the clock.
        Instant::from_micros(1_000_000 + self.begun.elapsed().as_micros() as u64)
    }

    /// Begins to process packets that have arrived. All of them are processed at one time of the clock.
    fn begin(&mut self) {
        self.faces.now = self.now();
    }

    fn add_management(&mut self, neighbours_register: bool) {
        let prefixes = [management::LOCAL].into_iter().chain(neighbours_register.then_some(management::NEIGHBOUR));
        for prefix in prefixes {
            let mut bytes = [0; 40];
            let mut out = Writer::new(&mut bytes);
            let written = write_uri(prefix, &mut out);
            debug_assert!(written.is_ok());
            self.forwarder.fib.add(&Name::of_checked(out.written()), NextHop { face: MANAGEMENT, cost: 0 });
        }
    }

    fn remove_face(&mut self, id: FaceId) {
        self.faces.remove(id);
        self.forwarder.fib.remove_face(id);
    }

    fn remove_idle(&mut self, idle: Duration) {
        let now = self.now();
        self.faces.expire(now);
        let is_idle =
            |face: &Face| face.is_on_demand && matches!(face.link, Link::Udp(..)) && face.active.after(idle) <= now;
        let ended: Vec<FaceId> = self.faces.iter().filter(|(_, face)| is_idle(face)).map(|(id, _)| id).collect();
        ended.into_iter().for_each(|id| self.remove_face(id));
    }

    fn on_timeout(&mut self) {
        let now = self.now();
        self.faces.now = now;
        let before = self.forwarder.pit.len();
        self.forwarder.on_timeout(now, &mut self.buffer, &mut self.faces);
        self.unsatisfied += before.saturating_sub(self.forwarder.pit.len()) as u64;
    }

    /// Processes the bytes that a face received: a packet, or an LpPacket.
    fn receive(&mut self, from: FaceId, bytes: &mut [u8]) {
        let now = self.faces.now;
        let Some(face) = self.faces.get(from) else { return };
        face.active = now;
        face.counters.in_bytes += bytes.len() as u64;
        let is_reliable = face.reliability.is_some();
        let Ok(packet) = LpPacket::parse(bytes) else { return };
        if is_reliable {
            self.faces.note(from, now, packet.tx_sequence, acks(bytes));
        }
        let Some(fragment) = packet.fragment else { return };
        let Some(face) = self.faces.get(from) else { return };
        let (token, nack) = (packet.token.map_or_else(Token::default, Token::new), packet.nack);
        if let Some(part) = packet.part {
            if face.reliability.as_mut().is_some_and(|reliability| !reliability.is_new(now, part.sequence)) {
                return;
            }
            if part.count > 1 {
                if let Some(mut whole) = face.reassembly.add(now, part, fragment) {
                    self.take(now, from, &mut whole, token, nack);
                }
                return;
            }
        }
        let start = fragment.as_ptr().addr() - bytes.as_ptr().addr();
        let end = start + fragment.len();
        if let Some(fragment) = bytes.get_mut(start..end) {
            self.take(now, from, fragment, token, nack);
        }
    }

    fn take(&mut self, now: Instant, from: FaceId, packet: &mut [u8], token: Token, nack: Option<NackReason>) {
        self.faces.from = from;
        let kind = packet.first().copied().map(u32::from).map(Type);
        let totals = self.faces.totals;
        let Some(face) = self.faces.get(from) else { return };
        let counters = &mut face.counters;
        match (kind, nack) {
            (Some(Type::INTEREST), Some(reason)) => {
                counters.in_nacks += 1;
                self.faces.totals.in_nacks = totals.in_nacks + 1;
                let _ = self.forwarder.on_nack(now, from, packet, reason, &mut self.faces);
            }
            (Some(Type::INTEREST), None) => {
                counters.in_interests += 1;
                self.faces.totals.in_interests = totals.in_interests + 1;
                self.take_interest(now, from, packet, token);
            }
            (Some(Type::DATA), None) => {
                counters.in_data += 1;
                self.faces.totals.in_data = totals.in_data + 1;
                self.take_data(now, from, packet);
            }
            _ => {}
        }
        self.answer_commands(now);
    }

    fn take_interest(&mut self, now: Instant, from: FaceId, packet: &mut [u8], token: Token) {
        let forwarder = &mut self.forwarder;
        let outcome = forwarder.on_interest::<RustCrypto>(now, from, packet, token, &mut self.faces);
        let has_nonce = || ReceivedInterest::parse(packet).is_ok_and(|received| received.interest.nonce.is_some());
        if outcome == Err(Dropped::Malformed) && !has_nonce() {
            let mut nonce = [0; 4];
            tegmen_base::crypto::Crypto::random(&mut self.crypto, &mut nonce);
            let mut storage = std::mem::take(&mut self.buffer);
            let mut frame = Frame::new(&mut storage, MAX_HEAD);
            if write_with_nonce(packet, nonce, &mut frame).is_ok() {
                let packet = frame.bytes_mut();
                let _ = self.forwarder.on_interest::<RustCrypto>(now, from, packet, token, &mut self.faces);
            }
            self.buffer = storage;
        }
    }

    fn take_data(&mut self, now: Instant, from: FaceId, packet: &[u8]) {
        let waiting = self.forwarder.pit.len();
        let outcome = self.forwarder.on_data::<RustCrypto>(now, from, packet, &mut |_| true, &mut self.faces);
        if outcome == Ok(Outcome::Returned) {
            self.satisfied += (waiting - self.forwarder.pit.len()) as u64;
        }
    }

    /// Executes waiting commands, and answers requests for datasets.
    fn answer_commands(&mut self, now: Instant) {
        while let Some((from, packet)) = self.faces.commands.pop_front() {
            let Ok(received) = ReceivedInterest::parse(&packet) else { continue };
            let name = received.interest.name;
            let Some(request) = Request::of(&name) else { continue };
            let Self { forwarder, faces, .. } = self;
            if let Some(response) = request.execute(&mut forwarder.fib, from, |face| faces.exists(face)) {
                self.publish(now, name.as_bytes(), None, &response);
            } else if let Some(dataset) = request.dataset(&self.forwarder.fib, &self.status()) {
                self.publish_segments(now, &name, &dataset);
            }
        }
    }

    fn status(&self) -> Status {
        let faces = self.faces.iter().map(|(face, known)| FaceStatus {
            face,
            uri: known.remote.to_string(),
            local_uri: known.local.clone(),
            is_local: known.is_local,
            is_on_demand: known.is_on_demand,
            counters: known.counters,
        });
        Status {
            started: self.started,
            now: unix_millis(),
            waiting: self.forwarder.pit.len(),
            stored: self.forwarder.store.len(),
            satisfied: self.satisfied,
            unsatisfied: self.unsatisfied,
            counters: self.faces.totals,
            faces: faces.collect(),
        }
    }

    /// Passes a Data packet to the forwarder, as the answer to an Interest for the management. If no Interest for the
    /// packet is pending, stores the packet in the content store. The packet has this name and content, and `last` as
    /// its FinalBlockId.
    fn publish(&mut self, now: Instant, name: &[u8], last: Option<Component<'_>>, content: &[u8]) {
        let data = Data {
            name: Name::of_checked(name),
            freshness: Some(1000),
            final_block: last,
            content: Some(content),
            ..Data::default()
        };
        let mut storage = vec![0; content.len() + name.len() + 400];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        if data.write(&mut self.crypto, &DigestSha256, &mut frame).is_err() {
            return;
        }
        let packet = frame.bytes();
        let answer = self.forwarder.on_data::<RustCrypto>(now, MANAGEMENT, packet, &mut |_| true, &mut self.faces);
        // Further segments of a dataset wait in the store.
        if answer == Err(Dropped::Unsolicited)
            && let Ok(received) = ReceivedData::parse(packet)
        {
            self.forwarder.store.insert(now, &received);
        }
    }

    fn publish_segments(&mut self, now: Instant, prefix: &Name<'_>, dataset: &[u8]) {
        const SEGMENT: usize = 7_000;
        let mut bytes = [0; 8];
        self.next_version += 1;
        let version = self.next_version;
        let segments: Vec<&[u8]> = if dataset.is_empty() { vec![&[]] } else { dataset.chunks(SEGMENT).collect() };
        let last = tlv::integer_bytes(segments.len() as u64 - 1, &mut bytes);
        let last = Component { kind: Type::SEGMENT, value: last };
        // The first segment answers the Interest, the others are stored.
        for (number, segment) in segments.iter().enumerate() {
            let mut storage = vec![0; prefix.as_bytes().len() + 40];
            let mut name = Writer::new(&mut storage);
            let mut number_bytes = [0; 8];
            let mut version_bytes = [0; 8];
            let written = name.put(prefix.as_bytes()).and_then(|()| {
                let value = tlv::integer_bytes(version, &mut version_bytes);
                Component { kind: Type::VERSION, value }.write(&mut name)?;
                let value = tlv::integer_bytes(number as u64, &mut number_bytes);
                Component { kind: Type::SEGMENT, value }.write(&mut name)
            });
            if written.is_ok() {
                self.publish(now, name.written(), Some(last), segment);
            }
        }
    }
}
