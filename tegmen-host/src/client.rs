//! A CoAP client: sessions with servers, in clear or over DTLS.
//!
//! An [`Endpoint`] has sockets (`port`) and one node of the crate `tegmen`, which handles the messages (`engine`), for
//! any number of sessions. A [`Session`] can be cloned and sent to other threads, and any number of requests and
//! observations use it at the same time. One lock of the endpoint protects the whole state. No task holds this lock
//! while it waits. Each waiting request has an entry in a table (`places`). The entry is called the place of the
//! request, and stores the waker of the future that waits for the response. One task of the endpoint (`driver`)
//! receives datagrams and handles timeouts. `connection` has the methods of one session, which run under the lock.
//! `exchange` sends one message and waits for the response, `transfer` assembles bodies from blocks, and `observation`
//! follows a resource.

mod arrivals;
mod config;
mod connection;
mod discovery;
mod driver;
mod edhoc;
mod endpoint;
mod engine;
mod error;
mod establish;
mod exchange;
mod group;
mod group_observation;
mod handshake;
mod image;
mod io;
mod multicast;
mod observation;
mod oscore;
mod oscore_group;
mod outer_block;
mod persistence;
mod places;
mod port;
mod request;
mod response;
mod resumable;
mod resumption;
mod round;
mod serving;
mod session_context;
mod transfer;

pub use config::{ClientCoap, ClientConfig, ClientLog, ClientRecovery, ClientState, ClientTrust};
pub use discovery::{Discovered, discover};
pub use endpoint::{Endpoint, EndpointBuilder};
pub use error::ClientError;
pub use group::{AskedMembers, ask_group, ask_members};
pub use group_observation::{ObserveMembers, observe_group, observe_members};
pub use image::{ask_for_image, send_image};
pub use observation::Observation;
pub use oscore_group::{AskedByName, ask_oscore_group};
pub use request::Request;
pub use response::Response;
pub use resumable::ResumableSession;

use crate::clock;
use crate::exporter::Exported;
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::server::ServerBodies;
use crate::slab::Slab;
use crate::uri::{Scheme, Uri};
use crate::x509::CertificateInfo;
use connection::Connection;
use endpoint::Stored;
use engine::Shared;
use port::Port;
use serving::ServingBuilder;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tegmen::address::Path;
use tegmen::coap::Code;
use tegmen::cx::Counters;
use tegmen::dtls::{CipherSuite, ConnectionIds, Extended, Resuming};
use tegmen::endpoint::Peers as _;
use tegmen::time::Instant;
use zeroize::Zeroizing;

type Table = Slab<self::io::Attached, 8>;

type Role = tegmen::dtls::PublicKeys<Extended<Resuming<serving::MayServe, resumption::AcceptsTickets>>, PublicKeys>;

type Features = tegmen::node::Parts<(), arrivals::PeerPacing, oscore::EndpointOscore, ServedObservers, ServerBodies>;
/// The observers of a client endpoint. The endpoint is not a member of a group, so it never stores the registration of
/// a group member. Therefore the type of these registrations is `Infallible`, which has no values.
type ServedObservers = crate::server::Observers<std::convert::Infallible>;

type Node = tegmen::node::Node<Table, Role, Features>;

/// The identity and key of a client.
#[derive(Clone)]
pub struct ClientKey {
    /// The PSK identity.
    pub identity: String,
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A writer that passes the lines of the key log to a tap.
struct TappedLog(Tap);

impl std::io::Write for TappedLog {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if let Ok(line) = std::str::from_utf8(line) {
            (self.0.0)(Tapped::Secrets(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A session with one server. Clones refer to the same session: any number of tasks of the runtime in which the session
/// was opened can make requests at the same time. [`Self::close`] ends the session, and informs a DTLS server with
/// close_notify. When the last clone and the last observation are dropped, the session ends without a message.
#[derive(Clone)]
pub struct Session(Arc<Handle>);

/// The state that the clones of a session share. Dropping the last clone ends the session.
struct Handle {
    shared: Arc<Shared>,
    /// The index of the session among the sessions of its endpoint.
    key: usize,
    config: Arc<ClientConfig>,
    remote: SocketAddr,
    /// The lock that a task holds while it opens the session again, or derives or agrees on new OSCORE keys.
    renewal: tokio::sync::Mutex<()>,
    /// The endpoint of the session, if the endpoint was opened only for this session; `None` otherwise.
    owner: Option<Endpoint>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().give_back(self.key);
    }
}

/// The index of a request in the table of waiting requests ([`places`]). Dropping this value frees the index and gives
/// up the request.
struct TakenPlace {
    session: Session,
    at: usize,
}

impl TakenPlace {
    const fn at(&self) -> usize {
        self.at
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.session.with(|connection| connection.give_back(self.at));
    }
}

/// The progress of a block-wise transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// True while the body of the request is transferred, false while the body of the response is transferred.
    pub upload: bool,
    /// The number of bytes that have been transferred.
    pub done: usize,
    /// The size of the body in bytes; `None` if it is not known yet.
    pub total: Option<usize>,
}

/// A function that receives every datagram and the lines of the key log. An application uses it, for example, to write
/// a capture file or to count datagrams.
#[derive(Clone)]
pub struct Tap(pub Arc<dyn Fn(Tapped<'_>) + Send + Sync>);

/// A datagram or a line of the key log, which a [`Tap`] receives.
#[derive(Clone, Copy)]
pub enum Tapped<'a> {
    /// A datagram as it was sent or received.
    Datagram {
        /// True if the client sent the datagram.
        sent: bool,
        /// The two addresses of the datagram; the local address is the client's.
        path: Path,
        /// The UDP payload.
        datagram: &'a [u8],
    },
    /// A line of the key log (RFC 9850). A reader of this line can decrypt the traffic.
    Secrets(&'a str),
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

/// Returns the crypto provider of a client. The provider writes the key log to the file and to the [`Tap`] of the
/// settings. A tap is a function that receives every datagram and every line of the key log.
fn provider(config: &ClientConfig) -> std::io::Result<HostCrypto> {
    let mut crypto = HostCrypto::from_os()?;
    if let Some(file) = &config.log.key_log {
        crypto.log_keys_to(file)?;
    }
    if let Some(tap) = config.log.tap.clone() {
        crypto.add_key_log(Box::new(TappedLog(tap)));
    }
    Ok(crypto)
}

impl Session {
    /// Opens a session with the server of `uri`, over a separate socket. For `coaps` this makes a handshake. To open
    /// many sessions over one socket, use [`Endpoint::connect`].
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn connect(uri: &Uri, config: ClientConfig) -> Result<Self, ClientError> {
        let (remote, config) = resolve(uri, config).await?;
        Self::connect_to(remote, uri.scheme, config).await
    }

    /// Opens a session with the server at an address, over a separate socket. If [`PublicKeys::expecting`] sets no
    /// name, a certificate of the server must contain this address.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn connect_to(remote: SocketAddr, scheme: Scheme, config: ClientConfig) -> Result<Self, ClientError> {
        let config = with_name(config, remote.ip().to_canonical());
        let stored = Stored::open(&config, remote, scheme)?;
        let port = Port::connected(remote, stored.port(), None).await;
        let port = port.map_err(|source| ClientError::Unreachable { remote, source })?;
        let (path, config) = (crate::udp::path(port.local(), remote), Arc::new(config));
        let endpoint = Endpoint::open(&config, vec![port], ServingBuilder::default())?;
        endpoint.begin(&config, path, scheme.protection(), stored, Some(endpoint.clone())).await
    }

    /// Waits until the session is established. If several requests wait for the session, one of them makes the
    /// handshake.
    async fn stand(&self) -> Result<(), ClientError> {
        let _one = self.0.renewal.lock().await;
        if self.with(|connection| connection.entry.established) {
            return Ok(());
        }
        self.establish(self.config().dtls.handshake_timeout).await?;
        self.with(|connection| connection.keep_session())
    }

    /// Makes a request with any method. `path` has the form of a URI path, with the query after a question mark:
    /// `/temp?unit=C`.
    pub fn request<'a>(&'a self, method: Code, path: &'a str) -> Request<'a, &'a Self> {
        Request::new(method, path).over(self)
    }

    /// Makes a GET request: `session.get("/temp").await?`.
    pub fn get<'a>(&'a self, path: &'a str) -> Request<'a, &'a Self> {
        self.request(Code::GET, path)
    }

    /// Makes a PUT request with a payload.
    pub fn put<'a>(&'a self, path: &'a str, payload: &'a [u8]) -> Request<'a, &'a Self> {
        self.request(Code::PUT, path).payload(payload)
    }

    /// Makes a POST request with a payload.
    pub fn post<'a>(&'a self, path: &'a str, payload: &'a [u8]) -> Request<'a, &'a Self> {
        self.request(Code::POST, path).payload(payload)
    }

    /// Makes a DELETE request.
    pub fn delete<'a>(&'a self, path: &'a str) -> Request<'a, &'a Self> {
        self.request(Code::DELETE, path)
    }

    /// Observes a resource (RFC 7641), in the same way as [`Request::observe`] for a GET request.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn observe(&self, path: &str) -> Result<Observation, ClientError> {
        self.get(path).observe().await
    }

    /// Returns the identity that the server proved with a public key: the subject of its certificate, or the name of
    /// its raw public key. Returns `None` if the server proved no identity in this way. For a session from
    /// [`Endpoint::accepted`], returns the identity that the credentials of the endpoint contain for the peer.
    pub fn server(&self) -> Option<String> {
        self.with(|connection| connection.entry.server.clone())
    }

    /// Returns the certificates that the server showed, its own certificate first. The list is empty if the server
    /// showed a raw public key or no key.
    pub fn chain(&self) -> Vec<CertificateInfo> {
        self.with(|connection| connection.entry.chain.clone())
    }

    /// True until the session ends. A session also counts as ended if the server no longer answers in it.
    pub fn is_open(&self) -> bool {
        self.with(|connection| !connection.is_over())
    }

    /// True if the session was resumed from an earlier session: see [`ClientState::resume`].
    pub fn is_resumed(&self) -> bool {
        self.with(|connection| connection.entry.resumed)
    }

    /// Returns `ticket` or `session id`: the means with which the client can resume the session. Returns `None` if the
    /// server gave neither, or if [`ClientState::resume`] is `None`.
    pub fn resumable_by(&self) -> Option<&'static str> {
        self.with(|connection| connection.entry.resumption.as_ref()?.by())
    }

    /// Removes the ticket or session id from this session and returns it, for another client that will resume the
    /// session. Returns `None` if [`ClientState::hand_over`] is false, if the server gave neither a ticket nor a
    /// session id, or if an earlier call has already taken it.
    pub fn take_resumable(&self) -> Option<ResumableSession> {
        self.with(|connection| connection.entry.resumable.take())
    }

    /// Returns the cipher suite of the session. Returns `None` if the session did not begin with a handshake of this
    /// client.
    pub fn cipher_suite(&self) -> Option<CipherSuite> {
        self.with(|connection| connection.entry.cipher_suite)
    }

    /// Returns keying material of the session under the label of [`ClientConfig::export`] (RFC 5705, section 4, without
    /// context). The server derives the same bytes. Returns `None` if there is no label, for a session without extended
    /// master secret (RFC 7627, section 5.4), and for a session that an earlier client [stored](ClientState::session).
    /// If this session ends and the client opens a new one in its place, the bytes change.
    pub fn exported(&self) -> Option<Exported> {
        self.with(|connection| connection.entry.exported.as_ref().map(|exported| Exported::new(*exported.expose())))
    }

    /// Returns the number of times that the client replaced an ended session by a new session: see
    /// [`ClientRecovery::reconnect`].
    pub fn reconnects(&self) -> u32 {
        self.with(|connection| connection.entry.reconnects)
    }

    /// Returns the address of the server.
    pub fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.with(|connection| connection.entry.path.local).into()
    }

    /// Returns the duration of the handshake.
    pub fn handshake_time(&self) -> Duration {
        self.with(|connection| connection.entry.handshake_time)
    }

    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> Counters {
        self.with(|connection| connection.io.environment.counters)
    }

    /// Moves the session to another local port, as if the network had changed. The session continues if the server
    /// finds it by its connection id.
    ///
    /// # Errors
    /// The error of the system.
    pub async fn rebind(&self) -> std::io::Result<()> {
        let owner = self.0.owner.is_none().then_some(self.0.key);
        let port = Port::connected(self.remote(), None, owner).await?;
        self.0.shared.lock().move_to(self.0.key, port);
        Ok(())
    }

    /// Returns the connection ids of the session; `None` if the session has no connection ids.
    pub fn connection_ids(&self) -> Option<ConnectionIds> {
        self.with(|Connection { io, entry }| io.node.endpoint.peers.connection_ids(entry.peer).copied())
    }

    /// Returns the PSK identity hint of the server, as text or hexadecimal.
    pub fn hint(&self) -> String {
        let hint = self.with(|connection| connection.entry.hint.clone());
        String::from_utf8(hint).unwrap_or_else(|error| to_hex(error.as_bytes()))
    }

    /// Ends the session. A DTLS server receives a close_notify alert. If the settings store the session in a file, the
    /// server receives no alert, and the next client can continue the stored session. If the session has an OSCORE
    /// context, the next sequence number of the context is stored. Requests that wait for a response end with
    /// [`ClientError::Closed`]. Later requests over other clones of this session end with the same error.
    pub fn close(&self) {
        self.with(|connection| connection.close());
        self.with(|connection| connection.shut());
        if let Some(owner) = &self.0.owner {
            owner.close();
        }
    }

    fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    /// Calls `work` with the session, under the lock of its endpoint.
    fn with<T>(&self, work: impl FnOnce(&mut Connection<'_>) -> T) -> T {
        self.0.shared.lock().with(self.0.key, work)
    }

    /// Reserves a free index in the table of waiting requests.
    fn place(&self) -> TakenPlace {
        let at = self.with(|connection| connection.entry.places.take());
        TakenPlace { session: self.clone(), at }
    }

    /// Waits until `ready` returns a value for a request. `place` has the index of this request in the table of waiting
    /// requests. Returns `None` if the deadline passes first.
    async fn wait<T>(
        &self,
        place: &TakenPlace,
        deadline: Instant,
        mut ready: impl FnMut(&mut Connection<'_>, usize) -> Option<T>,
    ) -> Option<T> {
        poll_fn(|cx| {
            self.with(|connection| {
                if let Some(result) = ready(connection, place.at) {
                    return Poll::Ready(Some(result));
                }
                if clock::now() >= deadline {
                    return Poll::Ready(None);
                }
                connection.watch(place.at, cx.waker(), deadline);
                Poll::Pending
            })
        })
        .await
    }
}

/// Returns the address of the server of `uri`, and then `config` with the name that the server must prove.
async fn resolve(uri: &Uri, config: ClientConfig) -> Result<(SocketAddr, ClientConfig), ClientError> {
    // An interface of this host is no part of the address that a certificate contains.
    let (name, interface) = match uri.host.split_once('%') {
        Some((ip, interface)) if ip.parse::<std::net::IpAddr>().is_ok() => (ip, Some(interface)),
        _ => (&*uri.host, None),
    };
    let refused = |source| match interface {
        Some(interface) => ClientError::Interface { host: uri.host.clone(), interface: interface.to_owned() },
        None => ClientError::Resolve { host: uri.host.clone(), source },
    };
    let remote = crate::udp::resolve(&uri.host, uri.port).await.map_err(refused)?;
    // The name that was asked for is the one that the server must have (RFC 7252, section 9.1.3.3).
    Ok((remote, with_name(config, name)))
}

/// Returns `config` with a name that the server must have: the name that `config` already contains, or otherwise
/// `name`.
fn with_name(mut config: ClientConfig, name: impl ToString) -> ClientConfig {
    let unnamed = config.trust.public_keys.take_if(|keys| keys.expects_no_name());
    if let Some(keys) = unnamed {
        config.trust.public_keys = Some(keys.expecting(&name.to_string()));
    }
    config
}

#[cfg(test)]
mod tests;
