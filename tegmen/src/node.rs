//! A CoAP node without I/O: it serves and asks, over DTLS or in clear, for all its peers at the same time.
//!
//! Bytes and the clock go in, bytes and the next alarm come out, as with the [`Endpoint`] inside:
//!
//! * for each datagram received on a DTLS port, [`Node::handle`] until it returns `None`; for one in clear,
//!   [`Node::handle_plain`] once;
//! * then, and whenever [`Endpoint::next_alarm`] has arrived, [`Node::poll`] until it returns `None`;
//! * [`Node::request`] asks a peer; the reply comes to [`Application::on_reply`];
//! * [`Node::transfer`] asks with a body, and for a body, that may be longer than a message: a [`Transfer`];
//! * [`Node::observe`] registers an [`Observation`] at a server;
//! * [`Node::request_group`] asks a group, or observes one; the responses of each member come to
//!   [`Application::on_member_response`];
//! * [`Node::request_protected_group`] asks a group that Axiom protects, and [`Node::handle_protected_group`] takes each datagram
//!   to the address of such a group;
//! * [`Node::respond`] answers a request that the handler deferred: [`Application::on_deferred`];
//! * [`Node::decide`] takes the decision on a request that a policy answered later;
//! * [`Node::notify`] notifies the observers of a resource that its representation changed.
//!
//! With [`Oscore`] among its features, a node opens requests that have an OSCORE option and protects their responses.
//! It protects a request if its [`RequestHead`] asks for that. Both work in clear and over DTLS.
//!
//! An image may leave out a part of the node: see [`Features`].

mod application;
mod ask;
mod ask_group;
mod blockwise;
mod bodies;
mod decide;
mod error;
mod features;
mod group_requests;
mod groups;
mod in_groups;
mod leisure;
mod notify;
mod notify_members;
mod observation;
mod observers;
mod oscore;
mod pacing;
mod queue;
mod registration;
mod request_head;
mod send;
mod serve;
mod transfer;

pub use application::{Answer, Application, Deferred, DeferredRequest, Incoming, Refusal, Reply};
pub use bodies::{Bodies, BodyArray, Operation};
pub use error::SendError;
pub use features::{Features, Parts};
pub use group_requests::{GroupRequestArray, GroupRequests};
pub use groups::{GroupArray, Groups};
pub use leisure::{Leisure, LeisureArray};
pub use observation::{Notification, Observation};
pub use observers::{Observer, ObserverArray, Observers};
pub use oscore::{OneContext, Opened, Oscore, Outer};
pub use pacing::{Pacing, PacingArray};
pub use queue::{Queue, QueueArray};
pub use registration::MemberRegistration;
pub use request_head::RequestHead;
pub use transfer::{Transfer, TransferError, TransferStep};

use crate::address::Path;
use crate::buf::Frame;
use crate::coap::MessageRef;
use crate::coap::{Code, MessageType, OptionNumber, RequestId};
use crate::coap::{Due, PeerExchanges, Received};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::Records;
use crate::dtls::association::Rank;
use crate::dtls::roles::Roles;
use crate::endpoint::{Endpoint, Event, MAX_TAILROOM, Peers};
use crate::identity::{PeerId, Protection};
use crate::oscore::OpenedRequest;
use crate::time::Instant;
use features::{ExchangeOf, StateOf};
use in_groups::ToGroup;
use serve::Sender;

/// An endpoint, the exchanges of each of its peers, and the memory of the features `F`.
pub struct Node<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features = ()> {
    /// The peers and their sessions.
    pub endpoint: Endpoint<P, R>,
    /// The memory of their exchanges.
    pub storage: <P::Attached as PeerExchanges>::Storage,
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
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Option<Event> {
        loop {
            if F::Groups::IS_ON {
                while self.handle_protected_member(cx, path, records, application) {}
            }
            match self.endpoint.handle(cx, path, records, out)? {
                Event::Message { peer, bytes } => {
                    let transmit = self.receive(cx, (peer, None), records.bytes(bytes), application, out);
                    if transmit.is_some() {
                        return transmit;
                    }
                }
                event => return Some(event),
            }
        }
    }

    /// Takes a message that came in clear over `path`. Returns the event that sends the answer in `out`, if there is
    /// one.
    pub fn handle_plain<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Option<Event> {
        if F::GroupRequests::IS_ON
            && let Some(len) = self.handle_member(cx, path, datagram, application, out)
        {
            return (len > 0).then_some(Event::Answer { len: len as u16 });
        }
        let peer = self.endpoint.plain(cx, path, Rank::Stranger).ok()?;
        self.draw_message_id(cx, peer);
        self.receive(cx, (peer, None), datagram, application, out)
    }

    /// Takes a message that came over `path` without a session to a group (RFC 7252, section 8). A group is asked with messages that are
    /// not confirmable; others are dropped, and so are messages to a group that Axiom protects, and messages with OSCORE that name no group
    /// of this node ([`Oscore::is_of_group`]). Nothing is answered at once: [`Self::poll`] sends
    /// the response after a random time, unless it is an error or empty.
    ///
    /// The local end of `path` is the address that the node responds from. So the sender is the same peer as if it asked this node alone,
    /// and a client that registers (RFC 7641) is an observer like any other: it acknowledges notifications, and rejects those that it
    /// does not know.
    pub fn handle_group<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) {
        let (oscore, _) = self.features.oscore();
        let message = MessageRef::parse(datagram).ok().filter(|message| {
            let is_protected = message.option(OptionNumber::OSCORE).is_some();
            message.message_type() == MessageType::NonConfirmable
                && message.code().is_request()
                && (!is_protected || F::Oscore::GROUPS && oscore.is_of_group(message))
        });
        if message.is_none() || !F::Leisure::IS_ON {
            return;
        }
        if F::Groups::IS_ON && self.features.groups().principal(&path.local).is_some() {
            return cx.counters.discard(Discard::Unexpected);
        }
        if let Ok(peer) = self.endpoint.plain(cx, path, Rank::Stranger) {
            self.draw_message_id(cx, peer);
            self.receive(cx, (peer, Some(ToGroup::InClear)), datagram, application, out);
        }
    }

    /// Does what is due: sends flights of handshakes, alerts, and messages that were not acknowledged.
    ///
    /// Call it until it returns `None`. `out` must hold a datagram of the configured size.
    pub fn poll<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
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

    /// Lets `write` write a message to `peer` into a frame, with what is kept of the peer and the memory of the exchanges.
    /// Protects the message, and sets the alarm of the peer. Returns `None` if nothing is to be sent.
    pub fn write<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        out: &mut [u8],
        write: impl FnOnce(&mut Cx<'_, C>, &mut P::Attached, &mut <P::Attached as PeerExchanges>::Storage, &mut Frame<'_>),
    ) -> Option<Event> {
        let mut frame = self.frame::<C>(peer, out);
        write(cx, self.endpoint.peers.attached(peer)?, &mut self.storage, &mut frame);
        let (start, end) = frame.place();
        self.schedule(peer);
        self.transmit(cx, peer, Frame::around(out, start, end))
    }

    /// Returns an empty frame for a message to `peer`, with space for its protection before and after it. Where records
    /// may have a limit, the message does not exceed it.
    #[inline]
    fn frame<'o, C: Crypto>(&mut self, peer: PeerId, out: &'o mut [u8]) -> Frame<'o> {
        let headroom = self.endpoint.headroom::<C>(peer);
        if !R::RECORD_SIZE {
            return Frame::new(out, headroom);
        }
        let content = self.endpoint.peers.peer(peer).map_or(0, |peer| peer.max_content());
        let end = out.len().saturating_sub(MAX_TAILROOM).min(headroom.saturating_add(content));
        Frame::new(out.get_mut(..end).unwrap_or(&mut []), headroom)
    }

    /// Returns the bytes that a response in blocks leaves free after it in `frame` for the protection of the datagram.
    #[inline]
    fn tailroom(&mut self, peer: PeerId, frame: &Frame<'_>) -> usize {
        let is_cut = F::Bodies::IS_ON && !R::RECORD_SIZE;
        match self.endpoint.peers.peer(peer) {
            Some(peer) if is_cut && peer.protection() == Protection::Dtls => {
                frame.room().saturating_sub(peer.max_content()).max(MAX_TAILROOM)
            }
            _ => 0,
        }
    }

    /// Returns the bytes that a separate response in blocks leaves free after it in `out`.
    fn reserved<C: Crypto>(&mut self, peer: PeerId, is_protected: bool, out: &mut [u8]) -> usize {
        if !F::Bodies::IS_ON {
            return 0;
        }
        let whole = Frame::new(out, self.endpoint.headroom::<C>(peer)).room();
        let frame = self.frame::<C>(peer, out);
        let room = frame.room().saturating_sub(self.tailroom(peer, &frame));
        let overhead = if is_protected { F::Oscore::OVERHEAD } else { 0 };
        whole.saturating_sub(room).saturating_add(overhead)
    }

    /// Handles a message of a peer. Returns the event that sends the answer in `out`, if there is one. Drops messages
    /// of a session whose replay window was lost, until the response to a request of ours comes, or
    /// [`Endpoint::verify_session`] is called; if the peer has a [`Freshness`](crate::coap::Freshness), the node
    /// challenges it instead (RFC 9175, section 2.3).
    fn receive<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        (peer, group): (PeerId, Option<ToGroup>),
        message: &mut [u8],
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Option<Event> {
        let (to_group, member) = (group.is_some(), group.and_then(ToGroup::member::<F>));
        let is_unverified = match member {
            Some((_, is_unverified)) => is_unverified,
            None => self.is_unverified(cx, peer, message)?,
        };
        self.features.pacing().heard(peer);
        self.make_space_for_observers();
        let sender = self.endpoint.peers.peer(peer)?;
        let (mut identity, path) = (sender.identity(), *sender.path());
        let mut frame = self.frame::<C>(peer, out);
        let mut tailroom = self.tailroom(peer, &frame);
        if let Some((proved, _)) = member {
            identity = proved;
            tailroom = self.make_space_for_tag(&path.local, tailroom, &mut frame);
        }
        let Self { endpoint, storage, features, .. } = self;
        let attached = endpoint.peers.attached(peer)?;
        begin(cx, peer, attached, application);
        let exchanges = attached.exchanges()?;
        if R::RESTORES {
            exchanges.draw_message_id(cx.crypto);
        }
        let mut is_request = false;
        match exchanges.receive(storage, cx.now, message) {
            Received::Request(request, key) => {
                is_request = true;
                let sender = Sender::new((&path, identity), (is_unverified, to_group), message.len(), tailroom);
                let mut whole = None;
                let is_protected = F::Oscore::IS_ON
                    && request.option(OptionNumber::OSCORE).is_some()
                    && features.oscore().0.is_for_us(&request);
                let memory = (&mut *attached, &mut *storage, &mut *features);
                let opened = match is_protected {
                    true => serve::open(cx, peer, memory, (message, key, &mut whole), sender, application, &mut frame),
                    false => Some((request, sender)),
                };
                if let Some((request, sender)) = opened {
                    let memory = (&mut *attached, storage, features);
                    serve::answer(cx, peer, memory, (request, key), sender, application, &mut frame);
                }
                let in_session = is_unverified && member.is_none();
                if in_session && attached.freshness().is_some_and(|freshness| freshness.is_shown()) {
                    endpoint.verify_session(peer);
                }
            }
            Received::Duplicate(reply) => {
                cx.counters.duplicates = cx.counters.duplicates.saturating_add(1);
                frame.append(reply).ok()?;
            }
            Received::Reject(reset) => frame.append(&reset).ok()?,
            Received::Response { request, message: response, acknowledge } => {
                let (oscore, _) = features.oscore();
                let has_option = response.option(OptionNumber::OSCORE).is_some() && !oscore.is_forwarded(peer);
                if F::Oscore::IS_ON && (has_option || oscore.is_protected(peer, request)) {
                    let head = (response.code(), exchanges.is_open(storage, request));
                    on_protected_response(cx, oscore, (peer, request), (message, head), application);
                } else {
                    application.on_reply(peer, request, Reply::Response(&response));
                }
                frame.append(acknowledge.as_ref().map_or(&[], |acknowledgement| acknowledgement)).ok()?;
            }
            Received::Acknowledged(request) => on_reply(features, peer, request, Reply::Acknowledged, application),
            Received::Reset(request) => on_reply(features, peer, request, Reply::Reset, application),
            Received::Rejected { message_id } => notify::on_rejected(features.observers(), peer, message_id),
            Received::Nothing => {}
        }
        if F::Queue::PLACES > 0 || F::Observers::PLACES > 0 && !is_request || F::Leisure::IS_ON && to_group {
            self.schedule(peer);
        }
        let (start, end) = frame.place();
        self.transmit(cx, peer, Frame::around(out, start, end))
    }

    /// Returns true if the message may be a replay, because the replay window of its restored session was lost; `None` if it
    /// is dropped for that. The response to a request of ours verifies the session. Without it the peer first has to show
    /// that it is there (RFC 9175, section 2.3).
    #[inline]
    fn is_unverified<C>(&mut self, cx: &mut Cx<'_, C>, peer: PeerId, message: &[u8]) -> Option<bool> {
        if !R::RESTORES || !self.endpoint.is_unverified(peer) {
            return Some(false);
        }
        if self.is_fresh(peer, message) {
            self.endpoint.verify_session(peer);
            return Some(false);
        }
        // A response that no request of ours waits for is never valid, and may be a replay.
        let is_response = || MessageRef::parse(message).is_ok_and(|message| message.code().is_response());
        if !P::Attached::VERIFIES || is_response() {
            cx.counters.discard(Discard::Replayed);
            return None;
        }
        Some(true)
    }

    /// Returns true for the response to a request that was sent since the session was restored. Its token is long enough
    /// that no earlier response has the same one by chance, because the node drew it at random.
    fn is_fresh(&mut self, peer: PeerId, message: &[u8]) -> bool {
        let Ok(message) = MessageRef::parse(message) else { return false };
        let token = message.token();
        let Some(attached) = self.endpoint.peers.attached(peer) else { return false };
        let responds = message.code().is_response() && token.len() >= FRESH_TOKEN;
        responds && attached.exchanges().is_some_and(|exchanges| exchanges.awaits(&self.storage, token))
    }

    /// Sends one message of a peer's exchanges again, or ends an exchange that nobody answered. If neither is due, sends a
    /// message that waited, or a notification.
    fn on_alarm<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Option<Event> {
        let mut frame = self.frame::<C>(peer, out);
        let is_observer = F::Observers::PLACES > 0 && self.features.observers().any(peer, |_| true);
        let attached = self.endpoint.peers.attached(peer)?;
        let next = attached.on_alarm(&self.storage, cx.now, is_observer);
        let exchanges = attached.exchanges()?;
        if let Some(Due::TimedOut(request)) = exchanges.poll(&mut self.storage, cx.now, &mut frame) {
            on_reply(&mut self.features, peer, request, Reply::TimedOut, application);
        }
        if F::Leisure::IS_ON && frame.is_empty() {
            self.features.leisure().take(cx.now, peer, &mut frame);
        }
        if F::Queue::PLACES > 0 && frame.is_empty() {
            self.send_queued(cx, peer, application, &mut frame);
        }
        if F::Observers::PLACES > 0 && frame.is_empty() {
            self.send_notification(cx, peer, application, &mut frame);
        }
        if F::Observers::PLACES > 0 && F::Groups::IS_ON && frame.is_empty() {
            self.notify_member(cx, peer, application, &mut frame);
        }
        self.schedule(peer);
        if let Some(next) = next {
            self.endpoint.peers.schedule(peer, next);
        }
        let (start, end) = frame.place();
        self.transmit(cx, peer, Frame::around(out, start, end))
    }

    /// Sets the alarm of a peer for its exchanges, for the messages that wait, and for notifications.
    fn schedule(&mut self, peer: PeerId) {
        let exchanges = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges);
        if let Some(deadline) = exchanges.and_then(|exchanges| exchanges.next_deadline(&self.storage)) {
            self.endpoint.peers.schedule(peer, deadline);
        }
        if F::Queue::PLACES > 0 {
            let deadline = self.queue_deadline(peer);
            self.endpoint.peers.schedule(peer, deadline);
        }
        if F::Observers::PLACES > 0 && self.is_notification_due(peer) {
            self.endpoint.peers.schedule(peer, Instant::AT_ONCE);
        }
        if F::Observers::PLACES > 0 && F::Groups::IS_ON {
            let at = self.member_notified_at(peer);
            self.endpoint.peers.schedule(peer, at);
        }
        if F::Leisure::IS_ON {
            let deadline = self.features.leisure().next(peer);
            self.endpoint.peers.schedule(peer, deadline);
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

/// Begins the exchanges of a peer that sent its first message, and notes each message.
#[inline]
fn begin<C: Crypto, A: PeerExchanges, X: OpenedRequest>(
    cx: &mut Cx<'_, C>,
    peer: PeerId,
    attached: &mut A,
    application: &mut impl Application<X, A::State>,
) {
    if attached.begin(cx.now, |random| cx.crypto.random(random))
        && let Some((_, state)) = attached.with_state()
    {
        application.on_begun(peer, state);
    }
    attached.heard(cx.now);
}

/// Takes an acknowledgement, a rejection or a timeout to the notification that it is for, or to the application.
#[inline]
fn on_reply<F: Features, S>(
    features: &mut F,
    peer: PeerId,
    request: RequestId,
    reply: Reply<'_>,
    application: &mut impl Application<ExchangeOf<F>, S>,
) {
    let is_notification = match reply {
        Reply::Acknowledged => notify::on_acknowledged(features.observers(), peer, request),
        _ => notify::on_refused(features.observers(), peer, request),
    };
    if !is_notification {
        application.on_reply(peer, request, reply);
    }
}

/// Opens the response to a request that was protected. A response that does not open ends the exchange. If more responses
/// follow, because the request is a registration, it is dropped: it is late, or forged. A block of a response that a proxy
/// cut is not opened.
fn on_protected_response<C: Crypto, O: Oscore, S>(
    cx: &mut Cx<'_, C>,
    oscore: &mut O,
    (peer, request): (PeerId, RequestId),
    (datagram, (code, is_open)): (&mut [u8], (Code, bool)),
    application: &mut impl Application<O::Exchange, S>,
) {
    if O::GATHERS
        && let Ok(response) = MessageRef::parse(datagram)
        && is_cut(&response)
    {
        return application.on_reply(peer, request, Reply::Cut(&response));
    }
    match oscore.unprotect_response(cx.crypto, peer, request, datagram) {
        Ok(response) => application.on_reply(peer, request, Reply::Response(&response)),
        Err(reason) if is_open => cx.counters.discard(serve::discard(reason)),
        Err(reason) => application.on_reply(peer, request, Reply::Refused { reason, code }),
    }
}

/// Returns true for a block of a protected response that a proxy cut (RFC 8613, section 4.1.3.4.2).
fn is_cut(response: &MessageRef<'_>) -> bool {
    let block = response.block(OptionNumber::BLOCK2).ok().flatten();
    response.option(OptionNumber::OSCORE).is_some() && block.is_some_and(|block| block.more || block.number > 0)
}

/// Minimum length of a token that no earlier response has by chance.
const FRESH_TOKEN: usize = 4;
/// NSTART (RFC 7252, section 4.8).
const NSTART: usize = 1;
