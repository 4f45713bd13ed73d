//! A CoAP server, which is divided into shards. Each shard is one thread with its own endpoint and its own sockets.
//!
//! * `sockets` binds the sockets, or takes the sockets that a parent process passes.
//! * `shard` receives and sends datagrams, begins and ends sessions, and executes commands from other threads.
//! * `serve` connects the shard's node with the application; `coap_peer` is the CoAP state of one peer.
//! * `bodies`, `observers`, `oscore` and `leisure` store the state that the node needs between two messages.
//! * `signing` runs operations with private keys in a separate thread.

mod authorization;
mod bodies;
mod builder;
mod cid_routing;
mod coap_peer;
mod command;
mod config;
mod deferred;
mod ending;
mod event;
mod exporter;
mod group_observation;
mod group_observations;
mod held;
mod key_operation;
mod kind;
mod leisure;
mod limits;
mod listen;
mod notifier;
mod observer_count;
mod observers;
mod oscore;
mod per_peer;
mod prepared;
mod pulse;
mod reply;
mod request;
mod responder;
mod router;
mod runtime;
mod serve;
mod server_keys;
mod session;
mod session_list;
mod shard;
mod shared;
mod signing;
mod sockets;
mod tried;
mod unauthenticated;

pub(crate) use authorization::AnyPolicy;
pub use authorization::{Authorization, Later};
pub(crate) use bodies::{Ledger, ServerBodies};
pub use builder::ServerBuilder;
pub(crate) use coap_peer::{Attached, CoapPeer, Forgettable, Forgotten};
pub(crate) use command::Command;
pub use config::{DEFAULT_LEISURE, ServerCoap, ServerConfig, ServerLimits, ServerLog, ServerSessions, ServerTrust};
pub(crate) use deferred::{DeferredRequest, Outcome};
pub(crate) use event::EventSink;
pub use event::{Answered, Event, Severity};
pub use exporter::{Exporter, Take};
pub use group_observation::GroupObservation;
pub use group_observations::GroupObservationError;
use group_observations::Offers;
pub use kind::Kind;
use limits::Gate;
pub use limits::HelloLimits;
pub(crate) use limits::Limited;
pub use listen::{Listen, ListenError};
pub(crate) use notifier::Changes;
pub use notifier::Notifier;
pub(crate) use observers::Observers;
pub(crate) use oscore::OscoreExchange;
pub use prepared::Prepared;
pub use pulse::Pulse;
pub use reply::Reply;
pub use request::Request;
pub use responder::Responder;
pub use router::Router;
pub(crate) use serve::{CoapServer, Resources, pool};
pub use session::{Session, SessionId};
pub use session_list::SessionList;
pub(crate) use shard::refusal;
pub use sockets::InheritError;
pub(crate) use tried::Tried;
pub(crate) use unauthenticated::Unauthenticated;

pub use crate::target::VirtualHosts;

use crate::credentials::Credentials;
use crate::group::MembershipError;
use crate::public_keys::PublicKeys;
use crate::resumption::{ResumptionCounters, TicketKeyError};
use crate::state::{Sessions, StateError};
use crate::udp::{BindError, Socket};
use ending::Ending;
use runtime::Runtime;
use shard::Shard;
use shared::Shared;
use sockets::Sockets;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tegmen::coap::handler::USUAL_OPTIONS;
use tegmen::coap::{Code, MessageRef, OptionNumber, Response};
use tegmen::cx::Counters;
use tegmen::dtls::AddressChanges;
use tokio::sync::{mpsc, watch};

/// An application of a server. Each shard runs one clone.
pub trait Application: Clone + Send + 'static {
    /// Reads the request and writes the response. The handler must return quickly: a handler that has to wait takes a
    /// [`Responder`] from [`Request::defer`].
    ///
    /// # Errors
    /// The response code of an error response.
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code>;

    /// Returns the critical options that the application supports. If a request has another critical option, the server
    /// responds with 4.02.
    fn critical_options(&self) -> &[OptionNumber] {
        USUAL_OPTIONS
    }

    /// True if the application supports the critical option `number` in this request. The default implementation
    /// searches [`Self::critical_options`]. A proxy overrides this method, because it also forwards options that it
    /// does not know.
    fn acts_on(&self, path: &str, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        let _ = (path, request);
        self.critical_options().contains(&number)
    }

    /// True if the application handles each block of this request separately, in any order. If this is false, the
    /// application gets the request after all blocks of the body have arrived. `path` has no leading slash.
    fn acts_on_blocks(&self, path: &str, request: &MessageRef<'_>) -> bool {
        let _ = (path, request);
        false
    }

    /// Returns the hosts whose resources are at other servers, for an application that is a reverse proxy. An
    /// application that passes its requests to such a proxy must return the hosts of the proxy, because the proxy
    /// refuses requests for other hosts. The server calls this method once for each shard. The policy, the observers
    /// and the log use the path `/proxy/host/NAME/a` for the resource `/a` of the host NAME.
    fn virtual_hosts(&self) -> VirtualHosts {
        VirtualHosts::default()
    }

    /// Runs once a second in one shard, for an application that has to poll for changes.
    fn every_second(&mut self, notifier: &Notifier) {
        let _ = notifier;
    }
}

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address in the list of listening addresses is not valid.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The sockets that a parent passed cannot be used.
    #[error(transparent)]
    Inherit(#[from] InheritError),
    /// A membership cannot be used.
    #[error(transparent)]
    Membership(MembershipError),
    /// A group observation cannot be offered.
    #[error(transparent)]
    GroupObservation(#[from] GroupObservationError),
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
    /// The system provides no randomness, or no thread.
    #[error("the system refuses what a server needs: {0}")]
    System(std::io::Error),
}

/// The two ends of the channel for commands to a shard, and then the receiving end of the channel for datagrams that
/// other shards pass to the shard.
type Channels =
    ((mpsc::UnboundedSender<Command>, mpsc::UnboundedReceiver<Command>), mpsc::Receiver<cid_routing::Passed>);

/// A running server. Dropping this value ends the server.
pub struct Server {
    addresses: Vec<Listen>,
    ending: watch::Sender<Ending>,
    counters: Counts,
    notifier: Notifier,
    threads: Vec<std::thread::JoinHandle<()>>,
    sessions: Option<Arc<Sessions>>,
    gate: Arc<Gate>,
    bodies: Arc<Ledger>,
}

/// A handle to read the totals of a running server.
#[derive(Clone)]
pub struct Counts(Arc<[Arc<Mutex<Totals>>]>);

impl Counts {
    /// Returns the totals of all shards. The totals are at most a second old. After a call of [`Pulse::beats`] they are
    /// current.
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
            sum.devices.add(&totals.devices);
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

/// Counts of the private-key operations that run outside the threads of the shards: see
/// [`ServerSessions::signatures_per_second`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Signatures {
    /// The number of completed signatures and decryptions.
    pub done: u64,
    /// The number of handshakes that the server gave up, because too many handshakes waited for a signature or
    /// decryption.
    pub displaced: u64,
    /// The number of handshakes that wait for a signature or decryption now.
    pub waiting: usize,
}

/// The counts of a server.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// The counters of the endpoints.
    pub counters: Counters,
    /// The number of peers in the peer tables now.
    pub peers: usize,
    /// The number of handshakes in progress. A completed handshake counts as long as the server may have to repeat the
    /// last flight of this handshake.
    pub handshakes: usize,
    /// Memory of the peer tables, in bytes.
    pub table_bytes: usize,
    /// Number of requests that the server answered.
    pub requests: u64,
    /// The number of sessions that were established since the start of the server, for each [`Kind`] of key exchange.
    pub established: [u64; Kind::NAMES.len()],
    /// The counts of tickets and session ids that were issued and accepted.
    pub resumption: ResumptionCounters,
    /// The counts of tickets and session ids that the server issued and accepted in the name of devices: see
    /// [`ServerConfig::delegate`]. Session ids that a device issues itself are not counted.
    pub devices: ResumptionCounters,
    /// The counts of signatures and decryptions that the server makes in handshakes of clients which have not proved an
    /// identity yet.
    pub signatures: Signatures,
    /// The number of ClientHellos that the server dropped because they exceeded a limit of [`ServerSessions::hellos`].
    pub hellos_dropped: u64,
    /// Memory of the exchanges of all peers, in bytes (see [`ServerCoap::max_exchange_bytes`]).
    pub exchange_bytes: usize,
    /// The number of requests that the server answered with 5.03, because it had no memory to store another reply.
    pub exchanges_refused: u64,
    /// Memory that bodies of block-wise transfers take now, in bytes.
    pub body_bytes: usize,
    /// The current number of observations.
    pub observations: usize,
    /// The counts of address changes of clients whose sessions have connection ids.
    pub address_changes: AddressChanges,
    /// The earliest expiry time of the server's certificates.
    pub certificate_expires: Option<SystemTime>,
    /// The earliest time by which the operator has to replace a revocation list for client certificates. From this time
    /// on the server refuses the clients of the authority that issued the list.
    pub revocation_due: Option<SystemTime>,
    /// The number of datagrams that one shard received for a session of another shard.
    pub passed_on: u64,
    /// The number of datagrams that one shard received for a session of another shard, and dropped because too many
    /// such datagrams waited.
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
        inherited: Vec<UdpSocket>,
        (application, events): (A, EventSink),
    ) -> Result<Self, StartError> {
        let shards = sockets::shards(config, &inherited);
        let runtimes = (0..shards).map(|_| Runtime::new()).collect::<Result<Vec<_>, _>>()?;
        let mut sockets = Sockets::new(config, inherited, &runtimes)?;
        let (ending, ended) = watch::channel(Ending::No);
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::unbounded_channel()).unzip();
        let (to_shards, passed): (Vec<_>, Vec<_>) = (0..shards).map(|_| mpsc::channel(cid_routing::WAITING)).unzip();
        let notifier = Notifier { shards: senders.iter().cloned().map(Changes::new).collect() };
        let shared =
            Shared::new(config, rights, (application, events), (sockets.addresses.clone(), to_shards), notifier)?;
        let mut server = Self {
            addresses: shared.addresses.clone(),
            ending,
            counters: Counts((0..shards).map(|_| Arc::default()).collect()),
            notifier: shared.notifier.clone(),
            threads: Vec::new(),
            sessions: shared.sessions.clone(),
            gate: shared.gate.clone(),
            bodies: shared.bodies.clone(),
        };
        let channels = senders.into_iter().zip(receivers).zip(passed);
        let started = runtimes.into_iter().zip(channels).enumerate().try_for_each(|(number, (runtime, channels))| {
            let sockets = sockets.of_shard(number, &runtime)?;
            server.start_shard(&shared, number, (runtime, sockets), channels, ended.clone())
        });
        // Shards end when nobody passes datagrams on any more.
        drop(shared);
        started.map(|()| server)
    }

    /// Starts the thread of shard `number`.
    fn start_shard<A: Application>(
        &mut self,
        shared: &Shared<'_, A>,
        number: usize,
        (runtime, sockets): (Runtime, Vec<Socket>),
        ((sender, commands), passed): Channels,
        ending: watch::Receiver<Ending>,
    ) -> Result<(), StartError> {
        let totals = self.counters.0.get(number).cloned().unwrap_or_default();
        let shard = Shard::new(shared, number, sender, totals)?;
        let thread = std::thread::Builder::new().name(format!("tegmen-{number}"));
        let run = move || runtime.block_on(shard.run(sockets, commands, passed, ending));
        self.threads.push(thread.spawn(run).map_err(StartError::System)?);
        Ok(())
    }

    /// Changes the limits. Sessions and requests continue. A new value of `verify_addresses` applies only to clients
    /// that send their first message after the change. A new value of `max_bodies` applies only to transfers that begin
    /// after the change. The shards take the limits after this call returns; [`Pulse::beats`] waits until all shards
    /// have taken them.
    pub fn set_limits(&self, limits: ServerLimits) {
        self.gate.set(limits.hellos);
        self.bodies.set_limit(limits.max_bodies);
        for shard in &*self.notifier.shards {
            shard.send(Command::Limits(limits));
        }
    }

    /// Replaces the server's own certificates and private keys with those in `keys`. Sessions continue; a handshake in
    /// progress may have to begin again. The trusted clients, resumption and the cipher suites do not change.
    pub fn set_own_keys(&self, keys: &PublicKeys) {
        for shard in &*self.notifier.shards {
            shard.send(Command::Keys(Box::new(keys.clone())));
        }
    }

    /// Returns the addresses at which the server listens, with the actual port numbers.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Returns the established DTLS sessions, in no particular order. The call waits until each shard has searched its
    /// whole peer table: do not call it from a handler or an event function.
    pub fn sessions(&self) -> Vec<Session> {
        self.session_list().sessions()
    }

    /// Ends a session: the client of the session receives a close_notify alert, and may connect again. Returns false if
    /// the session has already ended. The call waits for the shard: do not call it from a handler or an event function.
    pub fn close(&self, id: SessionId) -> bool {
        self.session_list().close(id)
    }

    /// Returns a handle with which another thread can list and end sessions.
    pub fn session_list(&self) -> SessionList {
        SessionList(self.notifier())
    }

    /// Returns a handle that checks that each shard answers.
    pub fn pulse(&self) -> Pulse {
        Pulse { shards: self.notifier(), ending: self.ending.subscribe() }
    }

    /// Returns a handle that notifies observers of changes.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Returns the totals, which are the counts of all shards together. The totals are at most a second old. After a
    /// call of [`Pulse::beats`] they are current.
    pub fn totals(&self) -> Totals {
        self.counters.totals()
    }

    /// Returns a handle with which another thread can read the totals, which are the counts of all shards together.
    pub fn counts(&self) -> Counts {
        self.counters.clone()
    }

    /// Ends the server and its threads. Sessions that the database keeps are stored. The other sessions are closed with
    /// a close_notify alert. Returns the final counts of all shards together.
    pub fn stop(mut self) -> Totals {
        self.end(Ending::Now);
        self.totals()
    }

    /// Ends the server as [`Self::stop`] does, but first answers the requests whose response is deferred. The call
    /// waits at most `patience` for these responses, and then waits for the threads. During the call the server
    /// receives nothing, so it begins no handshake and learns no new client. Datagrams that arrive wait in the sockets.
    /// If another server then inherits the sockets, that server reads these datagrams. Returns the final counts of all
    /// shards together.
    pub fn drain(mut self, patience: Duration) -> Totals {
        self.end(Ending::Drained { by: tokio::time::Instant::now() + patience });
        self.totals()
    }

    fn end(&mut self, how: Ending) {
        let _ = self.ending.send(how);
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
        self.end(Ending::Now);
    }
}
