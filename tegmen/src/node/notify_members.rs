//! Notifies observers that are members of groups that Axiom protects (RFC 7641, section 4).
//!
//! Like every response in such a group, a notification is a separate record. It is sealed under the keys of the epoch
//! in which it is made, for the SenderID of the registration, and with a new record number. Only the token binds the
//! notification to the registration.
//!
//! A notification is not confirmable, because Axiom has no record in which a member could acknowledge it. So no
//! acknowledgement shows that a member still observes the resource. Only a registration shows this, and the record of a
//! registration is authentic. A registration ends after 24 hours if the member does not register again. If a new epoch
//! begins, the registration ends 5 minutes after the first notification in this epoch, because the member may have been
//! evicted.

use super::Node;
use super::application::{Application, Deferred};
use super::features::{ExchangeOf, Features, ObserverOf, StateOf};
use super::groups::Groups as _;
use super::notify::{Renewed, defer, is_before_response, renew};
use super::observers::Observers as _;
use crate::buf::Frame;
use crate::coap::PeerExchanges;
use crate::coap::{MessageRef, MessageType, NoResponse, Token};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, PeerId};
use crate::time::{Duration, Instant};

/// The minimum time between two notifications to the same client, because its round-trip time is not known (RFC 7641,
/// section 4.5.1).
const BETWEEN: Duration = Duration::from_secs(3);

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Returns the time at which the next notification to a member is due. Returns [`Instant::NEVER`] if no
    /// notification is due, if the node must first send a response to the peer, or if the peer is not a member.
    pub(super) fn member_notified_at(&mut self, peer: PeerId) -> Instant {
        let mut at = Instant::NEVER;
        self.features.observers().any(peer, |observer| {
            at = at.min(due_at::<F>(observer));
            false
        });
        if at < Instant::NEVER && is_before_response(&mut self.features, peer) { Instant::NEVER } else { at }
    }

    /// Writes into `frame` one notification that is due for a member, and protects it.
    pub(super) fn notify_member<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        frame: &mut Frame<'_>,
    ) {
        if self.member_notified_at(peer) > cx.now {
            return;
        }
        let Some(entry) = self.endpoint.peers.peer(peer) else { return };
        let group = entry.path().local;
        let groups = self.features.groups();
        let (principal, epoch) = (groups.principal(&group), groups.epoch(&group));
        let Ok(message_id) = self.member_message_id(peer) else { return };
        let tailroom = self.make_space_for_tag(&group, 0, frame);
        let observers = self.features.observers();
        let is_due = |observer: &ObserverOf<F>| due_at::<F>(observer) <= cx.now;
        let Some((observer, request)) = observers.find(peer, is_due) else { return };
        let Some(registration) = observer.registration.as_mut().map(AsMut::as_mut) else { return };
        let (sender, token) = (registration.sender(epoch, cx.now), observer.observation.token);
        // A node that has left the group has no keys for its members.
        let (Some(principal), Some(sender)) = (principal, sender) else {
            return observers.remove(peer, |observer| is_registered::<F>(observer, token));
        };
        let identity = Identity { principal, ..registration.identity };
        observer.changed = false;
        let (number, head) = (observer.observation.next(), (MessageType::NonConfirmable, message_id));
        let unwanted = MessageRef::parse(request).map(|request| NoResponse::of(&request));
        let mut limited = frame.reserving(tailroom);
        let (decision, with) = (&mut observer.decision, (identity, None::<&ExchangeOf<F>>));
        let renewed = renew(peer, (request, decision), with, number, application, head, &mut limited);
        let (_, end) = limited.place();
        frame.end_at(end);
        let is_last = match renewed {
            Renewed::Written { is_last } => is_last,
            Renewed::Deferred { observes } => {
                frame.truncate(0);
                return match observes {
                    true => defer(observers, peer, token.as_bytes(), None),
                    false => observers.remove(peer, |observer| is_registered::<F>(observer, token)),
                };
            }
        };
        let response = MessageRef::parse(frame.bytes());
        let is_wanted = |response: MessageRef<'_>| !unwanted.is_ok_and(|unwanted| unwanted.suppresses(response.code()));
        let sealed = match response.is_ok_and(is_wanted) {
            true => self.features.groups().seal_response(cx.crypto, &group, sender, frame).map_err(Some),
            false => Err(None),
        };
        if sealed.is_err() {
            frame.truncate(0);
        }
        if let Err(Some(refused)) = sealed {
            application.on_unsealed_response(&group, refused);
        }
        self.on_notified(cx.now, (peer, token), is_last, matches!(sealed, Err(Some(_))));
    }

    /// Processes the result of a notification to a member. If the notification was sent, the next notification is due
    /// after the minimum time ([`BETWEEN`]). If the notification could not be protected (`is_refused`), it is written
    /// again after the same time. If it was the last notification (`is_last`), this function removes the observer.
    fn on_notified(&mut self, now: Instant, (peer, token): (PeerId, Token), is_last: bool, is_refused: bool) {
        let observers = self.features.observers();
        let is_it = |observer: &ObserverOf<F>| is_registered::<F>(observer, token);
        if is_last {
            observers.remove(peer, is_it);
        } else if let Some((observer, _)) = observers.find(peer, is_it)
            && let Some(registration) = &mut observer.registration
        {
            registration.as_mut().next = now.after(BETWEEN);
            observer.changed |= is_refused;
        }
    }

    /// Called after the node has sent a deferred response to a member. The response answers a registration, or is a
    /// notification.
    pub(super) fn on_responded_to_member(&mut self, now: Instant, deferred: &Deferred<ExchangeOf<F>>) {
        let Deferred { peer, token, .. } = *deferred;
        if let Some((observer, _)) = self.features.observers().find(peer, |it| is_registered::<F>(it, token)) {
            observer.deferred = false;
            self.on_notified(now, (peer, token), false, false);
        }
    }
}

/// Returns the time at which this observer may be notified. Returns [`Instant::NEVER`] if the resource did not change,
/// or if the observer is not a member of a protected group.
fn due_at<F: Features>(observer: &ObserverOf<F>) -> Instant {
    let is_changed = observer.changed && !observer.deferred;
    let registration = observer.registration.filter(|_| is_changed);
    registration.map_or(Instant::NEVER, |mut registration| registration.as_mut().next)
}

/// True if the observer is a member of a protected group and its registration has this token.
fn is_registered<F: Features>(observer: &ObserverOf<F>, token: Token) -> bool {
    observer.registration.is_some() && observer.observation.token == token
}
