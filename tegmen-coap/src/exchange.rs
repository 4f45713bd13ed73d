//! The message layer of one peer (RFC 7252, section 4): retransmission, deduplication, and the match of responses to
//! requests. The size of all state is bounded. The state does not depend on whether DTLS protects the datagrams.

use super::code::Code;
use super::freshness::Freshness;
use super::message::{Malformed, MessageRef, MessageType, Token, empty_message};
use super::observe;
use super::option::OptionNumber;
use super::storage::{Busy, ExchangeStorage, Late, Outgoing, Repeat, RequestId, Waiting};
use tegmen_base::buf::Frame;
use tegmen_base::crypto::Crypto;
use tegmen_base::time::{Duration, Instant};

/// ACK_TIMEOUT (RFC 7252, section 4.8): the shortest time before the first retransmission.
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// MAX_RETRANSMIT: the maximum number of retransmissions of a message.
pub(crate) const MAX_RETRANSMIT: u8 = 4;
/// The time for which a request waits for its response. The time begins with the acknowledgement of the request, or
/// with the request itself if it is not confirmable.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(247);

/// The meaning of a received datagram for the exchanges of this peer.
#[derive(Debug)]
pub enum Received<'m, 'x, K> {
    /// A request to handle, and the key under which its reply is kept.
    Request(MessageRef<'m>, K),
    /// A message that was handled before. The value is the earlier reply to the message. Send this reply again. The
    /// value is empty if there is nothing to send.
    Duplicate(&'x [u8]),
    /// The response to a request of this endpoint.
    Response {
        /// The identifier of the request that the message answers.
        request: RequestId,
        /// The message with the response.
        message: MessageRef<'m>,
        /// The acknowledgement to send. `None` if the response needs no acknowledgement.
        acknowledge: Option<[u8; 4]>,
    },
    /// The peer received a message of this endpoint. If the message is a request, the response to it comes later, in a
    /// separate message.
    Acknowledged(RequestId),
    /// The peer cannot process a message of this endpoint. The exchange has ended.
    Reset(RequestId),
    /// The peer rejects a non-confirmable message of this endpoint. This endpoint keeps no state for such a message.
    Rejected {
        /// The Message ID of the rejected message.
        message_id: u16,
    },
    /// Send this Reset. It answers a ping, or a message that cannot be processed.
    Reject([u8; 4]),
    /// There is nothing to do.
    Nothing,
}

/// An event that [`Exchanges::poll`] returns when the time of an exchange has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Retransmit the message that [`Exchanges::poll`] has written into its frame. The frame is empty if the message
    /// did not fit.
    Retransmit,
    /// The peer did not answer. The exchange has ended.
    TimedOut(RequestId),
}

/// The exchanges of this endpoint with one peer: the requests that wait for a response, and the confirmable messages
/// that wait for an acknowledgement.
///
/// The storage `S` keeps each message that this endpoint sent until the peer has acknowledged or answered it. It also
/// keeps the replies to messages of the peer. If the peer repeats a message, the kept reply is sent again. The methods
/// take the storage as an argument. All calls for one peer must pass the same storage.
pub struct Exchanges<S: ExchangeStorage> {
    kept: S::Peer,
    next_message_id: u16,
    /// True if the first Message ID was drawn.
    is_drawn: bool,
    next_request: u32,
}

/// The entry of a peer in the table of a node. Some types of entry always contain [`Exchanges`]; others contain them
/// only after the first message of the peer.
pub trait PeerExchanges {
    /// The storage of the exchanges.
    type Storage: ExchangeStorage;
    /// The state that an application keeps for the peer together with the exchanges, or `()` if there is none.
    type State;
    /// True if [`Self::freshness`] returns a [`Freshness`]. If this is false, a node sends no challenges with the Echo
    /// option.
    const VERIFIES: bool = false;

    /// Returns the exchanges of this peer, if it has any.
    fn exchanges(&mut self) -> Option<&mut Exchanges<Self::Storage>>;

    /// Returns the exchanges and the state of this peer, if the peer has both.
    #[inline]
    fn with_state(&mut self) -> Option<(&mut Exchanges<Self::Storage>, &mut Self::State)> {
        None
    }

    /// Returns the state of the peer's proof that it receives datagrams at its current address. Returns `None` if the
    /// peer has no exchanges, or if [`Self::VERIFIES`] is false.
    #[inline]
    fn freshness(&mut self) -> Option<&mut Freshness> {
        None
    }

    /// Begins the exchanges of a peer that has none. `random` fills a slice with random bytes. Returns true if the peer
    /// has exchanges after this call.
    #[inline]
    fn begin(&mut self, now: Instant, random: impl FnOnce(&mut [u8])) -> bool {
        let _ = (now, random);
        false
    }

    /// Records that the peer sent a message.
    #[inline]
    fn heard(&mut self, now: Instant) {
        let _ = now;
    }

    /// Removes old state. A node calls this function when the alarm of the peer expires (a timer in the node's table of
    /// peers). `is_observer` is true if the peer observes a resource. Returns the time of the next call, or `None` if
    /// no further call is needed.
    #[inline]
    fn on_alarm(&mut self, storage: &Self::Storage, now: Instant, is_observer: bool) -> Option<Instant> {
        let _ = (storage, now, is_observer);
        None
    }
}

impl<S: ExchangeStorage> PeerExchanges for Exchanges<S> {
    type Storage = S;
    type State = ();

    #[inline]
    fn exchanges(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

impl<S: ExchangeStorage> Default for Exchanges<S> {
    fn default() -> Self {
        Self { kept: S::Peer::default(), next_message_id: 0, is_drawn: false, next_request: 0 }
    }
}

impl<S: ExchangeStorage> Exchanges<S> {
    /// Makes a value without open exchanges. The first message that this endpoint sends has the Message ID
    /// `first_message_id`, which should be random. If [`Self::default`] makes the value, a node draws the first Message
    /// ID with [`Self::draw_message_id`].
    pub fn new(first_message_id: u16) -> Self {
        Self { next_message_id: first_message_id, is_drawn: true, ..Self::default() }
    }

    /// Draws the first Message ID at random (RFC 7252, section 4.4). Does nothing if the first Message ID is already
    /// chosen.
    #[inline]
    pub fn draw_message_id<C: Crypto>(&mut self, crypto: &mut C) {
        if !self.is_drawn {
            let mut id = [0; 2];
            crypto.random(&mut id);
            (self.next_message_id, self.is_drawn) = (u16::from_ne_bytes(id), true);
        }
    }

    /// Returns a Message ID that was not used for the last 65,535 messages.
    pub fn message_id(&mut self) -> u16 {
        let id = self.next_message_id;
        self.next_message_id = id.wrapping_add(1);
        id
    }

    /// Classifies a received datagram.
    pub fn receive<'m, 'x>(
        &'x mut self,
        storage: &'x mut S,
        now: Instant,
        datagram: &'m [u8],
    ) -> Received<'m, 'x, S::Key> {
        let message = match MessageRef::parse(datagram) {
            Ok(message) => message,
            // A confirmable message that is not understood is rejected (RFC 7252, section 4.2).
            Err(Malformed::Message { message_type: MessageType::Confirmable, message_id }) => {
                return Received::Reject(empty_message(MessageType::Reset, message_id));
            }
            Err(_) => return Received::Nothing,
        };
        let message_id = message.message_id();
        match message.message_type() {
            MessageType::Acknowledgement | MessageType::Reset => self.on_answer(storage, now, message),
            message_type => {
                let confirmable = message_type == MessageType::Confirmable;
                let key = storage.key(now, &mut self.kept, message_id, datagram);
                if let Some(handled) = storage.handled(now, &self.kept, key) {
                    return Received::Duplicate(storage.reply(&self.kept, handled));
                }
                let code = message.code();
                if code.is_request() {
                    return Received::Request(message, key);
                }
                if code.is_response()
                    && let Some(request) = self.finish(storage, &message)
                {
                    let acknowledge = confirmable.then(|| empty_message(MessageType::Acknowledgement, message_id));
                    let reply: &[u8] = acknowledge.as_ref().map_or(&[], |ack| ack);
                    self.keep_reply(storage, now, key, Repeat::Safe, reply);
                    return Received::Response { request, message, acknowledge };
                }
                // A ping, an unexpected response or a reserved code (RFC 7252, sections 4.2 and 4.3); a notification that
                // nobody waits for is rejected so that it is the last (RFC 7641, section 3.6).
                let unwanted = code.is_response() && message.option(OptionNumber::OBSERVE).is_some();
                match confirmable || unwanted {
                    true => Received::Reject(empty_message(MessageType::Reset, message_id)),
                    false => Received::Nothing,
                }
            }
        }
    }

    /// Handles an acknowledgement, with or without a response, or a Reset.
    fn on_answer<'m>(
        &mut self,
        storage: &mut S,
        now: Instant,
        message: MessageRef<'m>,
    ) -> Received<'m, 'static, S::Key> {
        let message_id = message.message_id();
        let Some(outgoing) = storage.find(&mut self.kept, |outgoing| outgoing.message_id == message_id) else {
            return match message.message_type() {
                MessageType::Reset => Received::Rejected { message_id },
                _ => Received::Nothing,
            };
        };
        let id = outgoing.id;
        if message.message_type() == MessageType::Reset {
            outgoing.waiting = Waiting::Nothing;
            storage.settle(&mut self.kept, id);
            return Received::Reset(id);
        }
        if message.code() == Code::EMPTY {
            if outgoing.waiting != Waiting::Acknowledgement {
                return Received::Nothing;
            }
            outgoing.waiting = if outgoing.is_request { Waiting::SeparateResponse } else { Waiting::Nothing };
            outgoing.deadline = now.after(RESPONSE_TIMEOUT);
            storage.settle(&mut self.kept, id);
            return Received::Acknowledged(id);
        }
        let belongs = outgoing.is_request && outgoing.token.as_bytes() == message.token();
        if !belongs || !message.code().is_response() {
            return Received::Nothing;
        }
        outgoing.respond(&message);
        storage.settle(&mut self.kept, id);
        Received::Response { request: id, message, acknowledge: None }
    }

    /// Ends the request whose token is in `response`, unless notifications follow. Returns the request, or `None` if no
    /// open request has this token.
    fn finish(&mut self, storage: &mut S, response: &MessageRef<'_>) -> Option<RequestId> {
        let is_it = |outgoing: &Outgoing| outgoing.is_request && outgoing.token.as_bytes() == response.token();
        let outgoing = storage.find(&mut self.kept, is_it)?;
        outgoing.respond(response);
        let id = outgoing.id;
        storage.settle(&mut self.kept, id);
        Some(id)
    }

    /// Gives up a request or a separate response.
    pub fn cancel(&mut self, storage: &mut S, id: RequestId) {
        if let Some(outgoing) = storage.find(&mut self.kept, |outgoing| outgoing.id == id) {
            outgoing.waiting = Waiting::Nothing;
            storage.settle(&mut self.kept, id);
        }
    }

    /// Returns false if the request must not be executed twice (`repeat`) and the storage has no space to remember it
    /// for EXCHANGE_LIFETIME. If the result is false, do not execute the request, but answer it with 5.03. This answer
    /// is not kept.
    pub fn has_room(&mut self, storage: &mut S, now: Instant, repeat: Repeat) -> bool {
        storage.has_room(now, &mut self.kept, repeat)
    }

    /// Keeps the reply to the received message that has this key. If the peer repeats the message, the reply is sent
    /// again, unless the storage keeps none ([`Repeat::Cheap`]). The reply is empty if none was sent.
    pub fn keep_reply(&mut self, storage: &mut S, now: Instant, key: S::Key, repeat: Repeat, reply: &[u8]) {
        storage.keep(now, &mut self.kept, key, repeat, reply);
    }

    /// Keeps the reply to a message that had no reply yet when [`Self::keep_reply`] was called. The reply is the
    /// acknowledgement, with or without the response.
    #[inline]
    pub fn keep_late_reply(&mut self, storage: &mut S, now: Instant, late: Late, reply: &[u8]) {
        storage.keep_late(now, &mut self.kept, late, reply);
    }

    /// Returns the newest reply to this peer. Returns no bytes if the reply is no longer kept. The endpoint sends this
    /// reply again when the peer has proved its new address.
    pub fn last_reply<'x>(&'x self, storage: &'x S, now: Instant) -> &'x [u8] {
        storage.last_reply(now, &self.kept)
    }

    /// Records a message that this endpoint sends now: a request, or a separate response. A confirmable message is kept
    /// and retransmitted until it is acknowledged. `random` is a random number that selects the time before the first
    /// retransmission, from 1 to 1.5 times ACK_TIMEOUT (ACK_RANDOM_FACTOR).
    ///
    /// # Errors
    /// [`Busy`]. The message must then not be sent.
    pub fn sent(&mut self, storage: &mut S, now: Instant, message: &[u8], random: u8) -> Result<RequestId, Busy> {
        let id = RequestId(self.next_request);
        self.sent_as(storage, now, id, message, random)?;
        self.next_request = self.next_request.wrapping_add(1);
        Ok(id)
    }

    /// Returns a new identifier, for [`Self::sent_as`].
    pub const fn request_id(&mut self) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request = self.next_request.wrapping_add(1);
        id
    }

    /// Does the same as [`Self::sent`], for a message that already has its identifier.
    ///
    /// # Errors
    /// [`Busy`]. The message must then not be sent.
    #[inline]
    pub fn sent_as(
        &mut self,
        storage: &mut S,
        now: Instant,
        id: RequestId,
        message: &[u8],
        random: u8,
    ) -> Result<(), Busy> {
        let parsed = MessageRef::parse(message).map_err(|_| Busy::TooLong)?;
        let confirmable = parsed.message_type() == MessageType::Confirmable;
        let is_request = parsed.code().is_request();
        // The peer answers a request and a confirmable response, but not a non-confirmable response.
        if confirmable || is_request {
            let kept = message.get(..if confirmable { message.len() } else { 0 }).unwrap_or(&[]);
            let outgoing = storage.open(&mut self.kept, kept)?;
            outgoing.waiting = if confirmable { Waiting::Acknowledgement } else { Waiting::Response };
            outgoing.is_request = is_request;
            outgoing.registers = is_request && parsed.uint(OptionNumber::OBSERVE) == Some(observe::REGISTER);
            outgoing.retransmissions = 0;
            outgoing.message_id = parsed.message_id();
            // The timeout is 2000 ms, and a random time of at most 255 * 4 = 1020 ms (about ACK_RANDOM_FACTOR = 1.5).
            outgoing.timeout_ms =
                (ACK_TIMEOUT.as_secs() as u32).wrapping_mul(1000).wrapping_add(u32::from(random) << 2);
            outgoing.deadline = match confirmable {
                true => now.after_millis(outgoing.timeout_ms),
                false => now.after(RESPONSE_TIMEOUT),
            };
            outgoing.id = id;
            outgoing.token = Token::new(parsed.token());
        }
        Ok(())
    }

    /// Returns the time at which [`Self::poll`] must be called, or `None` if no exchange has a deadline.
    pub fn next_deadline(&self, storage: &S) -> Option<Instant> {
        storage.exchanges(&self.kept).filter(|o| o.has_deadline()).map(|o| o.deadline).min()
    }

    /// Performs the next action whose time has come. Call this function until it returns `None`. A message to
    /// retransmit is appended to `frame`.
    pub fn poll(&mut self, storage: &mut S, now: Instant, frame: &mut Frame<'_>) -> Option<Due> {
        let due = storage.find(&mut self.kept, |o| o.has_deadline() && o.deadline <= now)?;
        let id = due.id;
        if due.waiting != Waiting::Acknowledgement || due.retransmissions >= MAX_RETRANSMIT {
            due.waiting = Waiting::Nothing;
            storage.settle(&mut self.kept, id);
            return Some(Due::TimedOut(id));
        }
        due.retransmissions = due.retransmissions.wrapping_add(1);
        due.timeout_ms = due.timeout_ms.saturating_mul(2);
        due.deadline = now.after_millis(due.timeout_ms);
        let _ = storage.write(&self.kept, id, frame);
        Some(Due::Retransmit)
    }

    /// Returns the number of messages of this endpoint for which nothing has been received. NSTART limits this number
    /// (RFC 7252, section 4.7). An acknowledged request does not count, even if its separate response has not arrived
    /// yet.
    pub fn outstanding(&self, storage: &S) -> usize {
        storage.exchanges(&self.kept).filter(|o| o.is_outstanding()).count()
    }

    /// Returns true if a request with this token has not ended.
    pub fn awaits(&self, storage: &S, token: &[u8]) -> bool {
        storage.exchanges(&self.kept).any(|o| o.is_open() && o.is_request && o.token.as_bytes() == token)
    }

    /// Ends all exchanges and removes all replies, because the peer is removed.
    pub fn forget(&mut self, storage: &mut S) {
        storage.forget(&mut self.kept);
    }

    /// Returns true until the exchange with this identifier ends.
    pub fn is_open(&self, storage: &S, id: RequestId) -> bool {
        storage.exchanges(&self.kept).any(|o| o.id == id && o.is_open())
    }

    /// Returns the number of exchanges of this endpoint that have not ended, including observations.
    pub fn open(&self, storage: &S) -> usize {
        storage.exchanges(&self.kept).filter(|o| o.is_open()).count()
    }
}
