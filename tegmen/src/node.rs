//! A CoAP node without I/O. It serves requests and sends requests, over DTLS or in plaintext, for all its peers at
//! the same time.
//!
//! The owner of a node is the program that contains the node and calls its functions. The owner passes received
//! datagrams and the time to the node. The owner gets from the node the datagrams to send and the time of the next
//! alarm. The [`Endpoint`] in the node works in the same way. These are the functions of a node:
//!
//! * For each datagram received on a DTLS port, call [`Node::handle`] until it returns `None`. For a plaintext
//!   datagram, call [`Node::handle_plain`] once.
//! * After that, and when the time of [`Endpoint::next_alarm`] has come, call [`Node::poll`] until it returns `None`.
//! * [`Node::request`] sends a request to a peer. The reply is passed to [`Application::on_reply`].
//! * [`Node::transfer`] sends the next message of a [`Transfer`]. In a transfer, the body of the request and the body
//!   of the response may be longer than one message.
//! * [`Node::observe`] registers an [`Observation`] at a server.
//! * [`Node::request_group`] sends a request to a group, or observes a group. The responses of each member are passed
//!   to [`Application::on_member_response`].
//! * [`Node::request_protected_group`] sends a request to a group that Axiom protects.
//!   [`Node::handle_protected_group`] processes each datagram to the address of such a group.
//! * [`Node::respond`] sends the response to a request that the handler deferred: [`Application::on_deferred`].
//! * [`Node::decide`] continues with a request on which the policy did not decide at once. The owner passes the
//!   decision to this function.
//! * [`Node::notify`] sends notifications to the observers of a resource after its representation has changed.
//!
//! If [`Oscore`] is one of the features of a node, the node decrypts requests that have an OSCORE option, and protects
//! the responses to these requests. The node protects its own request if the [`RequestHead`] demands protection. OSCORE
//! works in plaintext datagrams and over DTLS.
//!
//! An image can omit parts of the node: see [`Features`].

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

/// A CoAP node: an endpoint, the exchanges of each of its peers, and the memory of the optional features `F`.
pub struct Node<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features = ()> {
    /// The peers and their sessions.
    pub endpoint: Endpoint<P, R>,
    /// The memory for the CoAP exchanges of all peers.
    pub storage: <P::Attached as PeerExchanges>::Storage,
    /// The memory of the optional features of the node.
    pub features: F,
    nstart: usize,
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles> Node<P, R> {
    /// Creates a node with the peers of `endpoint`. `storage` is the memory for the CoAP exchanges of all peers. The
    /// node has no optional features.
    pub const fn new(endpoint: Endpoint<P, R>, storage: <P::Attached as PeerExchanges>::Storage) -> Self {
        Self::with_features(endpoint, storage, ())
    }
}

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Creates a node with the peers of `endpoint` and with `features`. `storage` is the memory for the CoAP exchanges
    /// of all peers.
    pub const fn with_features(
        endpoint: Endpoint<P, R>,
        storage: <P::Attached as PeerExchanges>::Storage,
        features: F,
    ) -> Self {
        Self { endpoint, storage, features, nstart: NSTART }
    }

    /// Sets the maximum number of exchanges that the node opens with each peer at the same time (NSTART; RFC 7252,
    /// section 4.7).
    pub const fn set_nstart(&mut self, nstart: usize) {
        self.nstart = nstart;
    }

    /// Processes the next record of a datagram that arrived over `path` on a DTLS port. Writes the answer into `out` if
    /// there is an answer.
    ///
    /// Call this function until it returns `None`. It returns no [`Event::Message`] and no [`Event::Alarm`], because
    /// the node handles both.
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

    /// Processes a plaintext message that arrived over `path`. If there is an answer, writes it into `out`, and returns
    /// the event with which the node's owner sends it.
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

    /// Processes a message to a group that arrived over `path` without a session (RFC 7252, section 8). Requests to a
    /// group are not confirmable. The node drops three kinds of messages: confirmable messages; messages to a group
    /// that Axiom protects; and messages with OSCORE, if the node is not a member of the group that they name
    /// ([`Oscore::is_of_group`]). The node answers no request at once: [`Self::poll`] sends the response after a random
    /// time, unless the response is an error or empty.
    ///
    /// The local address of `path` is the unicast address from which the node responds. So the sender has one entry in
    /// the peer table, for its requests to the group and for its requests to this node alone. A client that registers
    /// for notifications (RFC 7641) becomes an observer like any other observer: it acknowledges notifications, and
    /// rejects unknown notifications.
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

    /// Processes everything that is due at the present time: sends flights of handshakes, alerts and waiting messages,
    /// and sends unacknowledged messages again.
    ///
    /// Call this function until it returns `None`. `out` must be long enough for a datagram of the configured size.
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

    /// Calls `write`, which writes a message to `peer` into a frame. `write` also gets the data that the table stores
    /// for the peer, and the memory for the CoAP exchanges of all peers. Then protects the message, and sets the alarm
    /// of the peer. Returns `None` if `write` wrote no message.
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

    /// Returns an empty frame for a message to `peer`, with space for the protection before and after the message. If
    /// the roles `R` support a record size limit, the content of the frame cannot be longer than the agreed limit.
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

    /// Returns the number of bytes that must remain free after a block, if the response in `frame` is sent in blocks.
    /// The protection of the datagram uses these bytes.
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

    /// Returns the number of bytes that must remain free in `out` after a block of a response that is sent in a
    /// separate message. The protection uses these bytes.
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

    /// Processes a message of a peer. If there is an answer, writes it into `out`, and returns the event with which the
    /// owner of the node sends the answer. If the replay window of the session was lost, drops the peer's messages
    /// until the response to one of our requests arrives, or until [`Endpoint::verify_session`] is called. But if the
    /// peer has a [`Freshness`](crate::coap::Freshness), the node does not drop the messages: it challenges the peer
    /// (RFC 9175, section 2.3).
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

    /// Returns `Some(true)` if the message may be a replay, because the replay window of the restored session was lost.
    /// Returns `None` if the message must be dropped for this reason, and `Some(false)` for every other message. The
    /// response to one of our requests verifies the session. Before such a response, the peer must prove that it is
    /// present (RFC 9175, section 2.3).
    #[inline]
    fn is_unverified<C>(&mut self, cx: &mut Cx<'_, C>, peer: PeerId, message: &[u8]) -> Option<bool> {
        if !R::RESTORES || !self.endpoint.is_unverified(peer) {
            return Some(false);
        }
        if self.is_fresh(peer, message) {
            self.endpoint.verify_session(peer);
            return Some(false);
        }
        // A response to none of our open requests is never valid, and may be a replay.
        let is_response = || MessageRef::parse(message).is_ok_and(|message| message.code().is_response());
        if !P::Attached::VERIFIES || is_response() {
            cx.counters.discard(Discard::Replayed);
            return None;
        }
        Some(true)
    }

    /// Returns true if the message is the response to a request that was sent after the session was restored. The node
    /// drew the token of that request at random, with enough bytes that no earlier response has the same token by
    /// chance.
    fn is_fresh(&mut self, peer: PeerId, message: &[u8]) -> bool {
        let Ok(message) = MessageRef::parse(message) else { return false };
        let token = message.token();
        let Some(attached) = self.endpoint.peers.attached(peer) else { return false };
        let responds = message.code().is_response() && token.len() >= FRESH_TOKEN;
        responds && attached.exchanges().is_some_and(|exchanges| exchanges.awaits(&self.storage, token))
    }

    /// Sends one message of a peer's exchanges again, or ends an exchange that got no answer. If neither is due, sends
    /// a delayed response to a group request, a queued request or a notification.
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

    /// Sets the alarm of a peer to the earliest time at which one of its exchanges, waiting messages or notifications
    /// is due.
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

    /// Protects the message in `frame`, and returns the event with which the owner of the node sends it. Returns `None`
    /// if the frame is empty or the protection fails.
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

/// Called for each message of a peer. Begins to store the exchanges of the peer at its first message. Stores the time
/// of each message.
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

/// Processes a reply: an acknowledgement, a rejection or a timeout. If the reply is for a notification, updates the
/// list of observers. If not, passes the reply to the application.
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

/// Decrypts the response to a protected request, and passes it to the application. If the decryption fails, the
/// exchange ends. But if the request is a registration, more responses will follow. The node then drops only this
/// response, because it is late or forged. If a proxy divided the response into blocks, passes each block to the
/// application without decryption.
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

/// True if the message is a block of a protected response that a proxy divided into blocks (RFC 8613, section
/// 4.1.3.4.2).
fn is_cut(response: &MessageRef<'_>) -> bool {
    let block = response.block(OptionNumber::BLOCK2).ok().flatten();
    response.option(OptionNumber::OSCORE).is_some() && block.is_some_and(|block| block.more || block.number > 0)
}

/// Minimum number of bytes of a random token. No earlier response has such a token by chance.
const FRESH_TOKEN: usize = 4;
/// The default of NSTART (RFC 7252, section 4.8).
const NSTART: usize = 1;
