//! A CoAP node without I/O: it serves and asks, over DTLS or in clear, for all its peers at the same time.
//!
//! Bytes and the clock go in, bytes and the next alarm come out, as with the [`Endpoint`] inside:
//!
//! * for each datagram received on a DTLS port, [`Node::handle`] until it returns `None`; for one in clear,
//!   [`Node::handle_plain`] once;
//! * then, and whenever [`Endpoint::next_alarm`] has come, [`Node::poll`] until it returns `None`;
//! * [`Node::request`] asks a peer; the reply comes to [`Application::on_reply`];
//! * [`Node::observe`] registers an [`Observation`] at a server;
//! * [`Node::respond`] answers a request that the handler deferred: [`Application::on_deferred`];
//! * [`Node::notify`] notifies the observers of a resource that its representation changed.
//!
//! With [`Oscore`] among its features, a node opens the requests that have an OSCORE option and protects their responses,
//! and a request asks with protection where its [`RequestHead`] says so, in clear and over DTLS.
//!
//! An image may leave out a part of the node: see [`Features`].

mod application;
mod ask;
mod error;
mod features;
mod notify;
mod observation;
mod observers;
mod oscore;
mod pacing;
mod queue;
mod request_head;
mod send;
mod serve;

pub use application::{Application, Deferred, DeferredRequest, Reply};
pub use error::SendError;
pub use features::{Features, Parts};
pub use observation::{Notification, Observation};
pub use observers::{Observer, ObserverArray, Observers};
pub use oscore::{OneContext, Opened, Oscore};
pub use pacing::{Pacing, PacingArray};
pub use queue::{Queue, QueueArray, Queued};
pub use request_head::RequestHead;

use crate::address::Path;
use crate::buf::Frame;
use crate::coap::MessageRef;
use crate::coap::exchange::{Due, PeerExchanges, Received};
use crate::coap::{Code, OptionNumber, RequestId};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::Records;
use crate::dtls::association::Rank;
use crate::dtls::roles::Roles;
use crate::endpoint::{Endpoint, Event, Peers};
use crate::identity::{Identity, PeerId};
use crate::time::Instant;
use features::ExchangeOf;

/// An endpoint, the exchanges of each of its peers, and the memory of the features `F`.
pub struct Node<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features = ()> {
    /// The peers and their sessions.
    pub endpoint: Endpoint<P, R>,
    /// The memory of their exchanges.
    storage: <P::Attached as PeerExchanges>::Storage,
    /// The memory of the features.
    pub features: F,
    nstart: usize,
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles> Node<P, R> {
    /// A node with the peers of `endpoint`, whose exchanges are kept in `storage`. It serves and asks, and nothing more.
    pub const fn new(endpoint: Endpoint<P, R>, storage: <P::Attached as PeerExchanges>::Storage) -> Self {
        Self::with_features(endpoint, storage, ())
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// A node with the peers of `endpoint`, whose exchanges are kept in `storage`, and with `features`.
    pub const fn with_features(
        endpoint: Endpoint<P, R>,
        storage: <P::Attached as PeerExchanges>::Storage,
        features: F,
    ) -> Self {
        Self { endpoint, storage, features, nstart: NSTART }
    }

    /// Returns the memory of the features.
    pub const fn features_mut(&mut self) -> &mut F {
        &mut self.features
    }

    /// Sets the number of exchanges that the node opens with each peer at the same time (NSTART; RFC 7252, section 4.7).
    pub const fn set_nstart(&mut self, nstart: usize) {
        self.nstart = nstart;
    }

    /// Takes the next record of a datagram that came over `path` on a DTLS port. `out` is for an answer.
    ///
    /// Call it until it returns `None`. It returns no [`Event::Message`] and no [`Event::Alarm`]: the node handles both.
    pub fn handle<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        records: &mut Records<'_>,
        application: &mut impl Application<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Option<Event> {
        loop {
            match self.endpoint.handle(cx, path, records, out)? {
                Event::Message { peer, bytes } => {
                    let transmit = self.receive(cx, peer, records.bytes(bytes), application, out);
                    if transmit.is_some() {
                        return transmit;
                    }
                }
                event => return Some(event),
            }
        }
    }

    /// Takes a message that came in clear over `path`. Returns what is to be answered.
    pub fn handle_plain<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Option<Event> {
        let peer = self.endpoint.plain(cx, path, Rank::Stranger).ok()?;
        self.draw_message_id(cx, peer);
        self.receive(cx, peer, datagram, application, out)
    }

    /// Does what is due: sends flights of handshakes, alerts, and messages that were not acknowledged.
    ///
    /// Call it until it returns `None`. `out` must hold a datagram of the configured size.
    pub fn poll<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        application: &mut impl Application<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Option<Event> {
        loop {
            match self.endpoint.poll(cx, out)? {
                Event::Alarm(peer) => {
                    let transmit = self.on_alarm(cx, peer, application, out);
                    if transmit.is_some() {
                        return transmit;
                    }
                }
                event => return Some(event),
            }
        }
    }

    /// Handles a message of a peer. Returns what is to be answered. Drops messages of a session whose replay window was
    /// lost, until the response to a request of ours comes, or [`Endpoint::verify_session`] is called.
    fn receive<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        message: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Option<Event> {
        // The message may be a replay: the replay window of a restored session was lost. The owner first has to verify
        // that the peer is there (RFC 9175, section 2.3).
        if R::RESTORES && self.endpoint.is_unverified(peer) {
            if !self.is_fresh(peer, message) {
                cx.counters.discard(Discard::Replayed);
                return None;
            }
            self.endpoint.verify_session(peer);
        }
        if R::RESTORES {
            self.draw_message_id(cx, peer);
        }
        self.features.pacing().heard(peer);
        if F::Observers::PLACES > 0 {
            self.make_space_for_observers();
        }
        let sender = self.endpoint.peers.peer(peer)?;
        let identity = Identity { principal: sender.principal(), protection: sender.protection() };
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(peer));
        let Self { endpoint, storage, features, .. } = self;
        let exchanges = endpoint.peers.attached(peer)?.exchanges();
        match exchanges.receive(storage, cx.now, message) {
            Received::Request(request, key) => {
                let memory = (exchanges, storage, features);
                // A proxy sees the outer message of a protected request here, before it is opened.
                if F::Oscore::IS_ON && request.option(OptionNumber::OSCORE).is_some() {
                    serve::answer_protected(cx, peer, memory, (message, key), application, &mut frame);
                } else {
                    serve::answer(cx, peer, memory, (request, key), (identity, None), application, &mut frame);
                }
            }
            Received::Duplicate(reply) => frame.append(reply).ok()?,
            Received::Reject(reset) => frame.append(&reset).ok()?,
            Received::Response { request, message: response, acknowledge } => {
                let (oscore, _) = features.oscore();
                let is_protected = || response.option(OptionNumber::OSCORE).is_some();
                if F::Oscore::IS_ON && (oscore.is_protected(peer, request) || is_protected()) {
                    let head = (response.code(), exchanges.is_open(storage, request));
                    on_protected_response(cx, oscore, (peer, request), (message, head), application);
                } else {
                    application.on_reply(peer, request, Reply::Response(&response));
                }
                frame.append(acknowledge.as_ref().map_or(&[], |acknowledgement| acknowledgement)).ok()?;
            }
            Received::Acknowledged(request) => {
                if !notify::on_acknowledged(features.observers(), peer, request) {
                    application.on_reply(peer, request, Reply::Acknowledged);
                }
            }
            Received::Reset(request) => {
                if !notify::on_refused(features.observers(), peer, request) {
                    application.on_reply(peer, request, Reply::Reset);
                }
            }
            Received::Rejected { message_id } => {
                features.observers().remove(peer, |observer| observer.message_id == Some(message_id));
            }
            Received::Nothing => {}
        }
        if F::Queue::PLACES > 0 || F::Observers::PLACES > 0 {
            self.schedule(peer);
        }
        self.transmit(cx, peer, frame)
    }

    /// Returns true for the response to a request that was sent since the session was restored. Its token is long enough
    /// that no earlier response has the same one by chance, because the node drew it at random.
    fn is_fresh(&mut self, peer: PeerId, message: &[u8]) -> bool {
        let Ok(message) = MessageRef::parse(message) else { return false };
        let token = message.token();
        let Some(attached) = self.endpoint.peers.attached(peer) else { return false };
        let responds = message.code().is_response() && token.len() >= FRESH_TOKEN;
        responds && attached.exchanges().awaits(&self.storage, token)
    }

    /// Sends one message of a peer's exchanges again, or ends an exchange that nobody answered. If neither is due, sends a
    /// message that waited, or a notification.
    fn on_alarm<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        application: &mut impl Application<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Option<Event> {
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(peer));
        let exchanges = self.endpoint.peers.attached(peer)?.exchanges();
        if let Some(Due::TimedOut(request)) = exchanges.poll(&mut self.storage, cx.now, &mut frame)
            && !notify::on_refused(self.features.observers(), peer, request)
        {
            application.on_reply(peer, request, Reply::TimedOut);
        }
        if F::Queue::PLACES > 0 && frame.is_empty() {
            self.send_queued(cx, peer, application, &mut frame);
        }
        if F::Observers::PLACES > 0 && frame.is_empty() {
            self.send_notification(cx, peer, application, &mut frame);
        }
        self.schedule(peer);
        self.transmit(cx, peer, frame)
    }

    /// Sets the alarm of a peer for its exchanges, for the messages that wait, and for notifications.
    fn schedule(&mut self, peer: PeerId) {
        let attached = self.endpoint.peers.attached(peer);
        if let Some(deadline) = attached.and_then(|attached| attached.exchanges().next_deadline(&self.storage)) {
            self.endpoint.peers.schedule(peer, deadline);
        }
        if F::Queue::PLACES > 0 {
            let deadline = self.queue_deadline(peer);
            self.endpoint.peers.schedule(peer, deadline);
        }
        if F::Observers::PLACES > 0 && self.is_notification_due(peer) {
            self.endpoint.peers.schedule(peer, Instant::AT_ONCE);
        }
    }

    /// Protects the message in `frame`; nothing is sent if it is empty.
    fn transmit<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, peer: PeerId, mut frame: Frame<'_>) -> Option<Event> {
        if frame.is_empty() {
            return None;
        }
        self.endpoint.seal(cx, peer, &mut frame).ok()?;
        if F::Oscore::IS_ON {
            frame.move_to_front();
        }
        Some(Event::Transmit { peer, len: frame.len() as u16 })
    }
}

/// Opens the response to a request that was protected. A response that does not open ends the exchange. If more responses
/// follow, because the request is a registration, it is dropped: it is late, or forged.
fn on_protected_response<C: Crypto, O: Oscore>(
    cx: &mut Cx<'_, C>,
    oscore: &mut O,
    (peer, request): (PeerId, RequestId),
    (datagram, (code, is_open)): (&mut [u8], (Code, bool)),
    application: &mut impl Application<O::Exchange>,
) {
    match oscore.unprotect_response(cx.crypto, peer, request, datagram) {
        Ok(response) => application.on_reply(peer, request, Reply::Response(&response)),
        Err(reason) if is_open => cx.counters.discard(serve::discard(reason)),
        Err(reason) => application.on_reply(peer, request, Reply::Refused { reason, code }),
    }
}

/// The least length of a token that no earlier response has by chance.
const FRESH_TOKEN: usize = 4;
/// NSTART (RFC 7252, section 4.8).
const NSTART: usize = 1;
