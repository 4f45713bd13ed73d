//! A CoAP server, sharded by core: each shard is one task that owns its endpoint and its sockets.
//!
//! * `shard` moves datagrams, begins and ends sessions, and does the commands that come from elsewhere.
//! * `serve` stands between the shard's node and the application; `coap_peer` is the CoAP state of one peer.
//! * `bodies`, `observers`, `oscore` and `leisure` are the memory of parts of the node.
//! * `signing` runs operations with private keys on a thread of its own.

mod authorization;
mod bodies;
mod builder;
mod cid_routing;
mod coap_peer;
mod command;
mod config;
mod deferred;
mod event;
mod held;
mod key_operation;
mod kind;
mod leisure;
mod limits;
mod listen;
mod notifier;
mod observers;
mod oscore;
mod per_peer;
mod reply;
mod request;
mod responder;
mod router;
mod serve;
mod session;
mod shard;
mod shared;
mod signing;
mod tried;
mod unauthenticated;

pub(crate) use authorization::AnyPolicy;
pub use authorization::{Authorization, Later};
pub(crate) use bodies::{Ledger, ServerBodies};
pub use builder::ServerBuilder;
pub(crate) use coap_peer::{Attached, CoapPeer, Forgettable, Forgotten};
pub(crate) use command::Command;
pub use config::{DEFAULT_LEISURE, ServerCoap, ServerConfig, ServerLog, ServerSessions, ServerTrust};
pub(crate) use deferred::{DeferredRequest, Outcome};
pub(crate) use event::EventSink;
pub use event::{Answered, Event, Severity};
pub use kind::Kind;
pub use limits::HelloLimits;
pub(crate) use limits::Limited;
pub use listen::{Listen, ListenError};
pub(crate) use notifier::Changes;
pub use notifier::Notifier;
pub(crate) use observers::Observers;
pub(crate) use oscore::OscoreExchange;
pub use reply::Reply;
pub use request::Request;
pub use responder::Responder;
pub use router::Router;
pub(crate) use serve::{CoapServer, Limits, Resources, pool};
pub use session::{Session, SessionId};
pub(crate) use shard::refusal;
pub(crate) use tried::Tried;
pub(crate) use unauthenticated::Unauthenticated;

use crate::credentials::Credentials;
use crate::public_keys::PublicKeys;
use crate::resumption::{ResumptionCounters, TicketKeyError};
use crate::state::{Sessions, StateError};
use crate::udp::{BindError, Socket};
use crate::uri::Scheme;
use shard::Shard;
use shared::Shared;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tegmen::coap::handler::USUAL_OPTIONS;
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen::cx::Counters;
use tegmen::dtls::AddressChanges;
use tokio::sync::{mpsc, watch};

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

/// Operations with private keys that are done apart: see [`ServerSessions::signatures_per_second`].
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
    /// Bytes that the exchanges of all peers take (see [`ServerCoap::max_exchange_bytes`]).
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
        let plain = || listens.iter().filter(|listen| listen.scheme == Scheme::Coap).map(|listen| listen.address);
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
    let bind = |listen: &Listen| match listen.address.port() {
        0 => Socket::bind_first(listen.address),
        _ => Socket::bind(listen.address, false),
    };
    let sockets = config.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let listens = config.listen.iter().zip(&sockets);
    let addresses = listens.map(|(listen, socket)| Listen { address: socket.local(), scheme: listen.scheme }).collect();
    let asked = config.listen.iter().map(|listen| listen.address.port());
    let kept = asked.zip(sockets).filter(|(port, _)| *port == 0).map(|(_, socket)| socket).collect();
    Ok((addresses, kept))
}
