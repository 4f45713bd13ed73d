//! The settings of a proxy.

use super::memory::Bounds;
use super::virtual_host::{Authority, VirtualHost};
use super::{Pattern, Route};
use crate::client::{ClientConfig, ClientError};
use crate::server::Request;
use crate::target::TargetScheme;
use crate::uri::{Scheme, Uri, UriError};
use std::str::FromStr;
use std::time::Duration;
use tegmen::coap::{Code, Response};

/// The settings of a proxy. Take the defaults, which forward nothing, and change fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The servers to which the forward proxy forwards requests. A request for another server is refused with 4.03.
    pub targets: Vec<Pattern>,
    /// The paths of the reverse proxy.
    pub reverse: Vec<Reverse>,
    /// The virtual hosts of the reverse proxy. If there are any, a request with another Uri-Host is refused with 4.04,
    /// unless the Uri-Host is an address.
    pub hosts: Vec<VirtualHost>,
    /// Maximum number of bytes of stored responses, including their cache keys.
    pub cache: usize,
    /// Maximum number of bytes of the stored responses that the requests of one client cause. Clients without a proved
    /// identity are counted by address.
    pub cache_of_client: usize,
    /// Maximum number of requests to all origins that may wait at the same time. Further requests are answered with
    /// 5.03. Also the maximum number of observations at origins. One client may begin at most an eighth of the
    /// observations that clients share. A client that wants to begin more receives only one response for each.
    pub max_open: usize,
    /// Maximum number of observations of one client whose registrations OSCORE protects. These observations have a
    /// separate limit, because clients cannot share them. A further registration is answered with 5.03. Clients
    /// without a proved identity are counted by address.
    pub protected_observations: usize,
    /// The Hop-Limit for a request that has none: the number of proxies that the request may still pass, at least 1
    /// (RFC 8768).
    pub hop_limit: u8,
    /// The name of the proxy in the diagnostic payload of 5.08 (RFC 8768, section 4). The name must not contain spaces.
    pub name: String,
    /// The certificates in DER of the authorities that may issue the certificates of HTTPS servers. Without an
    /// authority, the proxy contacts no HTTPS server.
    pub https_authorities: Vec<Vec<u8>>,
    /// The keys and limits with which the proxy sends requests to origins.
    pub client: ClientConfig,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        let client = ClientConfig::default().with(|config| {
            config.coap.timeout = Duration::from_secs(30);
            config.coap.max_body = 1 << 20;
            config.coap.max_queued = 64;
        });
        Self {
            targets: Vec::new(),
            reverse: Vec::new(),
            hosts: Vec::new(),
            cache: 64 << 20,
            cache_of_client: 8 << 20,
            max_open: 1024,
            protected_observations: 16,
            hop_limit: 16,
            name: "tegmen".to_owned(),
            https_authorities: Vec::new(),
            client,
        }
    }
}

impl ProxyConfig {
    /// Returns these settings after `change` has changed them.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`ProxyError::HopLimit`] or [`ProxyError::Name`], if RFC 8768 does not permit the Hop-Limit or the name.
    /// [`ProxyError::NoKey`] or [`ProxyError::NoAuthority`], if the proxy could never open a session with an origin.
    pub fn check(&self) -> Result<(), ProxyError> {
        if self.hop_limit == 0 {
            return Err(ProxyError::HopLimit);
        }
        // Spaces separate the names in the diagnostic payload.
        if self.name.contains(char::is_whitespace) {
            return Err(ProxyError::Name(self.name.clone()));
        }
        let has_key = self.client.trust.key.is_some() || self.client.trust.public_keys.is_some();
        let targets = self.targets.iter().map(|target| (target.scheme(), target.to_string()));
        let reverse = self.reverse.iter().map(|reverse| (reverse.route().scheme, format!("/{}", reverse.path)));
        let hosts = self.hosts.iter().filter_map(|host| Some((host.route()?.scheme, host.name().to_owned())));
        for (scheme, origin) in targets.chain(reverse).chain(hosts) {
            match scheme {
                TargetScheme::Coap(Scheme::Coaps) if !has_key => return Err(ProxyError::NoKey(origin)),
                TargetScheme::Https if self.https_authorities.is_empty() => {
                    return Err(ProxyError::NoAuthority(origin));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the settings of the client with which the proxy sends requests to origins. The client stores no session
    /// in a file, so that no other program can resume the sessions of the proxy. The client uses no OSCORE context.
    pub(super) fn client(&self) -> ClientConfig {
        let mut client = self.client.clone();
        client.oscore = None;
        client.state.session = None;
        client
    }

    pub(super) const fn room(&self) -> (Bounds, usize) {
        (Bounds { all: self.cache, each: self.cache_of_client }, self.max_open)
    }

    pub(super) fn allows(&self, scheme: TargetScheme, host: &str, port: u16) -> bool {
        self.targets.iter().any(|pattern| pattern.allows(scheme, host, port))
    }

    /// Returns the entry of [`Self::reverse`] to which `path` belongs. `path` has no leading slash. If `path` belongs
    /// to several entries, returns the entry with the longest path.
    pub(super) fn reverse_of(&self, path: &str) -> Option<&Reverse> {
        self.reverse.iter().filter(|reverse| reverse.has(path)).max_by_key(|reverse| reverse.path.len())
    }

    /// Returns the virtual host with this name in lower case.
    pub(super) fn host(&self, name: &str) -> Option<&VirtualHost> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// Answers 5.08 to a request that must not pass another proxy.
    pub(super) fn stop(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        request.because("the Hop-Limit is used up: the proxies may form a loop, so look at the origin of each of them");
        response.set_code(Code::HOP_LIMIT_REACHED);
        response.payload(self.name.as_bytes())
    }
}

/// The reason why a proxy cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// [`ProxyConfig::hop_limit`] is 0.
    #[error("the Hop-Limit of the proxy is 0: choose a number from 1 to 255, such as 16")]
    HopLimit,
    /// [`ProxyConfig::name`] contains a space.
    #[error("the name of the proxy, {0:?}, has a space: choose a name without spaces, such as \"tegmen\"")]
    Name(String),
    /// An origin has the scheme `coaps`, and the client of the proxy has no key and no authority.
    #[error("{0}: an origin with coaps needs --proxy-credentials, or --proxy-ca")]
    NoKey(String),
    /// An origin has the scheme `https`, and [`ProxyConfig::https_authorities`] is empty.
    #[error("{0}: an origin with https needs --proxy-ca")]
    NoAuthority(String),
    /// A certificate in [`ProxyConfig::https_authorities`] is not valid.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A path of a reverse proxy, and its origin. If the path is `/a`, the resource `/b` of the origin is `/a/b` at the
/// proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reverse {
    /// The path, without a leading slash; empty for all paths.
    path: String,
    origin: Authority,
}

/// The reason why a text is not a [`Reverse`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReverseError {
    /// The text does not have the form `/PATH=coap://host:port`.
    #[error("{0}: write it as /PATH=coap://host:port")]
    Form(String),
    /// The URI is not valid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The URI of the origin has a path or a query.
    #[error("{0}: an origin has no path; the proxy serves the resource /b of the origin at /PATH/b")]
    Path(String),
}

impl Reverse {
    fn has(&self, path: &str) -> bool {
        let behind = path.strip_prefix(self.path.as_str());
        self.path.is_empty() || behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/'))
    }

    pub(super) fn route(&self) -> Route<'_> {
        let Self { path, origin: Authority { scheme, host, port } } = self;
        let skipped = if path.is_empty() { 0 } else { path.split('/').count() };
        Route { scheme: TargetScheme::Coap(*scheme), host, port: *port, name: None, skipped, prefix: path }
    }

    /// Returns the path, without a leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for Reverse {
    type Err = ReverseError;

    fn from_str(text: &str) -> Result<Self, ReverseError> {
        let wrong = || ReverseError::Form(text.to_owned());
        let (path, uri) = text.split_once('=').ok_or_else(wrong)?;
        let path = path.strip_prefix('/').ok_or_else(wrong)?;
        if path.split('/').any(|part| part.is_empty() || part == "." || part == "..") && !path.is_empty() {
            return Err(wrong());
        }
        let origin = Authority::of(Uri::parse(uri)?).ok_or_else(|| ReverseError::Path(text.to_owned()))?;
        Ok(Self { path: path.to_owned(), origin })
    }
}
