//! HTTP requests that the proxy does not forward.

use hyper::StatusCode;

/// The reason why a request is not forwarded. The client of the request receives this reason.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}
