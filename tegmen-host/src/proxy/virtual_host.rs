//! The virtual hosts of a reverse proxy (RFC 7252, section 5.7.3).

use super::Route;
use crate::target::{TargetScheme, VirtualHosts, canonical};
use crate::uri::{Scheme, Uri, UriError};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A host of a reverse proxy, and its origin. The Uri-Host option of a request names the host. The resource `/a` of the
/// host is `/a` of the origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualHost {
    /// The name, in lower case.
    name: String,
    /// The origin; `None` for a name of the server itself.
    origin: Option<Authority>,
}

/// The server that a URI names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Authority {
    pub(super) scheme: Scheme,
    /// The host, in lower case and without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// The reason why a text is not a [`VirtualHost`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VirtualHostError {
    /// The text has neither the form `NAME=coap://host:port` nor the form `NAME=`.
    #[error("{0}: write it as NAME=coap://host:port, or as NAME= for a name of this server itself")]
    Form(String),
    /// The name is not valid, or is an address.
    #[error("{0}: the name of a host is neither an address, nor empty, and has no / ? # @ [ ] % or space")]
    Name(String),
    /// The URI is not valid.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The URI has a path or a query.
    #[error("{0}: an origin has no path; the proxy serves the resource /a of the origin at /a of this host")]
    Path(String),
}

impl VirtualHost {
    /// Returns the name, in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the route to the origin of this host; `None` for the server itself. If the URI of the origin contains an
    /// IP address, the origin receives the name of this host in Uri-Host.
    pub(super) fn route(&self) -> Option<Route<'_>> {
        let Authority { scheme, host, port } = self.origin.as_ref()?;
        let name = host.parse::<IpAddr>().is_ok().then_some(self.name.as_str());
        Some(Route { scheme: TargetScheme::Coap(*scheme), host, port: *port, name, skipped: 0, prefix: "" })
    }

    /// Returns the virtual hosts of a server. If `hosts` is empty, every Uri-Host is a name of the server itself.
    pub(super) fn all(hosts: &[Self]) -> VirtualHosts {
        let own = hosts.iter().filter(|host| host.origin.is_none()).map(|host| host.name.clone());
        match hosts.is_empty() {
            true => VirtualHosts::default(),
            false => VirtualHosts::except(own),
        }
    }
}

impl Authority {
    /// Returns the server that a URI names; `None` if the URI has a path or a query.
    pub(super) fn of(uri: Uri) -> Option<Self> {
        if uri.path.iter().any(|part| !part.is_empty()) || !uri.query.is_empty() {
            return None;
        }
        let host = match uri.host.parse::<Ipv6Addr>() {
            Ok(address) => address.to_string(),
            Err(_) => uri.host.to_ascii_lowercase(),
        };
        Some(Self { scheme: uri.scheme, host, port: uri.port })
    }
}

impl FromStr for VirtualHost {
    type Err = VirtualHostError;

    fn from_str(text: &str) -> Result<Self, VirtualHostError> {
        let (name, uri) = text.split_once('=').ok_or_else(|| VirtualHostError::Form(text.to_owned()))?;
        let wrong = || VirtualHostError::Name(text.to_owned());
        let name = canonical(name).map_err(|_| wrong())?.into_owned();
        if name.parse::<IpAddr>().is_ok() {
            return Err(wrong());
        }
        let path = || VirtualHostError::Path(text.to_owned());
        let origin = match uri.is_empty() {
            true => None,
            false => Some(Authority::of(Uri::parse(uri)?).ok_or_else(path)?),
        };
        Ok(Self { name, origin })
    }
}

#[cfg(test)]
mod tests;
