//! The message layer of one peer (RFC 7252, section 4): retransmission, deduplication, and which response belongs to
//! which request. Everything is bounded here; what protects the datagrams does not matter here.

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
/// How long a request waits for its response once it was acknowledged, or from the start if it is not confirmable.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(247);

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

/// What a received datagram means to this peer's exchanges.
#[derive(Debug)]
pub enum Received<'m, 'x> {
    /// A request that is to be handled.
    Request(MessageRef<'m>),
    /// A message that was handled before: send these bytes again. They are empty if there is nothing to send.
    Duplicate(&'x [u8]),
    /// The response to a request of ours.
    Response {
        /// Which.
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
    /// The peer cannot make sense of a message of ours that nothing is kept of: one that was not confirmable.
    Rejected {
        /// Its Message ID.
        message_id: u16,
    },
    /// Send this Reset: the answer to a ping, or to what makes no sense.
    Reject([u8; 4]),
    /// Nothing to do.
    Nothing,
}

/// What the clock brought.
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
    /// For the response only.
    Response,
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
    fn is_outstanding(&self) -> bool {
        matches!(self.waiting, Waiting::Acknowledgement | Waiting::Response)
    }

    /// Its response is here. If it registered, and the server says that it did, notifications follow; an error or a
    /// response without the option is the last (RFC 7641, section 3.2).
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
/// `OUT` messages of ours may be open, each of at most `BYTES` bytes. Of the last `SEEN` messages of the peer the
/// replies are kept, `REPLIES` bytes in all, and sent again if the message comes again. An older repetition of an
/// idempotent request is executed again, which RFC 7252, section 4.5, allows: 247 seconds of exchanges at full rate fit
/// no table.
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
                outgoing.waiting = if outgoing.is_request { Waiting::Response } else { Waiting::Free };
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

    /// Takes a message of ours that is sent now: a request, or a separate response. A confirmable one is kept and sent
    /// again until it is acknowledged; `random` spreads the first timeout over ACK_RANDOM_FACTOR (1 to 1.5).
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

    /// When [`Self::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.outgoing.iter().filter(|o| o.is_outstanding()).map(|o| o.deadline).min()
    }

    /// Does what is due; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Due<'_>> {
        let due = self.outgoing.iter_mut().find(|o| o.is_outstanding() && o.deadline <= now)?;
        if due.waiting == Waiting::Response || due.retransmissions >= MAX_RETRANSMIT {
            due.waiting = Waiting::Free;
            return Some(Due::TimedOut(due.id));
        }
        due.retransmissions = due.retransmissions.wrapping_add(1);
        due.timeout_ms = due.timeout_ms.saturating_mul(2);
        due.deadline = now.after_millis(due.timeout_ms);
        Some(Due::Retransmit(due.bytes.get(..due.len.into()).unwrap_or(&[])))
    }

    /// Exchanges of ours that wait for something of the peer's, observations not counted: what NSTART limits (RFC 7252,
    /// section 4.7).
    pub fn outstanding(&self) -> usize {
        self.outgoing.iter().filter(|o| o.is_outstanding()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::vec::Vec;

    type Small = Exchanges<2, 64, 4, 64>;

    const START: Instant = Instant::from_micros(1_000_000);

    fn after(seconds: u64) -> Instant {
        START.after(Duration::from_secs(seconds))
    }

    fn message(kind: u8, code: Code, id: u16, token: u8) -> [u8; 5] {
        let [high, low] = id.to_be_bytes();
        [0x41 | kind << 4, code.0, high, low, token]
    }

    const CON: u8 = 0;
    const NON: u8 = 1;
    const ACK: u8 = 2;
    const RST: u8 = 3;

    /// What a datagram led to, without its borrows.
    fn received(exchanges: &mut Small, now: Instant, datagram: &[u8]) -> Seen {
        match exchanges.receive(now, datagram) {
            Received::Request(message) => Seen::Request(message.message_id()),
            Received::Duplicate(reply) => Seen::Duplicate(reply.to_vec()),
            Received::Response { request, acknowledge, .. } => Seen::Response(request, acknowledge),
            Received::Acknowledged(id) => Seen::Acknowledged(id),
            Received::Reset(id) => Seen::Reset(id),
            Received::Rejected { message_id } => Seen::Rejected(message_id),
            Received::Reject(reset) => Seen::Reject(reset),
            Received::Nothing => Seen::Nothing,
        }
    }

    #[derive(Debug, PartialEq)]
    enum Seen {
        Request(u16),
        Duplicate(Vec<u8>),
        Response(RequestId, Option<[u8; 4]>),
        Acknowledged(RequestId),
        Reset(RequestId),
        Rejected(u16),
        Reject([u8; 4]),
        Nothing,
    }

    /// A registration with token 5, or a notification for it with this number.
    fn observing(kind: u8, code: Code, id: u16, number: u8) -> [u8; 7] {
        let [header @ .., token] = message(kind, code, id, 5);
        let [a, b, c, d] = header;
        [a, b, c, d, token, 0x61, number]
    }

    #[test]
    fn a_registration_receives_notifications_until_it_is_cancelled() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &observing(CON, Code::GET, 1, 0), 0).unwrap();
        assert_eq!(received(&mut exchanges, START, &observing(ACK, Code::CONTENT, 1, 1)), Seen::Response(id, None));
        assert_eq!((exchanges.outstanding(), exchanges.next_deadline()), (0, None));
        assert!(exchanges.poll(after(1_000_000)).is_none(), "an observation has no end of its own");
        for n in 2..100 {
            let non = observing(NON, Code::CONTENT, u16::from(n), n);
            assert_eq!(received(&mut exchanges, START, &non), Seen::Response(id, None));
            let con = observing(CON, Code::CONTENT, 1000 + u16::from(n), n);
            let [high, low] = (1000 + u16::from(n)).to_be_bytes();
            assert_eq!(received(&mut exchanges, START, &con), Seen::Response(id, Some([0x60, 0, high, low])));
        }
        exchanges.cancel(id);
        assert_eq!(
            received(&mut exchanges, START, &observing(NON, Code::CONTENT, 700, 1)),
            Seen::Reject([0x70, 0, 2, 188])
        );
        assert_eq!(
            received(&mut exchanges, START, &observing(CON, Code::CONTENT, 701, 1)),
            Seen::Reject([0x70, 0, 2, 189])
        );
    }

    #[test]
    fn a_registration_ends_with_an_error_or_a_response_that_does_not_observe() {
        for last in [observing(NON, Code::NOT_FOUND, 9, 1).to_vec(), message(NON, Code::CONTENT, 9, 5).to_vec()] {
            let mut exchanges = Small::new(0);
            let id = exchanges.sent(START, &observing(CON, Code::GET, 1, 0), 0).unwrap();
            received(&mut exchanges, START, &observing(ACK, Code::CONTENT, 1, 1));
            assert_eq!(received(&mut exchanges, START, &last), Seen::Response(id, None));
            assert_eq!(received(&mut exchanges, START, &message(NON, Code::CONTENT, 10, 5)), Seen::Nothing);
        }
    }

    #[test]
    fn a_reset_of_what_was_not_confirmable_is_told_with_its_message_id() {
        let mut exchanges = Small::new(0);
        exchanges.sent(START, &observing(NON, Code::CONTENT, 7, 1), 0).unwrap();
        assert_eq!(received(&mut exchanges, START, &[0x70, 0, 0, 7]), Seen::Rejected(7));
    }

    #[test]
    fn a_ping_is_answered_with_a_reset() {
        let mut exchanges = Small::new(0);
        assert_eq!(received(&mut exchanges, START, &[0x40, 0, 0x12, 0x34]), Seen::Reject([0x70, 0, 0x12, 0x34]));
        assert_eq!(received(&mut exchanges, START, &[0x50, 0, 0x12, 0x34]), Seen::Nothing, "not confirmable");
    }

    #[test]
    fn a_malformed_message_is_reset_only_if_confirmable() {
        let mut exchanges = Small::new(0);
        assert_eq!(received(&mut exchanges, START, &[0x40, 1, 0, 7, 0xff]), Seen::Reject([0x70, 0, 0, 7]));
        for first in [0x50, 0x60, 0x70] {
            assert_eq!(received(&mut exchanges, START, &[first, 1, 0, 7, 0xff]), Seen::Nothing);
        }
        assert_eq!(received(&mut exchanges, START, &[0x80, 1, 0, 7, 0xff]), Seen::Nothing, "another version");
    }

    #[test]
    fn a_reserved_code_is_reset_if_confirmable() {
        let mut exchanges = Small::new(0);
        for class in [1, 3, 6, 7] {
            let code = Code::new(class, 1);
            assert_eq!(received(&mut exchanges, START, &message(CON, code, 7, 1)), Seen::Reject([0x70, 0, 0, 7]));
            assert_eq!(received(&mut exchanges, START, &message(NON, code, 7, 1)), Seen::Nothing);
        }
    }

    #[test]
    fn a_response_that_nobody_asked_for_is_reset() {
        let mut exchanges = Small::new(0);
        exchanges.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
        assert_eq!(
            received(&mut exchanges, START, &message(CON, Code::CONTENT, 9, 0xbb)),
            Seen::Reject([0x70, 0, 0, 9])
        );
        assert_eq!(received(&mut exchanges, START, &message(NON, Code::CONTENT, 9, 0xbb)), Seen::Nothing);
        assert_eq!(received(&mut exchanges, START, &message(ACK, Code::CONTENT, 1, 0xbb)), Seen::Nothing);
        assert_eq!(received(&mut exchanges, START, &message(ACK, Code::CONTENT, 2, 0xaa)), Seen::Nothing);
        assert_eq!(exchanges.outstanding(), 1);
    }

    #[test]
    fn a_piggybacked_response_ends_the_exchange() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
        let response = message(ACK, Code::CONTENT, 1, 0xaa);
        assert_eq!(received(&mut exchanges, START, &response), Seen::Response(id, None));
        assert_eq!(received(&mut exchanges, START, &response), Seen::Nothing, "once only");
        assert_eq!((exchanges.outstanding(), exchanges.next_deadline()), (0, None));
    }

    #[test]
    fn a_separate_response_is_acknowledged_each_time_it_comes() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
        assert_eq!(received(&mut exchanges, START, &[0x60, 0, 0, 1]), Seen::Acknowledged(id));
        assert_eq!(received(&mut exchanges, START, &[0x60, 0, 0, 1]), Seen::Nothing);
        let response = message(CON, Code::CONTENT, 77, 0xaa);
        let acknowledgement = [0x60, 0, 0, 77];
        assert_eq!(received(&mut exchanges, START, &response), Seen::Response(id, Some(acknowledgement)));
        assert_eq!(received(&mut exchanges, START, &response), Seen::Duplicate(acknowledgement.to_vec()));
    }

    #[test]
    fn a_separate_response_stands_for_a_lost_acknowledgement() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
        assert_eq!(received(&mut exchanges, START, &message(NON, Code::CONTENT, 77, 0xaa)), Seen::Response(id, None));
        assert_eq!(exchanges.poll(after(100)), None, "nothing is sent again");
    }

    #[test]
    fn a_reset_ends_the_exchange() {
        let mut exchanges = Small::new(0);
        for kind in [CON, NON] {
            let id = exchanges.sent(START, &message(kind, Code::GET, 1, 0xaa), 0).unwrap();
            assert_eq!(received(&mut exchanges, START, &[0x70, 0, 0, 1]), Seen::Reset(id));
            assert_eq!(exchanges.outstanding(), 0);
        }
        assert_eq!(received(&mut exchanges, START, &message(RST, Code::EMPTY, 1, 0)), Seen::Nothing);
    }

    #[test]
    fn a_request_is_given_up_after_four_retransmissions() {
        for random in [0, 128, 255] {
            let mut exchanges = Small::new(0);
            let bytes = message(CON, Code::GET, 1, 0xaa);
            let id = exchanges.sent(START, &bytes, random).unwrap();
            let mut sent_at = Vec::new();
            let end = loop {
                let now = exchanges.next_deadline().unwrap();
                assert_eq!(exchanges.poll(Instant::from_micros(now.as_micros() - 1)), None);
                match exchanges.poll(now) {
                    Some(Due::Retransmit(again)) => assert_eq!(again, bytes),
                    Some(Due::TimedOut(timed_out)) => break (timed_out, now),
                    None => unreachable!("it was due"),
                }
                sent_at.push(now.since(START).as_millis());
            };
            let first = 2000 + u128::from(random) * 4;
            assert!((2000..=3020).contains(&first));
            assert_eq!(sent_at, [first, 3 * first, 7 * first, 15 * first]);
            assert_eq!(end, (id, START.after_millis(31 * first as u32)));
            assert_eq!(exchanges.next_deadline(), None);
        }
    }

    #[test]
    fn an_acknowledged_request_waits_for_its_response_and_not_for_ever() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
        received(&mut exchanges, after(1), &[0x60, 0, 0, 1]);
        assert_eq!(exchanges.next_deadline(), Some(after(1).after(RESPONSE_TIMEOUT)));
        assert_eq!(exchanges.poll(after(1).after(RESPONSE_TIMEOUT)), Some(Due::TimedOut(id)));
    }

    #[test]
    fn a_non_confirmable_request_is_sent_once() {
        let mut exchanges = Small::new(0);
        let id = exchanges.sent(START, &message(NON, Code::GET, 1, 0xaa), 0).unwrap();
        assert_eq!(exchanges.poll(after(100)), None);
        assert_eq!(
            received(&mut exchanges, after(100), &message(NON, Code::CONTENT, 4, 0xaa)),
            Seen::Response(id, None)
        );
    }

    #[test]
    fn a_non_confirmable_response_waits_for_nothing() {
        let mut exchanges = Small::new(0);
        for id in 0..5 {
            exchanges.sent(START, &message(NON, Code::CONTENT, id, 0xaa), 0).unwrap();
        }
        assert_eq!((exchanges.outstanding(), exchanges.next_deadline()), (0, None));
    }

    #[test]
    fn no_more_messages_are_open_than_there_is_room_for() {
        let mut exchanges = Small::new(0);
        let first = exchanges.sent(START, &message(CON, Code::GET, 1, 1), 0).unwrap();
        exchanges.sent(START, &message(CON, Code::GET, 2, 2), 0).unwrap();
        assert_eq!(exchanges.sent(START, &message(CON, Code::GET, 3, 3), 0), Err(Busy::Outstanding));
        exchanges.cancel(first);
        exchanges.sent(START, &message(CON, Code::GET, 3, 3), 0).unwrap();
        assert_eq!(received(&mut exchanges, START, &message(ACK, Code::CONTENT, 1, 1)), Seen::Nothing, "cancelled");
    }

    #[test]
    fn a_message_too_long_to_be_sent_again_is_refused() {
        let mut exchanges = Small::new(0);
        let long = [&message(CON, Code::PUT, 1, 1)[..], &[0xff], &[7; 60]].concat();
        assert_eq!(exchanges.sent(START, &long, 0), Err(Busy::TooLong));
        assert_eq!(exchanges.outstanding(), 0);
        let long = [&message(NON, Code::PUT, 1, 1)[..], &[0xff], &[7; 60]].concat();
        exchanges.sent(START, &long, 0).unwrap();
    }

    #[test]
    fn message_ids_wrap() {
        let mut exchanges = Small::new(u16::MAX);
        assert_eq!([exchanges.message_id(), exchanges.message_id()], [u16::MAX, 0]);
    }

    #[test]
    fn a_duplicate_is_one_only_within_the_exchange_lifetime() {
        let mut exchanges = Small::new(0);
        let request = message(CON, Code::POST, 7, 1);
        assert_eq!(received(&mut exchanges, START, &request), Seen::Request(7));
        exchanges.keep_reply(START, 7, b"reply");
        assert_eq!(received(&mut exchanges, after(246), &request), Seen::Duplicate(b"reply".to_vec()));
        assert_eq!(received(&mut exchanges, after(247), &request), Seen::Request(7));
        exchanges.keep_reply(after(247), 7, b"other");
        assert_eq!(received(&mut exchanges, after(248), &request), Seen::Duplicate(b"other".to_vec()));
    }

    #[test]
    fn message_id_zero_is_not_a_duplicate_of_nothing() {
        let mut exchanges = Small::new(0);
        assert_eq!(
            received(&mut exchanges, Instant::from_micros(0), &message(CON, Code::POST, 0, 1)),
            Seen::Request(0)
        );
    }

    #[test]
    fn a_reply_that_was_written_over_is_not_repeated_and_the_request_not_executed() {
        let mut exchanges = Small::new(0);
        for id in 0..4u16 {
            exchanges.keep_reply(START, id, &[id as u8; 30]);
        }
        // 64 bytes hold the last two of them.
        for (id, reply) in [(0, &[][..]), (1, &[]), (2, &[2; 30]), (3, &[3; 30])] {
            let again = received(&mut exchanges, START, &message(CON, Code::POST, id, 1));
            assert_eq!(again, Seen::Duplicate(reply.to_vec()), "{id}");
        }
    }

    #[test]
    fn a_reply_longer_than_the_ring_costs_only_its_own_repetition() {
        let mut exchanges = Small::new(0);
        exchanges.keep_reply(START, 1, b"kept");
        exchanges.keep_reply(START, 2, &[7; 65]);
        assert_eq!(received(&mut exchanges, START, &message(CON, Code::POST, 1, 1)), Seen::Duplicate(b"kept".to_vec()));
        assert_eq!(received(&mut exchanges, START, &message(CON, Code::POST, 2, 1)), Seen::Duplicate(Vec::new()));
    }

    proptest! {
        /// The ring of replies against a list that forgets nothing.
        #[test]
        fn a_repeated_reply_is_the_right_one_or_empty(replies in vec(vec(any::<u8>(), 0..70), 0..60), turns in 0u32..3) {
            let mut exchanges = Small::new(0);
            exchanges.replies_end = turns.wrapping_mul(64).wrapping_sub(64);
            for (id, reply) in replies.iter().enumerate() {
                exchanges.keep_reply(START, id as u16, reply);
                for back in 0..4.min(id + 1) {
                    let again = received(&mut exchanges, START, &message(CON, Code::POST, (id - back) as u16, 1));
                    let Seen::Duplicate(bytes) = again else { panic!("executed twice") };
                    let expected = &replies[id - back];
                    prop_assert!(bytes.is_empty() || bytes == *expected);
                    // The newest that fits is always there.
                    prop_assert!(back > 0 || expected.len() > 64 || bytes == *expected);
                }
            }
        }

        #[test]
        fn any_datagrams_in_any_order_are_total(steps in vec((vec(any::<u8>(), 0..20), 0u64..100), 0..60)) {
            let mut exchanges = Small::new(0);
            let mut now = START;
            for (datagram, seconds) in steps {
                now = now.after(Duration::from_secs(seconds));
                let datagram = match datagram.split_first() {
                    // Mostly valid heads with few ids and tokens, so that they meet.
                    Some((first, rest)) if first % 4 > 0 => {
                        let kind = first >> 2 & 3;
                        let code = [0, 1, 2, 0x45, 0x44, 0x84][usize::from(first >> 4) % 6];
                        let id = u16::from(rest.first().unwrap_or(&0) & 3);
                        message(kind, Code(code), id, first & 1).to_vec()
                    }
                    _ => datagram,
                };
                if let Seen::Request(id) = received(&mut exchanges, now, &datagram) {
                    exchanges.keep_reply(now, id, &datagram);
                }
                let _ = exchanges.sent(now, &datagram, 0);
                while exchanges.poll(now).is_some() {}
                prop_assert!(exchanges.outstanding() <= 2);
                prop_assert!(exchanges.next_deadline().is_none_or(|at| at > now));
            }
        }
    }
}
