//! A caching proxy: it forwards requests to other servers (RFC 7252, sections 5.7 and 5.6), and answers from stored
//! responses.
//!
//! [`Proxy`] is an application of a server, and gets the requests before the other applications. As a forward proxy it
//! takes requests with Proxy-Uri, or with Proxy-Scheme and Uri-Host, for the servers that [`ProxyConfig::targets`]
//! allows; the default allows none. As a reverse proxy it takes the paths of [`ProxyConfig::reverse`], and requests
//! with a Uri-Host of [`ProxyConfig::hosts`]. It sends requests to origins over `coap` and `coaps`, always with the
//! proxy's own identity, and over `http` and `https`.
//!
//! The policy of the server decides on each request, before the cache is searched. In a rule, the resource `/a` of
//! `coap://host` has the path `/proxy/coap/host:5683/a`. The origin sees only the identity of the proxy. So if the
//! policy allows a client to read a resource, the client receives the response that the origin gave to the proxy.
//!
//! All clients that observe the same resource share one observation at the origin (RFC 7641, section 5).
//!
//! If OSCORE protects a request for another server, the proxy forwards the request without changes. The proxy does not
//! store the response (RFC 8613, section 10), unless the request is a deterministic request of a group
//! ([`cache::is_cacheable`]). For each registration with OSCORE the proxy makes a separate observation at the origin.
//! Only the client that sent the registration receives the notifications of this observation (`protected`).
//!
//! With the feature `http`, HTTP clients can use the proxy, and the proxy can send requests to HTTP servers: see the
//! module `http`.

mod answer;
mod config;
mod entry;
mod failed;
mod forwarded;
#[cfg(feature = "http")]
pub mod http;
mod memory;
mod pattern;
mod pool;
mod protected;
mod relay;
mod state;
mod upstream;
mod virtual_host;

pub use config::{ProxyConfig, ProxyError, Reverse, ReverseError};
pub use pattern::{Pattern, PatternError};
pub use state::ProxyCounts;
pub use virtual_host::{VirtualHost, VirtualHostError};

use crate::clock;
use crate::server::{Application, Request, VirtualHosts};
use crate::target::{self, Place, Target, TargetScheme};
use crate::uri::Scheme;
use entry::{Entry, Kind};
use forwarded::Upstream;
use memory::Owner;
use pool::Origin;
use protected::{Cancellation, Client, Registration};
use relay::Relay;
use state::{Begun, Room, State, Waiter, Watching};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::buf::Frame;
use tegmen::coap::cache::{self, Found, Treatment};
use tegmen::coap::observe::{DEREGISTER, REGISTER};
use tegmen::coap::{Code, MessageRef, OptionNumber, Response, Token, block};
use tegmen_proxy::{write_known, write_stored};
use upstream::{Job, Jobs, Purpose};

/// Seconds after which a client may try again if the proxy had no space for its request.
const RETRY_AFTER: u32 = 2;
/// Maximum number of bytes of a request without its payload, after the proxy has replaced Proxy-Uri by Uri-Path and
/// Uri-Query options.
const REWRITTEN: usize = 2048;

/// The proxy application. Clones refer to the same proxy, which ends with the last clone. The task that sends requests
/// to origins ends with the server whose shard started it. The next request then starts another task.
#[derive(Clone)]
pub struct Proxy {
    shared: Arc<Shared>,
    jobs: Jobs,
    /// The cache key of the current request.
    key: Vec<u8>,
    /// A buffer for a request that names its target in Proxy-Uri.
    rewritten: Vec<u8>,
}

/// The state that all clones of a proxy share with the task that sends requests to origins.
pub(crate) struct Shared {
    config: ProxyConfig,
    hosts: VirtualHosts,
    state: Mutex<State>,
    #[cfg(feature = "http")]
    http: http::origin::Origins,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The route of a request to its origin.
struct Route<'a> {
    scheme: TargetScheme,
    host: &'a str,
    port: u16,
    /// The name of the virtual host that the client requested, if the URI of the origin contains an IP address. The
    /// proxy sends this name to the origin as the Uri-Host option.
    name: Option<&'a str>,
    /// The number of leading path segments that are not part of the origin's path.
    skipped: usize,
    /// For a reverse proxy: the path at which the proxy serves the origin. Empty for a forward proxy.
    prefix: &'a str,
}

impl Proxy {
    /// Returns a proxy. The first shard that forwards a request opens the sockets for the requests to origins, and sends
    /// these requests for all shards.
    ///
    /// # Errors
    /// [`ProxyError`] if a setting is not valid.
    pub fn new(config: ProxyConfig) -> Result<Self, ProxyError> {
        config.check()?;
        let state = State::new(config.room());
        let hosts = VirtualHost::all(&config.hosts);
        let shared = Shared {
            #[cfg(feature = "http")]
            http: http::origin::Origins::new(&config)?,
            config,
            hosts,
            state: Mutex::new(state),
        };
        Ok(Self { shared: Arc::new(shared), jobs: Jobs::default(), key: Vec::new(), rewritten: Vec::new() })
    }

    /// Returns true if this request is for the proxy: it names another target, or `path` belongs to an origin. `path` has no
    /// leading slash.
    pub fn has(&self, message: &MessageRef<'_>, path: &str) -> bool {
        self.shared.hosts.named(message).is_some() || self.shared.config.reverse_of(path).is_some()
    }

    /// Returns the counts of the proxy, for all clones together.
    pub fn counts(&self) -> ProxyCounts {
        self.shared.state().counts()
    }

    /// Removes all stored responses.
    pub fn purge(&self) {
        self.shared.state().purge(self.shared.config.room());
    }

    /// Forwards a request, or answers it from the cache.
    fn forward(
        &mut self,
        route: &Route<'_>,
        message: &MessageRef<'_>,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let is_refused = |(number, _): (OptionNumber, _)| cache::in_request(number) == Treatment::Refused;
        if message.options().any(is_refused) {
            return Err(Code::BAD_OPTION);
        }
        let hops = cache::hops(message, self.shared.config.hop_limit)?;
        let resource = write_key(&mut self.key, route, message);
        if !cache::is_cacheable(message) {
            return match self.relay(route, message, (hops, resource), request, response) {
                Some(answered) => answered,
                None => self.pass(route, message, (hops, resource), request, response),
            };
        }
        // HTTP has no observation: the client receives one response.
        if message.uint(OptionNumber::OBSERVE) == Some(REGISTER)
            && matches!(route.scheme, TargetScheme::Coap(_))
            && let Some(hops) = hops
            && self.observe(route, message, (hops, resource), request, response)
        {
            return Ok(());
        }
        let (now, key) = (clock::now(), self.key.as_slice());
        let mut state = self.shared.state();
        let found = state.look_up(now, key, message);
        let is_short = match &found {
            Found::Fresh { response: stored, .. } => stored.payload().len() <= block::MAX_SIZE,
            Found::Known { .. } => true,
            Found::Stale { .. } | Found::Nothing => false,
        };
        if is_short && message.option(OptionNumber::OBSERVE).is_none() {
            request.mark_cheap();
        }
        let etag = match found {
            Found::Fresh { response: stored, max_age } => {
                if stored.code().class() == 5 {
                    request.because(answer::OF_ORIGIN);
                }
                return write_stored(&stored, max_age, response);
            }
            Found::Known { etag, max_age } => return write_known(etag, max_age, response),
            Found::Stale { etag } => Some(etag.to_vec()),
            Found::Nothing => None,
        };
        let Some(hops) = hops else { return self.shared.config.stop(request, response) };
        match state.room(key, hops) {
            Room::Joins(id) => {
                state.join(id, waiter(message, request, response));
                Ok(())
            }
            Room::Begins => {
                let upstream = Upstream::new(message, route, hops, etag);
                let Begun { id, key } = state.begin(key, hops, waiter(message, request, response));
                drop(state);
                let owner = Owner::new(request.identity(), request.remote().map(|remote| remote.ip()));
                let entry = self.entry(Kind::Fetch { id, key: key.clone(), owner });
                let purpose = Purpose::Fetch { id, key, resource, owner, entry };
                self.send(Job { origin: route.origin(), upstream, purpose });
                Ok(())
            }
            Room::Apart => {
                drop(state);
                self.pass(route, message, (Some(hops), resource), request, response)
            }
            Room::Full => full(request, response),
        }
    }

    /// Lets a client observe a resource, which the proxy then observes at the origin. Returns true if the response will
    /// come from the origin. Returns false if the client has to get the stored response.
    fn observe(
        &self,
        route: &Route<'_>,
        message: &MessageRef<'_>,
        (hops, resource): (u8, usize),
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> bool {
        let owner = Owner::new(request.identity(), request.remote().map(|remote| remote.ip()));
        let mut state = self.shared.state();
        let watching = state.watching(&self.key, hops, owner);
        match watching {
            Watching::Begun => {
                response.observable();
                return false;
            }
            // What answers a notification is the last one then.
            Watching::Not if request.remote().is_none() => return false,
            Watching::Never => return false,
            Watching::Begins | Watching::Not => {}
        }
        response.observable();
        let key = state.watch(&self.key, hops, owner, waiter(message, request, response));
        drop(state);
        if matches!(watching, Watching::Not) {
            let upstream = Upstream::new(message, route, hops, None);
            let observers = (request.path().to_owned(), request.notifier());
            let entry = self.entry(Kind::Watch { key: key.clone(), observers: observers.clone() });
            let purpose = Purpose::Watch { key, resource, owner, observers, entry };
            self.send(Job { origin: route.origin(), upstream, purpose });
        }
        true
    }

    /// Handles the Observe option of a request that OSCORE protects for another server (RFC 8613, section 4.1.3.5).
    /// Returns `None` if the proxy has to forward the request as if it had no Observe option.
    fn relay(
        &self,
        route: &Route<'_>,
        message: &MessageRef<'_>,
        (hops, resource): (Option<u8>, usize),
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Option<Result<(), Code>> {
        let observe = message.uint(OptionNumber::OBSERVE)?;
        let is_protected = message.code() == Code::FETCH && message.option(OptionNumber::OSCORE).is_some();
        if !is_protected || !matches!(route.scheme, TargetScheme::Coap(_)) {
            return None;
        }
        let Some(remote) = request.remote() else { return Some(self.notify(request, response)) };
        let from = (Client::new(remote, request.identity()), Token::new(message.token()));
        let upstream = Upstream::new(message, route, hops?, None);
        match observe {
            REGISTER => self.register(from, (route, upstream, resource), request, response),
            DEREGISTER => self.deregister(from, (upstream, self.key.get(..resource)?), request, response),
            _ => None,
        }
    }

    /// Sends the newest notification of an observation that OSCORE protects.
    fn notify(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let newest = self.shared.state().protected.newest(&self.key).ok_or(Code::GATEWAY_TIMEOUT)?;
        if !newest.is_last {
            response.observable();
        }
        request.defer(response).send(newest.answer.reply(&[], ""));
        Ok(())
    }

    /// Registers the observation of a client whose request OSCORE protects. If there is no space, the proxy refuses the
    /// request. The proxy cannot forward the request as one without an observation: even if the proxy removed the outer
    /// Observe option, the origin would register the observation (RFC 8613, section 4.1.3.5.1). Returns `None` if the request is a replay, which the origin will refuse.
    fn register(
        &self,
        (client, token): (Client, Token),
        (route, upstream, resource): (&Route<'_>, Upstream, usize),
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Option<Result<(), Code>> {
        let (mut path, notifier, owner) =
            (request.path().to_owned(), request.notifier(), client.owner(request.identity()));
        self.shared.hosts.distinguish(request.message(), &mut path);
        let mut state = self.shared.state();
        if state.protected.is_replay(&self.key, client) {
            return None;
        }
        let most = if state.may_observe() { self.shared.config.protected_observations } else { 0 };
        // The path is that of this registration alone, so somebody observes it if the server took the client for an observer.
        if !state.protected.has_space(&self.key, owner, most) || !notifier.is_observed(&path) {
            return Some(refuse(request, response, "the client, or the proxy, has as many observations as it may"));
        }
        response.observable();
        let of = (resource, request.defer(response));
        let registration = state.protected.register(&self.key, (client, token, owner), of);
        drop(state);
        match registration {
            Registration::Joined => {}
            Registration::Known(responder, newest) => responder.send(newest.answer.reply(&[], "")),
            Registration::Begins(key, cancellations) => {
                let observers = (path.clone(), notifier.clone());
                let entry = self.entry(Kind::Protected { key: key.clone(), observers });
                let purpose = Purpose::Relay(Relay { key, entry, cancellations, path, notifier });
                self.send(Job { origin: route.origin(), upstream, purpose });
            }
        }
        Some(Ok(()))
    }

    /// Forwards to the origin a request that ends an observation. The forwarded request has the token of the
    /// registration at the origin. Returns `None` if there is no such observation.
    fn deregister(
        &self,
        (client, token): (Client, Token),
        (upstream, resource): (Upstream, &[u8]),
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Option<Result<(), Code>> {
        let mut state = self.shared.state();
        if !state.protected.has(client, &token, resource) {
            return None;
        }
        if !state.begin_apart() {
            return Some(full(request, response));
        }
        let cancellation =
            Cancellation { upstream, responder: request.defer(response), entry: self.entry(Kind::Apart) };
        let unsent = state.protected.cancel((client, &token), resource, cancellation);
        drop(state);
        drop(unsent);
        Some(Ok(()))
    }

    /// Forwards a request to its origin. The response is only for the client that made the request.
    fn pass(
        &self,
        route: &Route<'_>,
        message: &MessageRef<'_>,
        (hops, resource): (Option<u8>, usize),
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let Some(hops) = hops else { return self.shared.config.stop(request, response) };
        if !self.shared.state().begin_apart() {
            return full(request, response);
        }
        let upstream = Upstream::new(message, route, hops, None);
        let resource = self.key.get(..resource).unwrap_or(&[]).to_vec();
        let (responder, prefix) = (request.defer(response), route.prefix.to_owned());
        let purpose = Purpose::Pass { responder, resource, prefix, entry: self.entry(Kind::Apart) };
        self.send(Job { origin: route.origin(), upstream, purpose });
        Ok(())
    }

    fn entry(&self, kind: Kind) -> Entry {
        Entry::new(&self.shared, kind)
    }

    /// Sends a job to the task. The caller must not have locked the state.
    fn send(&self, job: Job) {
        self.jobs.send(&self.shared, job);
    }
}

impl Route<'_> {
    fn origin(&self) -> Origin {
        Origin { scheme: self.scheme, host: self.host.to_owned(), port: self.port }
    }
}

/// Writes the cache key of a request. Returns the length in bytes of the first part of the key, which names the
/// resource.
fn write_key(key: &mut Vec<u8>, route: &Route<'_>, message: &MessageRef<'_>) -> usize {
    let Route { scheme, host, port, name, skipped, .. } = route;
    key.clear();
    key.push(match scheme {
        TargetScheme::Coap(Scheme::Coap) => 0,
        TargetScheme::Coap(Scheme::Coaps) => 1,
        TargetScheme::Http => 2,
        TargetScheme::Https => 3,
    });
    key.extend(port.to_be_bytes());
    // A name in an option or a URI is shorter.
    let name = name.unwrap_or("");
    key.extend((name.len() as u16).to_be_bytes());
    key.extend(name.as_bytes());
    key.extend((host.len() as u16).to_be_bytes());
    cache::write_resource(host.as_bytes(), message, *skipped, |bytes| key.extend(bytes));
    let resource = key.len();
    cache::write_variant(message, |bytes| key.extend(bytes));
    resource
}

/// Defers the response to a request. Returns the waiting client: the value through which the proxy responds later, and
/// the ETags in the request.
fn waiter(message: &MessageRef<'_>, request: &Request<'_>, response: &mut Response<'_, '_>) -> Waiter {
    let known = message.values(OptionNumber::ETAG).map(<[u8]>::to_vec).collect();
    Waiter { responder: request.defer(response), known }
}

/// Refuses a request, because too many requests wait for their origins.
fn full(request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
    refuse(request, response, "too many requests wait for their origins")
}

/// Refuses a request with 5.03 and a Max-Age, after which the client may send it again.
fn refuse(request: &Request<'_>, response: &mut Response<'_, '_>, cause: &str) -> Result<(), Code> {
    request.because(cause);
    response.set_code(Code::SERVICE_UNAVAILABLE);
    response.uint(OptionNumber::MAX_AGE, RETRY_AFTER)
}

impl Application for Proxy {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let shared = self.shared.clone();
        let message = request.message();
        let Some(named) = shared.hosts.named(message) else {
            let reverse = shared.config.reverse_of(request.path()).ok_or(Code::NOT_FOUND)?;
            return self.forward(&reverse.route(), message, request, response);
        };
        let target = named.inspect_err(|code| request.because(target::refusal(message, *code)))?;
        if !target.has(request.path()) {
            request.because("the server does not know the virtual hosts of the proxy: Application::virtual_hosts");
            return Err(Code::INTERNAL_SERVER_ERROR);
        }
        let host = &*target.host;
        let route = match target.place {
            Place::At(scheme, port) if !shared.config.allows(scheme, host, port) => return Err(Code::FORBIDDEN),
            Place::At(scheme, port) => Route { scheme, host, port, name: None, skipped: 0, prefix: "" },
            Place::Virtual => shared.config.host(host).and_then(VirtualHost::route).ok_or(Code::NOT_FOUND)?,
        };
        if target.uri.is_none() {
            return self.forward(&route, message, request, response);
        }
        let mut rewritten = std::mem::take(&mut self.rewritten);
        let forwarded = self.forward_rewritten((&target, &route), &mut rewritten, request, response);
        self.rewritten = rewritten;
        forwarded
    }

    fn virtual_hosts(&self) -> VirtualHosts {
        self.shared.hosts.clone()
    }

    fn acts_on(&self, path: &str, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        match number {
            // The server puts bodies together.
            OptionNumber::BLOCK1 => false,
            // Without Uri-Host the target is this server.
            OptionNumber::PROXY_SCHEME => true,
            _ if self.has(request, path) => cache::in_request(number) != Treatment::Refused,
            _ => self.critical_options().contains(&number),
        }
    }
}

impl Proxy {
    /// Forwards a request that names its target in Proxy-Uri. The path and the query of this URI become options.
    fn forward_rewritten(
        &mut self,
        (target, route): (&Target<'_>, &Route<'_>),
        rewritten: &mut Vec<u8>,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        rewritten.resize(REWRITTEN, 0);
        let mut frame = Frame::new(rewritten, 0);
        target.write_request(request.message(), &mut frame, |_| Ok(())).map_err(|_| Code::BAD_REQUEST)?;
        let message = MessageRef::parse(frame.bytes()).map_err(|_| Code::BAD_REQUEST)?;
        self.forward(route, &message.with_body(request.payload()), request, response)
    }
}
