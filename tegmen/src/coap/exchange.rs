//! The message layer of one peer (RFC 7252, section 4): retransmission, deduplication, and the match of responses to
//! requests. All state is bounded and independent of the protection of datagrams.

use super::code::Code;
use super::message::{Malformed, MessageRef, MessageType, Token, empty};
use super::observe;
use super::option::OptionNumber;
use crate::buf::{Full, copy};
use crate::time::{Duration, Instant};

/// ACK_TIMEOUT (RFC 7252, section 4.8).
pub const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// MAX_RETRANSMIT.
pub const MAX_RETRANSMIT: u8 = 4;
/// EXCHANGE_LIFETIME: how long a Message ID means the same message.
pub const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);
/// The time that a request waits for its response after the acknowledgement, or from the start if the request is not
/// confirmable.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(247);

/// Names a request, or a separate response, that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestId(pub u32);

/// All room for outgoing messages is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// As many exchanges are open as there is room for; wait for one to end.
    Outstanding,
    /// The message is longer than what can be kept for retransmission.
    TooLong,
}

impl From<Full> for Busy {
    fn from(_: Full) -> Self {
        Self::TooLong
    }
}

/// The meaning of a received datagram for the exchanges of this peer.
#[derive(Debug)]
pub enum Received<'m, 'x> {
    /// A request that is to be handled.
    Request(MessageRef<'m>),
    /// A message that was handled before: send these bytes again. They are empty if there is nothing to send.
    Duplicate(&'x [u8]),
    /// The response to a request that we sent.
    Response {
        /// The request.
        request: RequestId,
        /// The response.
        message: MessageRef<'m>,
        /// An acknowledgement that is to be sent.
        acknowledge: Option<[u8; 4]>,
    },
    /// Our message was received; if it is a request, its response comes separately.
    Acknowledged(RequestId),
    /// The peer cannot make sense of our message; the exchange is over.
    Reset(RequestId),
    /// The peer rejects a message that we sent and of which no state is kept: a non-confirmable message.
    Rejected {
        /// Its Message ID.
        message_id: u16,
    },
    /// Send this Reset: the answer to a ping, or to what makes no sense.
    Reject([u8; 4]),
    /// Nothing to do.
    Nothing,
}

/// An event of the clock.
#[derive(Debug, PartialEq, Eq)]
pub enum Due<'x> {
    /// Send these bytes again.
    Retransmit(&'x [u8]),
    /// Nobody answered; the exchange is over.
    TimedOut(RequestId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Free,
    /// For an acknowledgement, or for a response that stands for it; sent again until then.
    Acknowledgement,
    /// For the response to a request that is not confirmable.
    Response,
    /// For the separate response to a request that was acknowledged.
    SeparateResponse,
    /// For notifications (RFC 7641), until the observation is cancelled.
    Notifications,
}

struct Outgoing<const BYTES: usize> {
    waiting: Waiting,
    is_request: bool,
    /// The request registers for notifications.
    registers: bool,
    retransmissions: u8,
    message_id: u16,
    len: u16,
    timeout_ms: u32,
    deadline: Instant,
    id: RequestId,
    token: Token,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Outgoing<BYTES> {
    /// True if the exchange ends at its deadline.
    const fn has_deadline(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response | Waiting::SeparateResponse)
    }

    /// True if nothing has been received for it (RFC 7252, section 4.7).
    const fn is_outstanding(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response)
    }

    /// Handles the response. If the request registered an observation and the server confirms it, notifications
    /// follow. An error, or a response without the option, is the last one (RFC 7641, section 3.2).
    fn respond(&mut self, response: &MessageRef<'_>) {
        let follow = self.registers && response.code().is_success() && response.option(OptionNumber::OBSERVE).is_some();
        self.waiting = if follow { Waiting::Notifications } else { Waiting::Free };
        self.deadline = Instant::NEVER;
    }
}

#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    /// Position in the ring of replies, counted from the beginning of time.
    reply: u32,
    len: u16,
}

/// The exchanges of one peer.
///
/// Holds up to `OUT` open messages that we sent, each of at most `BYTES` bytes. Keeps the replies to the last `SEEN`
/// messages of the peer, at most `REPLIES` bytes together, and sends a reply again if the message is repeated. An
/// older repetition of an idempotent request is executed again, which RFC 7252, section 4.5, allows: no table of
/// bounded size holds 247 seconds of exchanges at full rate.
pub struct Exchanges<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> {
    outgoing: [Outgoing<BYTES>; OUT],
    seen_ids: [u16; SEEN],
    seen: [Seen; SEEN],
    next_seen: usize,
    replies: [u8; REPLIES],
    replies_end: u32,
    next_message_id: u16,
    next_request: u32,
}

/// The message layer of one peer: what a node needs of [`Exchanges`], whatever their size.
pub trait MessageLayer {
    /// The exchanges that can be open at the same time.
    const PLACES: usize;

    /// Returns a Message ID for a message of ours.
    fn message_id(&mut self) -> u16;
    /// Sorts a received message.
    fn receive<'m>(&mut self, now: Instant, datagram: &'m [u8]) -> Received<'m, '_>;
    /// Keeps the answer to message `message_id`.
    fn keep_reply(&mut self, now: Instant, message_id: u16, reply: &[u8]);
    /// Takes a message that is sent now.
    ///
    /// # Errors
    /// [`Busy`]; the message must then not be sent.
    fn sent(&mut self, now: Instant, message: &[u8], random: u8) -> Result<RequestId, Busy>;
    /// Returns the number of our messages for which nothing has been received.
    fn outstanding(&self) -> usize;
    /// Returns the number of our exchanges that have not ended.
    fn open(&self) -> usize;
    /// Gives up a request or a separate response.
    fn cancel(&mut self, id: RequestId);
    /// Returns the time at which [`Self::poll`] has work.
    fn next_deadline(&self) -> Option<Instant>;
    /// Does what is due.
    fn poll(&mut self, now: Instant) -> Option<Due<'_>>;
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> MessageLayer
    for Exchanges<OUT, BYTES, SEEN, REPLIES>
{
    const PLACES: usize = OUT;

    #[inline]
    fn message_id(&mut self) -> u16 {
        self.message_id()
    }

    #[inline]
    fn receive<'m>(&mut self, now: Instant, datagram: &'m [u8]) -> Received<'m, '_> {
        self.receive(now, datagram)
    }

    #[inline]
    fn keep_reply(&mut self, now: Instant, message_id: u16, reply: &[u8]) {
        self.keep_reply(now, message_id, reply);
    }

    #[inline]
    fn sent(&mut self, now: Instant, message: &[u8], random: u8) -> Result<RequestId, Busy> {
        self.sent(now, message, random)
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.outstanding()
    }

    #[inline]
    fn open(&self) -> usize {
        self.open()
    }

    #[inline]
    fn cancel(&mut self, id: RequestId) {
        self.cancel(id);
    }

    #[inline]
    fn next_deadline(&self) -> Option<Instant> {
        self.next_deadline()
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Due<'_>> {
        self.poll(now)
    }
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> Default
    for Exchanges<OUT, BYTES, SEEN, REPLIES>
{
    fn default() -> Self {
        Self::new(0)
    }
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize>
    Exchanges<OUT, BYTES, SEEN, REPLIES>
{
    /// No exchanges; the first message goes out with this Message ID, which is best drawn at random.
    pub const fn new(first_message_id: u16) -> Self {
        const { assert!(REPLIES.is_power_of_two(), "the ring of replies is a power of two, so that positions may wrap") }
        Self {
            outgoing: [const {
                Outgoing {
                    waiting: Waiting::Free,
                    is_request: false,
                    registers: false,
                    retransmissions: 0,
                    message_id: 0,
                    len: 0,
                    timeout_ms: 0,
                    deadline: Instant::NEVER,
                    id: RequestId(0),
                    token: Token::new_empty(),
                    bytes: [0; BYTES],
                }
            }; OUT],
            seen_ids: [0; SEEN],
            seen: [Seen { at: Instant::NEVER, reply: 0, len: 0 }; SEEN],
            next_seen: 0,
            replies: [0; REPLIES],
            replies_end: 0,
            next_message_id: first_message_id,
            next_request: 0,
        }
    }

    /// A Message ID that was not used for the last 65,535 messages.
    pub fn message_id(&mut self) -> u16 {
        let id = self.next_message_id;
        self.next_message_id = id.wrapping_add(1);
        id
    }

    /// Sorts a received datagram.
    pub fn receive<'m>(&mut self, now: Instant, datagram: &'m [u8]) -> Received<'m, '_> {
        let message = match MessageRef::parse(datagram) {
            Ok(message) => message,
            // A confirmable message that is not understood is rejected (RFC 7252, section 4.2).
            Err(Malformed::Message { message_type: MessageType::Confirmable, message_id }) => {
                return Received::Reject(empty(MessageType::Reset, message_id));
            }
            Err(_) => return Received::Nothing,
        };
        let message_id = message.message_id();
        match message.message_type() {
            MessageType::Acknowledgement | MessageType::Reset => self.on_answer(now, message),
            message_type => {
                let confirmable = message_type == MessageType::Confirmable;
                if let Some(seen) = self.find_seen(now, message_id) {
                    return Received::Duplicate(self.reply(seen));
                }
                let code = message.code();
                if code.is_request() {
                    return Received::Request(message);
                }
                if code.is_response()
                    && let Some(request) = self.finish(&message)
                {
                    let acknowledge = confirmable.then(|| empty(MessageType::Acknowledgement, message_id));
                    self.keep_reply(now, message_id, acknowledge.as_ref().map_or(&[], |ack| ack));
                    return Received::Response { request, message, acknowledge };
                }
                // A ping, an unexpected response or a reserved code (RFC 7252, sections 4.2 and 4.3); a notification that
                // nobody waits for is rejected so that it is the last (RFC 7641, section 3.6).
                let unwanted = code.is_response() && message.option(OptionNumber::OBSERVE).is_some();
                match confirmable || unwanted {
                    true => Received::Reject(empty(MessageType::Reset, message_id)),
                    false => Received::Nothing,
                }
            }
        }
    }

    /// An acknowledgement, with or without response, or a Reset.
    fn on_answer<'m>(&mut self, now: Instant, message: MessageRef<'m>) -> Received<'m, '_> {
        let message_id = message.message_id();
        let open = |o: &&mut Outgoing<BYTES>| o.message_id == message_id && o.waiting != Waiting::Free;
        let Some(outgoing) = self.outgoing.iter_mut().find(open) else {
            return match message.message_type() {
                MessageType::Reset => Received::Rejected { message_id },
                _ => Received::Nothing,
            };
        };
        let id = outgoing.id;
        if message.message_type() == MessageType::Reset {
            outgoing.waiting = Waiting::Free;
            return Received::Reset(id);
        }
        if message.code() == Code::EMPTY {
            if outgoing.waiting == Waiting::Acknowledgement {
                outgoing.waiting = if outgoing.is_request { Waiting::SeparateResponse } else { Waiting::Free };
                outgoing.deadline = now.after(RESPONSE_TIMEOUT);
                return Received::Acknowledged(id);
            }
            return Received::Nothing;
        }
        let belongs = outgoing.is_request && outgoing.token.as_bytes() == message.token();
        if !belongs || !message.code().is_response() {
            return Received::Nothing;
        }
        outgoing.respond(&message);
        Received::Response { request: id, message, acknowledge: None }
    }

    /// Ends the request that has this token, unless notifications follow.
    fn finish(&mut self, response: &MessageRef<'_>) -> Option<RequestId> {
        let open = |o: &&mut Outgoing<BYTES>| o.waiting != Waiting::Free && o.is_request;
        let found = self.outgoing.iter_mut().filter(open).find(|o| o.token.as_bytes() == response.token())?;
        found.respond(response);
        Some(found.id)
    }

    /// Gives up a request or a separate response.
    pub fn cancel(&mut self, id: RequestId) {
        for outgoing in self.outgoing.iter_mut().filter(|o| o.id == id) {
            outgoing.waiting = Waiting::Free;
        }
    }

    /// Keeps what was answered to message `message_id`, to be answered again; empty if nothing was.
    pub fn keep_reply(&mut self, now: Instant, message_id: u16, reply: &[u8]) {
        let len = reply.len() as u32;
        let size = REPLIES as u32;
        let mut start = self.replies_end;
        let at = start.checked_rem(size).unwrap_or(0);
        if at.saturating_add(len) > size {
            start = start.wrapping_add(size.wrapping_sub(at)); // never across the end of the ring
        }
        let place = start.checked_rem(size).unwrap_or(0) as usize;
        let fits = copy(self.replies.get_mut(place..).unwrap_or(&mut []), reply).is_ok();
        if fits {
            self.replies_end = start.wrapping_add(len);
        }
        let seen = Seen { at: now, reply: start, len: if fits { reply.len() as u16 } else { 0 } };
        if let (Some(id), Some(slot)) = (self.seen_ids.get_mut(self.next_seen), self.seen.get_mut(self.next_seen)) {
            (*id, *slot) = (message_id, seen);
        }
        self.next_seen = self.next_seen.wrapping_add(1);
        if self.next_seen >= SEEN {
            self.next_seen = 0;
        }
    }

    /// Returns the last reply, as long as it is kept; empty if there is none. The endpoint sends it again to a peer
    /// whose new address is proved.
    pub fn last_reply(&self) -> &[u8] {
        let last = self.next_seen.checked_sub(1).unwrap_or(SEEN.saturating_sub(1));
        match self.seen.get(last) {
            Some(seen) if seen.at != Instant::NEVER => self.reply(*seen),
            _ => &[],
        }
    }

    fn find_seen(&self, now: Instant, message_id: u16) -> Option<Seen> {
        // Most messages are new: one pass over the ids alone decides that.
        let position = self.seen_ids.iter().position(|id| *id == message_id)?;
        let known = self.seen_ids.iter().zip(&self.seen).skip(position);
        let mut live = known.filter(|(id, seen)| {
            **id == message_id && seen.at != Instant::NEVER && now.since(seen.at) < EXCHANGE_LIFETIME
        });
        live.next().map(|(_, seen)| *seen)
    }

    fn reply(&self, seen: Seen) -> &[u8] {
        let size = REPLIES as u32;
        // Written over meanwhile: then there is nothing to repeat, and a request that is not idempotent is not run twice.
        if self.replies_end.wrapping_sub(seen.reply) > size {
            return &[];
        }
        let place = seen.reply.checked_rem(size).unwrap_or(0) as usize;
        self.replies.get(place..).and_then(|reply| reply.get(..seen.len.into())).unwrap_or(&[])
    }

    /// Takes a message that we send now: a request, or a separate response. A confirmable message is kept and
    /// retransmitted until it is acknowledged; `random` spreads the first timeout over ACK_RANDOM_FACTOR (1 to 1.5).
    ///
    /// # Errors
    /// [`Busy`]; the message must then not be sent.
    pub fn sent(&mut self, now: Instant, message: &[u8], random: u8) -> Result<RequestId, Busy> {
        let parsed = MessageRef::parse(message).map_err(|_| Busy::TooLong)?;
        let confirmable = parsed.message_type() == MessageType::Confirmable;
        if !confirmable && !parsed.code().is_request() {
            let id = RequestId(self.next_request);
            self.next_request = self.next_request.wrapping_add(1);
            return Ok(id); // nothing comes back for it
        }
        let slot = self.outgoing.iter_mut().find(|o| o.waiting == Waiting::Free).ok_or(Busy::Outstanding)?;
        let id = RequestId(self.next_request);
        if confirmable {
            copy(&mut slot.bytes, message)?;
        }
        self.next_request = self.next_request.wrapping_add(1);
        slot.waiting = if confirmable { Waiting::Acknowledgement } else { Waiting::Response };
        slot.is_request = parsed.code().is_request();
        slot.registers = slot.is_request && parsed.uint(OptionNumber::OBSERVE) == Some(observe::REGISTER);
        slot.retransmissions = 0;
        slot.message_id = parsed.message_id();
        slot.len = message.len() as u16;
        // 2000 ms + up to 1000 ms: 255 * 4 is near enough.
        slot.timeout_ms = (ACK_TIMEOUT.as_secs() as u32).wrapping_mul(1000).wrapping_add(u32::from(random) << 2);
        slot.deadline = match confirmable {
            true => now.after_millis(slot.timeout_ms),
            false => now.after(RESPONSE_TIMEOUT),
        };
        slot.id = id;
        slot.token = Token::new(parsed.token());
        Ok(id)
    }

    /// Returns the time at which [`Self::poll`] has work.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.outgoing.iter().filter(|o| o.has_deadline()).map(|o| o.deadline).min()
    }

    /// Does what is due; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Due<'_>> {
        let due = self.outgoing.iter_mut().find(|o| o.has_deadline() && o.deadline <= now)?;
        if due.waiting != Waiting::Acknowledgement || due.retransmissions >= MAX_RETRANSMIT {
            due.waiting = Waiting::Free;
            return Some(Due::TimedOut(due.id));
        }
        due.retransmissions = due.retransmissions.wrapping_add(1);
        due.timeout_ms = due.timeout_ms.saturating_mul(2);
        due.deadline = now.after_millis(due.timeout_ms);
        Some(Due::Retransmit(due.bytes.get(..due.len.into()).unwrap_or(&[])))
    }

    /// Returns the number of our messages for which nothing has been received: the number that NSTART limits (RFC 7252,
    /// section 4.7). A request that was acknowledged does not count while its response comes separately.
    pub fn outstanding(&self) -> usize {
        self.outgoing.iter().filter(|o| o.is_outstanding()).count()
    }

    /// Returns the number of our exchanges that have not ended, observations among them.
    pub fn open(&self) -> usize {
        self.outgoing.iter().filter(|o| o.waiting != Waiting::Free).count()
    }
}

#[cfg(test)]
mod tests;
