//! `coap` and `coaps` URIs (RFC 7252, section 6).

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::str::FromStr;
use tegmen::identity::Protection;

/// The scheme of a URI. Its text is `coap` or `coaps`; upper case is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// CoAP over UDP (RFC 7252, section 6.1).
    Coap,
    /// CoAP over DTLS (RFC 7252, section 6.2).
    Coaps,
}

impl Scheme {
    /// Returns the default port of a URI with this scheme.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Coap => 5683,
            Self::Coaps => 5684,
        }
    }

    /// Returns the protection of a session with this scheme.
    pub(crate) const fn protection(self) -> Protection {
        match self {
            Self::Coap => Protection::Plain,
            Self::Coaps => Protection::Dtls,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Coap => "coap",
            Self::Coaps => "coaps",
        })
    }
}

/// The error that the scheme of a text is neither `coap` nor `coaps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the scheme is neither coap nor coaps")]
pub struct SchemeError;

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        match text {
            _ if text.eq_ignore_ascii_case("coap") => Ok(Self::Coap),
            _ if text.eq_ignore_ascii_case("coaps") => Ok(Self::Coaps),
            _ => Err(SchemeError),
        }
    }
}

/// A parsed URI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uri {
    /// The scheme, `coap` or `coaps`.
    pub scheme: Scheme,
    /// A host name, or an address without brackets.
    pub host: String,
    /// The port; 5683 or 5684 if the URI has none.
    pub port: u16,
    /// The path segments, decoded.
    pub path: Vec<String>,
    /// The query arguments, decoded.
    pub query: Vec<String>,
}

/// The reason why a text is not a valid URI.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{uri}: {problem}; a right one is coaps://host[:port]/path?query")]
pub struct UriError {
    uri: String,
    problem: &'static str,
}

impl Uri {
    /// Parses a URI.
    ///
    /// # Errors
    /// [`UriError`], whose text names the wrong part.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        let wrong = |problem| UriError { uri: text.to_owned(), problem };
        let (scheme, rest) = match (text.split_once("://"), text.split_once(':')) {
            (Some(parts), _) => parts,
            (None, Some(("coap" | "coaps", _))) => return Err(wrong("// is missing behind the scheme")),
            _ => return Err(wrong("the scheme is missing")),
        };
        let scheme: Scheme = scheme.parse().map_err(|SchemeError| wrong("the scheme is neither coap nor coaps"))?;
        let Behind { host, port, path, query } = Behind::parse(rest).map_err(wrong)?;
        Ok(Self { scheme, host, port: port.unwrap_or_else(|| scheme.default_port()), path, query })
    }
}

/// The parts of a URI after its scheme.
#[derive(Debug)]
pub(crate) struct Behind {
    /// The host, without brackets.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// The path segments, decoded.
    pub(crate) path: Vec<String>,
    /// The query arguments, decoded.
    pub(crate) query: Vec<String>,
}

impl Behind {
    /// Parses the text after `://`.
    ///
    /// # Errors
    /// The problem, as text.
    pub(crate) fn parse(rest: &str) -> Result<Self, &'static str> {
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("a space or control character is written with its code, a space as %20");
        }
        if rest.contains('#') {
            return Err("a fragment (#) cannot be asked for");
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err("user names are not part of CoAP; give the identity with --identity");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(literal) => {
                let (host, rest) = literal.split_once(']').ok_or("a ] is missing")?;
                let address = host.split_once('%').map_or(host, |(address, _)| address);
                if address.parse::<Ipv6Addr>().is_err() {
                    return Err("only an IPv6 address is in brackets");
                }
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':').ok_or("only a port with its colon may be behind ]")?)),
                }
            }
            None => match authority.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err("an IPv6 address must be in brackets"),
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err("the host is missing");
        }
        let port = match port {
            None | Some("") => None,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err("the port is not a number from 1 to 65535"),
            },
        };
        if host.parse().is_ok_and(|ip: Ipv6Addr| ip.is_unicast_link_local()) {
            return Err("an address fe80::... needs its interface, as in [fe80::1%eth0]");
        }
        let decode = |text| percent_decode(text).ok_or("a % is not followed by two hexadecimal digits");
        let path = match path {
            "" => Vec::new(),
            path => path.split('/').map(|part| decode(part).map(Cow::into_owned)).collect::<Result<_, _>>()?,
        };
        let query = match query {
            None | Some("") => Vec::new(),
            Some(query) => query.split('&').map(|part| decode(part).map(Cow::into_owned)).collect::<Result<_, _>>()?,
        };
        if path.iter().chain(&query).any(|part| part.len() > 255) {
            return Err("a segment or argument has more than 255 bytes");
        }
        Ok(Self { host: host.replace("%25", "%"), port, path, query })
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme;
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}/{}", self.host, self.port, self.path.join("/"))
    }
}

/// Returns a path in the form of a URI (RFC 3986, section 3.3). Every byte that a segment must encode becomes `%XX`, so
/// a peer cannot forge other parts of a line of a log.
pub fn encoded_path(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            shown.push(char::from(byte));
        } else {
            let _ = write!(shown, "%{byte:02X}");
        }
    }
    shown
}

/// Replaces each `%` and the two hexadecimal digits after it with the byte that they encode. Returns `None` if two
/// hexadecimal digits do not follow a `%`, or if the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(text.into());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.extend(crate::hex::from_hex(std::str::from_utf8(digits).ok()?)?);
            rest = behind;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
