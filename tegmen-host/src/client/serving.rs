//! The server side of an endpoint: its handlers, the credentials of the peers that it admits, and the memory for the
//! requests of these peers.

use super::Features;
use crate::credentials::{Credentials, FilePolicy};
use crate::exchange_pool::ExchangePool;
use crate::server::{
    AnyPolicy, Application as _, Changes, CoapServer, Command, EventSink, HelloLimits, Ledger, Limited, Notifier,
    Observers, Resources, Router, ServerBodies, ServerCoap, ServerLimits, Tried, Unauthenticated,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tegmen::address::Address;
use tegmen::dtls::{Rank, Roles};
use tegmen::endpoint::{Peer, Phase};
use tegmen::identity::{Principal, Protection};
use tegmen::node::Parts;
use tegmen::time::Instant;
use tokio::sync::mpsc;

/// Size, in bytes, of the exchange pool of an endpoint that does not serve requests. The pool stores the endpoint's own
/// requests that wait for an acknowledgement.
const POOL_BYTES: usize = 16 << 20;

/// The roles of an endpoint. Each endpoint is a client, which begins handshakes. If the value is `Some`, the endpoint
/// is also a server: it serves requests, and answers the ClientHellos of peers within the limits in the value.
pub(super) struct MayServe(pub(super) Option<Limited>);

impl Roles for MayServe {
    const CLIENT: bool = true;
    const SERVER: bool = true;

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.admits_hello(now, from))
    }
}

/// The settings of the server side of an endpoint that is not open yet.
#[derive(Default)]
pub(super) struct ServingBuilder {
    pub(super) router: Option<Router>,
    pub(super) credentials: Option<Credentials>,
    pub(super) policy: Option<AnyPolicy>,
    pub(super) plain_allowed: bool,
    pub(super) coap: ServerCoap,
    pub(super) events: Option<EventSink>,
}

/// The values that an endpoint gets from the settings of its server side.
pub(super) struct Built {
    /// The server side; `None` if the endpoint does not serve requests.
    pub(super) serving: Option<Box<Serving>>,
    /// The receiver of the commands to the server side.
    pub(super) commands: Option<mpsc::UnboundedReceiver<Command>>,
    pub(super) features: Features,
    pub(super) pool: ExchangePool,
}

impl ServingBuilder {
    /// Returns the values that the endpoint gets from these settings.
    pub(super) fn build(self) -> Built {
        let Self { router, credentials, policy, plain_allowed, coap, events } = self;
        let Some(router) = router else {
            let observers = Observers::new(Arc::default(), 0, 0);
            let features = features(observers, ServerBodies::new(0, Ledger::new(0)));
            return Built { serving: None, commands: None, features, pool: ExchangePool::new(0, POOL_BYTES) };
        };
        let credentials = credentials.unwrap_or_default();
        let rights = FilePolicy { credentials: credentials.clone(), plain_allowed };
        let policy = policy.unwrap_or_else(|| AnyPolicy::of(rights));
        let (commands, receiver) = mpsc::unbounded_channel();
        let notifier = Notifier::of(&commands);
        let observed = notifier.shards.first().map(|changes| changes.observed.clone()).unwrap_or_default();
        let observers = Observers::new(observed, coap.max_observations, coap.unconfirmed_notifications);
        let observers = observers.with_hosts(router.virtual_hosts());
        let bodies = ServerBodies::new(coap.max_body, Ledger::new(coap.max_bodies));
        let limits = ServerLimits::new(&coap, HelloLimits::default(), events.is_some());
        let limits = (limits, Unauthenticated::new(coap.max_unauthenticated));
        let events = events.unwrap_or_else(|| Arc::new(|event| event.trace()));
        let resources = Resources::new(router, commands, notifier);
        let serving = Serving {
            version: credentials.version(),
            coap_server: CoapServer::new(resources, (policy, credentials), events, limits, &bodies),
            plain_allowed,
            response_timeout: coap.response_timeout,
            tried: Tried::default(),
            second: Instant::AT_ONCE,
        };
        Built {
            serving: Some(Box::new(serving)),
            commands: Some(receiver),
            features: features(observers, bodies),
            pool: crate::server::pool(&coap, 1),
        }
    }
}

/// Returns the optional parts of a node: the observers, the memory for request bodies, the OSCORE contexts and the
/// pacing of messages.
fn features(observers: Observers<Infallible>, bodies: ServerBodies) -> Features {
    Parts {
        queue: (),
        pacing: Default::default(),
        oscore: Default::default(),
        observers,
        bodies,
        leisure: (),
        group_requests: (),
        groups: (),
    }
}

/// The server side of an endpoint.
pub(super) struct Serving {
    pub(super) coap_server: CoapServer<Router>,
    /// True if peers without a session are also served.
    pub(super) plain_allowed: bool,
    /// The time limit of a deferred response.
    pub(super) response_timeout: Duration,
    pub(super) tried: Tried,
    /// The version of the credentials when the sessions were last checked against them.
    pub(super) version: u64,
    /// The next time at which the work that is done once a second is due.
    pub(super) second: Instant,
}

impl Serving {
    /// Returns the server role of the endpoint, with the default limits of ClientHellos.
    pub(super) fn limits() -> Limited {
        Limited::with(HelloLimits::default())
    }

    /// Returns the credentials of the peers.
    pub(super) const fn credentials(&self) -> &Credentials {
        &self.coap_server.credentials
    }

    /// Returns the notifier for the observers.
    pub(super) fn notifier(&self) -> Notifier {
        self.coap_server.resources.notifier.clone()
    }

    /// Returns the paths whose representations have changed since the last call.
    pub(super) fn take_changes(&self) -> impl Iterator<Item = Arc<str>> {
        let changes = self.coap_server.resources.notifier.shards.first().map(Changes::take);
        changes.into_iter().flatten()
    }

    /// Returns the principal that has this identity and this key; [`Principal::NOBODY`] if there is none.
    pub(super) fn principal_of(&self, identity: &str, key: &[u8]) -> Principal {
        let known = self.credentials().keys_of(identity.as_bytes());
        let same = known.and_then(|known| known.filter(|known| known.key.as_slice() == key));
        same.map_or(Principal::NOBODY, |same| same.current.principal)
    }
}

/// True if the peer opened its session with this endpoint.
pub(super) fn is_client(peer: &Peer) -> bool {
    let is_established = peer.phase() == Phase::Established && peer.protection() == Protection::Dtls;
    is_established && !matches!(peer.rank(), Rank::Ours | Rank::OursAsServer)
}
