//! Maps HTTP responses to CoAP responses (RFC 7252, section 10.1).

use super::tags::Tags;
use super::{Answered, Asked};
use crate::proxy::http::media;
use crate::uri::Behind;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::response::Parts;
use tegmen::coap::{Code, OptionNumber, uint_bytes};

/// The Content-Format application/octet-stream. The proxy gives it to a body whose media type has no registered
/// Content-Format.
const OCTETS: u16 = 42;

/// Maps the response of an HTTP server to a CoAP response. The URIs of the server begin with `base`.
///
/// # Errors
/// The reason why the response cannot be used, as text.
pub(super) fn map(
    asked: &Asked<'_>,
    base: &str,
    head: &Parts,
    body: Bytes,
    tags: &mut Tags,
) -> Result<Answered, &'static str> {
    let is_asked_about = asked.options.iter().any(|(number, _)| *number == OptionNumber::ETAG);
    let code = code_of(asked.method, head.status).ok_or("CoAP has no code for its status")?;
    if code == Code::VALID && !is_asked_about {
        return Err("it is 304, and nothing was asked about");
    }
    let headers = &head.headers;
    let is_coded = |value: &str| !value.trim().eq_ignore_ascii_case("identity");
    if texts(headers, header::CONTENT_ENCODING).any(is_coded) {
        return Err("its body has a Content-Encoding");
    }
    let mut answered = Answered { code, options: Vec::new(), payload: Vec::new() };
    if matches!(code, Code::CONTENT | Code::VALID)
        && let Some(tag) = text(headers, header::ETAG).and_then(|tag| tags.remember(tag))
    {
        answered.add(OptionNumber::ETAG, &tag);
    }
    if code == Code::CREATED
        && let Some(location) = text(headers, header::LOCATION).and_then(|location| path_of(location, base))
    {
        location.path.iter().for_each(|segment| answered.add(OptionNumber::LOCATION_PATH, segment.as_bytes()));
        location.query.iter().for_each(|argument| answered.add(OptionNumber::LOCATION_QUERY, argument.as_bytes()));
    }
    if let Some(age) = max_age(headers).or_else(|| age_without_freshness(head.status, headers)) {
        answered.add(OptionNumber::MAX_AGE, uint_bytes(age, &mut [0; 4]));
    }
    if code != Code::VALID {
        answered.add_body(text(headers, header::CONTENT_TYPE), body);
    }
    answered.options.sort_by_key(|(number, _)| *number);
    Ok(answered)
}

impl Answered {
    fn add(&mut self, number: OptionNumber, value: &[u8]) {
        self.options.push((number, value.to_vec()));
    }

    /// Adds the body. In an error response, a text body becomes a diagnostic payload, and a body with a registered
    /// media type gets its Content-Format. Any other body of an error is left out, because it is a page for people.
    fn add_body(&mut self, media_type: Option<&str>, body: Bytes) {
        let is_text = media_type.is_some_and(|media_type| media_type.starts_with("text/plain"));
        let format = match self.code.is_success() {
            true => media_type.map(|media_type| media::content_format(media_type).unwrap_or(OCTETS)),
            false if is_text && std::str::from_utf8(&body).is_ok() => None,
            false => match media_type.and_then(media::registered).filter(|_| !is_text) {
                Some(format) => Some(format),
                None => return,
            },
        };
        if let Some(format) = format.filter(|_| !body.is_empty()) {
            self.add(OptionNumber::CONTENT_FORMAT, uint_bytes(format.into(), &mut [0; 4]));
        }
        self.payload = body.into();
    }
}

/// Returns the CoAP code of an HTTP status; `None` for a redirection, and for any other status without a CoAP code.
fn code_of(method: Code, status: StatusCode) -> Option<Code> {
    Some(match status {
        StatusCode::CREATED => Code::CREATED,
        StatusCode::NOT_MODIFIED => Code::VALID,
        // It has a part of the representation, which nobody asked for.
        StatusCode::PARTIAL_CONTENT => return None,
        status if status.is_success() => match method {
            Code::GET => Code::CONTENT,
            Code::DELETE => Code::DELETED,
            _ => Code::CHANGED,
        },
        StatusCode::UNAUTHORIZED => Code::UNAUTHORIZED,
        StatusCode::FORBIDDEN => Code::FORBIDDEN,
        StatusCode::NOT_FOUND | StatusCode::GONE => Code::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED => Code::METHOD_NOT_ALLOWED,
        StatusCode::NOT_ACCEPTABLE => Code::NOT_ACCEPTABLE,
        StatusCode::CONFLICT => Code::CONFLICT,
        StatusCode::PRECONDITION_FAILED => Code::PRECONDITION_FAILED,
        StatusCode::PAYLOAD_TOO_LARGE => Code::REQUEST_ENTITY_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UNSUPPORTED_CONTENT_FORMAT,
        StatusCode::UNPROCESSABLE_ENTITY => Code::UNPROCESSABLE_ENTITY,
        StatusCode::TOO_MANY_REQUESTS => Code::TOO_MANY_REQUESTS,
        StatusCode::NOT_IMPLEMENTED => Code::NOT_IMPLEMENTED,
        StatusCode::BAD_GATEWAY => Code::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE => Code::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT => Code::GATEWAY_TIMEOUT,
        // RFC 8768, section 5.
        StatusCode::LOOP_DETECTED => Code::HOP_LIMIT_REACHED,
        status if status.is_client_error() => Code::BAD_REQUEST,
        status if status.is_server_error() => Code::INTERNAL_SERVER_ERROR,
        _ => return None,
    })
}

/// Returns the seconds for which a shared cache may use a response (RFC 9111, section 4.2). Returns `None` if no header
/// states a time. Returns 0 if a shared cache must not use the response, or if the response depends on headers of the
/// request other than Accept.
fn max_age(headers: &HeaderMap) -> Option<u32> {
    let directives: Vec<_> = items(headers, header::CACHE_CONTROL).collect();
    let never = ["no-store", "no-cache", "private"];
    let is_never =
        |directive: &String| never.contains(&directive.split_once('=').map_or(directive.as_str(), |(name, _)| name));
    let known = ["accept", "accept-encoding"];
    if directives.iter().any(is_never) || items(headers, header::VARY).any(|name| !known.contains(&name.as_str())) {
        return Some(0);
    }
    let seconds = |name: &str| {
        let value = directives.iter().find_map(|directive| directive.strip_prefix(name)?.strip_prefix('='))?;
        Some(number(value.trim_matches('"')).unwrap_or(0))
    };
    let Some(lifetime) = seconds("s-maxage").or_else(|| seconds("max-age")) else {
        // A date, which is not read.
        return headers.contains_key(header::EXPIRES).then_some(0);
    };
    let age = text(headers, header::AGE).and_then(number).unwrap_or(0);
    Some(lifetime.saturating_sub(age))
}

/// Returns the Max-Age of a response without explicit freshness; `None` if a cache may store a response with this status
/// for a time of its choice (RFC 9110, section 15.1), and for 201, which becomes 2.01: no CoAP cache stores a 2.01. For 429
/// and 503 this is the time after which a client may try again (RFC 7252, section 5.9.3.4; RFC 8516). A cache must not
/// store any other response, such as 202 or 205 (RFC 9111, section 3).
fn age_without_freshness(status: StatusCode, headers: &HeaderMap) -> Option<u32> {
    match status.as_u16() {
        200 | 201 | 203 | 204 | 304 | 404 | 405 | 410 | 414 | 501 => None,
        429 | 503 => Some(text(headers, header::RETRY_AFTER).and_then(number).unwrap_or(0)),
        _ => Some(0),
    }
}

/// Reads a number of seconds. A number that is too large becomes the largest possible number (RFC 9111, section 1.2.2).
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

/// Returns the path and the query of a Location header, if it names a resource of the same server. A Location-Path must
/// not be `.` or `..` (RFC 7252, section 5.10.7).
fn path_of(location: &str, base: &str) -> Option<Behind> {
    let path = match location.split_at_checked(base.len()) {
        Some((start, path)) if start.eq_ignore_ascii_case(base) => path,
        _ => location,
    };
    let is_path = path.starts_with('/') && !path.starts_with("//");
    let location = is_path.then(|| Behind::parse(&format!("host{path}")))?.ok()?;
    let leads_back = location.path.iter().any(|segment| matches!(segment.as_str(), "." | ".."));
    (!leads_back).then_some(location)
}

/// Returns the first value of a header, if it is valid text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn texts(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}

/// Returns the items of a comma-separated header in lower case.
fn items(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = String> {
    let items = texts(headers, name).flat_map(|value| value.split(',')).map(|item| item.trim().to_ascii_lowercase());
    items.filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests;
