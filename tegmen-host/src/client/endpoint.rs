//! An endpoint: any number of sessions over the same sockets.

use super::connection::{Connection, SessionEntry};
use super::engine::{Engine, Shared};
use super::persistence::PersistentSession;
use super::port::Port;
use super::resumption::ResumptionStore;
use super::serving::{MayServe, Serving, ServingBuilder, is_client};
use super::session_context::SessionContext;
use super::{ClientConfig, ClientError, ClientKey, Handle, Session, driver, establish};
use crate::credentials::Credentials;
use crate::public_keys::PublicKeys;
use crate::server::{AnyPolicy, Event, Later, Notifier, Router, ServerCoap};
use crate::udp::Socket;
use crate::uri::{Scheme, Uri};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use tegmen::address::Path;
use tegmen::coap::Policy;
use tegmen::cx::{Counters, Environment};
use tegmen::dtls::Config;
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::identity::{PeerId, Principal, Protection};

/// The sockets of a client, and its sessions with any number of servers. Clones refer to the same endpoint.
///
/// One task receives the datagrams of all sessions. It runs in the Tokio runtime in which the endpoint was opened.
/// Dropping the last clone ends the sessions without a message to the servers, and all waiting requests end with
/// [`ClientError::Closed`]. [`Self::close`] ends the sessions and informs the servers.
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

/// The value that the clones of an endpoint share. When the last clone is dropped, the endpoint is closed.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().shut();
    }
}

/// The settings and handlers of an endpoint that is not open yet: see [`Endpoint::builder`].
#[must_use = "only bind() opens the endpoint"]
pub struct EndpointBuilder {
    config: ClientConfig,
    addresses: Vec<String>,
    serving: ServingBuilder,
}

impl EndpointBuilder {
    /// Sets the identity and the pre-shared key of the endpoint: [`ClientTrust::key`](super::ClientTrust::key).
    pub fn psk(mut self, identity: &str, key: &[u8]) -> Self {
        self.config.trust.key = Some(ClientKey { identity: identity.to_owned(), key: key.to_vec().into() });
        self
    }

    /// Sets [`ClientTrust::public_keys`](super::ClientTrust::public_keys): the endpoint's own public keys, and the
    /// servers that it trusts.
    pub fn trust(mut self, keys: PublicKeys) -> Self {
        self.config.trust.public_keys = Some(keys);
        self
    }

    /// Sets the number of requests that may wait for each server at the same time:
    /// [`ClientCoap::nstart`](super::ClientCoap::nstart).
    pub const fn nstart(mut self, nstart: usize) -> Self {
        self.config.coap.nstart = nstart;
        self
    }

    /// Sets the DTLS settings: [`ClientConfig::dtls`].
    pub const fn dtls(mut self, dtls: Config) -> Self {
        self.config.dtls = dtls;
        self
    }

    /// Serves requests with these handlers, over the same sockets. The requests can come from peers that open a session
    /// with the endpoint, and from peers with which the endpoint opened a session. The endpoint accepts bodies in
    /// blocks, and peers can observe its resources, as at a [`Server`](crate::server::Server). [`Endpoint::notifier`]
    /// notifies the observers.
    pub fn serve(mut self, router: Router) -> Self {
        self.serving.router = Some(router);
        self
    }

    /// Sets the identities, keys and rights of the peers that may open a session and make requests, as
    /// [`ServerBuilder::credentials`](crate::server::ServerBuilder::credentials) does.
    ///
    /// In a session that the endpoint opened with a pre-shared key, the peer has the rights of the identity of this
    /// key. The credentials must contain the identity with the same key. A peer with a certificate has the rights of
    /// the name in its certificate. Any other peer has no rights.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.serving.credentials = Some(credentials);
        self
    }

    /// Sets the policy that decides on each request. Without this call, the rights in [`Self::credentials`] decide.
    pub fn policy(mut self, policy: impl Policy + Send + Sync + 'static) -> Self {
        self.serving.policy = Some(AnyPolicy::of(policy));
        self
    }

    /// Sets a policy that may decide later, as
    /// [`ServerBuilder::policy_later`](crate::server::ServerBuilder::policy_later) does.
    pub fn policy_later(
        mut self,
        policy: impl Fn(&tegmen::coap::Request<'_>, &Later<'_>) -> Option<bool> + Send + Sync + 'static,
    ) -> Self {
        self.serving.policy = Some(AnyPolicy::of_later(policy));
        self
    }

    /// Changes the limits of the requests that the endpoint serves. The default limits are the same as those of a
    /// server. An endpoint is not a member of a group, so it does not use [`ServerCoap::leisure`].
    pub fn limits(mut self, change: impl FnOnce(&mut ServerCoap)) -> Self {
        change(&mut self.serving.coap);
        self
    }

    /// Sets the function that takes the events of the server side: sessions that peers open, and requests of peers. The
    /// endpoint holds its lock while it calls this function. So the function must return quickly, and must not use the
    /// endpoint or its sessions. Without a function, sessions and failures are reported to the subscriber of the crate
    /// `tracing`: see [`Event::trace`].
    pub fn on_event(mut self, events: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.serving.events = Some(Arc::new(events));
        self
    }

    /// Also serves requests without protection, from at most [`ServerCoap::max_unauthenticated`] peers.
    pub const fn allow_plain(mut self) -> Self {
        self.serving.plain_allowed = true;
        self
    }

    /// Adds another socket at this address. The address has the same form as the address of [`Self::bind`].
    pub fn and_at(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// Opens the endpoint with a socket at an IP address and a port of this machine, such as `[::]:0` or
    /// `192.0.2.1:5684`. Port 0 takes any free port. A socket at `[::]` reaches IPv6 and IPv4.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    #[expect(clippy::unused_async, reason = "the endpoint runs in the runtime of this future")]
    pub async fn bind(self, address: &str) -> Result<Endpoint, ClientError> {
        let Self { config, mut addresses, serving } = self;
        addresses.insert(0, address.to_owned());
        let open = |text: &String| {
            let address = text.parse().map_err(|_| ClientError::Address { address: text.clone() })?;
            Socket::bind(address, false).map(Port::Open).map_err(ClientError::Bind)
        };
        Endpoint::open(&Arc::new(config), addresses.iter().map(open).collect::<Result<_, _>>()?, serving)
    }
}

/// The files of a session. The files contain the OSCORE context of the session, the ticket or session id, and the
/// session itself.
pub(super) struct Stored {
    oscore: Option<SessionContext>,
    resumption: Option<ResumptionStore>,
    kept: Option<PersistentSession>,
}

impl Stored {
    /// Opens the files that the settings name for a session with `remote`.
    pub(super) fn open(config: &ClientConfig, remote: SocketAddr, scheme: Scheme) -> Result<Self, ClientError> {
        let secure = scheme == Scheme::Coaps;
        let has_keys = config.trust.key.is_some() || config.trust.public_keys.is_some();
        if secure && !has_keys && config.state.handed_over.is_none() {
            return Err(ClientError::NoKey);
        }
        let oscore = config
            .oscore
            .as_deref()
            .map(|dir| SessionContext::open(dir, config.oscore_member.as_deref()))
            .transpose()
            .map_err(ClientError::Context)?;
        let resumption = if secure { ResumptionStore::open(config, remote)? } else { None };
        let kept = if secure { PersistentSession::open(config, remote)? } else { None };
        Ok(Self { oscore, resumption, kept })
    }

    /// Returns the local port of the stored session; `None` if no file contains a session with this server.
    pub(super) fn port(&self) -> Option<u16> {
        self.kept.as_ref()?.port()
    }
}

impl Endpoint {
    /// Returns a builder with the default settings of a client.
    pub fn builder() -> EndpointBuilder {
        Self::with(ClientConfig::default())
    }

    /// Returns a builder with these settings. The settings apply to each session of the endpoint.
    pub fn with(config: ClientConfig) -> EndpointBuilder {
        EndpointBuilder { config, addresses: Vec::new(), serving: ServingBuilder::default() }
    }

    pub(super) fn open(
        config: &Arc<ClientConfig>,
        ports: Vec<Port>,
        serving: ServingBuilder,
    ) -> Result<Self, ClientError> {
        let mut environment = Environment::new(super::provider(config).map_err(ClientError::System)?);
        let built = serving.build();
        let role = MayServe(built.serving.as_ref().map(|_| Serving::limits()));
        let endpoint = establish::new_endpoint(&mut environment, config, role);
        let engine = Engine::new(config.clone(), endpoint, environment, ports, built);
        let shared = Arc::new(Shared::new(engine));
        tokio::spawn(driver::drive(shared.clone()));
        Ok(Self(Arc::new(Owner(shared))))
    }

    /// Collects the datagrams that the tasks of the runtime send, and sends them together when these tasks wait again.
    /// This needs fewer system calls, but delays a single datagram until the task of the endpoint runs again.
    pub(crate) fn send_together(&self) {
        self.lock().io.outbox.get_or_insert_default();
    }

    /// Opens a session with the server of a URI such as `coaps://gateway.local`. For `coaps` this makes a handshake.
    /// The path and the query of the URI are ignored. If the endpoint already has a session with this server, that
    /// session is returned.
    ///
    /// The system reports ICMP errors only to a socket with a single peer, such as the socket of [`Session::connect`].
    /// The sockets of an endpoint have many peers, so the endpoint notices a missing server only because no datagram
    /// comes.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn connect(&self, uri: &str) -> Result<Session, ClientError> {
        let config = self.config();
        self.connect_with(&Uri::parse(uri)?, ClientConfig::clone(&config)).await
    }

    /// Does the same as [`Self::connect`], with separate settings for the session, for example with another key. The
    /// endpoint still uses its own DTLS settings, certificates, key log and tap. Its own settings also decide if it
    /// accepts tickets.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn connect_with(&self, uri: &Uri, config: ClientConfig) -> Result<Session, ClientError> {
        let (remote, config) = super::resolve(uri, config).await?;
        self.session(remote, uri.scheme, config).await
    }

    /// Does the same as [`Self::connect`], for the server at an address. If [`PublicKeys::expecting`] sets no name, a
    /// certificate of the server must contain this address.
    ///
    /// # Errors
    /// [`ClientError`], whose text names the next step for the user.
    pub async fn connect_to(&self, remote: SocketAddr, scheme: Scheme) -> Result<Session, ClientError> {
        let config = super::with_name(ClientConfig::clone(&self.config()), remote.ip().to_canonical());
        self.session(remote, scheme, config).await
    }

    /// Returns the session that the peer at an address opened with this endpoint; `None` if there is no such session.
    /// The credentials of the endpoint admitted the peer, and [`Session::server`] returns the identity of the peer. The
    /// returned session ends when the peer ends the session. The endpoint does not open it again.
    pub fn accepted(&self, remote: SocketAddr) -> Option<Session> {
        let path = self.path_to(remote).ok()?;
        if let Some(handle) = self.lock().find(&path).map(|entry| entry.handle.upgrade()) {
            return handle.map(Session);
        }
        let (peer, principal) = self.accepted_peer(&path)?;
        let config = self.config();
        Some(self.take(&config, path, (peer, principal), None))
    }

    /// Returns the addresses of the peers that opened a session with this endpoint.
    pub fn clients(&self) -> Vec<SocketAddr> {
        let engine = self.lock();
        let peers = engine.io.node.endpoint.peers.iter().filter(|(_, peer)| is_client(peer));
        peers.map(|(_, peer)| peer.path().remote.into()).collect()
    }

    /// Returns the bound addresses of the sockets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().io.ports.iter().map(Port::local).collect()
    }

    /// Returns the notifier for the observers of resources. Without [`EndpointBuilder::serve`] there are no observers.
    pub fn notifier(&self) -> Notifier {
        let engine = self.lock();
        let serving = engine.io.arrivals.serving.as_ref();
        serving.map_or_else(|| Notifier { shards: Arc::new([]) }, |serving| serving.notifier())
    }

    /// Returns the counters of all sessions.
    pub fn counters(&self) -> Counters {
        self.lock().io.environment.counters
    }

    /// Ends each session as [`Session::close`] does, and closes the sockets.
    pub fn close(&self) {
        self.lock().close();
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.0.lock()
    }

    fn config(&self) -> Arc<ClientConfig> {
        self.lock().config.clone()
    }

    async fn session(&self, remote: SocketAddr, scheme: Scheme, config: ClientConfig) -> Result<Session, ClientError> {
        let path = self.path_to(remote)?;
        let protection = scheme.protection();
        let principal = self.principal_of(&config);
        let known = self.lock().find(&path).map(|entry| {
            let is_meant = !entry.is_accepted || entry.principal == principal && principal != Principal::NOBODY;
            (entry.handle.upgrade(), entry.key, is_meant && entry.is_for(&config, protection))
        });
        match known {
            Some((Some(handle), _, is_same)) => {
                let session = Session(handle);
                if !is_same {
                    return Err(ClientError::InUse { remote });
                }
                session.stand().await?;
                return Ok(session);
            }
            // Its last clone is being dropped.
            Some((None, key, _)) => self.lock().abandon(key),
            None => {}
        }
        let stored = Stored::open(&config, remote, scheme)?;
        let config = Arc::new(config);
        // A peer that proved our own identity and key is the server that is meant.
        let accepted =
            self.accepted_peer(&path).filter(|(_, proved)| *proved == principal && principal != Principal::NOBODY);
        match accepted.filter(|_| protection == Protection::Dtls) {
            Some(accepted) => Ok(self.take(&config, path, accepted, stored.oscore)),
            None => self.begin(&config, path, protection, stored, None).await,
        }
    }

    /// Returns the principal of the server in a session with these settings. Requests that the server sends to this
    /// endpoint have the rights of this principal. If the endpoint serves requests, it finds the principal in its
    /// credentials by the pre-shared key in the settings. If the endpoint serves requests and the settings have no
    /// pre-shared key, the server has no rights: [`Principal::NOBODY`].
    fn principal_of(&self, config: &ClientConfig) -> Principal {
        let engine = self.lock();
        match (&engine.io.arrivals.serving, &config.trust.key) {
            (None, _) => Principal(0),
            (Some(serving), Some(key)) => serving.principal_of(&key.identity, &key.key),
            (Some(_), None) => Principal::NOBODY,
        }
    }

    /// Returns the peer that opened a session over this path, and the principal that the peer proved. Returns `None` if
    /// no peer opened a session over this path.
    fn accepted_peer(&self, path: &Path) -> Option<(PeerId, Principal)> {
        let peers = &mut self.lock().io.node.endpoint.peers;
        let peer = peers.find(path, Phase::Established)?;
        let entry = peers.peer(peer).filter(|entry| is_client(entry))?;
        Some((peer, entry.principal()))
    }

    /// Returns a handle for the session that the peer opened over this path. `oscore` is the context that protects the
    /// requests of this endpoint in the session; `None` if they are not protected.
    fn take(
        &self,
        config: &Arc<ClientConfig>,
        path: Path,
        (peer, principal): (PeerId, Principal),
        oscore: Option<SessionContext>,
    ) -> Session {
        let config = ClientConfig::clone(config).with(|config| config.recovery.reconnect = false);
        let (session, ()) = self.enter(&Arc::new(config), (path, Protection::Dtls), None, |connection| {
            connection.protect_with(oscore);
            connection.talk_to(peer);
            let name =
                connection.io.arrivals.serving.as_ref().and_then(|serving| serving.credentials().name_of(principal));
            let entry = &mut connection.entry;
            (entry.is_accepted, entry.established, entry.principal, entry.server) = (true, true, principal, name);
        });
        session
    }

    /// Returns the path to `remote` from the first socket that can reach it.
    fn path_to(&self, remote: SocketAddr) -> Result<Path, ClientError> {
        let engine = self.lock();
        if engine.io.is_shut() {
            return Err(ClientError::Closed { remote });
        }
        let family =
            || io::Error::new(io::ErrorKind::AddrNotAvailable, "no socket of the endpoint has its address family");
        let path = engine.io.ports.iter().find_map(|port| port.path_to(remote)).unwrap_or_else(|| Err(family()));
        path.map_err(|source| ClientError::Unreachable { remote, source })
    }

    /// Begins a session. `owner` is this endpoint if the endpoint was opened only for this session, and `None`
    /// otherwise.
    pub(super) async fn begin(
        &self,
        config: &Arc<ClientConfig>,
        path: Path,
        protection: Protection,
        stored: Stored,
        owner: Option<Self>,
    ) -> Result<Session, ClientError> {
        let principal = self.principal_of(config);
        let (session, begun) = self.enter(config, (path, protection), owner, |connection| {
            let Stored { oscore, resumption, kept } = stored;
            connection.io.kept += usize::from(kept.is_some());
            let entry = &mut connection.entry;
            (entry.resumption, entry.kept, entry.principal) = (resumption, kept, principal);
            connection.protect_with(oscore);
            match protection {
                Protection::Dtls => connection.restore(),
                _ => connection.begin_plain(),
            }
        });
        begun?;
        session.stand().await?;
        Ok(session)
    }

    /// Makes an entry for a session, and calls `begin` with it. Returns the session and the result of `begin`. `owner`
    /// is this endpoint if the endpoint was opened only for this session, and `None` otherwise.
    fn enter<T>(
        &self,
        config: &Arc<ClientConfig>,
        (path, protection): (Path, Protection),
        owner: Option<Self>,
        begin: impl FnOnce(&mut Connection<'_>) -> T,
    ) -> (Session, T) {
        let mut engine = self.lock();
        engine.io.allow_nstart(config.coap.nstart.max(1));
        let key = engine.take(|key| SessionEntry::new(key, config, (path, protection)));
        let remote = path.remote.into();
        let (shared, renewal) = (self.0.0.clone(), tokio::sync::Mutex::new(()));
        let handle = Arc::new(Handle { shared, key, config: config.clone(), remote, renewal, owner });
        let begun = engine.with(key, |connection| {
            connection.entry.handle = Arc::downgrade(&handle);
            begin(connection)
        });
        (Session(handle), begun)
    }
}
