//! Registers observers and notifies them (RFC 7641, section 4).

use super::Node;
use super::application::{Application, Deferred, DeferredRequest};
use super::bodies::Operation;
use super::error::SendError;
use super::features::{ExchangeOf, Features, ObserverOf, StateOf};
use super::leisure::Leisure as _;
use super::observers::{Observer, Observers};
use super::oscore::Oscore;
use super::pacing::Pacing as _;
use super::send::may_begin;
use crate::buf::Frame;
use crate::coap::ExchangeStorage;
use crate::coap::handler::{Decided, Policy, Request, Served, respond};
use crate::coap::observe::{DEREGISTER, REGISTER};
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, RequestId, Token};
use crate::coap::{Exchanges, PeerExchanges};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, PeerId, Principal, Protection};
use crate::oscore::{OpenedRequest, ProtectError};
use crate::time::Instant;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Notifies the observers of the resource at `path` that its representation changed. Slashes separate the segments
    /// of `path`, but the path does not begin with a slash.
    ///
    /// [`Self::poll`] asks the handler for the newest representation, with the request that registered the observer. It
    /// sends the notification when NSTART allows it and the client has acknowledged the previous notification. If the
    /// representation changes several times before the notification is sent, the client gets only one notification. An
    /// error response is the last notification. The node sends 5.00 if the response does not fit.
    ///
    /// If the handler defers the response, [`Self::respond`] sends the notification. It is then the last notification,
    /// unless the handler let the client observe the resource. If OSCORE protected the registration, it protects each
    /// notification with a new sequence number (RFC 8613, section 8.3). If a notification cannot be protected, its
    /// observer is removed.
    pub fn notify(&mut self, path: &str) {
        let Self { endpoint, features, .. } = self;
        features.observers().mark(path, |peer| endpoint.peers.schedule(peer, Instant::AT_ONCE));
    }

    /// If the list of observers is full, removes the observers whose peers are no longer in the table.
    pub(super) fn make_space_for_observers(&mut self) {
        let Self { endpoint, features, .. } = self;
        if F::Observers::PLACES > 0 && features.observers().is_full() {
            features.observers().retain_peers(|peer| endpoint.peers.attached(peer).is_some());
        }
    }

    /// True if a notification for the peer is due and the node may send it now.
    pub(super) fn is_notification_due(&mut self, peer: PeerId) -> bool {
        let Self { endpoint, storage, features, .. } = self;
        if !features.observers().any(peer, is_changed) || is_before_response::<F>(features, peer) {
            return false;
        }
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return false };
        may_begin(exchanges, storage, 1, true) && !features.observers().any(peer, |observer| observer.pending.is_some())
    }

    /// Writes into `frame` one notification that is due for the peer. Writes nothing if no notification is due.
    pub(super) fn send_notification<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        frame: &mut Frame<'_>,
    ) {
        if !self.is_notification_due(peer) {
            return;
        }
        let tailroom = self.tailroom(peer, frame);
        let Self { endpoint, storage, features, .. } = self;
        let Some(to) = endpoint.peers.peer(peer) else { return };
        let identity = Identity { principal: to.principal(), protection: to.protection() };
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return };
        // If PROBING_RATE does not allow the notification yet, an acknowledgement must show that the client is
        // present (RFC 7641, section 4.5.1).
        let is_early = cx.now < features.pacing().next(peer);
        let unconfirmed = features.observers().unconfirmed();
        let Some((observer, request)) = features.observers().find(peer, is_changed) else { return };
        observer.changed = false;
        let confirmable = observer.observation.confirm(unconfirmed) || is_early;
        let message_type = if confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let (head, token) = ((message_type, exchanges.message_id()), observer.observation.token);
        let (number, registration) = (observer.observation.next(), observer.exchange);
        let (identity, owner) = match registration {
            Some((_, principal)) => (Identity { principal, protection: Protection::Oscore }, Some(principal)),
            None => (identity, None),
        };
        let exchange = registration.as_ref().map(|(exchange, _)| exchange);
        let tailroom = indent::<F::Oscore>(exchange, tailroom, frame);
        let mut limited = frame.reserving(tailroom);
        let decision = &mut observer.decision;
        let renewed = renew(peer, (request, decision), (identity, exchange), number, application, head, &mut limited);
        let (_, end) = limited.place();
        frame.end_at(end);
        let observers = features.observers();
        let is_it = |observer: &ObserverOf<F>| observer.is_of(peer, token.as_bytes(), owner);
        let mut is_last = match renewed {
            Renewed::Written { is_last } => is_last,
            Renewed::Deferred { observes } => {
                frame.truncate(0);
                match observes {
                    true => defer(observers, peer, token.as_bytes(), owner),
                    false => observers.remove(peer, is_it),
                }
                return;
            }
        };
        let mut sent = keep(cx, (exchanges, storage), features.oscore().0, exchange, frame);
        if matches!(sent, Err(SendError::TooLong | SendError::Oscore(ProtectError::Full))) {
            is_last = true;
            frame.truncate(0);
            indent::<F::Oscore>(exchange, 0, frame);
            fail(token.as_bytes(), head, frame);
            sent = keep(cx, (exchanges, storage), features.oscore().0, exchange, frame);
        }
        let observers = features.observers();
        let Some((observer, _)) = observers.find(peer, is_it) else { return };
        match sent {
            Ok(id) if confirmable => observer.pending = Some(id),
            Ok(_) => (observer.pending, observer.message_id) = (None, Some(head.1)),
            Err(error) => {
                // The storage has no space, or the context has no number left. The client sends its request again
                // after Max-Age.
                is_last |= matches!(error, SendError::Oscore(_));
                frame.truncate(0);
            }
        }
        if is_last {
            observers.remove(peer, is_it);
        }
        if !confirmable {
            features.pacing().sent(cx.now, peer, frame.len());
        }
    }

    /// Called before the node sends a deferred response. The response answers a registration, or is a notification.
    /// `code` is the code of the response. Returns the number for the Observe option of the response. If the code is
    /// neither 2.05 nor 2.03, or if the client suppresses the response, removes the observer. Returns `None` if the
    /// client is not an observer any more.
    pub(super) fn conclude(&mut self, deferred: &Deferred<ExchangeOf<F>>, code: Code) -> Option<u32> {
        let (Deferred { peer, token, .. }, owner) = (deferred, deferred.owner());
        let is_it = |observer: &ObserverOf<F>| observer.is_of(*peer, token.as_bytes(), owner);
        let observers = self.features.observers();
        // See RFC 7641, section 4.2. A proxy forwards a protected response that is not a notification as 2.04 (RFC
        // 8613, section 4.2).
        let is_notification = matches!(code, Code::CONTENT | Code::VALID);
        if !is_notification || deferred.no_response.suppresses(code) {
            observers.remove(*peer, is_it);
            return None;
        }
        observers.find(*peer, is_it).map(|(observer, _)| observer.observation.number())
    }

    /// Called after the node has sent a deferred response. The response answers a registration, or is a notification.
    /// `id` is the request id under which the node waits for the acknowledgement of the response.
    pub(super) fn on_responded(&mut self, deferred: &Deferred<ExchangeOf<F>>, id: RequestId) {
        let (Deferred { peer, token, .. }, owner) = (deferred, deferred.owner());
        let is_it = |observer: &ObserverOf<F>| observer.is_of(*peer, token.as_bytes(), owner);
        if let Some((observer, _)) = self.features.observers().find(*peer, is_it) {
            (observer.deferred, observer.pending) = (false, Some(id));
        }
    }

    /// Processes the decision on the notification with this Observe number. [`Self::poll`] then sends the newest
    /// representation, or an error as the last notification. The decision is ignored if the client is no longer an
    /// observer.
    pub(super) fn decide_notification(&mut self, deferred: &Deferred<ExchangeOf<F>>, number: u32, allows: bool) {
        let (Deferred { peer, token, .. }, owner) = (deferred, deferred.owner());
        let is_it = |observer: &ObserverOf<F>| {
            let waits = observer.deferred && observer.observation.number() == number;
            waits && observer.is_of(*peer, token.as_bytes(), owner)
        };
        let Self { endpoint, features, .. } = self;
        if let Some((observer, _)) = features.observers().find(*peer, is_it) {
            (observer.deferred, observer.changed, observer.decision) = (false, true, Some(allows));
            endpoint.peers.schedule(*peer, Instant::AT_ONCE);
        }
    }
}

/// True if a notification must be sent to this observer. Returns false for a member of a protected group, because the
/// module `notify_members` sends the notifications to members.
const fn is_changed<X, G>(observer: &Observer<X, G>) -> bool {
    observer.changed && !observer.deferred && observer.registration.is_none()
}

/// True if the peer has sent a request to a group, and the response to the request still waits in this node. The
/// response to a registration must be sent before the notifications of this registration.
#[inline]
pub(super) fn is_before_response<F: Features>(features: &mut F, peer: PeerId) -> bool {
    F::Leisure::IS_ON && features.leisure().next(peer) < Instant::NEVER
}

/// Reserves space at the front of the frame for the protection of a notification with OSCORE. Returns the number of
/// bytes that must remain free after the notification: `tailroom`, plus the bytes of the OSCORE protection if OSCORE
/// protected the registration.
fn indent<O: Oscore>(exchange: Option<&O::Exchange>, tailroom: usize, frame: &mut Frame<'_>) -> usize {
    if !O::IS_ON || exchange.is_none() {
        return tailroom;
    }
    frame.indent(O::OVERHEAD);
    tailroom.saturating_add(O::OVERHEAD)
}

/// Protects the notification in `frame` with OSCORE, if OSCORE protected the registration. Stores it for
/// retransmission.
fn keep<C: Crypto, S: ExchangeStorage, O: Oscore>(
    cx: &mut Cx<'_, C>,
    (exchanges, storage): (&mut Exchanges<S>, &mut S),
    oscore: &mut O,
    exchange: Option<&O::Exchange>,
    frame: &mut Frame<'_>,
) -> Result<RequestId, SendError> {
    if let Some(exchange) = exchange {
        oscore.protect_response(cx.crypto, exchange, None, frame)?;
    }
    let mut random = [0];
    cx.crypto.random(&mut random);
    let [random] = random;
    Ok(exchanges.sent(storage, cx.now, frame.bytes(), random)?)
}

/// The result of [`renew`], which gets the content of a notification from the handler.
pub(super) enum Renewed {
    /// The notification is in the frame. If `is_last` is true, it is the last notification of the observation, for
    /// example an error (RFC 7641, section 4.2).
    Written { is_last: bool },
    /// The handler deferred the notification, or the policy has not decided on it yet. `observes` is true if the client
    /// remains an observer.
    Deferred { observes: bool },
}

/// Removes and returns the stored decision of the policy: true if the observer may get a notification. Returns `None` if
/// no decision is stored.
fn take_decision<P: Policy>(_: &P, decision: &mut Option<bool>) -> Option<Decided> {
    let allows = if P::LATER { decision.take() } else { None };
    allows.map(|allows| Decided { allows })
}

/// Passes the stored request of an observer to the handler, and writes the handler's response into `frame` as a
/// notification with the Observe number `number`. If the policy could not decide immediately on this notification, and
/// has decided since then, `decision` contains this decision. If `decision` is `None`, this function asks the policy
/// now.
pub(super) fn renew<X: OpenedRequest, S>(
    peer: PeerId,
    (request, decision): (&[u8], &mut Option<bool>),
    (identity, exchange): (Identity, Option<&X>),
    number: u32,
    application: &mut impl Application<X, S>,
    head: (MessageType, u16),
    frame: &mut Frame<'_>,
) -> Renewed {
    let Ok(message) = MessageRef::parse(request) else { return Renewed::Written { is_last: true } };
    application.on_notification(peer, &message);
    let Some((policy, handler)) = application.server() else { return Renewed::Written { is_last: true } };
    let request = Request::new(message, identity).observable(number);
    let deferred = |observes, is_undecided| DeferredRequest {
        peer,
        identity,
        token: Token::new(message.token()),
        message: &message,
        exchange: exchange.map(|exchange| (*exchange, None)),
        operation: Some(Operation::of(peer, &request)),
        observes,
        to_group: false,
        is_undecided,
        notification: Some(number),
        late: None,
        acknowledges_later: false,
    };
    let decided = take_decision(policy, decision).or_else(|| Decided::ask(policy, handler, &request));
    let Some(decided) = decided else {
        application.on_deferred(deferred(true, true));
        return Renewed::Deferred { observes: true };
    };
    match respond(&request, decided, handler, head.0, head.1, frame) {
        Served::Responded { observed, .. } => Renewed::Written { is_last: !observed },
        Served::Deferred { observed, .. } => {
            application.on_deferred(deferred(observed, false));
            Renewed::Deferred { observes: observed }
        }
        Served::NoRoom => {
            fail(message.token(), head, frame);
            Renewed::Written { is_last: true }
        }
    }
}

/// Replaces the content of `frame` by a response with the code 5.00.
fn fail(token: &[u8], (message_type, message_id): (MessageType, u16), frame: &mut Frame<'_>) {
    frame.truncate(0);
    let _ = Builder::new(frame, message_type, Code::INTERNAL_SERVER_ERROR, message_id, token);
}

/// Registers or deregisters the sender of a request, if the request has an Observe option. `exchange` identifies the
/// request in its OSCORE context, together with the owner of this context; `None` if OSCORE does not protect the
/// request. `to_group` has two values. If a member of a protected group sent the request, the first value is the data
/// that is stored for this member. If the request was sent to a group, the second value has the Message ID of the
/// response and an Observe number. The client may reject the response with a Reset that contains this Message ID. The
/// first Observe number of a new registration is one more than this Observe number.
///
/// Returns the request, and true if the response to this request may make the sender an observer. If the sender does
/// not become an observer, the caller must call [`deregister`].
#[inline]
pub(super) fn register<'r, X: Copy, G: Copy>(
    observers: &mut impl Observers<X, G>,
    peer: PeerId,
    request: Request<'r>,
    exchange: Option<(X, Principal)>,
    to_group: (Option<G>, Option<(u16, u32)>),
) -> (Request<'r>, bool) {
    match request.message.uint(OptionNumber::OBSERVE) {
        None => (request, false),
        Some(value) => register_as(value, observers, peer, request, exchange, to_group),
    }
}

/// Registers or deregisters the sender of a request. `value` is the value of the request's Observe option.
fn register_as<'r, X: Copy, G: Copy>(
    value: u32,
    observers: &mut impl Observers<X, G>,
    peer: PeerId,
    request: Request<'r>,
    exchange: Option<(X, Principal)>,
    (registration, response): (Option<G>, Option<(u16, u32)>),
) -> (Request<'r>, bool) {
    let (message, owner) = (request.message, exchange.as_ref().map(|(_, owner)| *owner));
    match value {
        DEREGISTER => deregister(observers, peer, message.token(), owner),
        REGISTER if message.code().is_safe() => {
            let before = observers.find(peer, |observer| observer.is_of(peer, message.token(), owner));
            // A registration that renews an older one gets a newer number.
            let first = response.map_or(0, |(_, first)| first);
            let number = before.map_or(first, |(observer, _)| observer.observation.number()).wrapping_add(1);
            let message_id = response.map(|(message_id, _)| message_id);
            let new = Observer::new(peer, Token::new(message.token()), number);
            let observer = Observer { exchange, registration, message_id, ..new };
            deregister(observers, peer, message.token(), owner);
            if observers.insert(observer, &message).is_ok() {
                return (request.observable(observer.observation.number()), true);
            }
        }
        _ => {}
    }
    (request, false)
}

/// Ends the observation that a request with this token registered. `owner` is the owner of the OSCORE context that
/// protected the request.
pub(super) fn deregister<X, G>(
    observers: &mut impl Observers<X, G>,
    peer: PeerId,
    token: &[u8],
    owner: Option<Principal>,
) {
    observers.remove(peer, |observer| observer.is_of(peer, token, owner));
}

/// Marks an observation: its next notification is deferred.
pub(super) fn defer<X, G>(observers: &mut impl Observers<X, G>, peer: PeerId, token: &[u8], owner: Option<Principal>) {
    if let Some((observer, _)) = observers.find(peer, |observer| observer.is_of(peer, token, owner)) {
        observer.deferred = true;
    }
}

/// Processes the rejection of a non-confirmable message. If the message was a notification, removes its observer.
#[inline]
pub(super) fn on_rejected<X, G>(observers: &mut impl Observers<X, G>, peer: PeerId, message_id: u16) {
    observers.remove(peer, |observer| observer.message_id == Some(message_id));
}

/// Processes the acknowledgement of a message. Returns true if the message was a notification.
#[inline]
pub(super) fn on_acknowledged<X, G>(observers: &mut impl Observers<X, G>, peer: PeerId, id: RequestId) -> bool {
    let found = observers.find(peer, |observer| observer.pending == Some(id));
    found.map(|(observer, _)| observer.pending = None).is_some()
}

/// Called after the peer rejected a confirmable message or did not acknowledge it in time. Returns true if the message
/// was a notification. The observer of the notification is then removed (RFC 7641, sections 3.6 and 4.5).
#[inline]
pub(super) fn on_refused<X, G>(observers: &mut impl Observers<X, G>, peer: PeerId, id: RequestId) -> bool {
    let is_notification = observers.any(peer, |observer| observer.pending == Some(id));
    observers.remove(peer, |observer| observer.pending == Some(id));
    is_notification
}
