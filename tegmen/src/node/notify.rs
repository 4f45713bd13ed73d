//! Registers observers and notifies them (RFC 7641, section 4).

use super::Node;
use super::application::Application;
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::observers::{Observer, Observers};
use super::oscore::Oscore;
use super::pacing::Pacing as _;
use super::send::may_begin;
use crate::buf::Frame;
use crate::coap::exchange::{Exchanges, PeerExchanges};
use crate::coap::handler::{Request, Served, respond};
use crate::coap::observe::{DEREGISTER, REGISTER};
use crate::coap::storage::ExchangeStorage;
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, RequestId, Token};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, PeerId, Principal, Protection};
use crate::oscore::ProtectError;
use crate::time::Instant;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Notifies the observers of the resource at `path`, whose segments are separated by slashes, without one in front, that
    /// its representation changed. [`Self::poll`] asks the handler for the newest one with the request that registered, and
    /// sends it when NSTART allows it and the client has acknowledged the notification before. Changes that come faster
    /// become one notification. An error response is the last notification, and so is 5.00 where the handler defers, or its
    /// response does not fit. Where OSCORE protected the registration, it protects each notification with a number of its own
    /// (RFC 8613, section 8.3); an observer whose notification it cannot protect is removed.
    pub fn notify(&mut self, path: &str) {
        let Self { endpoint, features, .. } = self;
        features.observers().mark(path, |peer| endpoint.peers.schedule(peer, Instant::AT_ONCE));
    }

    /// Removes the observers whose peers are gone, if their places are needed.
    pub(super) fn make_space_for_observers(&mut self) {
        let Self { endpoint, features, .. } = self;
        if F::Observers::PLACES > 0 && features.observers().is_full() {
            features.observers().retain_peers(|peer| endpoint.peers.attached(peer).is_some());
        }
    }

    /// True if a notification can be sent to the peer now.
    pub(super) fn is_notification_due(&mut self, peer: PeerId) -> bool {
        let Self { endpoint, storage, nstart, features } = self;
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return false };
        may_begin(exchanges, storage, *nstart, true)
            && !features.observers().any(peer, |observer| observer.pending.is_some())
            && features.observers().any(peer, |observer| observer.changed)
    }

    /// Writes the next notification that is due for the peer into `frame`.
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
        let Self { endpoint, storage, features, .. } = self;
        let Some(to) = endpoint.peers.peer(peer) else { return };
        let identity = Identity { principal: to.principal(), protection: to.protection() };
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return };
        // Sooner than PROBING_RATE allows, an acknowledgement has to show that the client is there (RFC 7641, section 4.5.1).
        let is_early = cx.now < features.pacing().next(peer);
        let unconfirmed = features.observers().unconfirmed();
        let Some((observer, request)) = features.observers().find(peer, |observer| observer.changed) else { return };
        observer.changed = false;
        let confirmable = observer.observation.confirm(unconfirmed) || is_early;
        let message_type = if confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let (head, token) = ((message_type, exchanges.message_id()), observer.observation.token);
        let (number, registration) = (observer.observation.next(), observer.exchange);
        let identity =
            registration.map_or(identity, |(_, principal)| Identity { principal, protection: Protection::Oscore });
        let exchange = registration.as_ref().map(|(exchange, _)| exchange);
        indent::<F::Oscore>(exchange, frame);
        let mut is_last = !renew(request, identity, number, application, head, frame);
        let mut sent = keep(cx, (exchanges, storage), features.oscore().0, exchange, frame);
        if matches!(sent, Err(SendError::TooLong | SendError::Oscore(ProtectError::Full))) {
            is_last = true;
            frame.truncate(0);
            indent::<F::Oscore>(exchange, frame);
            fail(token.as_bytes(), head, frame);
            sent = keep(cx, (exchanges, storage), features.oscore().0, exchange, frame);
        }
        let observers = features.observers();
        let is_it = |observer: &Observer<_>| observer.is_of(peer, token.as_bytes(), registration.as_ref());
        let Some((observer, _)) = observers.find(peer, is_it) else { return };
        match sent {
            Ok(id) if confirmable => observer.pending = Some(id),
            Ok(_) => (observer.pending, observer.message_id) = (None, Some(head.1)),
            Err(error) => {
                // The storage has no space, or the context has no number. The client asks again when Max-Age has passed.
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
}

/// Leaves space in front of a notification for its protection with OSCORE.
fn indent<O: Oscore>(exchange: Option<&O::Exchange>, frame: &mut Frame<'_>) {
    if O::IS_ON && exchange.is_some() {
        frame.indent(O::OVERHEAD);
    }
}

/// Protects the notification in `frame` as its registration was, and keeps it for retransmission.
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

/// Writes the response to a registration again, with `number` in its Observe option. Returns false if it is the last one: an
/// error, or a response that the handler does not write at once (RFC 7641, section 4.2).
fn renew<X, S>(
    request: &[u8],
    identity: Identity,
    number: u32,
    application: &mut impl Application<X, S>,
    head: (MessageType, u16),
    frame: &mut Frame<'_>,
) -> bool {
    let (Ok(message), Some((policy, handler))) = (MessageRef::parse(request), application.server()) else {
        return false;
    };
    match respond(Request::new(message, identity).observable(number), policy, handler, head.0, head.1, frame) {
        Served::Responded { observed, .. } => observed,
        Served::Deferred(_) | Served::NoRoom => {
            fail(message.token(), head, frame);
            false
        }
    }
}

/// Writes 5.00 instead of what is in `frame`.
fn fail(token: &[u8], (message_type, message_id): (MessageType, u16), frame: &mut Frame<'_>) {
    frame.truncate(0);
    let _ = Builder::new(frame, message_type, Code::INTERNAL_SERVER_ERROR, message_id, token);
}

/// Registers or deregisters the sender of a request, if it asks for that; `exchange` is the request as OSCORE opened it, and
/// the owner of the context. Returns the request, and true if its response may make the sender an observer; if that response
/// does not, [`deregister`] is called.
#[inline]
pub(super) fn register<'r, X: Copy>(
    observers: &mut impl Observers<X>,
    peer: PeerId,
    request: Request<'r>,
    exchange: Option<(X, Principal)>,
) -> (Request<'r>, bool) {
    let (message, registration) = (request.message, exchange.as_ref());
    match message.uint(OptionNumber::OBSERVE) {
        Some(DEREGISTER) => deregister(observers, peer, message.token(), registration),
        Some(REGISTER) if message.code().is_safe() => {
            let before = observers.find(peer, |observer| observer.is_of(peer, message.token(), registration));
            // A registration that renews an older one carries a newer number.
            let number = before.map_or(0, |(observer, _)| observer.observation.number()).wrapping_add(1);
            let observer = Observer { exchange, ..Observer::new(peer, Token::new(message.token()), number) };
            deregister(observers, peer, message.token(), registration);
            if observers.insert(observer, &message).is_ok() {
                return (request.observable(observer.observation.number()), true);
            }
        }
        _ => {}
    }
    (request, false)
}

/// Ends the observation that a request with this token and this protection registered.
pub(super) fn deregister<X>(
    observers: &mut impl Observers<X>,
    peer: PeerId,
    token: &[u8],
    exchange: Option<&(X, Principal)>,
) {
    observers.remove(peer, |observer| observer.is_of(peer, token, exchange));
}

/// The peer has acknowledged a message. Returns true if that was a notification.
#[inline]
pub(super) fn on_acknowledged<X>(observers: &mut impl Observers<X>, peer: PeerId, id: RequestId) -> bool {
    let found = observers.find(peer, |observer| observer.pending == Some(id));
    found.map(|(observer, _)| observer.pending = None).is_some()
}

/// The peer has rejected a confirmable message, or does not acknowledge it. Returns true if that was a notification: its
/// client observes no more (RFC 7641, sections 3.6 and 4.5).
#[inline]
pub(super) fn on_refused<X>(observers: &mut impl Observers<X>, peer: PeerId, id: RequestId) -> bool {
    let is_notification = observers.any(peer, |observer| observer.pending == Some(id));
    observers.remove(peer, |observer| observer.pending == Some(id));
    is_notification
}
