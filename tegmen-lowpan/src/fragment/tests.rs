use super::*;
use crate::ip;
use proptest::prelude::*;
use std::vec::Vec;
use tegmen_base::address::{Address, Path};

const HOP: Hop = Hop { source: LinkAddress::Short(1), destination: LinkAddress::Short(2) };
const OTHER: Hop = Hop { source: LinkAddress::Short(3), destination: LinkAddress::Short(2) };
const ROOM: usize = 116;
const NOW: Instant = Instant::from_micros(1_000_000);

fn packet(payload: &[u8]) -> Vec<u8> {
    let address =
        |last| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, last], port: 5683, scope: 0 };
    let path = Path { local: address(1), remote: address(2) };
    let mut packet = ip::headers(&path, 63, payload).unwrap().to_vec();
    packet.extend(payload);
    packet
}

fn frames(packet: &[u8], hop: &Hop, tag: u16, room: usize) -> Vec<Vec<u8>> {
    let mut fragments = Fragments::new(packet, hop, &[], tag).unwrap();
    let count = fragments.count(room);
    let mut out = [0; 127];
    let frames: Vec<_> =
        core::iter::from_fn(|| fragments.next_frame(room, &mut out).unwrap().map(<[u8]>::to_vec)).collect();
    assert_eq!(frames.len(), count);
    frames
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|n| n as u8).collect()
}

#[test]
fn what_fits_goes_in_one_frame_without_a_header_of_its_own() {
    let sent = packet(&numbered(50));
    let frames = frames(&sent, &HOP, 1, ROOM);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0][0] >> 5, 0b011);
    let mut reassembly = Reassembly::<1, 1280>::new();
    assert_eq!(reassembly.receive(NOW, &HOP, &[], &frames[0]).unwrap().unwrap(), sent);
    assert_eq!(reassembly.pending(), 0);
}

#[test]
fn fragments_come_together_in_any_order_and_more_than_once() {
    let sent = packet(&numbered(700));
    let mut frames = frames(&sent, &HOP, 7, ROOM);
    assert!(frames.len() > 6 && frames.iter().all(|frame| frame.len() <= ROOM));
    frames.reverse();
    frames.insert(1, frames[0].clone());
    let last = frames.pop().unwrap();
    let mut reassembly = Reassembly::<2, 1280>::new();
    for frame in &frames {
        assert!(reassembly.receive(NOW, &HOP, &[], frame).unwrap().is_none());
    }
    assert_eq!(reassembly.receive(NOW, &HOP, &[], &last).unwrap().unwrap(), sent);
    assert_eq!(reassembly.pending(), 0);
}

#[test]
fn packets_of_two_senders_do_not_mix() {
    let (a, b) = (packet(&numbered(300)), packet(&[7; 300]));
    let (from_a, from_b) = (frames(&a, &HOP, 7, ROOM), frames(&b, &OTHER, 7, ROOM));
    let mut reassembly = Reassembly::<2, 512>::new();
    let mut whole = Vec::new();
    for (one, other) in from_a.iter().zip(&from_b) {
        whole.extend(reassembly.receive(NOW, &HOP, &[], one).unwrap().map(|packet| packet.to_vec()));
        whole.extend(reassembly.receive(NOW, &OTHER, &[], other).unwrap().map(|packet| packet.to_vec()));
    }
    assert_eq!(whole, [a, b]);
}

#[test]
fn a_packet_that_is_never_ended_is_displaced_and_forgotten() {
    let first = |tag| frames(&packet(&numbered(300)), &HOP, tag, ROOM).remove(0);
    let mut reassembly = Reassembly::<2, 512>::new();
    for tag in 0..50 {
        let later = NOW.after_millis(u32::from(tag));
        assert!(reassembly.receive(later, &HOP, &[], &first(tag)).unwrap().is_none());
        assert!(reassembly.pending() <= 2);
    }
    let whole = frames(&packet(b"short"), &OTHER, 1, ROOM);
    assert!(reassembly.receive(NOW.after_millis(60), &OTHER, &[], &whole[0]).unwrap().is_some());
    reassembly.expire(NOW.after(TIMEOUT).after_millis(60));
    assert_eq!(reassembly.pending(), 0);
}

#[test]
fn a_fragment_that_laps_over_another_ends_the_packet() {
    let sent = packet(&numbered(300));
    let honest = frames(&sent, &HOP, 7, ROOM);
    let mut forged = honest[1].clone();
    forged[4] -= 1; // one unit earlier
    let mut reassembly = Reassembly::<1, 512>::new();
    assert!(reassembly.receive(NOW, &HOP, &[], &honest[0]).unwrap().is_none());
    assert_eq!(reassembly.receive(NOW, &HOP, &[], &forged), Err(FragmentError::Contradicts));
    assert_eq!(reassembly.pending(), 0);
    forged[4] = 255; // beyond the end
    assert_eq!(reassembly.receive(NOW, &HOP, &[], &forged), Err(FragmentError::Contradicts));
}

/// A forged fragment cannot replace bytes of a fragment that has arrived.
#[test]
fn the_bytes_that_arrive_first_count() {
    let sent = packet(&numbered(700));
    let honest = frames(&sent, &HOP, 7, ROOM);
    let (last, others) = honest.split_last().unwrap();
    for forged in [0, 1] {
        for (from, to) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            let mut reassembly = Reassembly::<1, 1280>::new();
            others.iter().for_each(|frame| assert!(reassembly.receive(NOW, &HOP, &[], frame).unwrap().is_none()));
            let mut forged = honest[forged].clone();
            let is_first = forged[0] & 0xf8 == 0xc0;
            if !is_first {
                forged.drain(5..5 + from);
                forged[4] += from as u8 / 8;
                forged.truncate(forged.len() - to);
            }
            *forged.last_mut().unwrap() ^= 1;
            assert!(reassembly.receive(NOW, &HOP, &[], &forged).unwrap().is_none());
            assert_eq!(reassembly.receive(NOW, &HOP, &[], last).unwrap().unwrap(), sent);
        }
    }
}

#[test]
fn what_is_too_long_is_refused_on_both_sides() {
    let long = frames(&packet(&numbered(600)), &HOP, 7, ROOM);
    assert_eq!(Reassembly::<1, 512>::new().receive(NOW, &HOP, &[], &long[0]), Err(FragmentError::TooLong));
    assert!(Fragments::new(&packet(&numbered(2000)), &HOP, &[], 1).is_err());
    let short = packet(b"short");
    let mut fragments = Fragments::new(&short, &HOP, &[], 1).unwrap();
    assert_eq!(fragments.next_frame(10, &mut [0; 127]), Err(Full));
}

#[test]
fn a_packet_without_a_udp_checksum_is_dropped() {
    let sent = packet(&numbered(20));
    let mut frame = frames(&sent, &HOP, 1, ROOM).remove(0);
    let compressed = Compressed::of(&sent, &HOP, &[]).unwrap().bytes().len();
    frame.drain(compressed - 2..compressed);
    let nhc = compressed - 2 - 5; // both ports are whole
    assert_eq!(frame[nhc], 0xf0);
    frame[nhc] |= 4;
    let refused = Err(FragmentError::Headers(iphc::HeaderError::NoChecksum));
    assert_eq!(Reassembly::<1, 512>::new().receive(NOW, &HOP, &[], &frame), refused);
    let first = [&[0xc0, sent.len() as u8, 0, 7][..], &frame].concat();
    assert_eq!(Reassembly::<1, 512>::new().receive(NOW, &HOP, &[], &first), refused);
}

proptest! {
    #[test]
    fn whatever_the_length_and_the_room_the_packet_arrives(len in 0..1200usize, room in 64..=ROOM, from in 0..8usize) {
        let sent = packet(&numbered(len));
        let mut reassembly = Reassembly::<1, 1280>::new();
        let mut frames = frames(&sent, &HOP, 3, room);
        let by = from % frames.len();
        frames.rotate_left(by);
        let mut whole = None;
        for frame in &frames {
            prop_assert!(whole.is_none());
            whole = reassembly.receive(NOW, &HOP, &[], frame).unwrap().map(|packet| packet.to_vec());
        }
        prop_assert_eq!(whole, Some(sent));
    }

    #[test]
    fn frames_of_anything_stop_nobody(frames in proptest::collection::vec(
        (0..4u8, proptest::collection::vec(any::<u8>(), 0..116)), 1..60,
    )) {
        let mut reassembly = Reassembly::<2, 256>::new();
        for (kind, mut frame) in frames {
            if let [first, second, ..] = &mut frame[..] {
                match kind {
                    0 => *first = 0x60 | (*first & 0x1f),
                    // Packets of lengths that fit, so that most fragments get far.
                    1 => (*first, *second) = (0xc0, *second | 40),
                    2 => (*first, *second) = (0xe0, *second | 40),
                    _ => {}
                }
            }
            let _ = reassembly.receive(NOW, &HOP, &[], &frame);
            prop_assert!(reassembly.pending() <= 2);
        }
    }
}

fn page_frames(payload: &[u8], tag: u16) -> Vec<Vec<u8>> {
    let mut fragments = Fragments::of_page(payload, tag).unwrap();
    let mut out = [0; 127];
    core::iter::from_fn(|| fragments.next_frame(ROOM, &mut out).unwrap().map(<[u8]>::to_vec)).collect()
}

fn page(len: usize) -> Vec<u8> {
    [&[0xfe][..], &numbered(len)].concat()
}

#[test]
fn a_payload_of_another_page_is_sent_and_put_together() {
    let mut reassembly = Reassembly::<2, 700>::new();
    for len in [1, 115, 116, 200, 699] {
        let sent = page(len);
        let mut frames = page_frames(&sent, 7);
        assert_eq!(frames.len() == 1, sent.len() <= ROOM);
        frames.reverse();
        let last = frames.pop().unwrap();
        for frame in &frames {
            assert!(reassembly.receive_page(NOW, &HOP, frame).unwrap().is_none());
        }
        assert_eq!(reassembly.receive_page(NOW, &HOP, &last).unwrap().unwrap(), sent);
        assert_eq!(reassembly.pending(), 0);
    }
}

#[test]
fn a_payload_in_one_frame_displaces_no_incomplete_payload() {
    let mut reassembly = Reassembly::<1, 700>::new();
    let sent = page(200);
    let [first, second] = &page_frames(&sent, 7)[..] else { panic!("the payload has two fragments") };
    assert!(reassembly.receive_page(NOW, &HOP, first).unwrap().is_none());
    assert_eq!(reassembly.receive_page(NOW, &HOP, &page(20)).unwrap().unwrap(), page(20));
    assert_eq!(reassembly.receive_page(NOW, &HOP, second).unwrap().unwrap(), sent);
}

#[test]
fn a_payload_without_a_page_is_refused() {
    let mut reassembly = Reassembly::<2, 700>::new();
    assert!(Fragments::of_page(&[0x41, 1], 1).is_err());
    assert!(Fragments::of_page(&[], 1).is_err());
    assert!(Fragments::of_page(&page(2047), 1).is_err());
    let ip = packet(&numbered(300));
    for frame in [&ip[..], &frames(&ip, &HOP, 1, ROOM)[0]] {
        assert!(matches!(reassembly.receive_page(NOW, &HOP, frame), Err(FragmentError::Dispatch(_))));
    }
    assert_eq!(reassembly.receive_page(NOW, &HOP, &page(700)), Err(FragmentError::TooLong));
    assert_eq!(reassembly.receive_page(NOW, &HOP, &page_frames(&page(900), 3)[1]), Err(FragmentError::TooLong));
    // Fragments of two neighbours are not mixed.
    let long = page_frames(&page(200), 3);
    assert!(reassembly.receive_page(NOW, &HOP, &long[0]).unwrap().is_none());
    assert!(reassembly.receive_page(NOW, &OTHER, &long[1]).unwrap().is_none());
    assert_eq!(reassembly.pending(), 2);
}

proptest! {
    #[test]
    fn no_frame_of_a_page_makes_it_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..8)) {
        let mut reassembly = Reassembly::<1, 300>::new();
        for mut frame in frames {
            if let Some(first) = frame.first_mut() {
                *first |= 0xc0;
            }
            let _ = reassembly.receive_page(NOW, &HOP, &frame);
        }
    }
}
