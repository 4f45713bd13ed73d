//! The application of a node: the resources that it serves, and the replies to its requests.

use super::error::SendError;
use crate::coap::handler::{Anybody, Handler, Policy, Response};
use crate::coap::{Authorized, Code, MessageRef, NoResponse, RequestId, Token};
use crate::identity::PeerId;
use crate::oscore::{RequestNonce, UnprotectError};
use core::convert::Infallible;

/// The application of a node. `X` is a request that OSCORE opened: see [`Oscore::Exchange`](super::Oscore::Exchange).
pub trait Application<X = Infallible> {
    /// Returns the policy that decides which requests are allowed, and the handler that answers them; `None` if the
    /// application serves nothing. The node then rejects requests, and an image links no server.
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        None::<(&Anybody, &mut NoHandler)>
    }

    /// Takes a request whose response the handler deferred: see [`DeferredRequest::keep`].
    fn on_deferred(&mut self, request: DeferredRequest<'_, X>) {
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
    /// The response to a request that was protected with OSCORE does not open. Its sender is unknown, and the exchange is
    /// over.
    Refused {
        /// The reason.
        reason: UnprotectError,
        /// The code outside, which nothing protects.
        code: Code,
    },
}

/// A request whose response the handler deferred.
#[derive(Debug)]
pub struct DeferredRequest<'m, X = Infallible> {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) message: &'m MessageRef<'m>,
    /// The request as OSCORE opened it, and the right to answer under its nonce.
    pub(super) exchange: Option<(X, RequestNonce)>,
}

impl<'m, X> DeferredRequest<'m, X> {
    /// Returns the request.
    pub const fn message(&self) -> &'m MessageRef<'m> {
        self.message
    }

    /// Returns the right to answer, for [`Node::respond`](super::Node::respond).
    pub fn keep(self) -> Deferred<X> {
        let exchange = self.exchange.map(|(exchange, nonce)| (exchange, Some(nonce)));
        Deferred { peer: self.peer, token: self.token, no_response: NoResponse::of(self.message), exchange }
    }
}

/// The right to answer a request in a separate message, once (RFC 7252, section 5.2.2).
#[derive(Debug)]
#[must_use = "the client waits for its response"]
pub struct Deferred<X = Infallible> {
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) no_response: NoResponse,
    /// The request as OSCORE opened it, and the right to answer under its nonce, until it is used.
    pub(super) exchange: Option<(X, Option<RequestNonce>)>,
}

impl<X> Deferred<X> {
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
