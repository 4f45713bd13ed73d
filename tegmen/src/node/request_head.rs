//! The head of a request: code, type, token, and protection with OSCORE.

use crate::coap::{Code, MessageType};

/// The head of a request. [`Node::request`](super::Node::request) takes a head or a [`Code`]. With a `Code`, the
/// request is confirmable, has a token that the node draws, and is not protected with OSCORE.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'t> {
    pub(super) code: Code,
    pub(super) message_type: MessageType,
    pub(super) with_oscore: bool,
    pub(super) token: RequestToken<'t>,
}

/// The token of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestToken<'t> {
    /// The node draws the token.
    Drawn,
    /// The owner chose the token.
    Given(&'t [u8]),
}

impl<'t> RequestHead<'t> {
    /// Creates the head of a confirmable request with a token that the node draws, without OSCORE.
    pub const fn new(code: Code) -> Self {
        Self { code, message_type: MessageType::Confirmable, with_oscore: false, token: RequestToken::Drawn }
    }

    /// Makes the request non-confirmable. The node sends it once, when PROBING_RATE allows it (RFC 7252, section
    /// 4.7), so the features of the node must include [`Pacing`](super::Pacing). A request that suppresses all
    /// responses (RFC 7967) gets no reply.
    pub const fn non_confirmable(self) -> Self {
        Self { message_type: MessageType::NonConfirmable, ..self }
    }

    /// Protects the request with OSCORE. Its reply is then an authentic response, or
    /// [`Reply::Refused`](super::Reply::Refused).
    pub const fn with_oscore(self) -> Self {
        Self { with_oscore: true, ..self }
    }

    /// Gives the request this token of at most 8 bytes. The token must differ from the tokens of all other open
    /// requests to the same peer, and of all open requests to groups.
    ///
    /// If sessions are restored, draw a token of 4 or more bytes at random: the response verifies a session whose
    /// replay window was lost. With the token of an earlier request, a recorded response could verify the session.
    pub const fn with_token(self, token: &'t [u8]) -> Self {
        Self { token: RequestToken::Given(token), ..self }
    }
}

impl From<Code> for RequestHead<'_> {
    fn from(code: Code) -> Self {
        Self::new(code)
    }
}
