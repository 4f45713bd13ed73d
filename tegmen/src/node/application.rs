//! The application of a node: the resources that it serves, and the replies to its requests.

use super::error::SendError;
use crate::address::Path;
use crate::buf::Frame;
use crate::coap::handler::{Anybody, Handler, Policy, Response};
use crate::coap::storage::Repeat;
use crate::coap::{Authorized, Code, MessageRef, NoResponse, RequestId, Token};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::identity::{Identity, PeerId};
use crate::oscore::{RequestNonce, UnprotectError};
use core::convert::Infallible;

/// The application of a node. `X` is a request that OSCORE opened: see [`Oscore::Exchange`](super::Oscore::Exchange). `S` is
/// the state of a peer that the application keeps beside its exchanges: see
/// [`PeerExchanges::State`](crate::coap::exchange::PeerExchanges::State).
pub trait Application<X = Infallible, S = ()> {
    /// True if [`Self::answer`] answers requests. Otherwise the node answers them by [`Self::server`].
    const ANSWERS: bool = false;

    /// Returns the policy that decides which requests are allowed, and the handler that answers them; `None` if the
    /// application serves nothing. The node then rejects requests, and an image links no server.
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        None::<(&Anybody, &mut NoHandler)>
    }

    /// Writes the response to a request into `frame`, which has the size of a message to the peer. The node has looked for
    /// a repetition, and protects the response as it does others. Returns the effect of repeating the request, with which
    /// the node keeps the response; `None` if it is not kept.
    fn answer<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        incoming: Incoming<'_, S>,
        frame: &mut Frame<'_>,
    ) -> Option<Repeat> {
        let _ = (cx, incoming, frame);
        None
    }

    /// Notes that the exchanges of a peer begin.
    fn on_begun(&mut self, peer: PeerId, state: &mut S) {
        let _ = (peer, state);
    }

    /// Notes that the peer rejects a message of which no state is kept: a notification that is not confirmable.
    fn on_rejected(&mut self, peer: PeerId, message_id: u16) {
        let _ = (peer, message_id);
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

/// A request that an application answers by itself: see [`Application::answer`].
#[derive(Debug)]
pub struct Incoming<'m, S> {
    /// The peer.
    pub peer: PeerId,
    /// The addresses of the datagram.
    pub path: Path,
    /// The identity of the peer, and how its datagram is protected.
    pub identity: Identity,
    /// True if the request may be a replay: the replay window of its session was lost (RFC 9175, section 2.3).
    pub is_unverified: bool,
    /// The state that the application keeps of the peer.
    pub state: &'m mut S,
    /// The request. With an OSCORE option, its bytes, to be opened in place.
    pub message: Result<MessageRef<'m>, &'m mut [u8]>,
    /// Bytes of the message.
    pub len: usize,
    /// The Message ID of a response that is not in the acknowledgement.
    pub message_id: u16,
    /// The effect of repeating the request.
    pub repeat: Repeat,
    /// False if nothing can be remembered of a request that must not be executed twice. It is then answered with 5.03.
    pub has_room: bool,
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
