use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn path(local_port: u16, remote_port: u16) -> Path {
    let address = |last, port| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port, scope: 0 };
    Path { local: address(1, local_port), remote: address(2, remote_port) }
}

fn packet(path: &Path, payload: &[u8]) -> Vec<u8> {
    [&headers(path, 64, payload).unwrap()[..], payload].concat()
}

#[test]
fn headers_are_those_of_the_standards() {
    // The checksum by hand: ones' complement of fd00 + 1 + fd00 + 2 + 11 + b + 1633 + 1634 + b + 6162 + 6300.
    let expected = [
        &[0x60, 0, 0, 0, 0, 11, 17, 64][..],
        &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        &[0x16, 0x33, 0x16, 0x34, 0, 11, 0x15, 0x0a],
        b"abc",
    ]
    .concat();
    assert_eq!(packet(&path(0x1633, 0x1634), b"abc"), expected);
}

#[test]
fn a_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
    let mut found = false;
    for word in 0..=u16::MAX {
        let mut sent = packet(&path(1, 2), &word.to_be_bytes());
        assert_ne!(sent[46..48], [0, 0]);
        found |= sent[46..48] == [0xff, 0xff];
        assert!(Datagram::parse(&mut sent).is_ok());
    }
    assert!(found);
}

#[test]
fn what_is_not_plain_udp_is_refused_with_its_reason() {
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = packet(&path(5683, 5683), b"hello");
        change(&mut bytes);
        Datagram::parse(&mut bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(refusal(&|p| p[0] = 0x45), ParseError::NotIpv6);
    assert_eq!(refusal(&|p| p[6] = 0), ParseError::ExtensionHeader(0));
    assert_eq!(refusal(&|p| p[6] = 44), ParseError::ExtensionHeader(44));
    assert_eq!(refusal(&|p| p[6] = 6), ParseError::NotUdp(6));
    assert_eq!(refusal(&|p| p[8] = 0xff), ParseError::MulticastSource);
    assert_eq!(refusal(&|p| p[46..48].fill(0)), ParseError::BadChecksum);
    assert_eq!(refusal(&|p| p[50] ^= 1), ParseError::BadChecksum);
    assert_eq!(refusal(&|p| p[5] += 1), ParseError::Truncated); // longer than the packet
    assert_eq!(refusal(&|p| p[45] += 1), ParseError::Truncated); // longer than the IPv6 payload
    assert_eq!(refusal(&|p| p[45] = 7), ParseError::Truncated); // shorter than its own header
    assert_eq!(refusal(&|p| p[5] = 7), ParseError::Truncated);
    for len in 0..HEADROOM {
        assert_eq!(refusal(&|p| p.truncate(len)), ParseError::Truncated);
    }
}

#[test]
fn padding_behind_the_packet_is_ignored() {
    let mut bytes = packet(&path(1, 2), b"hello");
    bytes.extend([1, 2, 3]);
    assert_eq!(Datagram::parse(&mut bytes).unwrap().payload, b"hello");
}

#[test]
fn a_payload_that_is_too_long_for_a_datagram_is_refused() {
    assert_eq!(headers(&path(1, 2), 1, &std::vec![0; 0xffff - 7]), Err(Full));
    assert!(headers(&path(1, 2), 1, &std::vec![0; 0xffff - 8]).is_ok());
}

proptest! {
    #[test]
    fn what_was_written_is_read_at_the_other_end(
        ips: [[u8; 16]; 2], ports: [u16; 2], payload in proptest::collection::vec(any::<u8>(), 0..1500),
    ) {
        prop_assume!(ips[0][0] != 0xff);
        let [local, remote] = [0, 1].map(|i| Address { ip: ips[i], port: ports[i], scope: 0 });
        let mut bytes = packet(&Path { local, remote }, &payload);
        let path = Path { local: remote, remote: local };
        let mut expected = payload.clone();
        prop_assert_eq!(Datagram::parse(&mut bytes), Ok(Datagram { path, payload: &mut expected }));
    }

    #[test]
    fn a_damaged_bit_behind_the_first_word_is_noticed(
        payload in proptest::collection::vec(any::<u8>(), 0..200), bit in 64usize..,
    ) {
        let original = packet(&path(1, 2), &payload);
        let mut bytes = original.clone();
        let bit = 64 + bit % (8 * (bytes.len() - 8)); // not the flow label and the hop limit, which nothing covers
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        prop_assert!(Datagram::parse(&mut bytes).is_err());
    }

    #[test]
    fn anything_can_be_parsed(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), udp: bool) {
        if udp && bytes.len() > 46 {
            (bytes[0], bytes[4], bytes[6], bytes[44]) = (0x60, 0, UDP, 0);
        }
        let _ = Datagram::parse(&mut bytes);
    }
}
