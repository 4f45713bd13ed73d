//! Maps HTTP requests to CoAP requests (RFC 7252, section 10.2; RFC 8075; RFC 8132 for PATCH).

use super::refusal::Refusal;
use super::target_uri::Target;
use crate::hex::from_hex;
use crate::proxy::http::media;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Version};
use tegmen::coap::{Code, OptionNumber, uint_bytes};

/// Maximum number of entity tags that the proxy forwards for one condition.
const TAGS: usize = 8;

/// A request to the proxy, without its body.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) method: Code,
    pub(super) options: Vec<(OptionNumber, Vec<u8>)>,
}

impl Mapped {
    /// Maps an HTTP request without its body to a CoAP request.
    ///
    /// # Errors
    /// The HTTP response to a request that CoAP cannot carry.
    pub(super) fn of(head: &Parts, target: &Target) -> Result<Self, Refusal> {
        // Browsers let each page send requests to any host, and name the page here.
        if head.headers.contains_key(header::ORIGIN) {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "requests of web pages (Origin) are not forwarded"));
        }
        let mut mapped = Self { method: method(&head.method)?, options: Vec::new() };
        mapped.add(OptionNumber::PROXY_URI, target.uri.as_bytes());
        mapped.add_conditions(&head.headers)?;
        mapped.add_formats(&head.headers)?;
        Ok(mapped)
    }

    /// True if the request has a body. The body of GET and DELETE is ignored, because it has no meaning in HTTP or
    /// CoAP.
    pub(super) const fn has_body(&self) -> bool {
        !matches!(self.method, Code::GET | Code::DELETE)
    }

    /// True if a header of the HTTP request became a critical option.
    pub(super) fn has_critical(&self) -> bool {
        self.options.iter().any(|(number, _)| number.is_critical() && *number != OptionNumber::PROXY_URI)
    }

    fn add(&mut self, number: OptionNumber, value: &[u8]) {
        self.options.push((number, value.to_vec()));
    }

    fn add_uint(&mut self, number: OptionNumber, value: u16) {
        self.add(number, uint_bytes(value.into(), &mut [0; 4]));
    }

    /// Adds ETag, If-Match and If-None-Match (RFC 7252, sections 5.10.6 and 5.10.8).
    fn add_conditions(&mut self, headers: &HeaderMap) -> Result<(), Refusal> {
        match Condition::read(headers, header::IF_NONE_MATCH) {
            None => {}
            Some(Condition::Tags(tags)) if self.method == Code::GET => {
                tags.iter().for_each(|tag| self.add(OptionNumber::ETAG, tag));
            }
            Some(Condition::Any) if self.method != Code::GET => self.add(OptionNumber::IF_NONE_MATCH, &[]),
            Some(_) => {
                let why =
                    "If-None-Match has entity tags in GET and HEAD, and * in other requests: CoAP knows nothing else";
                return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, why));
            }
        }
        match Condition::read(headers, header::IF_MATCH) {
            None => {}
            Some(Condition::Any) => self.add(OptionNumber::IF_MATCH, &[]),
            Some(Condition::Tags(tags)) if tags.is_empty() => {
                return Err(Refusal::new(StatusCode::PRECONDITION_FAILED, "If-Match has no entity tag of this proxy"));
            }
            Some(Condition::Tags(tags)) => tags.iter().for_each(|tag| self.add(OptionNumber::IF_MATCH, tag)),
        }
        Ok(())
    }

    /// Adds Content-Format and Accept (RFC 8075, section 6).
    fn add_formats(&mut self, headers: &HeaderMap) -> Result<(), Refusal> {
        let unsupported = |why| Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        let is_coded = |value: &str| !value.trim().eq_ignore_ascii_case("identity");
        if self.has_body() && texts(headers, header::CONTENT_ENCODING).any(is_coded) {
            return unsupported("CoAP has no Content-Encoding");
        }
        match headers.get(header::CONTENT_TYPE).filter(|_| self.has_body()) {
            None => {}
            Some(value) => match value.to_str().ok().and_then(media::content_format) {
                Some(format) => self.add_uint(OptionNumber::CONTENT_FORMAT, format),
                None => return unsupported("the Content-Type has no Content-Format of CoAP"),
            },
        }
        if let Some(format) = media::accepted(texts(headers, header::ACCEPT)) {
            self.add_uint(OptionNumber::ACCEPT, format);
        }
        Ok(())
    }
}

/// Checks the header Host. A request has at most one, with the name of a server as its value or with an empty value. A
/// request with HTTP/1.1 always has one.
///
/// # Errors
/// 400 (RFC 9112, section 3.2).
pub(super) fn check_host(head: &Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let is_valid = match (hosts.next(), hosts.next()) {
        (None, _) => head.version < Version::HTTP_11,
        (Some(host), None) => host.is_empty() || is_authority(host.as_bytes()),
        (Some(_), Some(_)) => false,
    };
    match is_valid {
        true => Ok(()),
        false => {
            Err(Refusal::new(StatusCode::BAD_REQUEST, "a request has one header Host, with the name of this server"))
        }
    }
}

/// True if a text is a host, with a port or without one.
fn is_authority(text: &[u8]) -> bool {
    Authority::try_from(text).is_ok_and(|authority| {
        let end = authority.as_str().get(authority.host().len()..);
        let port = end.map(|end| end.strip_prefix(':').unwrap_or(end));
        port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn method(method: &Method) -> Result<Code, Refusal> {
    match *method {
        Method::GET | Method::HEAD => Ok(Code::GET),
        Method::POST => Ok(Code::POST),
        Method::PUT => Ok(Code::PUT),
        Method::DELETE => Ok(Code::DELETE),
        Method::PATCH => Ok(Code::PATCH),
        _ => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "CoAP has no such method")),
    }
}

/// A condition on the representation of the resource.
enum Condition {
    /// The resource has any representation.
    Any,
    /// The representation has one of these entity tags.
    Tags(Vec<Vec<u8>>),
}

impl Condition {
    /// Reads If-Match or If-None-Match. Entity tags that this proxy did not write are left out, because no
    /// representation has them. Weak entity tags in If-Match are also left out, because they match no representation
    /// (RFC 9110, section 13.1.1).
    fn read(headers: &HeaderMap, name: HeaderName) -> Option<Self> {
        headers.get(&name)?;
        let is_strong = name == header::IF_MATCH;
        let items = || texts(headers, name.clone()).flat_map(|value| value.split(',')).map(str::trim);
        match items().any(|item| item == "*") {
            true => Some(Self::Any),
            false => Some(Self::Tags(items().filter_map(|item| tag(item, is_strong)).take(TAGS).collect())),
        }
    }
}

/// Reads an entity tag in the form that [`super::response`] writes. If `is_strong` is true, returns `None` for a weak
/// entity tag.
fn tag(item: &str, is_strong: bool) -> Option<Vec<u8>> {
    let weak = item.strip_prefix("W/").filter(|_| !is_strong);
    let digits = weak.unwrap_or(item).strip_prefix('"')?.strip_suffix('"')?;
    from_hex(digits).filter(|tag| (1..=8).contains(&tag.len()))
}

/// Returns the values of a header. Leaves out each value that is not valid text.
fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests;
