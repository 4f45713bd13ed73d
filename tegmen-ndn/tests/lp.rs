//! Tests of NDNLPv2: an LpPacket can be read again after it is written, and the type of an unknown field decides
//! whether the field is skipped or refused.

use proptest::collection::vec;
use proptest::prelude::*;
use tegmen_base::buf::{Frame, Writer};
use tegmen_ndn::Error;
use tegmen_ndn::lp::{LpPacket, MAX_FIELDS, MAX_TOKEN, NackReason, Part, acks, set_tx_sequence, write_acks};
use tegmen_ndn::tlv::{self, Type};

fn element(kind: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; value.len() + 20];
    let mut out = Writer::new(&mut bytes);
    tlv::write(&mut out, Type(kind), value).unwrap();
    out.written().to_vec()
}

fn around(packet: &LpPacket<'_>, fragment: &[u8]) -> Vec<u8> {
    let mut storage = vec![0; MAX_FIELDS + fragment.len()];
    let mut frame = Frame::new(&mut storage, MAX_FIELDS);
    frame.append(fragment).unwrap();
    packet.write_around(&mut frame).unwrap();
    frame.bytes().to_vec()
}

proptest! {
    #[test]
    fn a_written_packet_is_read_again(
        fragment in vec(any::<u8>(), 0..600),
        part in any::<Option<(u64, u8, u8)>>(),
        token in proptest::option::of(vec(any::<u8>(), 1..=MAX_TOKEN)),
        nack in any::<Option<u64>>(),
        (incoming_face, next_hop_face, congestion_mark, tx_sequence) in any::<(Option<u64>, Option<u64>, Option<u64>, Option<u64>)>(),
    ) {
        let part = part.map(|(sequence, index, more)| Part {
            sequence,
            index: index.into(),
            count: u64::from(index) + u64::from(more) + 1,
        });
        let packet = LpPacket {
            fragment: Some(&fragment[..]).filter(|fragment| !fragment.is_empty()),
            part,
            token: token.as_deref(),
            nack: nack.map(NackReason),
            incoming_face,
            next_hop_face,
            congestion_mark,
            tx_sequence,
        };
        let wire = around(&packet, &fragment);
        if (LpPacket { fragment: None, ..packet }) == LpPacket::default() {
            prop_assert_eq!(wire, fragment);
        } else {
            prop_assert_eq!(LpPacket::parse(&wire), Ok(packet));
            for end in 0..wire.len() {
                prop_assert!(LpPacket::parse(&wire[..end]).is_err());
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..100)) {
        let _ = LpPacket::parse(&bytes);
        let _ = LpPacket::parse(&element(100, &bytes));
        let _ = acks(&element(100, &bytes)).count();
    }

    #[test]
    fn acknowledgements_are_read_again(sequences in vec(any::<u64>(), 0..20)) {
        let mut bytes = [0; 300];
        let mut out = Writer::new(&mut bytes);
        write_acks(&sequences, &mut out).unwrap();
        prop_assert_eq!(acks(out.written()).collect::<Vec<_>>(), sequences);
        prop_assert_eq!(LpPacket::parse(out.written()), Ok(LpPacket::default()));
    }
}

#[test]
fn a_packet_without_fields_is_sent_as_it_is() {
    let interest = element(5, b"x");
    assert_eq!(around(&LpPacket::default(), &interest), interest);
    assert_eq!(LpPacket::parse(&interest), Ok(LpPacket { fragment: Some(&interest), ..LpPacket::default() }));
    assert_eq!(LpPacket::parse(&element(7, b"x")), Err(Error::Missing(Type(100))));
}

#[test]
fn unknown_fields_are_skipped_or_refused_by_their_types() {
    let read = |kind: u32| LpPacket::parse(&element(100, &element(kind, b"x"))).map(|_| ());
    for kind in [804, 888, 956] {
        assert_eq!(read(kind), Ok(()), "{kind}");
    }
    for kind in [79, 99, 101, 799, 802, 803, 957, 960] {
        assert_eq!(read(kind), Err(Error::Critical(Type(kind))), "{kind}");
    }
}

#[test]
fn fields_of_a_wrong_length_are_refused() {
    let read = |fields: &[Vec<u8>]| LpPacket::parse(&element(100, &fields.concat())).map(|_| ());
    assert_eq!(read(&[element(98, &[])]), Err(Error::Length(Type(98))));
    assert_eq!(read(&[element(98, &[0; MAX_TOKEN + 1])]), Err(Error::Length(Type(98))));
    assert_eq!(read(&[element(81, &[1])]), Err(Error::Length(Type(81))));
    assert_eq!(read(&[element(840, &[1])]), Err(Error::Length(Type(840))));
    let (index, count) = (element(82, &[2]), element(83, &[2]));
    let sequence = element(81, &[0; 8]);
    assert_eq!(read(&[sequence.clone(), index, count.clone()]), Err(Error::Length(Type(82))));
    assert_eq!(read(&[count]), Err(Error::Missing(Type(81))));
    assert_eq!(read(&[sequence]), Ok(()), "a whole packet may have a sequence number");
}

#[test]
fn a_nack_has_a_reason_or_none() {
    let interest = element(5, b"x");
    for (reason, expected) in [(NackReason::NO_ROUTE, "fd032005fd03210196"), (NackReason::NONE, "fd032000")] {
        let wire = around(&LpPacket { nack: Some(reason), ..LpPacket::default() }, &interest);
        let digits: String = wire.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(digits.contains(expected), "{digits}");
        assert_eq!(LpPacket::parse(&wire).unwrap().nack, Some(reason));
    }
}

#[test]
fn a_tx_sequence_is_replaced() {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, MAX_FIELDS);
    frame.append(b"\x05\x02\x07\x00").unwrap();
    let packet = LpPacket { tx_sequence: Some(7), token: Some(&[1; 32]), ..LpPacket::default() };
    packet.write_around(&mut frame).unwrap();
    let wire = frame.bytes_mut();
    assert!(set_tx_sequence(wire, u64::MAX - 1));
    let read = LpPacket::parse(wire).unwrap();
    assert_eq!((read.tx_sequence, read.token), (Some(u64::MAX - 1), packet.token));
    assert!(!set_tx_sequence(&mut [5, 2, 7, 0], 1));
    assert!(!set_tx_sequence(&mut [100, 2, 5, 0], 1));
}
