//! The application of a node. It serves the resources of the node, and gets the replies to the node's requests.

use super::bodies::Operation;
use super::error::SendError;
use crate::address::{Address, Path};
use crate::axiom::SealRefused;
use crate::coap::Repeat;
use crate::coap::handler::{Anybody, Handler, Policy, Response};
use crate::coap::{Authorized, Block, Code, Late, MessageRef, NoResponse, OptionNumber, RequestId, Token};
use crate::identity::{Identity, PeerId, Principal, SenderId};
use crate::oscore::{OpenedRequest, UnprotectError};
use crate::time::Instant;
use core::convert::Infallible;

/// The application of a node. If OSCORE protected a request, `X` identifies the request in its security context: see
/// [`Oscore::Exchange`](super::Oscore::Exchange). `S` is the type of the state that the application stores for each
/// peer. The node keeps this state beside the exchanges of the peer: see
/// [`PeerExchanges::State`](crate::coap::PeerExchanges::State).
pub trait Application<X: OpenedRequest = Infallible, S = ()> {
    /// Returns the policy that decides which requests are allowed, and the handler that answers them. Returns `None` if
    /// the application serves no resources. The node then rejects requests, and the image of a mote contains no code of
    /// a server.
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        None::<(&Anybody, &mut NoHandler)>
    }

    /// Decides whether the node accepts a request, before the node processes it. The node does not call this function
    /// for a repeated request. `state` is the application's state of the peer that sent the request.
    ///
    /// # Errors
    /// The response that the node sends. The handler is then not called.
    #[inline]
    fn admit(&mut self, incoming: &Incoming<'_>, state: Option<&mut S>) -> Result<(), Refusal> {
        let _ = (incoming, state);
        Ok(())
    }

    /// Reports the response to a request, before OSCORE protects the response. `response` is empty if no response is
    /// sent now. `repeat` is the effect that a second execution of the request would have. Returns the effect that the
    /// node stores with the response: `repeat`, or [`Repeat::Safe`] if the application did not execute the request.
    #[inline]
    fn on_answered(&mut self, incoming: &Incoming<'_>, answer: Answer, response: &[u8], repeat: Repeat) -> Repeat {
        let _ = (incoming, answer, response);
        repeat
    }

    /// Reports that the node asks the handler for a notification (RFC 7641, section 4.2). `registration` is the request
    /// with which the client became an observer.
    #[inline]
    fn on_notification(&mut self, peer: PeerId, registration: &MessageRef<'_>) {
        let _ = (peer, registration);
    }

    /// Reports that the node begins to store exchanges of a peer. `state` is the new state of the application for this
    /// peer.
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
    /// [`Node::request_protected_group`](super::Node::request_protected_group). `member` consists of the path of the
    /// response and the proved identity. The principal in the identity is [`Principal::NOBODY`] for a plaintext
    /// response. With Axiom it is the principal of the group, and with OSCORE the principal of the member.
    ///
    /// The response may be an error. If it has an Echo option (RFC 9175), repeat the request with this option. With
    /// Axiom, send the repeated request to the whole group, otherwise only to this member.
    fn on_member_response(&mut self, request: RequestId, member: (&Path, Identity), response: &MessageRef<'_>) {
        let _ = (request, member, response);
    }

    /// Reports that two members of a protected group use the SenderID `sender`. If `sender` is `None`, two listeners use
    /// one address. Report this to the controller of the group: see [`Opened::Clash`](crate::axiom::Opened::Clash).
    fn on_group_clash(&mut self, group: &Address, sender: Option<SenderId>) {
        let _ = (group, sender);
    }

    /// Reports that a response in a protected group was not sent, because it could not be protected. The error
    /// [`SealRefused::LeaseSpent`] means that our member has used all its reserved record numbers. Then store a new
    /// [reservation](crate::axiom::Member::reserve) durably, and pass it to
    /// [`Member::extend`](crate::axiom::Member::extend). To avoid the error, reserve more record numbers before all are
    /// used: [`Member::left`](crate::axiom::Member::left) returns how many reserved record numbers are not used yet.
    fn on_unsealed_response(&mut self, group: &Address, refused: SealRefused) {
        let _ = (group, refused);
    }
}

/// A received request: see [`Application::admit`].
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'m> {
    /// The time at which the request arrived.
    pub now: Instant,
    /// The peer that sent the request.
    pub peer: PeerId,
    /// The two addresses of the datagram: ours and the sender's.
    pub path: &'m Path,
    /// The identity of the sender, and the protection of the request.
    pub identity: Identity,
    /// The request. If OSCORE protected the request, this is the decrypted message.
    pub message: &'m MessageRef<'m>,
    /// True if the request was sent to a group (RFC 7252, section 8).
    pub to_group: bool,
}

/// The response to a request that is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The code of the response that the node sends.
    pub code: Code,
    /// An option of the response: its number, and its value in the format `uint`. `None` if the response has no option.
    pub option: Option<(OptionNumber, u32)>,
}

/// The outcome of a received request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The request has a response with this code, from the handler or from the node. The code 0.00 means a Reset. The
    /// client may have suppressed the response (RFC 7967).
    Code(Code),
    /// The response is deferred.
    Deferred,
    /// The response does not fit a message.
    NoRoom,
    /// 5.03: there is no space to remember a request that must not be executed twice.
    NoMemory,
}

/// The reply to a request, or the reason why there is no reply.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'m> {
    /// The response to the request.
    Response(&'m MessageRef<'m>),
    /// A block of a protected response that a proxy divided into blocks (RFC 8613, section 4.1.3.4.2). The block is not
    /// authenticated and not decrypted. The owner of the node requests the next blocks with unprotected requests that
    /// have the outer code and the OSCORE option of the original request. Then the owner decrypts the whole response
    /// with [`Oscore::unprotect_response`](super::Oscore::unprotect_response). This reply only occurs if
    /// [`Oscore::GATHERS`](super::Oscore::GATHERS) is true.
    Cut(&'m MessageRef<'m>),
    /// The peer has received the request. Its response follows separately (RFC 7252, section 5.2.2).
    Acknowledged,
    /// The peer rejects the request with a Reset (RFC 7252, section 4.2).
    Reset,
    /// The last retransmission got no answer in time, or the peer acknowledged the request but sent no response in
    /// time.
    TimedOut,
    /// The request waited in the node's [`Queue`](super::Queue), and could not be sent when NSTART allowed it.
    NotSent(SendError),
    /// The response to a request that was protected with OSCORE could not be decrypted. The sender of this response is
    /// unknown, and the exchange has ended.
    Refused {
        /// The reason why the response could not be decrypted.
        reason: UnprotectError,
        /// The outer code of the response, which is not protected.
        code: Code,
    },
}

/// A request whose response the handler defers, or on which the policy has not decided yet.
#[derive(Debug)]
pub struct DeferredRequest<'m, X: OpenedRequest = Infallible> {
    pub(super) peer: PeerId,
    pub(super) identity: Identity,
    pub(super) token: Token,
    /// The message with the deferred request.
    pub message: &'m MessageRef<'m>,
    /// If OSCORE protected the request: the identity of the request in the security context, and the value that permits
    /// one response under the nonce of the request. Otherwise `None`.
    pub(super) exchange: Option<(X, Option<X::Nonce>)>,
    /// The identity of the block-wise transfer to which the response belongs. `None` if the node has no
    /// [`Bodies`](super::Bodies), or if the policy has not decided yet.
    pub(super) operation: Option<Operation>,
    /// True if the response makes the client an observer, or is a notification.
    pub(super) observes: bool,
    pub(super) to_group: bool,
    /// True if the policy has not decided on the request yet. Pass the decision to
    /// [`Node::decide`](super::Node::decide).
    pub is_undecided: bool,
    /// The Observe number of the notification about which the policy was asked; `None` for a request.
    pub(super) notification: Option<u32>,
    /// The owner of the node sets this field to true to acknowledge the request later: with the response (RFC 7252,
    /// section 5.2.1), or before the response. If the field remains false, the node acknowledges the request at once.
    pub acknowledges_later: bool,
    /// The data for a later acknowledgement. If the owner of the node takes the data, the node does not acknowledge the
    /// request now. `None` if a later acknowledgement is not possible.
    pub(super) late: Option<&'m mut Option<Late>>,
}

impl<X: OpenedRequest> DeferredRequest<'_, X> {
    /// Returns the right to answer the request. Pass this right to [`Node::respond`](super::Node::respond). If
    /// [`Self::is_undecided`] is true, pass the right to [`Node::decide`](super::Node::decide) instead.
    /// [`Node::decide`](super::Node::decide) also needs the message of the request, so store a copy of
    /// [`Self::message`], which [`MessageRef::write`] makes.
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

/// The right to answer one request once, in a separate message (RFC 7252, section 5.2.2).
#[derive(Debug)]
#[must_use = "the client waits for its response"]
pub struct Deferred<X: OpenedRequest = Infallible> {
    /// The peer that waits for the response.
    pub peer: PeerId,
    /// The identity of the sender of the request, and the protection of the request.
    pub identity: Identity,
    pub(super) token: Token,
    pub(super) no_response: NoResponse,
    /// If OSCORE protected the request: the identity of the request in the security context, and the value that permits
    /// one response under the nonce of the request, if this value is not used yet. Otherwise `None`.
    pub(super) exchange: Option<(X, Option<X::Nonce>)>,
    /// The identity of the block-wise transfer to which the response belongs, and the block that the client requested.
    /// `None` if the node has no [`Bodies`](super::Bodies), or if the policy has not decided yet.
    pub(super) transfer: Option<(Operation, Option<Block>)>,
    /// True if the response makes the client an observer, or is a notification.
    pub(super) observes: bool,
    /// True if the request was sent to a group. The node does not send an error response to such a request.
    pub(super) to_group: bool,
    /// True if the policy has not decided on the request yet.
    pub(super) is_undecided: bool,
    /// The Observe number of the notification on which the policy must decide; `None` for a request.
    pub(super) notification: Option<u32>,
    /// The data with which the owner of the node can acknowledge the request; `None` if the request is already
    /// acknowledged or needs no acknowledgement. If the owner leaves the data here, the response is also the
    /// acknowledgement. But the client repeats an unacknowledged request after two seconds. So if the response takes
    /// longer, the owner takes the data before that time, sends an empty acknowledgement, and stores a copy of this
    /// acknowledgement ([`Exchanges::keep_late_reply`](crate::coap::Exchanges::keep_late_reply)).
    pub late: Option<Late>,
}

impl<X: OpenedRequest> Deferred<X> {
    /// Returns the owner of the OSCORE context that protects the request; `None` if OSCORE does not protect the
    /// request.
    pub(super) fn owner(&self) -> Option<Principal> {
        self.exchange.as_ref().map(|_| self.identity.principal)
    }
}

/// A handler that has no resources.
struct NoHandler;

impl Handler for NoHandler {
    fn handle(&mut self, _: &Authorized<'_>, _: &mut Response<'_, '_>) -> Result<(), Code> {
        Err(Code::NOT_FOUND)
    }
}
