//! The engine of an endpoint: its node with the sockets, and its sessions. The lock of the endpoint protects the whole
//! engine.

mod serve;

use super::connection::{Connection, SessionEntry};
use super::io::Io;
use super::port::Port;
use super::serving::Built;
use super::{ClientConfig, ClientError, Node, Role, Table};
use crate::clock;
use crate::provider::HostCrypto;
use crate::server::Command;
use std::cmp::Reverse;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::address::Path;
use tegmen::cx::Environment;
use tegmen::dtls::Records;
use tegmen::endpoint::{Event, Peers as _, Phase};
use tegmen::identity::PeerId;
use tegmen::time::Instant;
use tokio::sync::mpsc;

/// The range of the first byte of a record (RFC 6347, RFC 9146). The first byte of a CoAP message is 64 or more (RFC
/// 7252, section 3).
const RECORDS: std::ops::RangeInclusive<u8> = 20..=63;
/// The content types of application data: without and with a connection id.
const APPLICATION_DATA: [u8; 2] = [23, 25];

/// The entries of all sessions. A freed entry is used again.
#[derive(Default)]
struct Sessions {
    all: Vec<SessionEntry>,
    free: Vec<usize>,
}

/// The state of an endpoint, with its lock. The sessions and the task of the endpoint share it.
pub(super) struct Shared(Mutex<Engine>);

impl Shared {
    pub(super) const fn new(engine: Engine) -> Self {
        Self(Mutex::new(engine))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of an endpoint. The lock of the endpoint protects it.
pub(super) struct Engine {
    pub(super) io: Io,
    sessions: Sessions,
    pub(super) config: Arc<ClientConfig>,
    /// The receiver of deferred responses and of changes of resources, if the endpoint serves requests.
    pub(super) commands: Option<mpsc::UnboundedReceiver<Command>>,
}

impl Engine {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        endpoint: tegmen::endpoint::Endpoint<Table, Role>,
        environment: Environment<HostCrypto>,
        ports: Vec<Port>,
        Built { serving, commands, features, pool }: Built,
    ) -> Self {
        let node = Node::with_features(endpoint, pool, features);
        let io = Io::new(node, environment, config.log.tap.clone(), ports, serving);
        Self { io, sessions: Sessions::default(), config, commands }
    }

    /// Makes an entry for a session, and returns its index.
    pub(super) fn take(&mut self, new: impl FnOnce(usize) -> SessionEntry) -> usize {
        match self.sessions.free.pop() {
            Some(key) => {
                self.sessions.all[key] = new(key);
                key
            }
            None => {
                let key = self.sessions.all.len();
                self.sessions.all.push(new(key));
                key
            }
        }
    }

    /// Frees the entry of a session. Removes the peer of the session from the peer table without a message to the peer.
    pub(super) fn give_back(&mut self, key: usize) {
        self.abandon(key);
        let entry = &mut self.sessions.all[key];
        let old = (entry.path, entry.protection);
        *entry = SessionEntry::new(key, &self.config, old);
        entry.is_shut = true;
        self.io.ports.retain(|port| port.owner() != Some(key));
        self.sessions.free.push(key);
    }

    /// Calls `work` with a session, and then sends the datagrams that are due.
    pub(super) fn with<T>(&mut self, key: usize, work: impl FnOnce(&mut Connection<'_>) -> T) -> T {
        let Self { io, sessions, .. } = self;
        let result = work(&mut Connection { io, entry: &mut sessions.all[key] });
        if std::mem::take(&mut self.io.is_due) {
            self.run_due();
            self.io.rearm_for_alarm();
        }
        result
    }

    /// Returns the open session with this path.
    pub(super) fn find(&self, path: &Path) -> Option<&SessionEntry> {
        self.sessions.all.iter().find(|entry| !entry.is_shut && entry.path == *path)
    }

    /// Ends a session whose last clone was dropped. The server receives no message. Another session can then use the
    /// same path.
    pub(super) fn abandon(&mut self, key: usize) {
        self.with(key, |connection| {
            connection.shut();
            connection.leave_peer();
        });
    }

    /// Continues a session over a separate socket.
    pub(super) fn move_to(&mut self, key: usize, port: Port) {
        self.io.ports.retain(|other| other.owner() != port.owner());
        let remote = self.sessions.all[key].remote;
        let path = crate::udp::path(port.local(), remote);
        self.io.ports.push(port);
        self.with(key, |connection| connection.move_to(path));
    }

    /// Ends each session with a message to its server, or stores the session if the settings require this. Then closes
    /// the sockets.
    pub(super) fn close(&mut self) {
        for key in 0..self.sessions.all.len() {
            self.with(key, |connection| connection.close());
        }
        self.shut();
    }

    /// Closes all sessions, and the sockets.
    pub(super) fn shut(&mut self) {
        self.send_outbox();
        for key in 0..self.sessions.all.len() {
            self.with(key, |connection| connection.shut());
        }
        self.io.ports.clear();
        self.io.wake_driver();
    }

    /// Wakes each future whose waiting time has ended.
    pub(super) fn wake_due(&mut self, now: Instant) {
        while let Some(Reverse((at, key))) = self.io.due.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.io.due.pop();
            let entry = &mut self.sessions.all[key];
            if entry.armed != at {
                continue;
            }
            entry.armed = Instant::NEVER;
            entry.wake_due(now);
            let next = entry.next_wake();
            self.io.arm((key, &mut entry.armed), next);
        }
    }

    /// Handles a datagram that the endpoint received.
    pub(super) fn on_datagram(&mut self, path: &Path, datagram: &mut [u8]) {
        if self.io.kept > 0
            && let Some(peer) = self.io.node.endpoint.peers.find(path, Phase::Established)
        {
            self.lease_ahead(peer);
        }
        match datagram.first() {
            Some(first) if RECORDS.contains(first) => self.on_records(path, datagram),
            _ => self.on_plain(path, datagram),
        }
        self.deliver();
    }

    fn lease_ahead(&mut self, peer: PeerId) {
        let Some(key) = self.io.session_of(peer) else { return };
        self.with(key, |connection| {
            if let Err(error) = connection.lease_ahead() {
                connection.fail_here(ClientError::State(error));
            }
        });
    }

    fn on_plain(&mut self, path: &Path, datagram: &mut [u8]) {
        self.io.tap(false, path, datagram);
        let Io { node, environment, arrivals, out, .. } = &mut self.io;
        // Nobody other than the peers of our sessions is heard, unless the endpoint serves requests in clear.
        let is_known = node.endpoint.peers.find(path, Phase::Established).is_some();
        if !is_known && !arrivals.serving.as_ref().is_some_and(|serving| serving.plain_allowed) {
            let counters = &mut environment.counters;
            counters.unknown_peer = counters.unknown_peer.saturating_add(1);
            return;
        }
        let mut cx = environment.at(clock::now());
        if let Some(Event::Transmit { len, .. }) = node.handle_plain(&mut cx, path, datagram, arrivals, out) {
            self.transmit(path, len.into());
        }
    }

    fn on_records(&mut self, path: &Path, datagram: &mut [u8]) {
        // A datagram is opened in place. A tap sees it behind the secrets that its first record gives.
        let mut untapped = self.io.tap.is_some().then(|| datagram.to_vec());
        let mut records = Records::new(datagram);
        loop {
            let Io { node, environment, arrivals, out, .. } = &mut self.io;
            let mut cx = environment.at(clock::now());
            let mut event = node.handle(&mut cx, path, &mut records, arrivals, out);
            let is_last = event.is_none();
            // What waited behind one question may lead to the next.
            while let Some(Event::Need(peer)) = event {
                event = match self.io.session_of(peer) {
                    Some(key) if self.io.is_server(peer) => self.with(key, |connection| connection.on_need()),
                    _ => self.on_client_need(peer),
                };
            }
            if let Some(datagram) = untapped.take() {
                self.io.tap(false, path, &datagram);
            }
            match event {
                Some(Event::Answer { len }) => {
                    self.report_refusal(path, len.into());
                    self.transmit(path, len.into());
                }
                Some(Event::Transmit { len, .. }) => self.transmit(path, len.into()),
                Some(event) => self.on_event(event),
                None if is_last => return,
                None => {}
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Established(peer) => {
                self.hold_number(peer);
                let Some(key) = self.io.session_of(peer) else { return self.on_client(peer) };
                self.with(key, |connection| {
                    if connection.is_unproved() {
                        return connection.refuse();
                    }
                    connection.entry.established = true;
                    if let Err(error) = connection.on_established() {
                        connection.fail_here(error);
                    }
                    connection.entry.places.wake_all();
                });
            }
            Event::Closed { peer, reason } => {
                self.report_end(peer, reason);
                if let Some(key) = self.io.session_of(peer) {
                    self.with(key, |connection| connection.on_closed(reason));
                }
                self.io.node.features.oscore.detach(peer);
                self.io.node.features.pacing.forget(peer);
            }
            _ => {}
        }
    }

    /// Delivers the responses to the sessions that wait for them.
    fn deliver(&mut self) {
        while let Some(peer) = self.io.node.features.pacing.heard.pop() {
            if let Some(key) = self.io.session_of(peer) {
                let entry = &mut self.sessions.all[key];
                entry.is_answered();
                entry.places.wake_first();
            }
        }
        while let Some((peer, request, arrival)) = self.io.arrivals.take() {
            if let Some(key) = self.io.session_of(peer) {
                self.with(key, |connection| connection.deliver(request, arrival));
            }
        }
        self.on_handled();
    }

    /// Sends the datagrams that are due.
    pub(super) fn run_due(&mut self) {
        loop {
            let now = clock::now();
            let Io { node, environment, arrivals, out, .. } = &mut self.io;
            let mut cx = environment.at(now);
            match node.poll(&mut cx, arrivals, out) {
                None => break,
                Some(Event::Transmit { peer, len }) => {
                    self.on_transmit(now, peer);
                    if let Some(path) = self.io.path_of(peer) {
                        self.transmit(&path, len.into());
                    }
                }
                Some(event) => self.on_event(event),
            }
        }
        self.io.give_back();
        self.deliver();
        self.on_second();
    }

    /// Sends the datagram in the output buffer to a peer. `now` is the time for which the datagram was planned.
    fn on_transmit(&mut self, now: Instant, peer: PeerId) {
        let is_record = self.io.out.first().is_some_and(|first| RECORDS.contains(first));
        let is_message = !is_record || self.io.out.first().is_some_and(|first| APPLICATION_DATA.contains(first));
        if is_message && let Some(key) = self.io.session_of(peer) {
            self.with(key, |connection| {
                connection.entry.is_repeated(now);
                let at = connection.entry.next_wake();
                connection.arm(at);
            });
        }
        if self.io.kept > 0 {
            self.lease_ahead(peer);
        }
    }

    /// Sends the first `len` bytes of the output buffer. If this fails, all waiting requests of the session with this
    /// path end with the error.
    fn transmit(&mut self, path: &Path, len: usize) {
        if let Err(source) = self.io.put_out(path, len) {
            self.fail(path, &source);
        }
    }

    /// Passes a network error to the session with this path.
    pub(super) fn fail(&mut self, path: &Path, source: &io::Error) {
        if let Some(key) = self.find(path).map(|entry| entry.key) {
            self.with(key, |connection| connection.fail(source));
        }
    }

    /// Sends the datagrams that wait in the outbox. Returns false if the system cannot take all of them now.
    pub(super) fn send_outbox(&mut self) -> bool {
        let Some(mut outbox) = self.io.outbox.take_if(|outbox| !outbox.is_empty()) else { return true };
        let (mut later, mut failed) = (Vec::new(), Vec::new());
        let socket_of = |path: &Path| match self.io.ports.iter().find(|port| port.has(path)) {
            Some(Port::Open(socket)) => Some(socket),
            _ => None,
        };
        outbox.send_now(socket_of, |path, datagram, error| match error.kind() {
            ErrorKind::WouldBlock => later.push((*path, datagram.to_vec())),
            kind => {
                failed.push((*path, error.raw_os_error().map_or_else(|| kind.into(), io::Error::from_raw_os_error)))
            }
        });
        later.iter().for_each(|(path, datagram)| self.io.keep_unsent(path, datagram));
        self.io.outbox = Some(outbox);
        failed.iter().for_each(|(path, error)| self.fail(path, error));
        later.is_empty()
    }

    /// Sends the datagrams that the system could not accept earlier. Returns the path of the first datagram that the
    /// system still cannot accept; `None` if all were sent.
    pub(super) fn send_unsent(&mut self) -> Option<Path> {
        if self.io.unsent.is_empty() {
            return None;
        }
        while let Some((path, datagram)) = self.io.unsent.pop_front() {
            let port = self.io.ports.iter().find(|port| port.has(&path));
            match port.map_or(Ok(()), |port| port.try_send(&path, &datagram)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.io.unsent.push_front((path, datagram));
                    return Some(path);
                }
                Err(error) => self.fail(&path, &error),
                Ok(()) => {}
            }
        }
        self.io.ports.iter().for_each(Port::end_wait);
        None
    }
}
