//! A CoAP server, sharded by core: each shard is one task that owns its endpoint and its sockets.

use crate::clock;
use crate::credentials::{Credentials, CredentialsError, FilePolicy};
use crate::provider::HostCrypto;
use crate::slab::{Capacity, Slab};
use crate::udp::{BindError, Inbound, Outbox, Socket};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tegmen::coap::exchange::{Due, EXCHANGE_LIFETIME, Exchanges, Received};
use tegmen::coap::handler::{Authorized, Handler, Identity, Request, Response, Served, separate_response, serve};
use tegmen::coap::{Code, OptionNumber, Token};
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::state::{Answer, Need};
use tegmen::dtls::{Config, Fatal, Records};
use tegmen::endpoint::{Cx, Endpoint, Event, Path, PeerId, Peers as _, Protection, Rank, ServerOnly};
use tegmen::time::Instant;
use tokio::sync::{mpsc, watch};

/// Exchanges of one peer of a server: two separate responses, the last 64 messages, 4 KiB of replies.
type PeerExchanges = Exchanges<2, 1280, 64, 4096>;

/// Kept only for peers that say something.
type Attached = Option<Box<Talk>>;

struct Talk {
    exchanges: PeerExchanges,
    last: Instant,
}

type Table = Slab<Attached>;

/// One address to listen at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// Address and port; port 0 takes any free one.
    pub address: SocketAddr,
    /// True for DTLS, false for plain CoAP.
    pub secure: bool,
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// Shards, each a thread with sockets of its own; 0 takes one for each core.
    pub shards: usize,
    /// Peers and handshakes, for all shards together.
    pub capacity: Capacity,
    /// The DTLS side.
    pub dtls: Config,
    /// True if requests over plain CoAP are served.
    pub plain_allowed: bool,
    /// File for a key log (RFC 9850): whoever reads it reads the traffic.
    pub key_log: Option<PathBuf>,
    /// True if the observer is told of every request.
    pub observe_requests: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let idle_timeout = std::time::Duration::from_secs(24 * 3600);
        Self {
            listen: Vec::new(),
            shards: 0,
            capacity: Capacity::default(),
            dtls: Config { idle_timeout, ..Config::default() },
            plain_allowed: false,
            key_log: None,
            observe_requests: true,
        }
    }
}

/// What a server has to tell its operator. No secret is in it.
#[derive(Debug)]
pub enum Note {
    /// A session began.
    Established {
        /// With whom.
        remote: SocketAddr,
        /// As what it authenticated.
        identity: String,
    },
    /// A handshake or a session ended otherwise than in order.
    Failed {
        /// With whom.
        remote: SocketAddr,
        /// The identity that it gave, if it came so far.
        identity: Option<String>,
        /// Why.
        reason: Fatal,
    },
    /// A session ended in order, fell idle or was replaced.
    Closed {
        /// With whom.
        remote: SocketAddr,
        /// Why.
        reason: Fatal,
    },
    /// A request was answered.
    Request {
        /// By whom.
        remote: SocketAddr,
        /// As what it authenticated, if it did.
        identity: Option<String>,
        /// Method.
        method: Code,
        /// Path with a slash in front.
        path: String,
        /// The response code.
        code: Code,
    },
    /// The credentials file was read again.
    Reloaded {
        /// Identities that it holds.
        identities: usize,
    },
    /// The credentials file changed, and what it says cannot be used; the old credentials stay in force.
    ReloadFailed(CredentialsError),
}

/// Told everything that an operator may want to know; called from the shards, so it must be quick.
pub type Observer = Arc<dyn Fn(Note) + Send + Sync>;

/// An application behind a server. One clone runs in each shard.
pub trait Application: Clone + Send + 'static {
    /// Reads the request, writes the response. What takes long is done elsewhere: `later` gives a ticket for it.
    ///
    /// # Errors
    /// The code of an error response.
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>, later: &Later) -> Result<(), Code>;
}

/// For responses that come later.
pub struct Later {
    peer: PeerId,
    token: Token,
    completed: mpsc::UnboundedSender<Completion>,
}

/// The right to respond to one request, once.
pub struct Ticket {
    peer: PeerId,
    token: Token,
    completed: mpsc::UnboundedSender<Completion>,
}

struct Completion {
    peer: PeerId,
    token: Token,
    code: Code,
    content_format: Option<u16>,
    payload: Vec<u8>,
}

impl Later {
    /// Defers the response; the request is acknowledged now.
    pub fn ticket(&self, response: &mut Response<'_, '_>) -> Ticket {
        response.defer();
        Ticket { peer: self.peer, token: self.token, completed: self.completed.clone() }
    }
}

impl Ticket {
    /// Sends the response.
    pub fn respond(self, code: Code, content_format: Option<u16>, payload: Vec<u8>) {
        let Self { peer, token, completed } = self;
        // If the server ended meanwhile there is nobody to tell.
        let _ = completed.send(Completion { peer, token, code, content_format, payload });
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The key log cannot be written.
    #[error("the key log {file} cannot be written: {source}")]
    KeyLog {
        /// Which file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system gives no randomness, or no thread.
    #[error("the system refuses what a server needs: {0}")]
    System(std::io::Error),
}

/// A running server. Dropping it ends it.
pub struct Server {
    addresses: Vec<Listen>,
    stop: watch::Sender<bool>,
    counters: Vec<Arc<Mutex<Totals>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// What a server did and holds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// What was dropped, refused and done.
    pub counters: Counters,
    /// Peers in the table now.
    pub peers: usize,
    /// Bytes that the peer tables take.
    pub table_bytes: usize,
    /// Requests answered.
    pub requests: u64,
}

impl Server {
    /// Starts a server.
    ///
    /// # Errors
    /// [`StartError`], which says what to do.
    pub fn start<A: Application>(
        config: &ServerConfig,
        credentials: &Credentials,
        application: A,
        observer: Observer,
    ) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = if config.shards == 0 { cores } else { config.shards };
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().map(|runtime| Runtime(Some(runtime))).map_err(StartError::System)
        };
        let mut runtimes = (0..shards).map(|_| runtime()).collect::<Result<Vec<_>, _>>()?;
        let addresses = free_addresses(config, &runtimes)?;
        let (stop, stopped) = watch::channel(false);
        let mut server = Self { addresses: addresses.clone(), stop, counters: Vec::new(), threads: Vec::new() };
        for (number, runtime) in runtimes.drain(..).enumerate() {
            let guard = runtime.0.as_ref().map(tokio::runtime::Runtime::enter);
            let sockets = addresses
                .iter()
                .map(|listen| Socket::bind(listen.address, shards > 1))
                .collect::<Result<Vec<_>, _>>()?;
            drop(guard);
            let mut crypto = HostCrypto::from_os().map_err(StartError::System)?;
            if let Some(file) = &config.key_log {
                let source = |source| StartError::KeyLog { file: file.display().to_string(), source };
                crypto.log_keys_to(file).map_err(source)?;
            }
            let totals = Arc::new(Mutex::new(Totals::default()));
            server.counters.push(totals.clone());
            let (completed, completions) = mpsc::unbounded_channel();
            let capacity = Capacity {
                peers: config.capacity.peers.div_ceil(shards),
                handshakes: config.capacity.handshakes.div_ceil(shards),
            };
            let mut counters = Counters::default();
            let mut cx = Cx { now: clock::now(), crypto: &mut crypto, counters: &mut counters };
            let endpoint = Endpoint::new(&mut cx, Table::new(capacity), config.dtls);
            let shard = Shard {
                endpoint,
                crypto,
                counters,
                outbox: Outbox::default(),
                secure_ports: addresses.iter().filter(|l| l.secure).map(|l| l.address.port()).collect(),
                credentials: credentials.clone(),
                policy: FilePolicy { credentials: credentials.clone(), plain_allowed: config.plain_allowed },
                application: application.clone(),
                observer: observer.clone(),
                observe_requests: config.observe_requests,
                completed,
                requests: 0,
                totals,
            };
            let stopped = stopped.clone();
            let reload = number == 0;
            let thread = std::thread::Builder::new().name(format!("tegmen-{number}"));
            let run = move || runtime.block_on(shard.run(sockets, completions, stopped, reload));
            server.threads.push(thread.spawn(run).map_err(StartError::System)?);
        }
        Ok(server)
    }

    /// The addresses that are listened at, with the ports that were taken.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// What all shards did together, at most a second old.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for shard in &self.counters {
            let totals = *shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            sum.counters.add(&totals.counters);
            sum.peers += totals.peers;
            sum.table_bytes += totals.table_bytes;
            sum.requests += totals.requests;
        }
        sum
    }

    /// Ends the server: sessions are closed in order, threads end.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A runtime that may be dropped anywhere, also where a server is started inside another runtime and fails.
struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    fn block_on(mut self, future: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(future);
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds each address once, alone, so that a port which another program has (even one that shares it) is refused; and
/// so that port 0 becomes a number that all shards can bind.
fn free_addresses(config: &ServerConfig, runtimes: &[Runtime]) -> Result<Vec<Listen>, BindError> {
    let _guard = runtimes.first().and_then(|runtime| runtime.0.as_ref()).map(tokio::runtime::Runtime::enter);
    let bind = |listen: &Listen| Socket::bind(listen.address, false);
    let sockets = config.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let listens = config.listen.iter().zip(&sockets);
    Ok(listens.map(|(listen, socket)| Listen { address: socket.local(), secure: listen.secure }).collect())
}

struct Shard<A> {
    endpoint: Endpoint<Table, ServerOnly>,
    crypto: HostCrypto,
    counters: Counters,
    outbox: Outbox,
    secure_ports: Vec<u16>,
    credentials: Credentials,
    policy: FilePolicy,
    application: A,
    observer: Observer,
    observe_requests: bool,
    completed: mpsc::UnboundedSender<Completion>,
    requests: u64,
    totals: Arc<Mutex<Totals>>,
}

/// Batches that are taken from one socket before the others have their turn.
const BATCHES: usize = 16;

impl<A: Application> Shard<A> {
    async fn run(
        mut self,
        sockets: Vec<Socket>,
        mut completions: mpsc::UnboundedReceiver<Completion>,
        mut stopped: watch::Receiver<bool>,
        reload: bool,
    ) {
        let mut inbound = Inbound::default();
        let mut every_second = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            let alarm = self.endpoint.next_alarm();
            let readable = std::future::poll_fn(|cx| {
                let ready = sockets.iter().any(|socket| socket.poll_readable(cx).is_ready());
                if ready { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                () = readable => {
                    for socket in &sockets {
                        for _ in 0..BATCHES {
                            let now = clock::now();
                            match socket.receive(&mut inbound, |path, datagram| self.on_datagram(now, path, datagram)) {
                                Ok(true) => {}
                                Ok(false) | Err(_) => break,
                            }
                            self.poll();
                            self.outbox.flush(&sockets).await;
                        }
                    }
                }
                Some(completion) = completions.recv() => self.on_completion(completion),
                () = sleep_until(alarm), if alarm.is_some() => {}
                _ = every_second.tick() => self.on_second(reload),
            }
            self.poll();
            self.outbox.flush(&sockets).await;
        }
        self.say_goodbye();
        self.outbox.flush(&sockets).await;
    }

    #[inline]
    fn on_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) {
        if !self.secure_ports.contains(&path.local.port) {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            if let Ok(peer) = self.endpoint.plain(&mut cx, &path, Rank::Stranger) {
                self.on_message(now, peer, datagram);
            }
            return;
        }
        let mut records = Records::new(datagram);
        loop {
            let Self { endpoint, crypto, counters, outbox, .. } = self;
            let mut cx = Cx { now, crypto, counters };
            let draft = outbox.draft();
            let event = match endpoint.handle(&mut cx, &path, &mut records, draft.storage) {
                None => return,
                Some(Event::Answer(datagram)) => {
                    let len = datagram.len();
                    outbox.queue(path, len);
                    continue;
                }
                Some(Event::Message { peer, bytes }) => {
                    self.on_message(now, peer, bytes);
                    continue;
                }
                Some(other) => Outcome::from(other),
            };
            self.on_outcome(now, event);
        }
    }

    /// What is due by the clock, and what was made ready to send.
    fn poll(&mut self) {
        let now = clock::now();
        loop {
            let Self { endpoint, crypto, counters, outbox, .. } = self;
            let mut cx = Cx { now, crypto, counters };
            let draft = outbox.draft();
            let event = match endpoint.poll(&mut cx, draft.storage) {
                None => return,
                Some(Event::Transmit { peer, datagram }) => {
                    let len = datagram.len();
                    if let Some(peer) = endpoint.peers.peer(peer) {
                        outbox.queue(*peer.path(), len);
                    }
                    continue;
                }
                Some(Event::Alarm(peer)) => {
                    self.on_alarm(now, peer);
                    continue;
                }
                Some(other) => Outcome::from(other),
            };
            self.on_outcome(now, event);
        }
    }

    fn on_outcome(&mut self, now: Instant, outcome: Outcome) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Need(peer) => {
                let Some(Need::PskOfClient { identity }) = self.endpoint.need(peer) else { return };
                let found = self.credentials.key_of(identity);
                let answer = match &found {
                    Some((key, principal)) => Answer::Psk { identity: &[], key, principal: *principal },
                    None => Answer::Unknown,
                };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let event = self.endpoint.resume(&mut cx, peer, answer).map_or(Outcome::Nothing, Outcome::from);
                self.on_outcome(now, event);
            }
            Outcome::Established(peer) => {
                if let Some(entry) = self.endpoint.peers.peer(peer) {
                    let (remote, principal) = (SocketAddr::from(entry.path().remote), entry.principal());
                    let identity = self.credentials.name_of(principal).unwrap_or_default();
                    (self.observer)(Note::Established { remote, identity });
                }
            }
            Outcome::Closed(peer, reason) => {
                let Some(entry) = self.endpoint.peers.peer(peer) else { return };
                let remote = SocketAddr::from(entry.path().remote);
                let identity = self.credentials.name_of(entry.principal());
                (self.observer)(match reason {
                    Fatal::Closed | Fatal::Idle | Fatal::Replaced => Note::Closed { remote, reason },
                    reason => Note::Failed { remote, identity, reason },
                });
            }
        }
    }

    fn on_message(&mut self, now: Instant, peer: PeerId, bytes: &mut [u8]) {
        let Some(entry) = self.endpoint.peers.peer(peer) else { return };
        let identity = Identity { principal: entry.principal(), protection: entry.protection() };
        let protection = identity.protection;
        let path = *entry.path();
        let mut opened = false;
        let Some(attached) = self.endpoint.peers.attached(peer) else { return };
        let talk = attached.get_or_insert_with(|| {
            let mut id = [0; 2];
            self.crypto.random(&mut id);
            opened = true;
            Box::new(Talk { exchanges: Exchanges::new(u16::from_ne_bytes(id)), last: now })
        });
        talk.last = now;
        let mut draft = self.outbox.draft();
        let mut frame = draft.frame(protection);
        match talk.exchanges.receive(now, bytes) {
            Received::Request(message) => {
                let (message_id, method) = (message.message_id(), message.code());
                let completed = self.completed.clone();
                let later = Later { peer, token: Token::new(message.token()), completed };
                let mut handler = Bridge { application: &mut self.application, later };
                let answer_id = talk.exchanges.message_id();
                let request = Request::new(message, identity);
                let served = serve(request, &self.policy, &mut handler, answer_id, &mut frame);
                talk.exchanges.keep_reply(now, message_id, frame.bytes());
                self.requests += 1;
                if let Served::Responded { code, .. } = served
                    && self.observe_requests
                {
                    let path_text = message
                        .values(OptionNumber::URI_PATH)
                        .fold(String::new(), |text, segment| text + "/" + &String::from_utf8_lossy(segment));
                    (self.observer)(Note::Request {
                        remote: path.remote.into(),
                        identity: self.credentials.name_of(identity.principal),
                        method,
                        path: path_text,
                        code,
                    });
                }
            }
            Received::Duplicate(reply) => {
                self.counters.duplicates = self.counters.duplicates.saturating_add(1);
                let _ = frame.append(reply);
            }
            Received::Reject(reset) => {
                let _ = frame.append(&reset);
            }
            Received::Response { .. }
            | Received::Acknowledged(_)
            | Received::Reset(_)
            | Received::Rejected { .. }
            | Received::Nothing => {}
        }
        let len = frame.len();
        if opened {
            self.endpoint.peers.schedule(peer, now.after(EXCHANGE_LIFETIME));
        }
        if len > 0 {
            let mut frame = draft.sealable(protection, len);
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            if self.endpoint.seal(&mut cx, peer, &mut frame).is_ok() {
                let len = frame.len();
                self.outbox.queue(path, len);
            }
        }
    }

    /// Sends `message` to `peer`, protected as the peer is.
    fn send(&mut self, now: Instant, peer: PeerId, message: &[u8]) {
        let Some(entry) = self.endpoint.peers.peer(peer) else { return };
        let (path, protection) = (*entry.path(), entry.protection());
        let mut draft = self.outbox.draft();
        let mut frame = draft.frame(protection);
        if frame.append(message).is_err() {
            return;
        }
        let mut frame = draft.sealable(protection, message.len());
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        if self.endpoint.seal(&mut cx, peer, &mut frame).is_ok() {
            let len = frame.len();
            self.outbox.queue(path, len);
        }
    }

    /// The response of a request that was deferred.
    fn on_completion(&mut self, completion: Completion) {
        let Completion { peer, token, code, content_format, payload } = completion;
        let now = clock::now();
        let mut random = [0; 1];
        self.crypto.random(&mut random);
        let Some(Some(talk)) = self.endpoint.peers.attached(peer) else { return };
        let mut storage = [0; 1280];
        let mut frame = tegmen::buf::Frame::new(&mut storage, 0);
        let message_id = talk.exchanges.message_id();
        let mut build = |code: Code, payload: &[u8]| {
            frame.truncate(0);
            let mut builder = separate_response(&mut frame, code, message_id, &token)?;
            if let Some(format) = content_format.filter(|_| !payload.is_empty()) {
                builder.uint(OptionNumber::CONTENT_FORMAT, format.into())?;
            }
            builder.payload(payload)
        };
        if build(code, &payload).is_err() {
            let _ = build(Code::INTERNAL_SERVER_ERROR, b"the answer is longer than one message");
        }
        let message = frame.finish();
        if talk.exchanges.sent(now, message, random[0]).is_ok() {
            let deadline = talk.exchanges.next_deadline();
            self.send(now, peer, message);
            if let Some(deadline) = deadline {
                self.endpoint.peers.schedule(peer, deadline);
            }
        }
    }

    fn on_alarm(&mut self, now: Instant, peer: PeerId) {
        loop {
            let Some(Some(talk)) = self.endpoint.peers.attached(peer) else { return };
            match talk.exchanges.poll(now) {
                Some(Due::Retransmit(message)) => {
                    let message = message.to_vec();
                    self.send(now, peer, &message);
                }
                Some(Due::TimedOut(_)) => {}
                None => break,
            }
        }
        let Some(attached) = self.endpoint.peers.attached(peer) else { return };
        let Some(talk) = attached else { return };
        let quiet_at = talk.last.after(EXCHANGE_LIFETIME);
        let next = match talk.exchanges.next_deadline() {
            Some(deadline) => deadline.min(quiet_at.max(now.after_millis(1000))),
            // Whatever was exchanged is forgotten by the peer, too.
            None if quiet_at <= now => {
                *attached = None;
                return;
            }
            None => quiet_at,
        };
        self.endpoint.peers.schedule(peer, next);
    }

    fn on_second(&mut self, reload: bool) {
        if reload {
            match self.credentials.reload_if_changed() {
                Ok(None) => {}
                Ok(Some(identities)) => (self.observer)(Note::Reloaded { identities }),
                Err(error) => (self.observer)(Note::ReloadFailed(error)),
            }
        }
        let totals = Totals {
            counters: self.counters,
            peers: self.endpoint.peers.len(),
            table_bytes: self.endpoint.peers.bytes(),
            requests: self.requests,
        };
        *self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = totals;
    }

    /// Tells every peer with a session that it is over.
    fn say_goodbye(&mut self) {
        let protected =
            |(id, peer): (PeerId, &tegmen::endpoint::Peer)| (peer.protection() == Protection::Dtls).then_some(id);
        let ids: Vec<PeerId> = self.endpoint.peers.iter().filter_map(protected).collect();
        for id in ids {
            self.endpoint.close(id);
        }
        self.poll();
    }
}

async fn sleep_until(alarm: Option<Instant>) {
    if let Some(alarm) = alarm {
        tokio::time::sleep_until(clock::tokio_instant(alarm)).await;
    }
}

/// An event without borrowed bytes.
enum Outcome {
    Nothing,
    Need(PeerId),
    Established(PeerId),
    Closed(PeerId, Fatal),
}

impl From<Event<'_, '_>> for Outcome {
    fn from(event: Event<'_, '_>) -> Self {
        match event {
            Event::Need(peer) => Self::Need(peer),
            Event::Established(peer) => Self::Established(peer),
            Event::Closed { peer, reason } => Self::Closed(peer, reason),
            Event::Answer(_) | Event::Transmit { .. } | Event::Message { .. } | Event::Alarm(_) => Self::Nothing,
        }
    }
}

/// The core's handler in front of a host's application.
struct Bridge<'a, A> {
    application: &'a mut A,
    later: Later,
}

impl<A: Application> Handler for Bridge<'_, A> {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.application.handle(request, response, &self.later)
    }
}
