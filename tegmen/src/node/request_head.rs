//! The head of a request: its code, type and token, and whether OSCORE protects the request.

use crate::coap::{Code, MessageType};

/// The head of a request. [`Node::request`](super::Node::request) accepts a head or a [`Code`]. With a `Code`, the
/// request is confirmable, OSCORE does not protect the request, and the node draws the token.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'t> {
    pub(super) code: Code,
    pub(super) message_type: MessageType,
    pub(super) with_oscore: bool,
    pub(super) token: RequestToken<'t>,
}

/// The source of the token of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestToken<'t> {
    /// The node draws the token.
    Drawn,
    /// The owner of the node chose the token.
    Given(&'t [u8]),
}

impl<'t> RequestHead<'t> {
    /// Creates the head of a confirmable request without OSCORE. The node draws its token.
    pub const fn new(code: Code) -> Self {
        Self { code, message_type: MessageType::Confirmable, with_oscore: false, token: RequestToken::Drawn }
    }

    /// Returns this head for a non-confirmable request. The node sends such a request once, when PROBING_RATE allows it
    /// (RFC 7252, section 4.7). So the features of the node must include [`Pacing`](super::Pacing). If the request
    /// suppresses all responses (RFC 7967), it gets no reply.
    pub const fn non_confirmable(self) -> Self {
        Self { message_type: MessageType::NonConfirmable, ..self }
    }

    /// Returns this head for a request that OSCORE protects. The reply to it is then an authentic response, or
    /// [`Reply::Refused`](super::Reply::Refused).
    pub const fn with_oscore(self) -> Self {
        Self { with_oscore: true, ..self }
    }

    /// Returns this head with a token, which has at most 8 bytes. The token must differ from the tokens of all other
    /// open requests to the same peer, and of all open requests to groups.
    ///
    /// If sessions are restored, draw a token of 4 or more bytes at random. If the replay window of a restored session
    /// was lost, the response with this token proves that the peer's last record is not a replay. If an earlier request
    /// had the same token, a recorded response to the earlier request could also serve as this proof.
    pub const fn with_token(self, token: &'t [u8]) -> Self {
        Self { token: RequestToken::Given(token), ..self }
    }
}

impl From<Code> for RequestHead<'_> {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}
