//! The target of a request to a proxy (RFC 7252, section 5.7).
//!
//! The policy, the observers, the log and the proxy use one path for the resource of a request to a proxy:
//! `/proxy/coap/host:port/a/b` is `/a/b` of `coap://host:port`. The host name is in lower case, the port is always
//! present, and an IPv6 address has brackets. `/proxy/host/name/a` is `/a` of the virtual host `name` of a reverse
//! proxy: see [`VirtualHosts`].

use crate::digest::sha256_of;
use crate::hex::to_hex;
use crate::request_uri::{self, InvalidUri};
use crate::uri::{Behind, Scheme, SchemeError};
use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageRef, OptionNumber, Request};

/// The first segment of the path of each resource that is reached through the proxy.
pub(crate) const PREFIX: &str = "proxy";
/// The second segment of the path of each resource of a virtual host. In the path of every other target the second
/// segment is the scheme, and no scheme is called `host`.
const VIRTUAL: &str = "host";
/// Maximum total number of bytes of a request without its payload, for [`VirtualHosts::decide_on`].
const LONGEST: usize = 2048;
/// Maximum number of bytes of a host (RFC 7252, section 5.10).
const LONGEST_HOST: usize = 255;
/// Maximum number of bytes that [`Target::write_prefix`] writes: [`PREFIX`], the scheme, the host, the port and the
/// separators.
const LONGEST_PREFIX: usize = PREFIX.len() + LONGEST_HOST + 24;

/// The scheme of a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum TargetScheme {
    Coap(Scheme),
    /// HTTP without TLS (RFC 7252, section 10.1), with the feature `http`.
    Http,
    /// HTTP with TLS, with the feature `http`.
    Https,
}

impl TargetScheme {
    /// Returns the default port of a URI with this scheme.
    pub(crate) const fn default_port(self) -> u16 {
        match self {
            Self::Coap(scheme) => scheme.default_port(),
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl FromStr for TargetScheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        match text {
            _ if cfg!(feature = "http") && text.eq_ignore_ascii_case("http") => Ok(Self::Http),
            _ if cfg!(feature = "http") && text.eq_ignore_ascii_case("https") => Ok(Self::Https),
            _ => text.parse().map(Self::Coap),
        }
    }
}

impl fmt::Display for TargetScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coap(scheme) => scheme.fmt(f),
            Self::Http => f.pad("http"),
            Self::Https => f.pad("https"),
        }
    }
}

/// The server of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The server that a request to a forward proxy names, with its scheme and port.
    At(TargetScheme, u16),
    /// A virtual host of a reverse proxy.
    Virtual,
}

/// The target of a request.
pub(crate) struct Target<'m> {
    pub(crate) place: Place,
    /// The host in the form that [`canonical`] returns, without brackets.
    pub(crate) host: Cow<'m, str>,
    /// The parts of the URI in Proxy-Uri. `None` if the request has no Proxy-Uri: path and query are then in the
    /// options of the request.
    pub(crate) uri: Option<Behind>,
}

/// The virtual hosts of a server (RFC 7252, section 5.7.3). The default has no virtual hosts: each Uri-Host is a name
/// of the server itself.
#[derive(Clone, Debug, Default)]
pub struct VirtualHosts(Option<Arc<[String]>>);

impl VirtualHosts {
    /// Makes every Uri-Host the name of a virtual host, except IP addresses and the names in `own`, which are names of
    /// the server itself. The names in `own` are in lower case.
    pub(crate) fn except(own: impl IntoIterator<Item = String>) -> Self {
        Self(Some(own.into_iter().collect()))
    }

    /// Returns the target that a request names: with Proxy-Uri, with Proxy-Scheme and Uri-Host, or with the Uri-Host of
    /// a virtual host. Returns `None` if the request names no target. A request without Uri-Host is for the server
    /// itself (RFC 7252, sections 5.7.2 and 5.10.1).
    ///
    /// # Errors
    /// 4.00 if the target is not valid, 5.05 if its scheme is not a [`TargetScheme`] (section 5.10.2).
    pub(crate) fn named<'m>(&self, message: &MessageRef<'m>) -> Option<Result<Target<'m>, Code>> {
        if !message.may_have_unprotected() {
            return None;
        }
        if let Some(uri) = message.option(OptionNumber::PROXY_URI) {
            return Some(of_uri(uri));
        }
        let host = message.option(OptionNumber::URI_HOST)?;
        match message.option(OptionNumber::PROXY_SCHEME) {
            Some(scheme) => Some(of_parts(scheme, host, message)),
            None => self.of_host(host),
        }
    }

    fn of_host<'m>(&self, host: &'m [u8]) -> Option<Result<Target<'m>, Code>> {
        let own = self.0.as_ref()?;
        let host = read_host(host);
        if host.is_ok_and(|host| host.parse::<IpAddr>().is_ok()) {
            return None;
        }
        match host.and_then(canonical) {
            Ok(host) if own.iter().any(|own| *own == *host) => None,
            host => Some(host.map(|host| Target { place: Place::Virtual, host, uri: None })),
        }
    }

    /// Reads the path of a request into `path`, replacing its content. The path has no leading slash. If the request
    /// names a target, the path begins with `proxy`. If the request names none, this function reads the path as
    /// [`request_uri::read`] does.
    ///
    /// # Errors
    /// [`InvalidUri`] if the path or the target is not valid.
    #[inline]
    pub(crate) fn read_path(&self, message: &MessageRef<'_>, path: &mut String) -> Result<(), InvalidUri> {
        match self.named(message) {
            None => request_uri::read(message, path),
            Some(target) => read_proxied(target, message, path),
        }
    }

    /// Lets a policy decide on a request. If the request names a target, the policy sees a path that begins with
    /// `/proxy`. So a right to a path of this server is not a right to the same path of another server.
    #[inline]
    pub(crate) fn decide_on(
        &self,
        request: &Request<'_>,
        decide: impl FnOnce(&Request<'_>) -> Option<bool>,
    ) -> Option<bool> {
        match self.named(&request.message) {
            None => decide(request),
            Some(target) => decide_on_proxied(target, request, decide),
        }
    }

    /// Adds a suffix to a path from [`Self::read_path`], if OSCORE protects the request for another server. OSCORE
    /// hides the path of such a request, so all these requests would have the same path. The suffix is `/../` and a
    /// digest of the request. Each registration has a different ciphertext, and therefore a different suffix. So the
    /// path distinguishes the observations. No request can name a path with this suffix, because a segment `..` is not
    /// valid.
    pub(crate) fn distinguish(&self, message: &MessageRef<'_>, path: &mut String) {
        if let Some(option) = message.option(OptionNumber::OSCORE)
            && self.named(message).is_some()
            && let [digest, ..] = sha256_of(&[&[option.len() as u8], option, message.payload()]).as_chunks::<16>().0
        {
            path.push_str("/../");
            path.push_str(&to_hex(digest));
        }
    }
}

/// Returns the reason why the target of a request is refused with `code`, and the target. A query and a user name are
/// left out, because they can contain secrets.
pub(crate) fn refusal(message: &MessageRef<'_>, code: Code) -> String {
    let text = |number| String::from_utf8_lossy(message.option(number).unwrap_or_default());
    let target = match message.option(OptionNumber::PROXY_URI) {
        Some(_) => text(OptionNumber::PROXY_URI),
        None => format!("{}://{}", text(OptionNumber::PROXY_SCHEME), text(OptionNumber::URI_HOST)).into(),
    };
    let shown = target.split(['?', '#']).next().and_then(|uri| uri.rsplit('@').next()).unwrap_or_default();
    match code {
        Code::PROXYING_NOT_SUPPORTED => {
            format!("{shown}: a proxy forwards only coap, coaps, http and https, and not to multicast addresses")
        }
        _ => format!("{shown} is not a valid target: write it as coap://HOST:PORT/PATH"),
    }
}

fn of_uri<'m>(uri: &[u8]) -> Result<Target<'m>, Code> {
    let text = std::str::from_utf8(uri).map_err(|_| Code::BAD_REQUEST)?;
    let (scheme, rest) = text.split_once(':').ok_or(Code::BAD_REQUEST)?;
    let scheme: TargetScheme = scheme.parse().map_err(|_| Code::PROXYING_NOT_SUPPORTED)?;
    let rest = rest.strip_prefix("//").ok_or(Code::BAD_REQUEST)?;
    let uri = Behind::parse(rest).map_err(|_| Code::BAD_REQUEST)?;
    let host = canonical(&uri.host)?.into_owned();
    let port = uri.port.unwrap_or_else(|| scheme.default_port());
    Ok(Target { place: Place::At(scheme, port), host: host.into(), uri: Some(uri) })
}

fn of_parts<'m>(scheme: &[u8], host: &'m [u8], message: &MessageRef<'m>) -> Result<Target<'m>, Code> {
    let scheme = std::str::from_utf8(scheme).map_err(|_| Code::BAD_REQUEST)?;
    let scheme: TargetScheme = scheme.parse().map_err(|_| Code::PROXYING_NOT_SUPPORTED)?;
    let host = read_host(host).and_then(canonical)?;
    let port = match message.option(OptionNumber::URI_PORT) {
        None => scheme.default_port(),
        Some(value) => {
            let port = tegmen::coap::uint(value).and_then(|port| u16::try_from(port).ok());
            port.filter(|port| *port > 0).ok_or(Code::BAD_REQUEST)?
        }
    };
    Ok(Target { place: Place::At(scheme, port), host, uri: None })
}

/// Reads the value of Uri-Host. Removes the brackets of an IPv6 address.
fn read_host(host: &[u8]) -> Result<&str, Code> {
    let host = std::str::from_utf8(host).map_err(|_| Code::BAD_REQUEST)?;
    Ok(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// Returns the canonical form of a host: a name in lower case, or an IPv6 address in its short form.
///
/// # Errors
/// 4.00 for a host with characters that have a meaning in a URI or a path. 4.00 also for an address with a zone,
/// because the zone would select an interface of the proxy. 5.05 for a multicast address, because the proxy sends no
/// requests to groups.
pub(crate) fn canonical(host: &str) -> Result<Cow<'_, str>, Code> {
    let is_other = |c: char| c.is_whitespace() || c.is_control() || "/?#@[]%\\".contains(c);
    if host.is_empty() || host.len() > LONGEST_HOST || host.contains(is_other) {
        return Err(Code::BAD_REQUEST);
    }
    if host.contains(':') {
        let address: Ipv6Addr = host.parse().map_err(|_| Code::BAD_REQUEST)?;
        if address.to_canonical().is_multicast() {
            return Err(Code::PROXYING_NOT_SUPPORTED);
        }
        return Ok(address.to_string().into());
    }
    if host.parse().is_ok_and(|address: Ipv4Addr| address.is_multicast() || address.is_broadcast()) {
        return Err(Code::PROXYING_NOT_SUPPORTED);
    }
    Ok(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => host.to_ascii_lowercase().into(),
        false => host.into(),
    })
}

impl Target<'_> {
    /// Writes the path that the policy uses for the server of the target, without a leading slash. The path of the
    /// resource at this server is not included. Allocates no memory.
    fn write_prefix<'s>(&self, storage: &'s mut [u8; LONGEST_PREFIX]) -> &'s str {
        let Self { place, host, .. } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        let mut rest = storage.as_mut_slice();
        // The longest host fits.
        let _ = match place {
            Place::At(scheme, port) => write!(rest, "{PREFIX}/{scheme}/{open}{host}{close}:{port}"),
            Place::Virtual => write!(rest, "{PREFIX}/{VIRTUAL}/{host}"),
        };
        let left = rest.len();
        let written = storage.get(..LONGEST_PREFIX - left).unwrap_or(&[]);
        std::str::from_utf8(written).unwrap_or(PREFIX)
    }

    /// True if `path` is the path of the target, or of a resource below the target. The proxy checks with this function
    /// that the policy of the server decided on the path of this target.
    pub(crate) fn has(&self, path: &str) -> bool {
        let behind = path.strip_prefix(self.write_prefix(&mut [0; LONGEST_PREFIX]));
        behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/'))
    }

    /// Writes the request with path and query as options, and without the options that name the target. `before` writes
    /// the first segments of the path.
    pub(crate) fn write_request(
        &self,
        message: &MessageRef<'_>,
        frame: &mut Frame<'_>,
        before: impl Fn(&mut Builder<'_, '_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        let (message_type, code) = (message.message_type(), message.code());
        let mut builder = Builder::new(frame, message_type, code, message.message_id(), message.token())?;
        let names_target = |number| {
            let number: OptionNumber = number;
            matches!(
                number,
                OptionNumber::URI_HOST | OptionNumber::URI_PORT | OptionNumber::PROXY_URI | OptionNumber::PROXY_SCHEME
            ) || self.uri.is_some() && matches!(number, OptionNumber::URI_PATH | OptionNumber::URI_QUERY)
        };
        let (mut has_before, mut has_path, mut has_query) = (false, self.uri.is_none(), self.uri.is_none());
        let mut put_until = |builder: &mut Builder<'_, '_>, next: u16| {
            if !has_before && next >= OptionNumber::URI_PATH.0 {
                has_before = true;
                before(builder)?;
            }
            let path =
                self.uri.iter().flat_map(|uri| &uri.path).filter(|_| !has_path && next > OptionNumber::URI_PATH.0);
            path.into_iter().try_for_each(|value| builder.option(OptionNumber::URI_PATH, value.as_bytes()))?;
            has_path |= next > OptionNumber::URI_PATH.0;
            let query =
                self.uri.iter().flat_map(|uri| &uri.query).filter(|_| !has_query && next > OptionNumber::URI_QUERY.0);
            query.into_iter().try_for_each(|value| builder.option(OptionNumber::URI_QUERY, value.as_bytes()))?;
            has_query |= next > OptionNumber::URI_QUERY.0;
            Ok(())
        };
        for (number, value) in message.options().filter(|(number, _)| !names_target(*number)) {
            put_until(&mut builder, number.0)?;
            builder.option(number, value)?;
        }
        put_until(&mut builder, u16::MAX)
    }
}

fn read_proxied(
    target: Result<Target<'_>, Code>,
    message: &MessageRef<'_>,
    path: &mut String,
) -> Result<(), InvalidUri> {
    // The proxy refuses a target that is not valid.
    let Ok(target) = target else {
        path.clear();
        path.push_str(PREFIX);
        return Ok(());
    };
    let mut storage = [0; LONGEST];
    let mut frame = Frame::new(&mut storage, 0);
    let written = target.write_request(message, &mut frame, |_| Ok(()));
    let written = written.map_err(|_| InvalidUri::Slash).and_then(|()| {
        let message = MessageRef::parse(frame.bytes()).map_err(|_| InvalidUri::Slash)?;
        request_uri::read(&message, path)
    });
    if !path.is_empty() {
        path.insert(0, '/');
    }
    path.insert_str(0, target.write_prefix(&mut [0; LONGEST_PREFIX]));
    written
}

fn decide_on_proxied(
    target: Result<Target<'_>, Code>,
    request: &Request<'_>,
    decide: impl FnOnce(&Request<'_>) -> Option<bool>,
) -> Option<bool> {
    let mut storage = [0; LONGEST];
    let mut frame = Frame::new(&mut storage, 0);
    let message = &request.message;
    let written = match &target {
        // The proxy refuses it, if the policy lets it.
        Err(_) => {
            Builder::new(&mut frame, message.message_type(), message.code(), message.message_id(), message.token())
                .and_then(|mut builder| builder.option(OptionNumber::URI_PATH, PREFIX.as_bytes()))
        }
        Ok(target) => {
            let mut storage = [0; LONGEST_PREFIX];
            let prefix = target.write_prefix(&mut storage);
            target.write_request(message, &mut frame, |builder| builder.path(prefix))
        }
    };
    match (written, MessageRef::parse(frame.bytes())) {
        (Ok(()), Ok(shown)) => decide(&Request::new(shown.with_body(message.payload()), request.identity)),
        // Longer than a policy is shown.
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests;
