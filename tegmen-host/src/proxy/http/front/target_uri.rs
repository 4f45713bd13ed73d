//! The CoAP URI in the path of an HTTP request, by the default mapping of URIs (RFC 8075, section 5.3).

use super::refusal::Refusal;
use crate::client;
use crate::uri::{Scheme, Uri, encoded_path, percent_decode};
use hyper::StatusCode;
use std::borrow::Cow;
use std::fmt::Write as _;
use tegmen::coap::OptionNumber;

/// The beginning of each path at the HTTP listener. A CoAP URI follows it.
const BASE: &str = "/hc/";
/// Maximum number of bytes of a Proxy-Uri (RFC 7252, section 5.10).
const LONGEST: usize = 1034;

/// The target of an HTTP request.
#[derive(Debug)]
pub(super) struct Target {
    /// The CoAP URI with path and query.
    pub(super) uri: String,
    /// The beginning of the path of each resource of the CoAP server at the HTTP listener: `/hc/SCHEME://HOST:PORT`.
    server: String,
}

impl Target {
    /// Reads the target of an HTTP request. The CoAP URI follows `/hc/`. It may have one slash in place of two after
    /// its scheme, or be percent-encoded as a whole.
    ///
    /// # Errors
    /// 404 for another path, 414 for a URI of more than 1,034 bytes, 400 for a URI that is not valid.
    pub(super) fn read(path: &str, query: Option<&str>) -> Result<Self, Refusal> {
        let wrong = |why: &str| {
            Refusal::new(StatusCode::BAD_REQUEST, format!("{why}; the path is {BASE}coap://host[:port]/path?query"))
        };
        let Some(text) = path.strip_prefix(BASE) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, format!("resources are below {BASE}coap://host[:port]")));
        };
        let decoded = match scheme_of(text) {
            Some(_) => Cow::Borrowed(text),
            None => percent_decode(text).ok_or_else(|| wrong("the target is not UTF-8"))?,
        };
        let (scheme, rest) = scheme_of(&decoded).ok_or_else(|| wrong("the target is no URI of CoAP"))?;
        let rest = rest.strip_prefix('/').ok_or_else(|| wrong("the target has no host"))?;
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let (authority, behind) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let mut uri = format!("{scheme}://{}{behind}", with_brackets(authority));
        if let Some(query) = query {
            uri.push('?');
            uri.push_str(query);
        }
        if uri.len() > LONGEST {
            let why = format!("a target has {LONGEST} bytes at most");
            return Err(Refusal::new(StatusCode::URI_TOO_LONG, why));
        }
        let parsed = Uri::parse(&uri).map_err(|error| wrong(&error.to_string()))?;
        let (open, close) = if parsed.host.contains(':') { ("%5B", "%5D") } else { ("", "") };
        let server = format!("{BASE}{scheme}://{open}{}{close}:{}", encoded_path(&parsed.host), parsed.port);
        Ok(Self { uri, server })
    }

    /// Returns the Location header for the resource that the response names; `None` if the response names no resource
    /// (RFC 7252, section 5.10.7).
    pub(super) fn location(&self, response: &client::Response) -> Option<String> {
        let values = |wanted| response.options().filter(move |(number, _)| *number == wanted).map(|(_, value)| value);
        let mut location = self.server.clone();
        for segment in values(OptionNumber::LOCATION_PATH) {
            let _ = write!(location, "/{}", encoded(segment));
        }
        for (index, argument) in values(OptionNumber::LOCATION_QUERY).enumerate() {
            let _ = write!(location, "{}{}", if index == 0 { '?' } else { '&' }, encoded(argument).replace('&', "%26"));
        }
        (location != self.server).then_some(location)
    }
}

/// Splits a URI after the colon of its scheme. Returns `None` if the scheme is not a scheme of CoAP.
fn scheme_of(text: &str) -> Option<(Scheme, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    Some((scheme.parse().ok()?, rest))
}

/// Returns an authority with the brackets of an IPv6 address. In the path of an HTTP URI these brackets are
/// percent-encoded (RFC 8075, section 5.3.2).
fn with_brackets(authority: &str) -> Cow<'_, str> {
    match authority.get(..3) {
        Some(start) if start.eq_ignore_ascii_case("%5B") => {
            authority.replace("%5B", "[").replace("%5b", "[").replace("%5D", "]").replace("%5d", "]").into()
        }
        _ => authority.into(),
    }
}

/// Returns the value of an option, encoded as a path segment.
fn encoded(value: &[u8]) -> String {
    encoded_path(&String::from_utf8_lossy(value)).replace('/', "%2F")
}

#[cfg(test)]
mod tests;
