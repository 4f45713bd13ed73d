//! The exchanges of one peer, and their reaction to each datagram. The parent module selects the storage.

use super::{Storage, storage};
use proptest::collection::vec;
use proptest::prelude::*;
use tegmen::buf::Frame;
use tegmen::coap::{Busy, Code, Due, ExchangeStorage, Exchanges, Received, Repeat, RequestId};
use tegmen::time::{Duration, Instant};

/// The exchanges of one peer, and their storage.
struct Peer {
    storage: Storage,
    exchanges: Exchanges<Storage>,
    /// The key of the last received request.
    key: Option<<Storage as ExchangeStorage>::Key>,
}

/// The time for which a request waits for its response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(247);
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

impl Peer {
    fn new(first_message_id: u16) -> Self {
        Self { storage: storage(), exchanges: Exchanges::new(first_message_id), key: None }
    }

    fn sent(&mut self, now: Instant, message: &[u8], random: u8) -> Result<RequestId, Busy> {
        self.exchanges.sent(&mut self.storage, now, message, random)
    }

    fn cancel(&mut self, id: RequestId) {
        self.exchanges.cancel(&mut self.storage, id);
    }

    fn outstanding(&self) -> usize {
        self.exchanges.outstanding(&self.storage)
    }

    fn open(&self) -> usize {
        self.exchanges.open(&self.storage)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.exchanges.next_deadline(&self.storage)
    }

    /// Returns the work that is due, and the message that must be sent again.
    fn poll(&mut self, now: Instant) -> Option<(Due, Vec<u8>)> {
        let mut bytes = [0; 64];
        let mut frame = Frame::new(&mut bytes, 0);
        let due = self.exchanges.poll(&mut self.storage, now, &mut frame)?;
        Some((due, frame.bytes().to_vec()))
    }

    /// Stores the reply to the last request.
    fn keep_reply(&mut self, now: Instant, reply: &[u8]) {
        let key = self.key.take().expect("a request");
        assert!(self.exchanges.has_room(&mut self.storage, now, Repeat::Never));
        self.exchanges.keep_reply(&mut self.storage, now, key, Repeat::Never, reply);
    }
}

/// Processes a datagram. Returns a copy of the result, which borrows nothing.
fn received(peer: &mut Peer, now: Instant, datagram: &[u8]) -> Seen {
    match peer.exchanges.receive(&mut peer.storage, now, datagram) {
        Received::Request(message, key) => {
            peer.key = Some(key);
            Seen::Request(message.message_id())
        }
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

/// Returns a registration with the token 5, or a notification for it with this number.
fn observing(kind: u8, code: Code, id: u16, number: u8) -> [u8; 7] {
    let [header @ .., token] = message(kind, code, id, 5);
    let [a, b, c, d] = header;
    [a, b, c, d, token, 0x61, number]
}

#[test]
fn a_registration_receives_notifications_until_it_is_cancelled() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &observing(CON, Code::GET, 1, 0), 0).unwrap();
    assert_eq!(received(&mut peer, START, &observing(ACK, Code::CONTENT, 1, 1)), Seen::Response(id, None));
    assert_eq!((peer.outstanding(), peer.next_deadline()), (0, None));
    assert!(peer.poll(after(1_000_000)).is_none(), "an observation has no end of its own");
    for n in 2..100 {
        let non = observing(NON, Code::CONTENT, u16::from(n), n);
        assert_eq!(received(&mut peer, START, &non), Seen::Response(id, None));
        let con = observing(CON, Code::CONTENT, 1000 + u16::from(n), n);
        let [high, low] = (1000 + u16::from(n)).to_be_bytes();
        assert_eq!(received(&mut peer, START, &con), Seen::Response(id, Some([0x60, 0, high, low])));
    }
    peer.cancel(id);
    assert_eq!(received(&mut peer, START, &observing(NON, Code::CONTENT, 700, 1)), Seen::Reject([0x70, 0, 2, 188]));
    assert_eq!(received(&mut peer, START, &observing(CON, Code::CONTENT, 701, 1)), Seen::Reject([0x70, 0, 2, 189]));
}

#[test]
fn a_registration_ends_with_an_error_or_a_response_that_does_not_observe() {
    for last in [observing(NON, Code::NOT_FOUND, 9, 1).to_vec(), message(NON, Code::CONTENT, 9, 5).to_vec()] {
        let mut peer = Peer::new(0);
        let id = peer.sent(START, &observing(CON, Code::GET, 1, 0), 0).unwrap();
        received(&mut peer, START, &observing(ACK, Code::CONTENT, 1, 1));
        assert_eq!(received(&mut peer, START, &last), Seen::Response(id, None));
        assert_eq!(received(&mut peer, START, &message(NON, Code::CONTENT, 10, 5)), Seen::Nothing);
    }
}

#[test]
fn a_reset_of_what_was_not_confirmable_is_told_with_its_message_id() {
    let mut peer = Peer::new(0);
    peer.sent(START, &observing(NON, Code::CONTENT, 7, 1), 0).unwrap();
    assert_eq!(received(&mut peer, START, &[0x70, 0, 0, 7]), Seen::Rejected(7));
}

#[test]
fn a_ping_is_answered_with_a_reset() {
    let mut peer = Peer::new(0);
    assert_eq!(received(&mut peer, START, &[0x40, 0, 0x12, 0x34]), Seen::Reject([0x70, 0, 0x12, 0x34]));
    assert_eq!(received(&mut peer, START, &[0x50, 0, 0x12, 0x34]), Seen::Nothing, "not confirmable");
}

#[test]
fn a_malformed_message_is_reset_only_if_confirmable() {
    let mut peer = Peer::new(0);
    assert_eq!(received(&mut peer, START, &[0x40, 1, 0, 7, 0xff]), Seen::Reject([0x70, 0, 0, 7]));
    for first in [0x50, 0x60, 0x70] {
        assert_eq!(received(&mut peer, START, &[first, 1, 0, 7, 0xff]), Seen::Nothing);
    }
    assert_eq!(received(&mut peer, START, &[0x80, 1, 0, 7, 0xff]), Seen::Nothing, "another version");
}

#[test]
fn a_reserved_code_is_reset_if_confirmable() {
    let mut peer = Peer::new(0);
    for class in [1, 3, 6, 7] {
        let code = Code(class << 5 | 1);
        assert_eq!(received(&mut peer, START, &message(CON, code, 7, 1)), Seen::Reject([0x70, 0, 0, 7]));
        assert_eq!(received(&mut peer, START, &message(NON, code, 7, 1)), Seen::Nothing);
    }
}

#[test]
fn a_response_that_nobody_asked_for_is_reset() {
    let mut peer = Peer::new(0);
    peer.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
    assert_eq!(received(&mut peer, START, &message(CON, Code::CONTENT, 9, 0xbb)), Seen::Reject([0x70, 0, 0, 9]));
    assert_eq!(received(&mut peer, START, &message(NON, Code::CONTENT, 9, 0xbb)), Seen::Nothing);
    assert_eq!(received(&mut peer, START, &message(ACK, Code::CONTENT, 1, 0xbb)), Seen::Nothing);
    assert_eq!(received(&mut peer, START, &message(ACK, Code::CONTENT, 2, 0xaa)), Seen::Nothing);
    assert_eq!(peer.outstanding(), 1);
}

#[test]
fn a_piggybacked_response_ends_the_exchange() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
    let response = message(ACK, Code::CONTENT, 1, 0xaa);
    assert_eq!(received(&mut peer, START, &response), Seen::Response(id, None));
    assert_eq!(received(&mut peer, START, &response), Seen::Nothing, "once only");
    assert_eq!((peer.outstanding(), peer.next_deadline()), (0, None));
}

#[test]
fn a_separate_response_is_acknowledged_each_time_it_comes() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
    assert_eq!(received(&mut peer, START, &[0x60, 0, 0, 1]), Seen::Acknowledged(id));
    assert_eq!(received(&mut peer, START, &[0x60, 0, 0, 1]), Seen::Nothing);
    let response = message(CON, Code::CONTENT, 77, 0xaa);
    let acknowledgement = [0x60, 0, 0, 77];
    assert_eq!(received(&mut peer, START, &response), Seen::Response(id, Some(acknowledgement)));
    assert_eq!(received(&mut peer, START, &response), Seen::Duplicate(acknowledgement.to_vec()));
}

#[test]
fn a_separate_response_stands_for_a_lost_acknowledgement() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
    assert_eq!(received(&mut peer, START, &message(NON, Code::CONTENT, 77, 0xaa)), Seen::Response(id, None));
    assert_eq!(peer.poll(after(100)), None, "nothing is sent again");
}

#[test]
fn a_reset_ends_the_exchange() {
    let mut peer = Peer::new(0);
    for kind in [CON, NON] {
        let id = peer.sent(START, &message(kind, Code::GET, 1, 0xaa), 0).unwrap();
        assert_eq!(received(&mut peer, START, &[0x70, 0, 0, 1]), Seen::Reset(id));
        assert_eq!(peer.outstanding(), 0);
    }
    assert_eq!(received(&mut peer, START, &message(RST, Code::EMPTY, 1, 0)), Seen::Nothing);
}

#[test]
fn a_request_is_given_up_after_four_retransmissions() {
    for random in [0, 128, 255] {
        let mut peer = Peer::new(0);
        let bytes = message(CON, Code::GET, 1, 0xaa);
        let id = peer.sent(START, &bytes, random).unwrap();
        let mut sent_at = Vec::new();
        let end = loop {
            let now = peer.next_deadline().unwrap();
            assert_eq!(peer.poll(Instant::from_micros(now.as_micros() - 1)), None);
            match peer.poll(now) {
                Some((Due::Retransmit, again)) => assert_eq!(again, bytes),
                Some((Due::TimedOut(timed_out), _)) => break (timed_out, now),
                None => unreachable!("it was due"),
            }
            sent_at.push(now.since(START).as_millis());
        };
        let first = 2000 + u128::from(random) * 4;
        assert!((2000..=3020).contains(&first));
        assert_eq!(sent_at, [first, 3 * first, 7 * first, 15 * first]);
        assert_eq!(end, (id, START.after_millis(31 * first as u32)));
        assert_eq!(peer.next_deadline(), None);
    }
}

#[test]
fn an_acknowledged_request_waits_for_its_response_and_not_for_ever() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &message(CON, Code::GET, 1, 0xaa), 0).unwrap();
    received(&mut peer, after(1), &[0x60, 0, 0, 1]);
    assert_eq!(peer.next_deadline(), Some(after(1).after(RESPONSE_TIMEOUT)));
    assert_eq!(peer.poll(after(1).after(RESPONSE_TIMEOUT)), Some((Due::TimedOut(id), Vec::new())));
}

#[test]
fn a_non_confirmable_request_is_sent_once() {
    let mut peer = Peer::new(0);
    let id = peer.sent(START, &message(NON, Code::GET, 1, 0xaa), 0).unwrap();
    assert_eq!(peer.poll(after(100)), None);
    assert_eq!(received(&mut peer, after(100), &message(NON, Code::CONTENT, 4, 0xaa)), Seen::Response(id, None));
}

#[test]
fn a_non_confirmable_response_waits_for_nothing() {
    let mut peer = Peer::new(0);
    for id in 0..5 {
        peer.sent(START, &message(NON, Code::CONTENT, id, 0xaa), 0).unwrap();
    }
    assert_eq!((peer.outstanding(), peer.next_deadline()), (0, None));
}

#[test]
fn message_ids_wrap() {
    let mut peer = Peer::new(u16::MAX);
    assert_eq!([peer.exchanges.message_id(), peer.exchanges.message_id()], [u16::MAX, 0]);
}

#[test]
fn a_duplicate_is_one_only_within_the_exchange_lifetime() {
    let mut peer = Peer::new(0);
    let request = message(CON, Code::POST, 7, 1);
    assert_eq!(received(&mut peer, START, &request), Seen::Request(7));
    peer.keep_reply(START, b"reply");
    assert_eq!(received(&mut peer, after(246), &request), Seen::Duplicate(b"reply".to_vec()));
    assert_eq!(received(&mut peer, after(247), &request), Seen::Request(7));
    peer.keep_reply(after(247), b"other");
    assert_eq!(received(&mut peer, after(248), &request), Seen::Duplicate(b"other".to_vec()));
}

#[test]
fn message_id_zero_is_not_a_duplicate_of_nothing() {
    let mut peer = Peer::new(0);
    assert_eq!(received(&mut peer, Instant::from_micros(0), &message(CON, Code::POST, 0, 1)), Seen::Request(0));
}

#[test]
fn a_request_that_is_acknowledged_is_open_but_not_outstanding() {
    let mut peer = Peer::new(7);
    peer.sent(START, &message(CON, Code::GET, 7, b't'), 0).unwrap();
    assert_eq!((peer.outstanding(), peer.open()), (1, 1));
    assert!(matches!(received(&mut peer, START, &[0x60, 0, 0, 7]), Seen::Acknowledged(_)));
    assert_eq!((peer.outstanding(), peer.open()), (0, 1));
    let over = START.after(RESPONSE_TIMEOUT);
    assert_eq!(peer.next_deadline(), Some(over));
    assert!(matches!(peer.poll(over), Some((Due::TimedOut(_), _))));
    assert_eq!(peer.open(), 0);
}

proptest! {
    #[test]
    fn any_datagrams_in_any_order_are_total(steps in vec((vec(any::<u8>(), 0..20), 0u64..100), 0..60)) {
        let mut peer = Peer::new(0);
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
            if let Seen::Request(_) = received(&mut peer, now, &datagram) {
                peer.keep_reply(now, &datagram);
            }
            let _ = peer.sent(now, &datagram, 0);
            while peer.poll(now).is_some() {}
            prop_assert!(peer.next_deadline().is_none_or(|at| at > now));
        }
    }
}
