//! HTTP requests that are not forwarded.

use hyper::StatusCode;

/// The reason why a request is not forwarded, for its client.
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
