//! Sends messages that begin an exchange, at once or when NSTART and PROBING_RATE allow it (RFC 7252, section 4.7).

use super::Node;
use super::application::{Application, Reply};
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::groups::Groups as _;
use super::oscore::Oscore as _;
use super::pacing::Pacing as _;
use super::queue::{Queue as _, Queued};
use crate::buf::Frame;
use crate::coap::BuildError;
use crate::coap::{Builder, Code, MessageRef, MessageType, NoResponse, RequestId};
use crate::coap::{Busy, ExchangeStorage};
use crate::coap::{Exchanges, PeerExchanges};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::{Misuse, Peers};
use crate::identity::PeerId;
use crate::oscore::OpenedRequest;
use crate::time::Instant;

/// The way in which OSCORE protects a message that begins an exchange.
pub(super) enum Protect<'x, X: OpenedRequest> {
    Nothing,
    Request,
    Response(&'x X, Option<X::Nonce>),
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` a message that begins an exchange. OSCORE protects the message before it is stored for
    /// retransmission, so that all transmissions have the same bytes.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "the parts of a message, and where it goes")]
    pub(super) fn send<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        (message_type, code): (MessageType, Code),
        token: &[u8],
        protect: Protect<'_, ExchangeOf<F>>,
        write: impl FnOnce(&mut F, &mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let mut random = [0];
        cx.crypto.random(&mut random);
        let [random] = random;
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(peer));
        if F::Oscore::IS_ON && !matches!(protect, Protect::Nothing) {
            frame.indent(F::Oscore::OVERHEAD);
            self.forget_requests();
        }
        let confirmable = message_type == MessageType::Confirmable;
        let (message_id, waits) = self.place(cx, peer, confirmable, code.is_request())?;
        let mut builder = Builder::new(&mut frame, message_type, code, message_id, token)?;
        write(&mut self.features, &mut builder)?;
        self.send_written(cx, peer, (confirmable, waits), protect, random, frame)
    }

    /// Returns the Message ID for a message that begins an exchange with the peer, and true if the message must wait in
    /// the queue.
    ///
    /// # Errors
    /// [`SendError::Busy`] if the message must wait and the node has no queue. [`Misuse::NotEstablished`] if the node
    /// cannot send messages to the peer.
    #[inline]
    pub(super) fn place<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        confirmable: bool,
        is_request: bool,
    ) -> Result<(u16, bool), SendError> {
        if F::Groups::IS_ON && self.is_in_group(peer) {
            // The endpoint does not protect datagrams for this entry.
            return Err(Misuse::NotEstablished.into());
        }
        let exchanges = self.endpoint.peers.attached(peer).and_then(|attached| {
            attached.begin(cx.now, |random| cx.crypto.random(random));
            attached.exchanges()
        });
        let exchanges = exchanges.ok_or(Misuse::NotEstablished)?;
        let mut waits = !may_begin(exchanges, &self.storage, self.nstart, is_request);
        if !confirmable {
            waits |= self.features.pacing().next(peer) > cx.now;
        }
        if F::Queue::PLACES > 0 {
            waits |= self.features.queue().first(peer, |_| true).is_some();
        }
        if waits && F::Queue::PLACES == 0 {
            return Err(SendError::Busy);
        }
        Ok((exchanges.message_id(), waits))
    }

    /// Protects the message in `frame`, and stores it. Returns the id of its exchange, and the length of the datagram
    /// to send. The length is 0 if the message waits in the queue.
    #[inline]
    pub(super) fn send_written<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        (confirmable, waits): (bool, bool),
        protect: Protect<'_, ExchangeOf<F>>,
        random: u8,
        mut frame: Frame<'_>,
    ) -> Result<(RequestId, usize), SendError> {
        let exchanges = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges);
        let exchanges = exchanges.ok_or(Misuse::NotEstablished)?;
        let request = exchanges.request_id();
        if F::Oscore::IS_ON {
            let (oscore, _) = self.features.oscore();
            match protect {
                Protect::Nothing => {}
                Protect::Request => oscore.protect_request(cx.crypto, peer, request, &mut frame)?,
                Protect::Response(exchange, nonce) => {
                    oscore.protect_response(cx.crypto, exchange, nonce, &mut frame)?;
                }
            }
        }
        if waits {
            self.enqueue(peer, request, frame.bytes())?;
            return Ok((request, 0));
        }
        if confirmable || is_answered(frame.bytes()) {
            exchanges.sent_as(&mut self.storage, cx.now, request, frame.bytes(), random)?;
        }
        if !confirmable {
            self.features.pacing().sent(cx.now, peer, frame.len());
        }
        self.schedule(peer);
        if let Err(misuse) = self.endpoint.seal(cx, peer, &mut frame) {
            // The message must not be sent later either.
            self.cancel(peer, request);
            return Err(misuse.into());
        }
        if F::Oscore::IS_ON {
            frame.move_to_front();
        }
        Ok((request, frame.len()))
    }

    /// Removes the OSCORE data of two kinds of requests: those that have ended, and those to peers that are no longer
    /// in the table.
    pub(super) fn forget_requests(&mut self) {
        let Self { endpoint, storage, features, .. } = self;
        let (oscore, queue) = features.oscore();
        oscore.retain(|peer, request| {
            let Some(attached) = endpoint.peers.attached(peer) else { return false };
            let waits = queue.first(peer, |queued| queued.request == request).is_some();
            waits || attached.exchanges().is_some_and(|exchanges| exchanges.is_open(storage, request))
        });
    }

    /// Stores a message in the queue until it may be sent.
    pub(super) fn enqueue(&mut self, peer: PeerId, request: RequestId, message: &[u8]) -> Result<(), SendError> {
        let Self { endpoint, features, .. } = self;
        let parsed = MessageRef::parse(message).map_err(|_| SendError::TooLong)?;
        let confirmable = parsed.message_type() == MessageType::Confirmable;
        let queued = Queued { peer, request, confirmable, is_request: parsed.code().is_request() };
        let queue = features.queue();
        if let Err(busy) = queue.push(queued, message) {
            if busy == Busy::TooLong {
                return Err(busy.into());
            }
            // Messages to peers that are no longer in the table must not take places from others.
            queue.retain(|queued| endpoint.peers.attached(queued.peer).is_some());
            queue.push(queued, message)?;
        }
        self.schedule(peer);
        Ok(())
    }

    /// Returns the time at which the next waiting message to the peer may be sent; [`Instant::NEVER`] if none may be
    /// sent yet.
    pub(super) fn queue_deadline(&mut self, peer: PeerId) -> Instant {
        let Self { endpoint, storage, nstart, features } = self;
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return Instant::NEVER };
        let unconfirmed = features.pacing().next(peer);
        let mut deadline = Instant::NEVER;
        features.queue().first(peer, |queued| {
            if may_begin(exchanges, storage, *nstart, queued.is_request) {
                deadline = deadline.min(if queued.confirmable { Instant::AT_ONCE } else { unconfirmed });
            }
            false
        });
        deadline
    }

    /// If a waiting message may be sent to the peer now, writes the oldest such message into `frame`.
    pub(super) fn send_queued<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        frame: &mut Frame<'_>,
    ) {
        let Self { endpoint, storage, nstart, features } = self;
        let attached = endpoint.peers.attached(peer);
        let Some(exchanges) = attached.and_then(PeerExchanges::exchanges) else { return };
        let is_paced = features.pacing().next(peer) <= cx.now;
        let may_go = |queued: &Queued| {
            (queued.confirmable || is_paced) && may_begin(exchanges, storage, *nstart, queued.is_request)
        };
        let Some((queued, message)) = features.queue().first(peer, may_go) else { return };
        let mut random = [0];
        cx.crypto.random(&mut random);
        let [random] = random;
        let sent = match frame.append(message) {
            Err(_) => Err(Busy::TooLong),
            Ok(()) if !is_answered(message) => Ok(()),
            Ok(()) => exchanges.sent_as(storage, cx.now, queued.request, message, random),
        };
        features.queue().retain(|other| (other.peer, other.request) != (peer, queued.request));
        match sent {
            Ok(()) if queued.confirmable => {}
            Ok(()) => features.pacing().sent(cx.now, peer, frame.len()),
            Err(busy) => {
                frame.truncate(0);
                application.on_reply(peer, queued.request, Reply::NotSent(busy.into()));
            }
        }
    }
}

/// Returns true if a message may begin another exchange with the peer. Returns false if the number of open exchanges
/// has reached NSTART, or if there is no space for another exchange. Then an open exchange must end first.
#[inline]
pub(super) fn may_begin<S: ExchangeStorage>(
    exchanges: &Exchanges<S>,
    storage: &S,
    nstart: usize,
    is_request: bool,
) -> bool {
    // If the requests of two nodes wait for each other's deferred responses, each node must have a place from which
    // it can send its response.
    let reserved = usize::from(is_request && S::PLACES > 1);
    let has_place = S::PLACES == 1 || exchanges.open(storage).saturating_add(reserved) < S::PLACES;
    has_place && exchanges.outstanding(storage) < nstart
}

/// Returns true if the peer may respond to a message. Returns false for a message that is not confirmable and that
/// suppresses all responses.
pub(super) fn is_answered(message: &[u8]) -> bool {
    MessageRef::parse(message).is_ok_and(|message| {
        message.message_type() == MessageType::Confirmable || !NoResponse::of(&message).suppresses_all()
    })
}
