//! Patterns of the servers to which a proxy forwards.

use crate::target::TargetScheme;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A pattern of servers: `coap://sensor.local`, `coaps://*.example.org:5684`, `coap://[2001:db8::1]:*`. A host that
/// begins with `*.` matches all names with this ending, and `*` matches all hosts. A port `*` matches all ports.
/// Without a port, the pattern has the default port of the scheme. With the feature `http` the scheme may also be
/// `http` or `https`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    scheme: TargetScheme,
    host: Host,
    /// The port; `None` matches all ports.
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Host {
    All,
    /// All names that end with this text. The text begins with a dot.
    Below(String),
    One(String),
}

/// The reason why a text is not a [`Pattern`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{text}: write a pattern of servers as coap://sensor.local, coaps://*.example.org:5684 or coap://[2001:db8::1]:*"
)]
pub struct PatternError {
    text: String,
}

impl Pattern {
    pub(super) const fn scheme(&self) -> TargetScheme {
        self.scheme
    }

    /// True if the pattern matches the server at this host and port. The host must be in lower case.
    pub(super) fn allows(&self, scheme: TargetScheme, host: &str, port: u16) -> bool {
        let has_host = match &self.host {
            Host::All => true,
            Host::Below(end) => host.len() > end.len() && host.ends_with(end.as_str()),
            Host::One(one) => one == host,
        };
        has_host && self.scheme == scheme && self.port.is_none_or(|one| one == port)
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        parse(text).ok_or_else(|| PatternError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Pattern> {
    let (scheme, authority) = text.split_once("://")?;
    let scheme: TargetScheme = scheme.parse().ok()?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.strip_prefix('[') {
        Some(literal) => {
            let (host, behind) = literal.split_once(']')?;
            (
                host.parse::<Ipv6Addr>().ok()?.to_string(),
                if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) },
            )
        }
        None => {
            let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
            (host.to_ascii_lowercase(), port)
        }
    };
    let port = match port {
        None => Some(scheme.default_port()),
        Some("*") => None,
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
    };
    let is_name =
        |name: &str| !name.is_empty() && !name.contains(|c: char| "/?#@[]%*\\".contains(c) || c.is_whitespace());
    let host = match host.strip_prefix('*') {
        Some("") => Host::All,
        Some(end) if is_name(end.strip_prefix('.')?) => Host::Below(end.to_owned()),
        None if is_name(&host) => Host::One(host),
        _ => return None,
    };
    Some(Pattern { scheme, host, port })
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match &self.host {
            Host::All => f.write_str("*")?,
            Host::Below(end) => write!(f, "*{end}")?,
            Host::One(one) if one.contains(':') => write!(f, "[{one}]")?,
            Host::One(one) => f.write_str(one)?,
        }
        match self.port {
            None => f.write_str(":*"),
            Some(port) => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests;
