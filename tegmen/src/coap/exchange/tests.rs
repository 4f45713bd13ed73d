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
    assert_eq!(received(&mut exchanges, START, &message(CON, Code::CONTENT, 9, 0xbb)), Seen::Reject([0x70, 0, 0, 9]));
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
    assert_eq!(received(&mut exchanges, after(100), &message(NON, Code::CONTENT, 4, 0xaa)), Seen::Response(id, None));
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
    assert_eq!(received(&mut exchanges, Instant::from_micros(0), &message(CON, Code::POST, 0, 1)), Seen::Request(0));
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

#[test]
fn a_request_that_is_acknowledged_is_open_but_not_outstanding() {
    let mut exchanges = Small::new(7);
    exchanges.sent(START, &[0x41, 1, 0, 7, b't'], 0).unwrap();
    assert_eq!((exchanges.outstanding(), exchanges.open()), (1, 1));
    exchanges.receive(START, &empty(MessageType::Acknowledgement, 7));
    assert_eq!((exchanges.outstanding(), exchanges.open()), (0, 1));
    let over = START.after(RESPONSE_TIMEOUT);
    assert_eq!(exchanges.next_deadline(), Some(over));
    assert!(matches!(exchanges.poll(over), Some(Due::TimedOut(_))));
    assert_eq!(exchanges.open(), 0);
}
