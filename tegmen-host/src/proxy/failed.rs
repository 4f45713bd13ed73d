//! The failures of requests to origins.

use super::answer::Unusable;
use crate::client::ClientError;
use crate::server::Reply;
use tegmen::coap::Code;

/// The reason why there is no response: a code for the client, and a text for the operator.
pub(super) struct Failed {
    pub(super) code: Code,
    pub(super) cause: String,
}

impl Failed {
    pub(super) fn new(code: Code, cause: impl Into<String>) -> Self {
        Self { code, cause: cause.into() }
    }

    /// Returns the failure of a CoAP request to this host.
    pub(super) fn of(host: &str, error: &ClientError) -> Self {
        Self::new(code_of(error), format!("{host}: {error}"))
    }

    /// Returns the failure of a request to the origin `host`: the response of the origin cannot be used.
    pub(super) fn unusable(host: &str, Unusable(why): &Unusable) -> Self {
        Self::new(Code::BAD_GATEWAY, format!("{host}: the response is not usable: {why}"))
    }

    pub(super) fn reply(&self) -> Reply {
        Reply::new(self.code).because(self.cause.clone())
    }
}

/// Returns the code that the client receives for a failure (RFC 7252, sections 5.9.3.3 to 5.9.3.5).
fn code_of(error: &ClientError) -> Code {
    match error {
        ClientError::Silence { .. }
        | ClientError::Unfinished { .. }
        | ClientError::NoResponse { .. }
        | ClientError::NotSent { .. }
        | ClientError::Refused { .. }
        | ClientError::Unreachable { .. } => Code::GATEWAY_TIMEOUT,
        ClientError::QueueFull { .. } => Code::SERVICE_UNAVAILABLE,
        _ => Code::BAD_GATEWAY,
    }
}
