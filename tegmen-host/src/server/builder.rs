//! The builder of a server.

use super::authorization::{AnyPolicy, Later};
use super::{Application, Event, EventSink, Listen, ListenError, Server, ServerConfig, StartError};
use crate::contexts::Contexts;
use crate::credentials::{Credentials, FilePolicy, KeyStore};
use crate::delegate::Delegate;
use crate::edhoc::EdhocServer;
use crate::group::Membership;
use crate::public_keys::PublicKeys;
use crate::state::Database;
use std::net::UdpSocket;
use std::sync::Arc;
use tegmen::coap::{Policy, Request};

/// The settings of a server that has not started yet: see [`Server::builder`].
#[must_use = "only serve() starts the server"]
pub struct ServerBuilder {
    config: ServerConfig,
    credentials: Credentials,
    policy: Option<AnyPolicy>,
    events: EventSink,
    wrong: Option<ListenError>,
    inherited: Vec<UdpSocket>,
}

impl ServerBuilder {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self {
            config,
            credentials: Credentials::default(),
            policy: None,
            events: Arc::new(|event| event.trace()),
            wrong: None,
            inherited: Vec::new(),
        }
    }

    /// Adds an address at which the server listens, such as `coaps://127.0.0.1:0` or `coap://[::]`. The address has an
    /// IP address of this machine, and a port if it is not the default port. Port 0 takes any free port. If an address
    /// is not valid, [`Self::serve`] returns an error.
    pub fn listen(mut self, address: &str) -> Self {
        match address.parse::<Listen>() {
            Ok(listen) => self.config.listen.push(listen),
            Err(wrong) => self.wrong = self.wrong.or(Some(wrong)),
        }
        self
    }

    /// Takes sockets that a parent process has bound and passed, as systemd does. The server then binds no sockets, and
    /// processes the datagrams that already wait in the passed sockets. The local address of a socket shows to which
    /// listening address it belongs. Each listening address needs one socket for each shard, and each passed socket
    /// must belong to a listening address. If the number of shards is 0, the server has as many shards as the first
    /// address has sockets. Several sockets of one address must be bound with SO_REUSEPORT. An empty list changes
    /// nothing.
    pub fn inherit(mut self, sockets: impl IntoIterator<Item = UdpSocket>) -> Self {
        self.inherited.extend(sockets);
        self
    }

    /// Adds a membership to [`ServerConfig::memberships`]. The server then answers the requests of a group that Axiom
    /// protects.
    pub fn member_of(mut self, membership: Membership) -> Self {
        self.config.memberships.push(membership);
        self
    }

    /// Sets the identities, keys and rights of the clients.
    pub fn credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// Sets the policy that decides on each request. Without this call, the rights of the credentials decide on
    /// requests with protection, and [`ServerTrust::plain_allowed`](super::ServerTrust::plain_allowed) decides on
    /// requests without protection. With this call, only this policy decides on both kinds of requests.
    pub fn policy(self, policy: impl Policy + Send + Sync + 'static) -> Self {
        Self { policy: Some(AnyPolicy::of(policy)), ..self }
    }

    /// Sets a policy that may decide later, because it has to ask another server. This policy replaces the policy of
    /// [`Self::policy`]. The function must return at once. It returns a decision, or it takes an
    /// [`Authorization`](super::Authorization) from its second argument and returns `None`. Until the decision, the
    /// client gets only an acknowledgement. The function is called once for each request, each block, and each
    /// notification. Until the decision on a notification, the client gets no notification, and remains an observer.
    /// The policy may store the rights of a sender, and decide at once the next time.
    ///
    /// ```
    /// use tegmen_host::server::{Router, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::builder()
    ///     .listen("coap://127.0.0.1:0")
    ///     .policy_later(|request, later| {
    ///         if request.message.path_is("public") {
    ///             return Some(true);
    ///         }
    ///         let (sender, authorization) = (request.identity, later.authorization());
    ///         std::thread::spawn(move || match is_known_to_the_access_control_server(sender) {
    ///             true => authorization.allow(),
    ///             false => authorization.deny(),
    ///         });
    ///         None
    ///     })
    ///     .serve(Router::new().get("/public", |_, response| response.payload(b"21.5")))?;
    /// # server.stop();
    /// # Ok(())
    /// # }
    /// # fn is_known_to_the_access_control_server(_: tegmen::identity::Identity) -> bool { true }
    /// ```
    pub fn policy_later(
        self,
        policy: impl Fn(&Request<'_>, &Later<'_>) -> Option<bool> + Send + Sync + 'static,
    ) -> Self {
        Self { policy: Some(AnyPolicy::of_later(policy)), ..self }
    }

    /// Sets [`ServerTrust::key_store`](super::ServerTrust::key_store), the source of keys that the credentials do not
    /// have.
    pub fn key_store(mut self, store: impl KeyStore + 'static) -> Self {
        self.config.trust.key_store = Some(Arc::new(store));
        self
    }

    /// Sets [`ServerTrust::public_keys`](super::ServerTrust::public_keys): the server's own keys, and the certificates
    /// and raw public keys of the clients that it trusts.
    pub fn trust(mut self, keys: PublicKeys) -> Self {
        self.config.trust.public_keys = Some(keys);
        self
    }

    /// Sets [`ServerConfig::delegate`]: the devices in whose name the server opens or resumes sessions.
    pub fn delegate(mut self, delegate: Arc<dyn Delegate>) -> Self {
        self.config.delegate = Some(delegate);
        self
    }

    /// Also serves requests over CoAP in clear: sets [`ServerTrust::plain_allowed`](super::ServerTrust::plain_allowed).
    pub fn allow_plain(mut self) -> Self {
        self.config.trust.plain_allowed = true;
        self
    }

    /// Sets [`ServerConfig::oscore`], the contexts of clients that use OSCORE.
    pub fn oscore(mut self, contexts: Contexts) -> Self {
        self.config.oscore = contexts;
        self
    }

    /// Sets [`ServerConfig::edhoc`], with which the server and its clients agree on OSCORE contexts.
    pub fn edhoc(mut self, edhoc: EdhocServer) -> Self {
        self.config.edhoc = Some(edhoc);
        self
    }

    /// Sets [`ServerConfig::state`], the database that keeps sessions over a restart.
    pub fn state(mut self, database: Database) -> Self {
        self.config.state = Some(database);
        self
    }

    /// Sets [`ServerConfig::shards`], the number of threads.
    pub fn shards(mut self, shards: usize) -> Self {
        self.config.shards = shards;
        self
    }

    /// Sets the function that takes the events of the server. The shards call this function, so the function must
    /// return quickly. Without a function, each event goes to the subscriber of the crate `tracing`: see
    /// [`Event::trace`].
    pub fn on_event(self, events: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self { events: Arc::new(events), ..self }
    }

    /// Starts the server. One clone of the application runs in each shard.
    ///
    /// # Errors
    /// [`StartError`], whose text has the cause and the next step for the operator.
    pub fn serve<A: Application>(self, application: A) -> Result<Server, StartError> {
        let Self { config, credentials, policy, events, wrong, inherited } = self;
        if let Some(wrong) = wrong {
            return Err(wrong.into());
        }
        let rights = || FilePolicy { credentials: credentials.clone(), plain_allowed: config.trust.plain_allowed };
        let policy = policy.unwrap_or_else(|| AnyPolicy::of(rights()));
        Server::start(&config, (&credentials, policy), inherited, (application, events))
    }
}
