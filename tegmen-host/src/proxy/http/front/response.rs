//! Maps CoAP responses to HTTP responses (RFC 8075, section 7).

use super::refusal::Refusal;
use super::target_uri::Target;
use crate::client;
use crate::hex::to_hex;
use crate::proxy::http::media;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tegmen::coap::cache::DEFAULT_MAX_AGE;
use tegmen::coap::{Code, OptionNumber};

/// The media type of a diagnostic payload (RFC 8075, section 6.6).
const DIAGNOSTIC: HeaderValue = HeaderValue::from_static("text/plain;charset=utf-8");

/// Maps a response. `has_critical` is true if a header of the HTTP request became a critical option of the CoAP request.
pub(super) fn of(response: client::Response, target: &Target, has_critical: bool) -> Response<Full<Bytes>> {
    let code = response.code;
    let mut mapped = Response::new(Full::default());
    *mapped.status_mut() = status(code, !response.payload.is_empty(), has_critical);
    if code == Code::METHOD_NOT_ALLOWED {
        mapped.extensions_mut().insert(ReasonPhrase::from_static(b"CoAP server returned 4.05"));
    }
    let mut put = |name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::try_from(text) {
            mapped.headers_mut().insert(name, value);
        }
    };
    if let Some(tag) = response.option(OptionNumber::ETAG) {
        put(header::ETAG, format!("\"{}\"", to_hex(tag)));
    }
    let max_age = response.uint(OptionNumber::MAX_AGE);
    match code {
        Code::CONTENT | Code::VALID => {
            put(header::CACHE_CONTROL, format!("max-age={}", max_age.unwrap_or(DEFAULT_MAX_AGE)));
            put(header::VARY, "Accept".to_owned());
        }
        Code::SERVICE_UNAVAILABLE | Code::TOO_MANY_REQUESTS => {
            put(header::RETRY_AFTER, max_age.unwrap_or(DEFAULT_MAX_AGE).to_string());
        }
        Code::CREATED => {
            if let Some(location) = target.location(&response) {
                put(header::LOCATION, location);
            }
        }
        _ => {}
    }
    match response.content_format() {
        _ if response.payload.is_empty() => {}
        Some(format) => put(header::CONTENT_TYPE, media::media_type(format)),
        None if code.is_success() => {}
        None => {
            mapped.headers_mut().insert(header::CONTENT_TYPE, DIAGNOSTIC);
        }
    }
    *mapped.body_mut() = Full::new(response.payload.into());
    mapped
}

/// Returns the HTTP status of a CoAP code (RFC 8075, table 2; RFC 8132, section 5; RFC 8516; RFC 8768). A code that is
/// in none of these tables gets the first status of its class: 200, 400 or 500. If no header of the HTTP request became a
/// critical option, the proxy itself caused a 4.02, so 4.02 becomes 500.
const fn status(code: Code, has_payload: bool, has_critical: bool) -> StatusCode {
    match code {
        Code::BAD_OPTION if !has_critical => StatusCode::INTERNAL_SERVER_ERROR,
        Code::CREATED => StatusCode::CREATED,
        Code::VALID => StatusCode::NOT_MODIFIED,
        Code::CHANGED | Code::DELETED if !has_payload => StatusCode::NO_CONTENT,
        // HTTP has a challenge in 401, and the methods in 405; CoAP has neither.
        Code::UNAUTHORIZED | Code::FORBIDDEN => StatusCode::FORBIDDEN,
        Code::NOT_FOUND => StatusCode::NOT_FOUND,
        Code::NOT_ACCEPTABLE => StatusCode::NOT_ACCEPTABLE,
        Code::CONFLICT => StatusCode::CONFLICT,
        Code::PRECONDITION_FAILED => StatusCode::PRECONDITION_FAILED,
        Code::REQUEST_ENTITY_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UNSUPPORTED_CONTENT_FORMAT => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::UNPROCESSABLE_ENTITY => StatusCode::UNPROCESSABLE_ENTITY,
        Code::TOO_MANY_REQUESTS => StatusCode::TOO_MANY_REQUESTS,
        Code::NOT_IMPLEMENTED => StatusCode::NOT_IMPLEMENTED,
        Code::BAD_GATEWAY | Code::PROXYING_NOT_SUPPORTED => StatusCode::BAD_GATEWAY,
        Code::SERVICE_UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        Code::GATEWAY_TIMEOUT => StatusCode::GATEWAY_TIMEOUT,
        Code::HOP_LIMIT_REACHED => StatusCode::LOOP_DETECTED,
        other => match other.class() {
            2 => StatusCode::OK,
            4 => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// Returns the HTTP response to a request that is not forwarded.
pub(super) fn refuse(Refusal { status, why }: Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{why}\n").into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, DIAGNOSTIC);
    response
}

#[cfg(test)]
mod tests;
