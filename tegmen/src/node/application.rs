//! The application of a node: the resources that it serves, and the replies to its requests.

use super::bodies::Operation;
use super::error::SendError;
use crate::address::{Address, Path};
use crate::axiom::SealRefused;
use crate::coap::Repeat;
use crate::coap::handler::{Anybody, Handler, Policy, Response};
use crate::coap::{Authorized, Block, Code, Late, MessageRef, NoResponse, OptionNumber, RequestId, Token};
use crate::identity::{Identity, PeerId, Principal};
use crate::oscore::{OpenedRequest, UnprotectError};
use crate::time::Instant;
use core::convert::Infallible;

/// The application of a node. `X` is a request that OSCORE opened: see [`Oscore::Exchange`](super::Oscore::Exchange). `S` is
/// the state of a peer that the application keeps beside its exchanges: see
/// [`PeerExchanges::State`](crate::coap::PeerExchanges::State).
pub trait Application<X: OpenedRequest = Infallible, S = ()> {
    /// Returns the policy that decides which requests are allowed, and the handler that answers them; `None` if the
    /// application serves nothing. The node then rejects requests, and an image links no server.
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        None::<(&Anybody, &mut NoHandler)>
    }

    /// Admits a request that is no repetition, before the node does anything for it. `state` is that of its peer.
    ///
    /// # Errors
    /// The response in place of that of the handler.
    #[inline]
    fn admit(&mut self, incoming: &Incoming<'_>, state: Option<&mut S>) -> Result<(), Refusal> {
        let _ = (incoming, state);
        Ok(())
    }

    /// Notes the response to a request, as it is before OSCORE protects it; `response` is empty if none is sent now.
    /// `repeat` is the effect of executing the request twice. Returns the effect with which the node keeps the response,
    /// which is [`Repeat::Safe`] if the request was not executed.
    #[inline]
    fn on_answered(&mut self, incoming: &Incoming<'_>, answer: Answer, response: &[u8], repeat: Repeat) -> Repeat {
        let _ = (incoming, answer, response);
        repeat
    }

    /// Notes that the handler is asked for a notification, as the response to `registration` (RFC 7641, section 4.2).
    #[inline]
    fn on_notification(&mut self, peer: PeerId, registration: &MessageRef<'_>) {
        let _ = (peer, registration);
    }

    /// Notes that the exchanges of a peer begin.
    fn on_begun(&mut self, peer: PeerId, state: &mut S) {
        let _ = (peer, state);
    }

    /// Takes a request whose response the handler deferred, or on which the policy has not decided yet: see
    /// [`DeferredRequest`].
    fn on_deferred(&mut self, request: DeferredRequest<'_, X>) {
        let _ = request;
    }

    /// Takes the reply to a request that was sent to `peer`.
    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let _ = (peer, request, reply);
    }

    /// Takes the response of a member to a request that was sent to its group: see
    /// [`Node::request_group`](super::Node::request_group) and
    /// [`Node::request_protected_group`](super::Node::request_protected_group). `member` is the path of the response,
    /// and the proved identity: [`Principal::NOBODY`] for a response in clear, the identity of the group with Axiom,
    /// the identity of the member with OSCORE. The response may be an error. It may ask for an Echo (RFC 9175). Then
    /// repeat the request with the option, to the whole group with Axiom, and otherwise to this member alone.
    fn on_member_response(&mut self, request: RequestId, member: (&Path, Identity), response: &MessageRef<'_>) {
        let _ = (request, member, response);
    }

    /// Notes that two members of a protected group use one SenderID or one address. Report it to the controller: see
    /// [`Opened::Clash`](crate::axiom::Opened::Clash).
    fn on_group_clash(&mut self, group: &Address) {
        let _ = group;
    }

    /// Notes that a response in a protected group was not sent, because it could not be protected. After
    /// [`SealRefused::LeaseSpent`], keep a new [reservation](crate::axiom::Member::reserve), and extend the lease.
    /// [`Member::left`](crate::axiom::Member::left) shows in time that a lease runs out.
    fn on_unsealed_response(&mut self, group: &Address, refused: SealRefused) {
        let _ = (group, refused);
    }
}

/// A received request: see [`Application::admit`].
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'m> {
    /// The time at which it came.
    pub now: Instant,
    /// The peer.
    pub peer: PeerId,
    /// The addresses of the datagram.
    pub path: &'m Path,
    /// The identity of the sender, and the protection of the request.
    pub identity: Identity,
    /// The request, as OSCORE opened it.
    pub message: &'m MessageRef<'m>,
    /// True if the request was sent to a group (RFC 7252, section 8).
    pub to_group: bool,
}

/// The response to a request that is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// An option with a value of format `uint`.
    pub option: Option<(OptionNumber, u32)>,
}

/// The outcome of a received request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The request has a response with this code, from the handler or from the node. 0.00 is a Reset. The client may
    /// have suppressed the response (RFC 7967).
    Code(Code),
    /// The response is deferred.
    Deferred,
    /// The response does not fit a message.
    NoRoom,
    /// 5.03: there is no space to remember a request that must not be executed twice.
    NoMemory,
}

/// The reply to a request, or the reason why there is none.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'m> {
    /// The response.
    Response(&'m MessageRef<'m>),
    /// A block of a protected response that a proxy cut (RFC 8613, section 4.1.3.4.2). Nothing authenticates it, and it is not
    /// opened. The owner asks for the blocks after it by requests with the code and the OSCORE option that the request had
    /// outside, without protection, and opens the whole by [`Oscore::unprotect_response`](super::Oscore::unprotect_response).
    /// Only with [`Oscore::GATHERS`](super::Oscore::GATHERS).
    Cut(&'m MessageRef<'m>),
    /// The peer has the request; its response comes separately (RFC 7252, section 5.2.2).
    Acknowledged,
    /// The peer rejects the request (RFC 7252, section 4.2).
    Reset,
    /// No answer to the last retransmission arrived in time, or no response after an acknowledgement.
    TimedOut,
    /// The request waited in the node's [`Queue`](super::Queue), and could not be sent when NSTART allowed it.
    NotSent(SendError),
    /// The response to a request that was protected with OSCORE does not open. Its sender is unknown, and the exchange is
    /// over.
    Refused {
        /// The reason.
        reason: UnprotectError,
        /// The outer code, which is not protected.
        code: Code,
    },
}

/// A request whose response is deferred: by its handler, or because the policy has not decided on it yet.
#[derive(Debug)]
pub struct DeferredRequest<'m, X: OpenedRequest = Infallible> {
    pub(super) peer: PeerId,
    pub(super) identity: Identity,
    pub(super) token: Token,
    /// The request.
    pub message: &'m MessageRef<'m>,
    /// The request as OSCORE opened it, and the right to answer under its nonce.
    pub(super) exchange: Option<(X, Option<X::Nonce>)>,
    /// The transfer of the blocks of the response, if the node has [`Bodies`](super::Bodies).
    pub(super) operation: Option<Operation>,
    /// The response makes the client an observer, or is a notification.
    pub(super) observes: bool,
    pub(super) to_group: bool,
    /// True if the policy has not decided on the request yet. [`Node::decide`](super::Node::decide) takes the decision.
    pub is_undecided: bool,
    /// The number of the notification that the policy is asked about, if it is one.
    pub(super) notification: Option<u32>,
    /// True if the owner acknowledges the request later: with its response (RFC 7252, section 5.2.1), or before. The node sets
    /// false, and then does it at once.
    pub acknowledges_later: bool,
    /// The request, where its acknowledgement may come later. It is not acknowledged now if this is taken.
    pub(super) late: Option<&'m mut Option<Late>>,
}

impl<X: OpenedRequest> DeferredRequest<'_, X> {
    /// Returns the right to answer, for [`Node::respond`](super::Node::respond). If the request is undecided, the right is for
    /// [`Node::decide`](super::Node::decide), too, which needs the request again: then keep a copy of [`Self::message`], as
    /// [`MessageRef::write`] makes it.
    pub fn keep(self) -> Deferred<X> {
        let asked = self.message.block(OptionNumber::BLOCK2).ok().flatten();
        Deferred {
            peer: self.peer,
            identity: self.identity,
            token: self.token,
            no_response: NoResponse::of(self.message),
            exchange: self.exchange,
            transfer: self.operation.map(|operation| (operation, asked)),
            observes: self.observes,
            to_group: self.to_group,
            is_undecided: self.is_undecided,
            notification: self.notification,
            late: self.late.filter(|_| self.acknowledges_later).and_then(Option::take),
        }
    }
}

/// The right to answer a request in a separate message, once (RFC 7252, section 5.2.2).
#[derive(Debug)]
#[must_use = "the client waits for its response"]
pub struct Deferred<X: OpenedRequest = Infallible> {
    /// The peer that waits for the response.
    pub peer: PeerId,
    /// The sender, and how its request was protected.
    pub identity: Identity,
    pub(super) token: Token,
    pub(super) no_response: NoResponse,
    /// The request as OSCORE opened it, and the right to answer under its nonce, until it is used.
    pub(super) exchange: Option<(X, Option<X::Nonce>)>,
    /// The transfer of the blocks of the response, and the block that was asked for.
    pub(super) transfer: Option<(Operation, Option<Block>)>,
    /// The response makes the client an observer, or is a notification.
    pub(super) observes: bool,
    /// True if the request was sent to a group: an error is then not sent.
    pub(super) to_group: bool,
    /// True if the policy has not decided yet.
    pub(super) is_undecided: bool,
    /// The number of the notification that the policy decides on.
    pub(super) notification: Option<u32>,
    /// The request, if it is not acknowledged. The response is then the acknowledgement. An owner that has no response soon
    /// takes this, sends an acknowledgement without one and
    /// [keeps it](crate::coap::Exchanges::keep_late_reply): the client repeats its request after two seconds.
    pub late: Option<Late>,
}

impl<X: OpenedRequest> Deferred<X> {
    /// Returns the owner of the OSCORE context that protects the request; `None` without OSCORE.
    pub(super) fn owner(&self) -> Option<Principal> {
        self.exchange.as_ref().map(|_| self.identity.principal)
    }
}

/// A handler without resources.
struct NoHandler;

impl Handler for NoHandler {
    fn handle(&mut self, _: &Authorized<'_>, _: &mut Response<'_, '_>) -> Result<(), Code> {
        Err(Code::NOT_FOUND)
    }
}
