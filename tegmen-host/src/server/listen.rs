//! The addresses at which a server listens.

use crate::uri::Scheme;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// One address at which the server listens. Its text form is, for example, `coaps://127.0.0.1:5684`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// The address and the port; port 0 takes any free port.
    pub address: SocketAddr,
    /// The scheme: `coaps` for DTLS, `coap` for CoAP in clear.
    pub scheme: Scheme,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.address)
    }
}

/// The error that a text is not a listening address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0}: no address to listen at; write coaps:// or coap://, an IP address of this machine and its port, as in coaps://127.0.0.1:5684 or coap://[::]:5683"
)]
pub struct ListenError(String);

impl FromStr for Listen {
    type Err = ListenError;

    /// Reads an address. Without a port, the port is 5684 for `coaps` and 5683 for `coap` (RFC 7252, section 6.1).
    fn from_str(text: &str) -> Result<Self, ListenError> {
        let wrong = || ListenError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme: Scheme = scheme.parse().map_err(|_| wrong())?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let literal = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let ip =
            literal.map_or_else(|| rest.parse().map(IpAddr::V4).ok(), |literal| literal.parse().map(IpAddr::V6).ok());
        let address = ip.map(|ip| SocketAddr::new(ip, scheme.default_port())).or_else(|| rest.parse().ok());
        Ok(Self { address: address.ok_or_else(wrong)?, scheme })
    }
}

#[cfg(test)]
mod tests;
