//! Processes the decisions that a policy makes later.

use super::Node;
use super::application::{Answer, Application, Deferred, Incoming};
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::groups::Groups as _;
use super::observers::Observers as _;
use super::oscore::Oscore as _;
use super::send::Protect;
use super::serve::{Sender, answer_admitted, challenge_instead, is_useful, seal_to_member, write_refusal};
use crate::coap::PeerExchanges;
use crate::coap::Repeat;
use crate::coap::handler::Decided;
use crate::coap::{Code, MessageRef, MessageType};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::{Misuse, Peers};
use crate::identity::{PeerId, Protection};

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Processes the decision on an undecided request. `request` is the copy of the message of the request, and
    /// `allows` is the decision. If the request is allowed, the node processes it as if it arrived now. The handler
    /// writes the response or defers it, and may make the sender an observer. If the request is denied, the response is
    /// 4.01 or 4.03. The response is a separate message in `out`, which the node sends again until it is acknowledged.
    /// To respond without a decision, call [`Self::respond`] instead of this function.
    ///
    /// The decision may also be on a notification. This function then writes nothing, and [`Self::poll`] sends the
    /// notification later. Before the decision, the client gets no notification and remains an observer. An error
    /// response ends the observation. So if a notification is denied, or if [`Self::respond`] sends an error, the
    /// client learns that it is no longer an observer.
    ///
    /// Returns the length of the datagram to send. The length is 0 if no datagram must be sent now. This is the case if
    /// the response waits in the node's [`Queue`](super::Queue), if the handler defers the response, or if the client
    /// suppresses it (RFC 7967). It is also the case if the request was sent to a group and its response is an error or
    /// empty (RFC 7252, section 8.2).
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing. After [`SendError::Busy`], call this function again later, with the
    /// [`Deferred`] that is returned together with the error. If the handler was not called yet, the next call calls
    /// it. If the handler was called and its response is lost, the next call responds with 5.00 and does not call the
    /// handler again. Every other error means that the session has ended, or that `request` is not a message.
    pub fn decide<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        mut deferred: Deferred<ExchangeOf<F>>,
        request: &[u8],
        allows: bool,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Result<usize, (SendError, Deferred<ExchangeOf<F>>)> {
        if let Some(number) = deferred.notification.filter(|_| deferred.is_undecided) {
            self.decide_notification(&deferred, number, allows);
            return Ok(0);
        }
        if deferred.is_undecided {
            let Ok(message) = MessageRef::parse(request) else { return Err((SendError::TooLong, deferred)) };
            let decided = Decided { allows };
            match self.answer_later(cx, &mut deferred, message, (request.len(), decided), application, out) {
                Ok(len) => return Ok(len),
                Err(error) if deferred.is_undecided => return Err((error, deferred)),
                Err(_) => {}
            }
        }
        // The handler was called, and its response cannot be sent.
        self.respond(cx, deferred, Code::INTERNAL_SERVER_ERROR, |_| Ok(()), out)
    }

    /// Processes a request after the decision. Marks `deferred` as decided before it calls the handler.
    fn answer_later<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        deferred: &mut Deferred<ExchangeOf<F>>,
        message: MessageRef<'_>,
        (len, decided): (usize, Decided),
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Result<usize, SendError> {
        let (peer, identity, to_group) = (deferred.peer, deferred.identity, deferred.to_group);
        let mut random = [0];
        cx.crypto.random(&mut random);
        let [random] = random;
        let entry = self.endpoint.peers.peer(peer).ok_or(Misuse::NotEstablished)?;
        let path = *entry.path();
        // If the entry now belongs to another session, that session has another owner.
        let member = if F::Groups::IS_ON { identity.protection.member() } else { None };
        if identity.protection != Protection::Oscore && member.is_none() && entry.identity() != identity {
            return Err(Misuse::NotEstablished.into());
        }
        let (head, waits) = self.separate_head(cx, peer, member.is_some())?;
        let mut frame = self.frame::<C>(peer, out);
        let mut tailroom = self.tailroom(peer, &frame);
        if member.is_some() {
            tailroom = self.make_space_for_tag(&path.local, tailroom, &mut frame);
        }
        if F::Oscore::IS_ON && deferred.exchange.is_some() {
            frame.indent(F::Oscore::OVERHEAD);
            tailroom = tailroom.saturating_add(F::Oscore::OVERHEAD);
            self.forget_requests();
        }
        // From this point on the request may have an effect, so it must not be decided on again.
        deferred.is_undecided = false;
        let mut sender = Sender::new((&path, identity), (false, to_group), len, tailroom);
        sender.exchange = deferred.exchange.as_mut().map(|(exchange, nonce)| (*exchange, nonce.take()));
        let memory = (cx.now, &mut self.features);
        let (from, decided) = ((&mut sender, head, &mut None), Some(decided));
        let mut answered = answer_admitted(memory, peer, message, from, decided, application, &mut frame);
        let token = message.token();
        if answered == Answer::NoRoom {
            frame.truncate(0);
            answered = Answer::Code(Code::INTERNAL_SERVER_ERROR);
            write_refusal(head, token, answered, None, &mut frame);
        }
        if let Some(attached) = self.endpoint.peers.attached(peer)
            && let Some(challenged) = challenge_instead(attached, &sender, head, token, &mut frame)
        {
            answered = challenged;
        }
        if to_group && !is_useful(frame.bytes()) {
            frame.truncate(0);
        }
        let incoming = Incoming { now: cx.now, peer, path: &path, identity, message: &message, to_group };
        application.on_answered(&incoming, answered, frame.bytes(), Repeat::of(message.code()));
        if frame.is_empty() {
            return Ok(0);
        }
        if member.is_some() {
            let is_sealed = seal_to_member(cx, &mut self.features, &sender, application, &mut frame);
            return Ok(if is_sealed { frame.len() } else { 0 });
        }
        let protect = match &mut sender.exchange {
            Some((exchange, nonce)) => Protect::Response(&*exchange, nonce.take()),
            None => Protect::Nothing,
        };
        let (id, len) = self.send_written(cx, peer, (true, waits), protect, random, frame)?;
        if F::Observers::PLACES > 0 && deferred.observes {
            self.on_responded(deferred, id);
        }
        Ok(len)
    }

    /// Returns the type and the Message ID of a separate response, and true if the response must wait in the queue.
    /// `in_group` is true for a response in a protected group. Such a response is not confirmable, because no member
    /// can acknowledge it.
    fn separate_head<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        in_group: bool,
    ) -> Result<((MessageType, u16), bool), SendError> {
        if in_group {
            return Ok(((MessageType::NonConfirmable, self.member_message_id(peer)?), false));
        }
        let (message_id, waits) = self.place(cx, peer, true, false)?;
        Ok(((MessageType::Confirmable, message_id), waits))
    }
}
