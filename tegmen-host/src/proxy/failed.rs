//! Requests to origins that failed.

use crate::server::Reply;
use tegmen::coap::Code;

/// The reason why there is no response: a code, and words for the operator.
pub(super) struct Failed {
    pub(super) code: Code,
    pub(super) cause: String,
}

impl Failed {
    pub(super) fn new(code: Code, cause: impl Into<String>) -> Self {
        Self { code, cause: cause.into() }
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::new(self.code).because(self.cause.clone())
    }
}
