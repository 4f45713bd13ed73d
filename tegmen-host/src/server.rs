//! A CoAP server, sharded by core: each shard is one task that owns its endpoint and its sockets.
//!
//! * `shard` moves datagrams, begins and ends sessions, and does the commands that come from elsewhere.
//! * `serve` takes a message through CoAP to the application and back; `coap_peer` is the CoAP state of one peer.
//! * `transfer` keeps the bodies of block-wise transfers, `signing` runs operations with private keys on a thread of its own.

mod builder;
mod cid_routing;
mod coap_peer;
mod command;
mod deferred;
mod event;
mod held;
mod key_operation;
mod kind;
mod leisure;
mod limits;
mod listen;
mod notifier;
mod oscore_exchange;
mod reply;
mod request;
mod responder;
mod router;
mod serve;
mod session;
mod shard;
mod shared;
mod signing;
mod source;
mod transfer;

pub use builder::ServerBuilder;
pub use event::{Answered, Event, Severity};
pub use kind::Kind;
pub use limits::HelloLimits;
pub use listen::{Listen, ListenError};
pub use notifier::Notifier;
pub use reply::Reply;
pub use request::Request;
pub use responder::Responder;
pub use router::Router;
pub use session::{Session, SessionId};

use crate::contexts::Contexts;
use crate::credentials::{Credentials, KeyStore};
use crate::group::Group;
use crate::public_keys::PublicKeys;
use crate::resumption::{ResumptionConfig, ResumptionCounters, TicketKeyError};
use crate::slab::Capacity;
use crate::state::{Database, Sessions, StateError};
use crate::udp::{BindError, Socket};
use builder::AnyPolicy;
use command::Command;
use event::EventSink;
use notifier::Changes;
use shard::Shard;
use shared::Shared;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tegmen::coap::handler::{Response, USUAL_OPTIONS};
use tegmen::coap::{Code, OptionNumber};
use tegmen::counters::Counters;
use tegmen::dtls::connection_id::{AddressChanges, ConnectionIdConfig};
use tegmen::dtls::{Config, Suites};
use tokio::sync::{mpsc, watch};

/// DEFAULT_LEISURE (RFC 7252, section 4.8.2).
pub const DEFAULT_LEISURE: Duration = Duration::from_secs(5);

/// The settings of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// The addresses at which the server listens.
    pub listen: Vec<Listen>,
    /// Groups to be in (RFC 7252, section 8), at the ports of plain CoAP: DTLS has no groups.
    pub groups: Vec<Group>,
    /// Responses to what a group was sent wait for a random time up to this.
    pub leisure: Duration,
    /// The time that an application has for a deferred response. Then the client receives 5.03. Checked each second. Choose
    /// less than EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2): clients do not wait longer.
    pub response_timeout: Duration,
    /// The number of shards, each a thread with its own sockets; 0 selects one for each core.
    pub shards: usize,
    /// Peers and handshakes, for all shards together.
    pub capacity: Capacity,
    /// The DTLS side. Of connection ids, the shard is set by the server; those of no bytes are given where there are more
    /// than 256 shards.
    pub dtls: Config,
    /// True if requests over plain CoAP are served.
    pub plain_allowed: bool,
    /// File for a key log (RFC 9850). Anyone who can read this file can decrypt the traffic.
    pub key_log: Option<PathBuf>,
    /// True to report every request, and each block, to the event sink. Otherwise only requests with a 5.xx response are
    /// reported.
    pub report_requests: bool,
    /// Longest body of a request or of a response that is not GET's, in bytes (RFC 7959).
    pub max_body: usize,
    /// The most bytes of such bodies that the server holds at once, for all peers and shards together. Bodies without
    /// DTLS have half of it. With less than four times [`Self::max_body`], bodies of that size sometimes find no room.
    pub max_bodies: usize,
    /// The most bytes for exchanges of all peers and shards together: three quarters for replies, so that a repeated
    /// request is answered again and not executed for EXCHANGE_LIFETIME (247 s; RFC 7252, section 4.8.2), and a quarter for
    /// messages that wait for an acknowledgement. An index takes up to 22 bytes more for each reply. The default is
    /// enough for 1,000,000 sessions that each asked once in that time, with replies of up to 180 bytes. Where the bytes
    /// are taken by requests that must not be executed twice, further ones are answered with 5.03; others go on.
    pub max_exchange_bytes: usize,
    /// Peers without DTLS that CoAP remembers something of (what was exchanged, what is observed), for all shards
    /// together. At twice as many, those that observe nothing and came first are forgotten.
    pub max_unauthenticated: usize,
    /// Observations (RFC 7641) for all peers together.
    pub max_observations: usize,
    /// The most non-confirmable notifications in a row. With 0 each notification is confirmable; the server then sends
    /// no second notification before the client acknowledges the first. A notification that follows sooner than
    /// PROBING_RATE allows (a byte a second; RFC 7252, section 4.7) is also confirmable if the server has heard
    /// nothing from the client.
    pub unconfirmed_notifications: u8,
    /// True if a client without DTLS has to show that it receives at its address before it is sent an answer more than
    /// three times its request (RFC 9175, section 2.4). Clients that do not know the Echo option are then not served.
    pub verify_addresses: bool,
    /// OSCORE contexts, whose requests come to the ports of plain CoAP and of DTLS alike.
    pub contexts: Contexts,
    /// The database that keeps sessions over an orderly restart and over a power cut. After a power cut the server
    /// answers a client's first request with 4.01 and an Echo option (RFC 9175), and executes the request once the
    /// client repeats the option.
    pub state: Option<Database>,
    /// Requests of one peer that are answered in a second; more are answered with 4.29 (RFC 8516). 0 sets no limit.
    pub requests_per_second: u32,
    /// The public keys of the server, and the clients that it trusts. Without it there are only the suites of
    /// [`Self::dtls`], with pre-shared keys.
    pub public_keys: Option<PublicKeys>,
    /// The settings of resumption; `None` turns it off.
    pub resumption: Option<ResumptionConfig>,
    /// Signatures and decryptions with RSA keys and keys in a TPM in a second, for clients that have proved nothing yet;
    /// 0 sets no limit. Further handshakes wait, for about half a second; those that waited longest are then given up, those of
    /// network prefixes with many of them first, and their clients begin again. Signatures with ECDSA keys in memory are not
    /// counted: they take no longer than the rest of a handshake.
    pub signatures_per_second: u32,
    /// ClientHellos that are answered.
    pub hellos: HelloLimits,
    /// A source of keys that the credentials do not have.
    pub store: Option<Arc<dyn KeyStore>>,
    /// The server acts on an answer of the store when a multiple of this time has passed since its question, so that
    /// the delay does not reveal whether an identity exists. Choose more than the usual delay of the store.
    pub store_answers_every: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let idle_timeout = Duration::from_secs(24 * 3600);
        Self {
            listen: Vec::new(),
            groups: Vec::new(),
            leisure: DEFAULT_LEISURE,
            response_timeout: Duration::from_secs(120),
            shards: 0,
            capacity: Capacity::default(),
            dtls: Config {
                idle_timeout,
                suites: Suites::CCM_8_THEN_GCM,
                connection_id: Some(ConnectionIdConfig::default()),
                ..Config::default()
            },
            plain_allowed: false,
            key_log: None,
            report_requests: true,
            max_body: 1 << 20,
            max_bodies: 64 << 20,
            max_exchange_bytes: 256 << 20,
            max_unauthenticated: 1 << 14,
            max_observations: 1 << 20,
            unconfirmed_notifications: 0,
            verify_addresses: false,
            contexts: Contexts::default(),
            state: None,
            requests_per_second: 0,
            public_keys: None,
            resumption: Some(ResumptionConfig::default()),
            signatures_per_second: 500,
            hellos: HelloLimits::default(),
            store: None,
            store_answers_every: Duration::from_millis(50),
        }
    }
}

/// An application behind a server. One clone runs in each shard.
pub trait Application: Clone + Send + 'static {
    /// Reads the request, writes the response. It must return quickly: a handler that has to wait takes a
    /// [`Responder`] from [`Request::defer`].
    ///
    /// # Errors
    /// The code of an error response.
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code>;

    /// The critical options that the application acts upon; a request with another is refused with 4.02.
    fn critical_options(&self) -> &[OptionNumber] {
        USUAL_OPTIONS
    }

    /// Called each second in one shard: for an application that has to look whether something changed.
    fn every_second(&mut self, notifier: &Notifier) {
        let _ = notifier;
    }
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address to listen at is not valid.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The key log cannot be written.
    #[error("the key log {file} cannot be written: {source}")]
    KeyLog {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The ticket keys cannot be read or written.
    #[error(transparent)]
    TicketKeys(#[from] TicketKeyError),
    /// The stored state of sessions cannot be written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system gives no randomness, or no thread.
    #[error("the system refuses what a server needs: {0}")]
    System(std::io::Error),
}

/// A running server. Dropping it ends it.
pub struct Server {
    addresses: Vec<Listen>,
    stop: watch::Sender<bool>,
    counters: Counts,
    notifier: Notifier,
    threads: Vec<std::thread::JoinHandle<()>>,
    sessions: Option<Arc<Sessions>>,
}

/// A handle to read the totals of a running server.
#[derive(Clone)]
pub struct Counts(Arc<[Arc<Mutex<Totals>>]>);

impl Counts {
    /// Returns the totals of all shards, at most a second old.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for shard in &*self.0 {
            let totals = *shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            sum.counters.add(&totals.counters);
            sum.peers += totals.peers;
            sum.handshakes += totals.handshakes;
            sum.table_bytes += totals.table_bytes;
            sum.requests += totals.requests;
            sum.hellos_dropped += totals.hellos_dropped;
            sum.signatures.done += totals.signatures.done;
            sum.signatures.displaced += totals.signatures.displaced;
            sum.signatures.waiting += totals.signatures.waiting;
            sum.resumption.add(&totals.resumption);
            for (kind, count) in sum.established.iter_mut().zip(totals.established) {
                *kind += count;
            }
            sum.exchange_bytes += totals.exchange_bytes;
            sum.exchanges_refused += totals.exchanges_refused;
            sum.body_bytes += totals.body_bytes;
            sum.observations += totals.observations;
            let AddressChanges { followed, checked, refused } = totals.address_changes;
            sum.address_changes.followed += followed;
            sum.address_changes.checked += checked;
            sum.address_changes.refused += refused;
            sum.certificate_expires = sum.certificate_expires.or(totals.certificate_expires);
            sum.revocation_due = sum.revocation_due.or(totals.revocation_due);
            sum.passed_on += totals.passed_on;
            sum.not_passed_on += totals.not_passed_on;
        }
        sum
    }
}

/// Operations with private keys that are done apart: see [`ServerConfig::signatures_per_second`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Signatures {
    /// Signatures and decryptions.
    pub done: u64,
    /// Handshakes that were given up, because too many waited for one.
    pub displaced: u64,
    /// Handshakes that wait for one now.
    pub waiting: usize,
}

/// The counts of a server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// The counters of the endpoints.
    pub counters: Counters,
    /// Peers in the table now.
    pub peers: usize,
    /// Handshakes in progress, and completed handshakes whose last flight may be requested again.
    pub handshakes: usize,
    /// Bytes that the peer tables take.
    pub table_bytes: usize,
    /// Requests answered.
    pub requests: u64,
    /// Sessions established, by kind: see [`Kind`].
    pub established: [u64; Kind::NAMES.len()],
    /// The counts of tickets and ids, issued and accepted.
    pub resumption: ResumptionCounters,
    /// Signatures and decryptions for clients that had proved nothing yet.
    pub signatures: Signatures,
    /// Hellos dropped because too many came.
    pub hellos_dropped: u64,
    /// Bytes that the exchanges of all peers take (see [`ServerConfig::max_exchange_bytes`]).
    pub exchange_bytes: usize,
    /// Requests answered with 5.03 because nothing more could be remembered.
    pub exchanges_refused: u64,
    /// Bytes of the bodies of block-wise transfers that are held now.
    pub body_bytes: usize,
    /// Observations now.
    pub observations: usize,
    /// Changes of address of clients with connection ids.
    pub address_changes: AddressChanges,
    /// The time at which the first of the server's certificates expires.
    pub certificate_expires: Option<SystemTime>,
    /// The time at which the first list of revoked clients is due. From then on the server refuses clients of that CA.
    pub revocation_due: Option<SystemTime>,
    /// Datagrams that one shard received for a session of another.
    pub passed_on: u64,
    /// Datagrams that were dropped because too many of those waited.
    pub not_passed_on: u64,
}

impl Server {
    /// Returns a builder with the default settings.
    pub fn builder() -> ServerBuilder {
        Self::with(ServerConfig::default())
    }

    /// Returns a builder with these settings.
    pub fn with(config: ServerConfig) -> ServerBuilder {
        ServerBuilder::new(config)
    }

    fn start<A: Application>(
        config: &ServerConfig,
        rights: (&Credentials, AnyPolicy),
        application: A,
        events: EventSink,
    ) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shards = if config.shards == 0 { cores } else { config.shards };
        let mut runtimes = (0..shards).map(|_| Runtime::new()).collect::<Result<Vec<_>, _>>()?;
        let (addresses, kept) = free_addresses(config, &runtimes)?;
        let (stop, stopped) = watch::channel(false);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let (to_shards, passed): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::channel(cid_routing::WAITING)).unzip();
        let notifier = Notifier { shards: senders.iter().cloned().map(Changes::new).collect() };
        let shared = Shared::new(config, rights, (application, events), (addresses, to_shards), notifier)?;
        let mut server = Self {
            addresses: shared.addresses.clone(),
            stop,
            counters: Counts((0..shards).map(|_| Arc::default()).collect()),
            notifier: shared.notifier.clone(),
            threads: Vec::new(),
            sessions: shared.sessions.clone(),
        };
        let channels = senders.into_iter().zip(receivers).zip(passed);
        for ((number, runtime), ((sender, commands), passed)) in runtimes.drain(..).enumerate().zip(channels) {
            let sockets = bind(config, &shared.addresses, &runtime, number, shards)?;
            let Some(totals) = server.counters.0.get(number).cloned() else { break };
            let shard = Shard::new(&shared, number, sender, totals)?;
            let stopped = stopped.clone();
            let reload = number == 0;
            let thread = std::thread::Builder::new().name(format!("tegmen-{number}"));
            let run = move || runtime.block_on(shard.run(sockets, commands, passed, stopped, reload));
            server.threads.push(thread.spawn(run).map_err(StartError::System)?);
        }
        drop(kept);
        Ok(server)
    }

    /// Replaces the server's own keys by those of `keys`. Sessions continue; a handshake in progress may have to begin
    /// again. The trusted clients, resumption and the suites do not change.
    pub fn set_own_keys(&self, keys: &PublicKeys) {
        for shard in &*self.notifier.shards {
            shard.send(Command::Keys(Box::new(keys.clone())));
        }
    }

    /// The addresses that are listened at, with the ports that were taken.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Returns the established DTLS sessions, in no order. It waits for each shard, which visits every place of its table
    /// for that: do not call it from a handler or an event function.
    pub fn sessions(&self) -> Vec<Session> {
        let (sender, sessions) = std::sync::mpsc::channel();
        for shard in &*self.notifier.shards {
            shard.send(Command::Sessions(sender.clone()));
        }
        drop(sender);
        sessions.iter().flatten().collect()
    }

    /// Ends a session in order: its client receives close_notify, and may connect again. False if the session has ended
    /// before. It waits for the shard: do not call it from a handler or an event function.
    pub fn close(&self, id: SessionId) -> bool {
        let (sender, closed) = std::sync::mpsc::channel();
        if let Some(shard) = self.notifier.shards.get(id.shard) {
            shard.send(Command::Close(id.peer, sender));
        }
        closed.recv().unwrap_or(false)
    }

    /// Tells observers of changes.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Returns the totals of all shards, at most a second old.
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Returns a handle to read the totals elsewhere.
    pub fn counts(&self) -> Counts {
        self.counters.clone()
    }

    /// Ends the server: sessions that are kept are put away, others are closed in order, threads end. What all shards did together, to the last.
    pub fn stop(mut self) -> Totals {
        self.end();
        self.totals()
    }

    fn end(&mut self) {
        let _ = self.stop.send(true);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(sessions) = self.sessions.take() {
            // A session that cannot be written is restored as after a power cut.
            let _ = sessions.close();
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
    fn new() -> Result<Self, StartError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().map(|runtime| Self(Some(runtime))).map_err(StartError::System)
    }

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

/// Binds the sockets of shard `number`.
fn bind(
    config: &ServerConfig,
    addresses: &[Listen],
    runtime: &Runtime,
    number: usize,
    shards: usize,
) -> Result<Vec<Socket>, BindError> {
    let _guard = runtime.0.as_ref().map(tokio::runtime::Runtime::enter);
    let bind = |(listen, asked): (&Listen, &Listen)| {
        let shared = shards > 1 || asked.address.port() == 0 || !config.groups.is_empty();
        Socket::bind(listen.address, shared)
    };
    let sockets = addresses.iter().zip(&config.listen).map(bind).collect::<Result<Vec<_>, _>>()?;
    match number {
        // One shard is enough for what every node of a network answers at leisure.
        0 => Ok(sockets.into_iter().chain(join(config, addresses)?).collect()),
        _ => Ok(sockets),
    }
}

/// Joins every group at the ports of plain CoAP.
fn join(config: &ServerConfig, listens: &[Listen]) -> Result<Vec<Socket>, BindError> {
    let mut sockets: Vec<Socket> = Vec::new();
    for group in &config.groups {
        let plain = || listens.iter().filter(|listen| !listen.secure).map(|listen| listen.address);
        // A socket for IPv6 answers IPv4, too, if there is no other.
        let same = plain().filter(|address| address.is_ipv4() == group.ip.is_ipv4());
        let both = plain().filter(|address| group.ip.is_ipv4() && address.ip() == Ipv6Addr::UNSPECIFIED);
        let before = sockets.len();
        for answers_from in same.chain(both) {
            let at = group.at(answers_from.port());
            if sockets.iter().all(|socket| socket.local() != at) {
                sockets.push(Socket::join(group, answers_from.port(), answers_from)?);
            }
        }
        if sockets.len() == before {
            return Err(BindError::NobodyAnswers { group: group.clone() });
        }
    }
    Ok(sockets)
}

/// Binds each address once, alone, so that a port which another program has (even one that shares it) is refused. Port 0
/// becomes a number that all shards can bind; the socket that took it is kept until they have, so that nobody else does.
fn free_addresses(config: &ServerConfig, runtimes: &[Runtime]) -> Result<(Vec<Listen>, Vec<Socket>), BindError> {
    let _guard = runtimes.first().and_then(|runtime| runtime.0.as_ref()).map(tokio::runtime::Runtime::enter);
    let bind = |listen: &Listen| Socket::bind(listen.address, listen.address.port() == 0);
    let sockets = config.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let listens = config.listen.iter().zip(&sockets);
    let addresses = listens.map(|(listen, socket)| Listen { address: socket.local(), secure: listen.secure }).collect();
    let asked = config.listen.iter().map(|listen| listen.address.port());
    let kept = asked.zip(sockets).filter(|(port, _)| *port == 0).map(|(_, socket)| socket).collect();
    Ok((addresses, kept))
}
