use super::*;
use crate::storage::Waiting;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

type Small = FixedPeer<2, 64, 4, 64>;

const START: Instant = Instant::from_micros(1_000_000);

fn open(peer: &mut Small, id: u32, message: &[u8]) -> Result<(), Busy> {
    let mut arrays = Fixed;
    let exchange = arrays.open(peer, message)?;
    (exchange.id, exchange.waiting) = (RequestId(id), Waiting::Acknowledgement);
    Ok(())
}

fn keep(peer: &mut Small, message_id: u16, reply: &[u8]) {
    Fixed.keep(START, peer, message_id, Repeat::Never, reply);
}

/// Returns the reply to a message that was handled.
fn again(peer: &Small, message_id: u16) -> Option<Vec<u8>> {
    Fixed.handled(START, peer, message_id).map(|handled| peer.reply(handled).to_vec())
}

#[test]
fn no_more_messages_are_open_than_there_is_room_for() {
    let mut peer = Small::default();
    assert_eq!([1, 2, 3].map(|id| open(&mut peer, id, b"message")), [Ok(()), Ok(()), Err(Busy::Outstanding)]);
    Fixed.find(&mut peer, |exchange| exchange.id == RequestId(1)).unwrap().waiting = Waiting::Nothing;
    assert!(Fixed.find(&mut peer, |exchange| exchange.id == RequestId(1)).is_none(), "over");
    assert_eq!(open(&mut peer, 3, b"message"), Ok(()));
}

#[test]
fn a_message_too_long_to_be_sent_again_is_refused() {
    let mut peer = Small::default();
    assert_eq!(open(&mut peer, 1, &[7; 65]), Err(Busy::TooLong));
    assert_eq!(Fixed.exchanges(&peer).filter(|exchange| exchange.is_open()).count(), 0);
    assert_eq!(open(&mut peer, 1, &[7; 64]), Ok(()));
}

#[test]
fn a_message_is_written_whole_or_not_at_all() {
    let mut peer = Small::default();
    open(&mut peer, 1, b"one").unwrap();
    open(&mut peer, 2, b"other").unwrap();
    let mut storage = [0; 10];
    let mut frame = Frame::new(&mut storage, 0);
    assert_eq!(Fixed.write(&peer, RequestId(2), &mut frame), Ok(()));
    assert_eq!(Fixed.write(&peer, RequestId(1), &mut frame), Ok(()));
    assert_eq!(Fixed.write(&peer, RequestId(1), &mut frame), Err(Full));
    assert_eq!(frame.bytes(), b"otherone");
}

#[test]
fn a_reply_that_was_written_over_is_not_repeated_and_the_request_not_executed() {
    let mut peer = Small::default();
    for id in 0..4u16 {
        keep(&mut peer, id, &[id as u8; 30]);
    }
    // 64 bytes hold the last two of them.
    for (id, reply) in [(0, &[][..]), (1, &[]), (2, &[2; 30]), (3, &[3; 30])] {
        assert_eq!(again(&peer, id).as_deref(), Some(reply), "{id}");
    }
}

#[test]
fn a_reply_longer_than_the_ring_costs_only_its_own_repetition() {
    let mut peer = Small::default();
    keep(&mut peer, 1, b"kept");
    keep(&mut peer, 2, &[7; 65]);
    assert_eq!(again(&peer, 1).as_deref(), Some(&b"kept"[..]));
    assert_eq!(again(&peer, 2).as_deref(), Some(&[][..]));
}

#[test]
fn an_entry_that_is_given_up_knows_nothing() {
    let mut peer = Small::default();
    keep(&mut peer, 1, b"kept");
    open(&mut peer, 1, b"message").unwrap();
    Fixed.forget(&mut peer);
    assert_eq!((again(&peer, 1), Fixed.last_reply(START, &peer)), (None, &[][..]));
    assert!(Fixed.find(&mut peer, |_| true).is_none());
}

proptest! {
    /// Compares the ring of replies with a list that keeps all replies.
    #[test]
    fn a_repeated_reply_is_the_right_one_or_empty(replies in vec(vec(any::<u8>(), 0..70), 0..60), turns in 0u32..3) {
        let mut peer = Small { replies_end: turns.wrapping_mul(64).wrapping_sub(64), ..Small::default() };
        for (id, reply) in replies.iter().enumerate() {
            keep(&mut peer, id as u16, reply);
            for back in 0..4.min(id + 1) {
                let Some(bytes) = again(&peer, (id - back) as u16) else { panic!("executed twice") };
                let expected = &replies[id - back];
                prop_assert!(bytes.is_empty() || bytes == *expected);
                // The newest that fits is always there.
                prop_assert!(back > 0 || expected.len() > 64 || bytes == *expected);
            }
        }
    }
}
