//! The application of a node: the resources that it serves, and the replies to its requests.

use super::error::SendError;
use crate::coap::handler::{Anybody, Handler, Policy, Response};
use crate::coap::{Authorized, Code, MessageRef, NoResponse, RequestId, Token};
use crate::identity::PeerId;

/// The application of a node.
pub trait Application {
    /// Returns the policy that decides which requests are allowed, and the handler that answers them; `None` if the
    /// application serves nothing. The node then rejects requests, and an image links no server.
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        None::<(&Anybody, &mut NoHandler)>
    }

    /// Takes a request whose response the handler deferred: see [`DeferredRequest::keep`].
    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        let _ = request;
    }

    /// Takes the reply to a request that was sent to `peer`.
    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let _ = (peer, request, reply);
    }
}

/// The reply to a request, or the reason why there is none.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'m> {
    /// The response.
    Response(&'m MessageRef<'m>),
    /// The peer has the request; its response comes separately (RFC 7252, section 5.2.2).
    Acknowledged,
    /// The peer rejects the request (RFC 7252, section 4.2).
    Reset,
    /// The last retransmission is overdue, or the response behind an acknowledgement.
    TimedOut,
    /// The request waited in the node's [`Queue`](super::Queue), and could not be sent when NSTART allowed it.
    NotSent(SendError),
}

/// A request whose response the handler deferred.
#[derive(Clone, Copy, Debug)]
pub struct DeferredRequest<'m> {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) message: &'m MessageRef<'m>,
}

impl<'m> DeferredRequest<'m> {
    /// Returns the request.
    pub const fn message(&self) -> &'m MessageRef<'m> {
        self.message
    }

    /// Returns the right to answer, for [`Node::respond`](super::Node::respond).
    pub fn keep(self) -> Deferred {
        Deferred { peer: self.peer, token: self.token, no_response: NoResponse::of(self.message) }
    }
}

/// The right to answer a request in a separate message, once (RFC 7252, section 5.2.2).
#[derive(Debug)]
#[must_use = "the client waits for its response"]
pub struct Deferred {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) no_response: NoResponse,
}

impl Deferred {
    /// Returns the peer that waits for the response.
    pub const fn peer(&self) -> PeerId {
        self.peer
    }
}

/// A handler without resources.
struct NoHandler;

impl Handler for NoHandler {
    fn handle(&mut self, _: &Authorized<'_>, _: &mut Response<'_, '_>) -> Result<(), Code> {
        Err(Code::NOT_FOUND)
    }
}
