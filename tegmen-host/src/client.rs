//! A CoAP client: sessions with servers, plain or over DTLS.
//!
//! A [`Session`] can be cloned and sent, and any number of requests and observations use it at the same time. Its state is
//! behind one lock, which nobody holds while waiting: a future that waits has a place (`places`) with its waker, and one
//! task of the session (`driver`) receives and watches the clock. `connection` moves datagrams, `exchange` does one
//! exchange, `transfer` puts bodies together from blocks, `observation` follows a resource.

mod config;
mod connection;
mod driver;
mod error;
mod establish;
mod exchange;
mod group;
mod handshake;
mod observation;
mod oscore;
mod outer_block;
mod persistence;
mod places;
mod request;
mod response;
mod resumption;
mod transfer;

pub use config::{ClientCoap, ClientConfig, ClientLog, ClientRecovery, ClientState, ClientTrust};
pub use error::ClientError;
pub use group::ask_group;
pub use observation::Observation;
pub use request::Request;
pub use response::Response;

use crate::clock;
use crate::contexts::StoredContext;
use crate::exchange_pool::ExchangePool;
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::uri::Uri;
use crate::x509::CertificateInfo;
use connection::Connection;
use oscore::OscoreClient;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tegmen::address::Path;
use tegmen::coap::{Code, Exchanges};
use tegmen::counters::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::CipherSuite;
use tegmen::dtls::association::Rank;
use tegmen::dtls::connection_id::ConnectionIds;
use tegmen::dtls::roles::{ClientOnly, Extended, Resuming};
use tegmen::endpoint::{PeerArray, Peers as _};
use tegmen::identity::Protection;
use tegmen::time::Instant;
use tokio::net::UdpSocket;
use zeroize::Zeroizing;

type Table = PeerArray<Exchanges<ExchangePool>, 1, 1, 1536, 6144, 1>;

type Role = tegmen::dtls::roles::PublicKeys<Extended<Resuming<ClientOnly, resumption::AcceptsTickets>>, PublicKeys>;

type Node = tegmen::node::Node<Table, Role, tegmen::node::Parts<(), connection::ServerPacing>>;

/// The identity and key of a client.
#[derive(Clone)]
pub struct ClientKey {
    /// PSK identity.
    pub identity: String,
    /// Pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Gives the lines of the key log to a tap.
struct TappedLog(Tap);

impl io::Write for TappedLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Ok(line) = std::str::from_utf8(line) {
            (self.0.0)(Tapped::Secrets(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A session with one server. Clones are the same session: any number of requests can be made at the same time, by any
/// number of tasks of the runtime in which it was opened. It ends with [`Self::close`], or without a word to the server when
/// the last clone and the last observation are dropped.
#[derive(Clone)]
pub struct Session(Arc<Handle>);

/// Ends the session with the last clone.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().shut();
    }
}

/// The session, and what its parts share.
struct Shared {
    config: Arc<ClientConfig>,
    remote: SocketAddr,
    connection: Mutex<Connection>,
    /// Held while a session or OSCORE keys are replaced.
    renewal: tokio::sync::Mutex<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a request; it is given back when this is dropped, and the request is given up.
struct TakenPlace {
    shared: Arc<Shared>,
    at: usize,
}

impl TakenPlace {
    const fn at(&self) -> usize {
        self.at
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.shared.lock().give_back(self.at);
    }
}

/// The progress of a block-wise transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// True for the request's body, false for the response's.
    pub upload: bool,
    /// Bytes that are through.
    pub done: usize,
    /// The size of the body in bytes, if it is known.
    pub total: Option<usize>,
}

/// Sees every datagram, and the secrets: for a capture, or to count.
#[derive(Clone)]
pub struct Tap(pub Arc<dyn Fn(Tapped<'_>) + Send + Sync>);

/// The traffic that a [`Tap`] sees.
#[derive(Clone, Copy)]
pub enum Tapped<'a> {
    /// A datagram as it is on the wire.
    Datagram {
        /// True if we sent it.
        sent: bool,
        /// From the client's point of view.
        path: Path,
        /// The UDP payload.
        datagram: &'a [u8],
    },
    /// A line of the key log (RFC 9850). Anyone who has it can decrypt the traffic.
    Secrets(&'a str),
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

/// A socket that talks to `remote` alone, from this port of ours if it is free.
async fn bind(remote: SocketAddr, port: Option<u16>) -> io::Result<UdpSocket> {
    let any =
        |port| -> SocketAddr { if remote.is_ipv4() { ([0, 0, 0, 0], port).into() } else { ([0u16; 8], port).into() } };
    let socket = match UdpSocket::bind(any(port.unwrap_or(0))).await {
        Err(_) if port.is_some() => UdpSocket::bind(any(0)).await?,
        bound => bound?,
    };
    socket.connect(remote).await?;
    socket.writable().await?;
    Ok(socket)
}

/// Returns the crypto provider of a client, with the key logs of its settings.
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
    /// Opens a session with the server of `uri`; for `coaps` with a handshake.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect(uri: &Uri, config: ClientConfig) -> Result<Self, ClientError> {
        let resolve = |source| match uri.host.split_once('%') {
            Some((ip, interface)) if ip.parse::<std::net::IpAddr>().is_ok() => {
                ClientError::Interface { host: uri.host.clone(), interface: interface.to_owned() }
            }
            _ => ClientError::Resolve { host: uri.host.clone(), source },
        };
        let remote = crate::udp::resolve(&uri.host, uri.port).await.map_err(resolve)?;
        let mut config = config;
        // The name that was asked for is the one that the server must have (RFC 7252, section 9.1.3.3).
        if let Some(keys) = config.trust.public_keys.take() {
            config.trust.public_keys = Some(if keys.expects_no_name() { keys.expecting(&uri.host) } else { keys });
        }
        Self::connect_to(remote, uri.secure, config).await
    }

    /// Opens a session with the server at an address.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn connect_to(remote: SocketAddr, secure: bool, config: ClientConfig) -> Result<Self, ClientError> {
        if secure && config.trust.key.is_none() && config.trust.public_keys.is_none() {
            return Err(ClientError::NoKey);
        }
        let config = Arc::new(config);
        let oscore = config.oscore.as_deref().map(StoredContext::open).transpose().map_err(ClientError::Context)?;
        let unreachable = |source| ClientError::Unreachable { remote, source };
        let resumption = if secure { resumption::ResumptionStore::open(&config, remote)? } else { None };
        let mut kept = if secure { persistence::PersistentSession::open(&config, remote)? } else { None };
        let port = kept.as_ref().and_then(persistence::PersistentSession::port);
        let socket = bind(remote, port).await.map_err(unreachable)?;
        let path = crate::udp::path(socket.local_addr().map_err(unreachable)?, remote);
        let mut crypto = provider(&config).map_err(ClientError::System)?;
        let mut counters = Counters::default();
        let mut endpoint = establish::new_endpoint(&mut crypto, &mut counters, &config, config.dtls);
        let mut cx = Cx { now: clock::now(), crypto: &mut crypto, counters: &mut counters };
        let (known, protection) = match secure {
            true => (establish::restore(&mut endpoint, &mut cx, &path, kept.as_mut())?, Protection::Dtls),
            false => {
                let peer = endpoint.plain(&mut cx, &path, Rank::Ours).map_err(|_| establish::no_room())?;
                (Some(peer), Protection::Plain)
            }
        };
        let parts = (endpoint, crypto, counters);
        let mut connection = Connection::new(&config, socket, (remote, path), parts, protection);
        connection.established = known.is_some();
        connection.expect_protected(oscore.is_some());
        connection.oscore = oscore.map(OscoreClient::new);
        (connection.kept, connection.resumption) = (kept, resumption);
        if let Some(peer) = known {
            connection.talk_to(peer);
        }
        let connection = Mutex::new(connection);
        let shared = Arc::new(Shared { config, remote, connection, renewal: tokio::sync::Mutex::new(()) });
        tokio::spawn(driver::drive(shared.clone()));
        let session = Self(Arc::new(Handle(shared)));
        if known.is_none() {
            session.establish(session.config().dtls.handshake_timeout).await?;
            session.lock().keep_session()?;
        }
        Ok(session)
    }

    /// A request with any method. `path` is written as in a URI, with the query behind a question mark: `/temp?unit=C`.
    pub fn request<'a>(&'a self, method: Code, path: &'a str) -> Request<'a, &'a Self> {
        Request::new(method, path).over(self)
    }

    /// A GET request: `session.get("/temp").await?`.
    pub fn get<'a>(&'a self, path: &'a str) -> Request<'a, &'a Self> {
        self.request(Code::GET, path)
    }

    /// A PUT request with a payload.
    pub fn put<'a>(&'a self, path: &'a str, payload: &'a [u8]) -> Request<'a, &'a Self> {
        self.request(Code::PUT, path).payload(payload)
    }

    /// A POST request with a payload.
    pub fn post<'a>(&'a self, path: &'a str, payload: &'a [u8]) -> Request<'a, &'a Self> {
        self.request(Code::POST, path).payload(payload)
    }

    /// A DELETE request.
    pub fn delete<'a>(&'a self, path: &'a str) -> Request<'a, &'a Self> {
        self.request(Code::DELETE, path)
    }

    /// Observes a resource (RFC 7641), as [`Request::observe`] of a GET request.
    ///
    /// # Errors
    /// [`ClientError`], which says what to do.
    pub async fn observe(&self, path: &str) -> Result<Observation, ClientError> {
        self.get(path).observe().await
    }

    /// Returns the identity that the server proved with a public key: the subject of its certificate, or the name of
    /// its raw key.
    pub fn server(&self) -> Option<String> {
        self.lock().server.clone()
    }

    /// The certificates that the server showed, its own first; none if it showed a raw public key or nothing.
    pub fn chain(&self) -> Vec<CertificateInfo> {
        self.lock().chain.clone()
    }

    /// True if the session was resumed from an earlier one: see [`ClientState::resume`].
    pub fn is_resumed(&self) -> bool {
        self.lock().resumed
    }

    /// By what the next session can be resumed, in words: a ticket or a session id; `None` if the server gave neither, or
    /// [`ClientState::resume`] asked for none.
    pub fn resumable_by(&self) -> Option<&'static str> {
        self.lock().resumption.as_ref()?.by()
    }

    /// The cipher suite of a session that began with a handshake.
    pub fn cipher_suite(&self) -> Option<CipherSuite> {
        self.lock().cipher_suite
    }

    /// Number of sessions begun in place of others that were over: see [`ClientRecovery::reconnect`].
    pub fn reconnects(&self) -> u32 {
        self.lock().reconnects
    }

    /// The server's address.
    pub fn remote(&self) -> SocketAddr {
        self.shared().remote
    }

    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.lock().path.local.into()
    }

    /// Returns the duration of the handshake.
    pub fn handshake_time(&self) -> Duration {
        self.lock().handshake_time
    }

    /// Returns the counters of the endpoint.
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Goes on from another port, as after a change of the network; the session stays, if the server finds it by its
    /// connection id.
    ///
    /// # Errors
    /// What the system says.
    pub async fn rebind(&self) -> io::Result<()> {
        let socket = bind(self.remote(), None).await?;
        let path = crate::udp::path(socket.local_addr()?, self.remote());
        self.lock().move_to(socket, path);
        Ok(())
    }

    /// Returns the connection ids of the session; `None` if it has none.
    pub fn connection_ids(&self) -> Option<ConnectionIds> {
        let mut connection = self.lock();
        let peer = connection.peer;
        connection.node.endpoint.peers.connection_ids(peer).copied()
    }

    /// The identity hint of the server, as text or hexadecimal.
    pub fn hint(&self) -> String {
        let hint = self.lock().hint.clone();
        String::from_utf8(hint).unwrap_or_else(|error| to_hex(error.as_bytes()))
    }

    /// Ends the session in order, or leaves it to the next client if it is kept; what a context has used is kept. Open
    /// requests, and later ones of other clones, end with [`ClientError::Closed`].
    pub fn close(&self) {
        let mut connection = self.lock();
        if connection.socket.is_some() && !connection.park() {
            let peer = connection.peer;
            connection.node.endpoint.close(peer);
            connection.run_due();
        }
        connection.shut();
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    fn config(&self) -> &ClientConfig {
        &self.shared().config
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.shared().lock()
    }

    /// Takes a place for a request.
    fn place(&self) -> TakenPlace {
        let at = self.lock().places.take();
        TakenPlace { shared: self.shared().clone(), at }
    }

    /// Waits at a place until `ready` returns something; `None` if the deadline comes before.
    async fn wait<T>(
        &self,
        place: &TakenPlace,
        deadline: Instant,
        mut ready: impl FnMut(&mut Connection, usize) -> Option<T>,
    ) -> Option<T> {
        poll_fn(|cx| {
            let mut connection = self.lock();
            if let Some(result) = ready(&mut connection, place.at) {
                return Poll::Ready(Some(result));
            }
            if clock::now() >= deadline {
                return Poll::Ready(None);
            }
            connection.watch(place.at, cx.waker(), deadline);
            Poll::Pending
        })
        .await
    }
}
