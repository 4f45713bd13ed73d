//! The settings of a proxy.

use super::memory::Bounds;
use super::virtual_host::{Authority, VirtualHost};
use super::{Pattern, Route};
use crate::client::ClientConfig;
use crate::target::TargetScheme;
use crate::uri::{Uri, UriError};
use std::str::FromStr;
use std::time::Duration;
use tegmen::coap::{Code, Response};

/// The settings of a proxy. Take the default ones, which forward nothing, and change fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxyConfig {
    /// The servers to which the forward proxy forwards; a request for another one is refused with 4.03.
    pub targets: Vec<Pattern>,
    /// The paths of the reverse proxy.
    pub reverse: Vec<Reverse>,
    /// The virtual hosts of the reverse proxy. If there are any, a request with another Uri-Host, which is no address, is refused with 4.04.
    pub hosts: Vec<VirtualHost>,
    /// The most bytes of stored responses with their keys.
    pub cache: usize,
    /// The most bytes of these that the requests of one client may be the cause of. Clients that prove nothing count by address.
    pub cache_of_client: usize,
    /// Requests to all origins that may wait at once; further ones are answered with 5.03.
    pub max_open: usize,
    /// The most observations of one client whose registrations OSCORE protects: the proxy cannot share them. A further registration is
    /// answered with 5.03. Clients that prove nothing count by address.
    pub protected_observations: usize,
    /// The Hop-Limit of a request that comes without one, at least 1: proxies that it may still pass (RFC 8768).
    pub hop_limit: u8,
    /// The name of the proxy in the diagnostic of 5.08 (RFC 8768, section 4).
    pub name: String,
    /// The authorities of HTTPS servers, each a certificate in DER; without one no such server is asked.
    pub https_authorities: Vec<Vec<u8>>,
    /// The keys and the limits with which the proxy asks origins.
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
    /// Returns these settings with a change.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The settings of the client that asks origins. Other clients must not use the sessions of the proxy, so no file of a
    /// client is used, and requests are never protected with a context of the proxy.
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

    /// Returns the origin of a path without a slash in front: that with the longest path.
    pub(super) fn reverse_of(&self, path: &str) -> Option<&Reverse> {
        self.reverse.iter().filter(|reverse| reverse.has(path)).max_by_key(|reverse| reverse.path.len())
    }

    /// Returns the virtual host with this name, which is in lower case.
    pub(super) fn host(&self, name: &str) -> Option<&VirtualHost> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// Answers a request that may pass no further proxy.
    pub(super) fn stop(&self, response: &mut Response<'_, '_>) -> Result<(), Code> {
        response.set_code(Code::HOP_LIMIT_REACHED);
        response.payload(self.name.as_bytes())
    }
}

/// A path of a reverse proxy, and its origin. The resource `/b` of the origin is `/a/b` at the proxy if the path is `/a`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reverse {
    /// Without a slash in front; empty for all paths.
    path: String,
    origin: Authority,
}

/// The reason why a text is not a [`Reverse`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReverseError {
    /// It has another form.
    #[error("{0}: write it as /PATH=coap://host:port")]
    Form(String),
    /// The URI is not valid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The URI has a path or a query.
    #[error("{0}: an origin has no path; its resource /b is /PATH/b here")]
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

    /// Returns the path, without a slash in front.
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
