//! The side of an endpoint that serves: its handlers, and the credentials of the peers that it admits.

use crate::clock;
use crate::credentials::{Credentials, FilePolicy};
use crate::server::{
    AnyPolicy, Command, Deciding, HelloLimits, Limited, Notifier, Outcome, Resources, Router, copy_of,
};
use std::collections::HashMap;
use std::time::Duration;
use tegmen::address::Address;
use tegmen::coap::{Code, Handler, MessageRef, Policy, Repeat};
use tegmen::dtls::Roles;
use tegmen::identity::Principal;
use tegmen::node::{Answer, Deferred, DeferredRequest, Refusal};
use tegmen::time::Instant;
use tokio::sync::mpsc;

/// The time that a handler has for a deferred response, as the default of a server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Opens handshakes, and answers those of peers if the endpoint serves.
pub(super) struct MayServe(pub(super) Option<Limited>);

impl Roles for MayServe {
    const CLIENT: bool = true;
    const SERVER: bool = true;

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.0.as_ref().is_some_and(|limited| limited.admits_hello(now, from))
    }
}

/// The settings of an endpoint that serves, before it is open.
pub(super) struct ServingBuilder {
    pub(super) router: Option<Router>,
    pub(super) credentials: Option<Credentials>,
    pub(super) policy: Option<AnyPolicy>,
    pub(super) plain_allowed: bool,
}

impl ServingBuilder {
    /// An endpoint that does not serve.
    pub(super) const NONE: Self = Self { router: None, credentials: None, policy: None, plain_allowed: false };

    /// Returns the serving side, and the commands to it; `None` if the endpoint does not serve.
    pub(super) fn build(self) -> Option<(Serving, mpsc::UnboundedReceiver<Command>)> {
        let Self { router, credentials, policy, plain_allowed } = self;
        let (router, credentials) = (router?, credentials.unwrap_or_default());
        let rights = FilePolicy { credentials: credentials.clone(), plain_allowed };
        let policy = policy.unwrap_or_else(|| AnyPolicy::of(rights));
        let (commands, receiver) = mpsc::unbounded_channel();
        let policy = Deciding::new(policy, commands.clone());
        let resources = Resources::new(router, commands.clone(), Notifier::of(&commands));
        let serving =
            Serving { policy, credentials, plain_allowed, resources, deferred: HashMap::new(), waiting: Vec::new() };
        Some((serving, receiver))
    }
}

/// The serving side of an endpoint.
pub(super) struct Serving {
    policy: Deciding,
    pub(super) credentials: Credentials,
    /// Peers without a session are served, too.
    pub(super) plain_allowed: bool,
    resources: Resources<Router>,
    /// The requests that wait for the response of their responder, by its number.
    deferred: HashMap<u64, Waiting>,
    /// Responses and decisions that there was no space for.
    pub(super) waiting: Vec<(Waiting, Outcome)>,
}

/// A request whose response is deferred, and the time at which it came.
pub(super) struct Waiting {
    pub(super) at: Instant,
    pub(super) deferred: Deferred,
    /// The message of a request that is undecided.
    pub(super) copy: Vec<u8>,
}

impl Serving {
    /// Returns the role of an endpoint that serves.
    pub(super) fn limits() -> Limited {
        Limited::with(HelloLimits::default())
    }

    /// Returns the policy and the handler of requests.
    pub(super) const fn parts(&mut self) -> (&impl Policy, &mut impl Handler) {
        (&self.policy, &mut self.resources)
    }

    /// Reads the path and the query of a request.
    ///
    /// # Errors
    /// 4.00 if they are not valid.
    pub(super) fn admit(&mut self, message: &MessageRef<'_>) -> Result<(), Refusal> {
        self.resources.begin(message).map_err(|_| Refusal { code: Code::BAD_REQUEST, option: None })
    }

    /// Returns the effect with which the response is kept: that of the request, if a handler executed it, or may execute it
    /// later.
    pub(super) fn effect(&self, answer: Answer, repeat: Repeat) -> Repeat {
        if self.resources.is_executed() || answer == Answer::Deferred { repeat } else { Repeat::Safe }
    }

    /// Reads the path of a request that is decided on.
    pub(super) fn begin(&mut self, request: &[u8]) {
        if let Ok(message) = MessageRef::parse(request) {
            // It was valid when the request came.
            let _ = self.resources.begin(&message);
        }
    }

    /// Keeps a request whose response the handler has deferred, or on which the policy has not decided.
    pub(super) fn keep(&mut self, request: DeferredRequest<'_>) {
        let (message, is_undecided) = (request.message, request.is_undecided);
        let number = if is_undecided { self.policy.take_number() } else { self.resources.take_responder() };
        let copy = if is_undecided { copy_of(message) } else { Vec::new() };
        self.deferred.insert(number, Waiting { at: clock::now(), deferred: request.keep(), copy });
    }

    /// Takes the request of a responder; `None` if it has its response.
    pub(super) fn take(&mut self, number: u64) -> Option<Waiting> {
        self.deferred.remove(&number)
    }

    /// Returns the responders whose time is over.
    pub(super) fn overdue(&self, now: Instant) -> Vec<u64> {
        let is_overdue = |waiting: &Waiting| waiting.at.after(RESPONSE_TIMEOUT) <= now;
        self.deferred.iter().filter(|(_, waiting)| is_overdue(waiting)).map(|(number, _)| *number).collect()
    }

    /// Returns the time at which the next responder is overdue.
    pub(super) fn next(&self) -> Instant {
        self.deferred.values().map(|waiting| waiting.at.after(RESPONSE_TIMEOUT)).min().unwrap_or(Instant::NEVER)
    }

    /// Returns the principal that has this identity and this key; [`Principal::NOBODY`] if there is none.
    pub(super) fn principal_of(&self, identity: &str, key: &[u8]) -> Principal {
        let known = self.credentials.key_of(identity.as_bytes());
        known.filter(|(known, _)| known.as_slice() == key).map_or(Principal::NOBODY, |(_, principal)| principal)
    }
}
