//! Maps CoAP requests to HTTP requests (RFC 7252, section 10.1).

use super::Asked;
use super::tags::Tags;
use crate::proxy::http::media;
use crate::uri::encoded_path;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName};
use hyper::{Method, Request};
use tegmen::coap::{Code, OptionNumber, uint};

/// Maps a request.
///
/// # Errors
/// 5.01 for a method that HTTP does not have, 4.02 for a critical option, 4.12 for an unknown entity tag, and 4.00 for
/// a value that is not valid.
pub(super) fn map(authority: &str, asked: &Asked<'_>, tags: &Tags) -> Result<Request<Full<Bytes>>, Code> {
    let method = match asked.method {
        Code::GET => Method::GET,
        Code::POST => Method::POST,
        Code::PUT => Method::PUT,
        Code::DELETE => Method::DELETE,
        _ => return Err(Code::NOT_IMPLEMENTED),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(target(asked)?)
        .header(header::HOST, authority)
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::CONNECTION, "close");
    for (number, value) in asked.options {
        if let Some((name, value)) = header_of(*number, value, tags)? {
            request = request.header(name, value);
        }
    }
    let payload = if asked.method == Code::GET { &[] } else { asked.payload };
    request.body(Full::new(Bytes::copy_from_slice(payload))).map_err(|_| Code::BAD_REQUEST)
}

/// Returns the path and the query of an HTTP request.
fn target(asked: &Asked<'_>) -> Result<String, Code> {
    let texts = |wanted: OptionNumber| {
        let values = asked.options.iter().filter(move |(number, _)| *number == wanted);
        values.map(|(_, value)| std::str::from_utf8(value).map_err(|_| Code::BAD_REQUEST))
    };
    let mut target = String::new();
    for segment in texts(OptionNumber::URI_PATH) {
        target.push('/');
        target.push_str(&encoded_path(segment?).replace('/', "%2F"));
    }
    if target.is_empty() {
        target.push('/');
    }
    for (index, argument) in texts(OptionNumber::URI_QUERY).enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(&encoded_path(argument?).replace('&', "%26"));
    }
    Ok(target)
}

/// Returns the HTTP header for a CoAP option; `None` if there is no such header.
fn header_of(number: OptionNumber, value: &[u8], tags: &Tags) -> Result<Option<(HeaderName, String)>, Code> {
    let media_type = || uint(value).map(media::media_type).ok_or(Code::BAD_REQUEST);
    Ok(match number {
        OptionNumber::URI_PATH | OptionNumber::URI_QUERY | OptionNumber::URI_HOST | OptionNumber::URI_PORT => None,
        OptionNumber::ACCEPT => Some((header::ACCEPT, media_type()?)),
        OptionNumber::CONTENT_FORMAT => Some((header::CONTENT_TYPE, media_type()?)),
        // Of a response that is stored here: without it the response comes again.
        OptionNumber::ETAG => tags.find(value).map(|tag| (header::IF_NONE_MATCH, tag.to_owned())),
        OptionNumber::IF_NONE_MATCH => Some((header::IF_NONE_MATCH, "*".to_owned())),
        OptionNumber::IF_MATCH if value.is_empty() => Some((header::IF_MATCH, "*".to_owned())),
        OptionNumber::IF_MATCH => {
            let tag = tags.find(value).ok_or(Code::PRECONDITION_FAILED)?;
            Some((header::IF_MATCH, tag.to_owned()))
        }
        other if other.is_critical() => return Err(Code::BAD_OPTION),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
