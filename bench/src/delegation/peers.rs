//! The peers of devices. Each peer has a certificate and its own address, from 127.1.0.0 upwards. All peers share a
//! socket.

use super::counting::Counting;
use crate::{crowd::request, failure::failure};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tegmen::{
    address::Path,
    buf::Frame,
    coap::{Code, MessageRef},
    cx::Environment,
    dtls::{
        Answer, ClientOnly, Config, Fatal, Handle, Need, PublicKeys, Records, Resumable, Resuming, Resumption,
        SessionState,
    },
    endpoint::{Endpoint, Event, MAX_HEADROOM, Peers as _},
    identity::{PeerId, Principal},
    secret::Secret,
};
use tegmen_bench_line::Failure;
use tegmen_host::{
    provider::HostCrypto,
    public_keys::PublicKeys as Keys,
    slab::{Capacity, Slab},
    udp::{Inbound, Outbox, Socket},
    x509::Purpose,
};
use tokio::runtime::Runtime;

/// A session of a peer, and the ticket with which the peer resumes it.
pub(super) struct Kept {
    pub(super) session: SessionState,
    pub(super) ticket: Vec<u8>,
}

/// An event of a peer.
pub(super) enum News {
    /// The session of the peer is established. The value is true if the handshake resumed an earlier session.
    Established(bool),
    /// The request of the peer was answered. The answer has this code.
    Answered(Code),
    /// The handshake or the session of the peer has ended for this reason.
    Closed(Fatal),
}

/// The resumption settings of the peers. A peer accepts tickets.
struct Takes;

impl Resumption for Takes {}

type Role = PublicKeys<Resuming<ClientOnly, Takes>, Keys>;
type Table = Slab<(), 2>;

struct Peer {
    endpoint: Endpoint<Table, Role>,
    /// The id of the session or handshake that the peer opened last; `None` if there is none.
    id: Option<PeerId>,
    kept: Option<Kept>,
}

/// All peers of the benchmark.
pub(super) struct Peers {
    runtime: Runtime,
    sockets: [Socket; 1],
    inbound: Inbound,
    outbox: Outbox,
    environment: Environment<Counting>,
    begin: Instant,
    polled: Instant,
    each: Vec<Peer>,
    news: Vec<(usize, News)>,
    message_id: u16,
}

impl Peers {
    pub(super) fn new() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
        let socket = {
            let _entered = runtime.enter();
            Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), false).map_err(failure)?
        };
        let crypto = Counting { crypto: HostCrypto::from_os().map_err(failure)?, operations: 0 };
        Ok(Self {
            runtime,
            sockets: [socket],
            inbound: Inbound::default(),
            outbox: Outbox::default(),
            environment: Environment::new(crypto),
            begin: Instant::now(),
            polled: Instant::now(),
            each: Vec::new(),
            news: Vec::new(),
            message_id: 0,
        })
    }

    /// Replaces all peers with new peers. Each of these keys belongs to one new peer.
    pub(super) fn replace(&mut self, keys: impl IntoIterator<Item = Keys>) {
        self.each.clear();
        let capacity = Capacity { peers: 4, handshakes: 4 };
        // A last flight that is lost is asked for again after a second.
        let linger = tegmen::time::Duration::from_secs(4);
        for keys in keys {
            let config = Config { suites: super::authority::SUITES, linger, ..Config::default() };
            let role = PublicKeys { role: Resuming { role: ClientOnly, sessions: Takes }, keys };
            let cx = &mut self.environment.at(tegmen::time::Instant::default());
            let endpoint = Endpoint::with_roles(cx, Table::with_blocks(capacity), config, role);
            self.each.push(Peer { endpoint, id: None, kept: None });
        }
    }

    /// Returns the number of public-key operations of all peers. Their signatures are included.
    pub(super) const fn operations(&self) -> u64 {
        self.environment.crypto.operations
    }

    /// Stores a session, which the peer can resume later.
    pub(super) fn keep(&mut self, peer: usize, kept: Kept) {
        self.each[peer].kept = Some(kept);
    }

    fn now(&self) -> tegmen::time::Instant {
        // Not at the start of the clock, where everything is due.
        tegmen::time::Instant::from_micros(1_000_000 + self.begin.elapsed().as_micros() as u64)
    }

    fn path(&self, peer: usize, remote: SocketAddr) -> Path {
        let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(FIRST + peer as u32)), self.sockets[0].local().port());
        Path { local: local.into(), remote: remote.into() }
    }

    /// Begins a handshake of a peer. The new session replaces the previous session of the peer. If `with_ticket` is
    /// true and the peer has a ticket, the peer resumes the session of this ticket. Otherwise it uses its certificate.
    pub(super) fn open(&mut self, peer: usize, remote: SocketAddr, with_ticket: bool) -> Result<(), Failure> {
        let (path, now) = (self.path(peer, remote), self.now());
        let Peer { endpoint, id, kept } = &mut self.each[peer];
        if let Some(before) = id.take() {
            endpoint.peers.remove(before);
        }
        let cx = &mut self.environment.at(now);
        let opened = match kept.as_ref().filter(|_| with_ticket) {
            Some(Kept { session, ticket }) => endpoint.connect_again(cx, &path, session, Handle::Ticket(ticket)),
            None => endpoint.connect(cx, &path),
        };
        *id = Some(opened.map_err(failure)?);
        self.poll(peer);
        Ok(())
    }

    /// Sends a GET for the value at `path` in the session of a peer.
    pub(super) fn ask(&mut self, peer: usize, path: &str) -> Result<(), Failure> {
        self.message_id = self.message_id.wrapping_add(1);
        let mut plain = [0; 128];
        let asked = request(&mut plain, Code::GET, self.message_id, peer as u32, |builder| builder.path(path));
        let len = asked.map_err(failure)?;
        let mut room = [0; 256];
        let mut frame = Frame::new(&mut room, MAX_HEADROOM);
        frame.append(&plain[..len]).map_err(failure)?;
        let now = self.now();
        let Peer { endpoint, id, .. } = &mut self.each[peer];
        let id = id.ok_or_else(|| Failure::new("no session"))?;
        endpoint.seal(&mut self.environment.at(now), id, &mut frame).map_err(failure)?;
        let path = endpoint.peers.peer(id).map(|entry| *entry.path());
        self.outbox.push(path.ok_or_else(|| Failure::new("no session"))?, frame.bytes());
        Ok(())
    }

    /// Closes the session of a peer.
    pub(super) fn close(&mut self, peer: usize) {
        let Peer { endpoint, id, .. } = &mut self.each[peer];
        if let Some(id) = id.take() {
            endpoint.close(id);
            self.poll(peer);
        }
    }

    /// Sends the datagrams that are due, and waits up to a millisecond for datagrams. Returns each event with the
    /// number of its peer.
    pub(super) fn turn(&mut self) -> Result<Vec<(usize, News)>, Failure> {
        self.flush();
        if self.polled.elapsed() >= POLL {
            self.polled = Instant::now();
            (0..self.each.len()).for_each(|peer| self.poll(peer));
        }
        let mut inbound = std::mem::take(&mut self.inbound);
        let (runtime, [socket]) = (&self.runtime, &self.sockets);
        runtime.block_on(async {
            let readable = std::future::poll_fn(|cx| socket.poll_readable(cx));
            let _ = tokio::time::timeout(Duration::from_millis(1), readable).await;
        });
        while {
            let _entered = self.runtime.enter();
            self.sockets[0].receive(&mut inbound).map_err(failure)?
        } {
            for (path, datagram) in inbound.datagrams() {
                let IpAddr::V4(ip) = SocketAddr::from(path.local).ip() else { continue };
                let peer = u32::from(ip).wrapping_sub(FIRST) as usize;
                if peer < self.each.len() {
                    self.take(peer, path, datagram)?;
                }
            }
            self.flush();
        }
        self.inbound = inbound;
        Ok(std::mem::take(&mut self.news))
    }

    fn flush(&mut self) {
        let Self { runtime, outbox, sockets, .. } = self;
        if !outbox.is_empty() {
            runtime.block_on(outbox.flush(sockets));
        }
    }

    fn take(&mut self, peer: usize, path: &Path, datagram: &mut [u8]) -> Result<(), Failure> {
        let mut records = Records::new(datagram);
        loop {
            let now = self.now();
            let Self { each, environment, outbox, .. } = self;
            match each[peer].endpoint.handle(&mut environment.at(now), path, &mut records, outbox.draft()) {
                None => break,
                Some(Event::Answer { len }) => self.outbox.queue(*path, len.into()),
                Some(Event::Message { bytes, .. }) => {
                    if let Ok(message) = MessageRef::parse(records.bytes(bytes))
                        && message.token() == (peer as u32).to_be_bytes()
                    {
                        self.news.push((peer, News::Answered(message.code())));
                    }
                }
                Some(event) => self.on_event(peer, event)?,
            }
        }
        self.poll(peer);
        Ok(())
    }

    fn poll(&mut self, peer: usize) {
        loop {
            let now = self.now();
            let Self { each, environment, outbox, .. } = self;
            match each[peer].endpoint.poll(&mut environment.at(now), outbox.draft()) {
                None => return,
                // A failure of a provider would have shown before.
                Some(event) => drop(self.on_event(peer, event)),
            }
        }
    }

    fn on_event(&mut self, peer: usize, event: Event) -> Result<(), Failure> {
        match event {
            Event::Need(id) => {
                if let Some(event) = self.answer(peer, id)? {
                    self.on_event(peer, event)?;
                }
            }
            Event::Transmit { peer: id, len } => {
                if let Some(path) = self.each[peer].endpoint.peers.peer(id).map(|entry| *entry.path()) {
                    self.outbox.queue(path, len.into());
                }
            }
            Event::Established(id) => {
                let Peer { endpoint, kept, .. } = &mut self.each[peer];
                if let Some(Resumable::With { session, handle: Handle::Ticket(ticket), .. }) = endpoint.resumable(id) {
                    *kept = Some(Kept { session, ticket: ticket.to_vec() });
                }
                let is_resumed = endpoint.is_resumed(id);
                self.news.push((peer, News::Established(is_resumed)));
            }
            Event::Closed { peer: id, reason } => {
                // Another association replaced one that was closed before.
                if self.each[peer].id.take_if(|last| *last == id).is_some() {
                    self.news.push((peer, News::Closed(reason)));
                }
            }
            Event::Answer { .. } | Event::Message { .. } | Event::Alarm(_) | Event::Moved(_) => {}
        }
        Ok(())
    }

    fn answer(&mut self, peer: usize, id: PeerId) -> Result<Option<Event>, Failure> {
        let now = self.now();
        let Peer { endpoint, .. } = &mut self.each[peer];
        let (content, signature, verified);
        let answer = match endpoint.need(id) {
            Some(Need::VerifyPeer { certificate_type, content: shown }) => {
                content = shown.to_vec();
                verified = endpoint.roles.keys.verify(certificate_type, &content, Purpose::Server).map_err(failure)?;
                Answer::Peer { public_key: verified.spki, principal: Principal(0) }
            }
            Some(Need::Sign { credential, digest, .. }) => {
                let signed = endpoint.roles.keys.sign(credential, &digest);
                signature = signed.ok_or_else(|| Failure::new("a peer has no key"))?;
                Answer::Signature(&signature)
            }
            _ => return Err(Failure::new("a handshake asks for something else than certificates")),
        };
        self.environment.crypto.operations += 1;
        Ok(endpoint.resume(&mut self.environment.at(now), id, answer))
    }
}

/// Copies the state of a session, because both the device and its peer need it.
pub(super) fn copy(session: &SessionState) -> SessionState {
    SessionState { master: Secret::new(*session.master.expose()), ..*session }
}

/// Returns the credentials `keys` of a peer with two settings: the peer verifies the certificates of servers with
/// `verifier`, and requires that the server has the name `name`.
pub(super) fn asking_for(keys: Keys, verifier: Arc<tegmen_host::x509::Verifier>, name: &str) -> Keys {
    keys.believing(verifier).expecting(name)
}

/// Returns the loopback address of a device or a server. It is `number` addresses after `first`.
pub(super) fn at(first: u32, number: u32, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from(first + number)), port)
}

/// The address that the first peer has.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 0]);
/// The interval at which the timers of all peers are examined.
const POLL: Duration = Duration::from_millis(50);
