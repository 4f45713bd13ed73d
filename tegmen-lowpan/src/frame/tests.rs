use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn address() -> impl Strategy<Value = LinkAddress> {
    prop_oneof![
        Just(LinkAddress::Absent),
        any::<u16>().prop_map(LinkAddress::Short),
        any::<[u8; 8]>().prop_map(LinkAddress::Extended),
    ]
}

#[test]
fn a_data_frame_between_short_addresses_has_nine_bytes_before_its_payload() {
    let header = Header::data(PanId(0xabcd), LinkAddress::Short(0x0102), LinkAddress::Short(0x0304), 7);
    let mut out = [0; MAX_LEN];
    let frame = write(&header, b"hi", &mut out).unwrap();
    assert_eq!(frame[..11], [0x61, 0x88, 7, 0xcd, 0xab, 0x04, 0x03, 0x02, 0x01, b'h', b'i']);
    assert_eq!((frame.len(), header.len()), (13, 9));
}

#[test]
fn an_acknowledgement_is_that_of_the_standard() {
    let mut out = [0; 8];
    let frame = write(&Header::acknowledgement(0x56), &[], &mut out).unwrap();
    assert_eq!(frame.len(), ACKNOWLEDGEMENT_LEN);
    assert_eq!(frame[..3], [0x02, 0x00, 0x56]);
    assert_eq!(frame[3..], checksum(&[0x02, 0x00, 0x56]).to_le_bytes());
    // CRC-16/KERMIT of "123456789", the check value of the catalogues.
    assert_eq!(checksum(b"123456789"), 0x2189);
}

/// IEEE 802.15.4-2006, section 7.5.6.2: the third level of filtering.
#[test]
fn a_frame_is_for_its_receiver_in_its_own_network() {
    const PAN: PanId = PanId(0xabcd);
    const OWN: LinkAddress = LinkAddress::Short(2);
    let other = LinkAddress::Extended([2; 8]);
    for (pan, destination, expected) in [
        (PAN, OWN, true),
        (PAN, LinkAddress::BROADCAST, true),
        (PanId::BROADCAST, OWN, true),
        (PanId::BROADCAST, LinkAddress::BROADCAST, true),
        (PanId(0xabce), OWN, false),
        (PanId(0xabce), LinkAddress::BROADCAST, false),
        (PAN, LinkAddress::Short(3), false),
        (PAN, other, false),
        (PAN, LinkAddress::Absent, false),
    ] {
        let header = Header::data(pan, LinkAddress::Short(1), destination, 7);
        let mut out = [0; MAX_LEN];
        let frame = Frame::parse(write(&header, b"hi", &mut out).unwrap()).unwrap();
        assert_eq!(frame.header.is_for(PAN, &OWN), expected, "{header:?}");
    }
}

#[test]
fn a_damaged_bit_is_noticed() {
    let header = Header::data(PanId(1), LinkAddress::Short(1), LinkAddress::Extended([1, 2, 3, 4, 5, 6, 7, 8]), 1);
    let mut out = [0; MAX_LEN];
    let frame = write(&header, b"payload", &mut out).unwrap().to_vec();
    for bit in 0..8 * frame.len() {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Frame::parse(&damaged), Err(FrameError::BadChecksum));
    }
}

#[test]
fn a_frame_that_is_too_long_is_neither_written_nor_read() {
    let header = Header::data(PanId(1), LinkAddress::Short(1), LinkAddress::Short(2), 1);
    let mut out = [0; 200];
    assert!(write(&header, &[0; MAX_LEN - 11], &mut out).is_ok());
    assert_eq!(write(&header, &[0; MAX_LEN - 10], &mut out), Err(Full));
    assert_eq!(Frame::parse(&[0; 128]), Err(FrameError::TooLong));
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        addresses in (address(), address()), pans: (u16, u16), same: bool, flags: (bool, bool), sequence: u8,
        payload in proptest::collection::vec(any::<u8>(), 0..90),
    ) {
        let pan = |address: &LinkAddress, pan| PanId(if address.is_empty() { 0 } else { pan });
        let header = Header {
            frame_type: FrameType::Data,
            acknowledge: flags.0,
            pending: flags.1,
            sequence,
            destination_pan: pan(&addresses.0, pans.0),
            destination: addresses.0,
            source_pan: pan(&addresses.1, if same { pans.0 } else { pans.1 }),
            source: addresses.1,
        };
        let mut out = [0; MAX_LEN];
        let frame = write(&header, &payload, &mut out).unwrap();
        prop_assert_eq!(frame.len(), header.len() + payload.len() + FCS_LEN);
        prop_assert_eq!(Frame::parse(frame), Ok(Frame { header, payload: &payload }));
    }

    #[test]
    fn anything_can_be_parsed(mut bytes in proptest::collection::vec(any::<u8>(), 0..130), sealed: bool) {
        if sealed {
            let fcs = checksum(&bytes);
            bytes.extend(fcs.to_le_bytes());
        }
        if let Ok(frame) = Frame::parse(&bytes) {
            let mut out = [0; MAX_LEN];
            // What is read can be written; reserved bits and the version are not kept.
            let again = write(&frame.header, frame.payload, &mut out).map(|bytes| Vec::from(&*bytes));
            let again = again.unwrap();
            prop_assert_eq!(Frame::parse(&again), Ok(frame));
        }
    }
}
