use super::*;
use crate::ip;
use proptest::prelude::*;
use std::vec::Vec;
use tegmen_base::address::{Address, Path};

const SHORT: Hop = Hop { source: LinkAddress::Short(1), destination: LinkAddress::Short(2) };
const EXTENDED: Hop = Hop {
    source: LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 1]),
    destination: LinkAddress::Extended([2, 0, 0, 0, 0, 0, 0, 2]),
};

fn elided(prefix: [u8; 2], link: LinkAddress) -> [u8; 16] {
    let mut ip = [0; 16];
    ip[..2].copy_from_slice(&prefix);
    ip[8..].copy_from_slice(&link.interface_id().unwrap());
    ip
}

fn packet(source: ([u8; 16], u16), destination: ([u8; 16], u16), hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let [local, remote] = [source, destination].map(|(ip, port)| Address { ip, port, scope: 0 });
    let mut packet = ip::headers(&Path { local, remote }, hop_limit, payload).unwrap().to_vec();
    packet.extend(payload);
    packet
}

fn round_trip(packet: &[u8], hop: &Hop, contexts: &[Context]) -> usize {
    let compressed = Compressed::of(packet, hop, contexts).unwrap();
    let mut air = compressed.bytes().to_vec();
    air.extend(&packet[compressed.replaces..]);
    let mut out = [0; 48];
    let read = decompress(&air, hop, contexts, None, &mut out).unwrap();
    assert_eq!(read.read, compressed.bytes().len());
    assert_eq!(read.written, compressed.replaces);
    assert_eq!(out[..read.written], packet[..compressed.replaces], "{:02x?}", compressed.bytes());
    compressed.bytes().len()
}

#[test]
fn blink_takes_two_bytes_for_ip_and_four_for_udp() {
    let link_local = |link| elided([0xfe, 0x80], link);
    let (source, destination) = ((link_local(SHORT.source), 0xf0b1), (link_local(SHORT.destination), 0xf0b2));
    let sent = packet(source, destination, 64, b"blink");
    let compressed = Compressed::of(&sent, &SHORT, &[]).unwrap();
    assert_eq!(compressed.bytes()[..4], [0x7e, 0x33, 0xf3, 0x12]);
    assert_eq!(round_trip(&sent, &SHORT, &[]), 6);
}

#[test]
fn two_full_addresses_and_one_near_port_take_35_and_6() {
    let ip = |last| [0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, last];
    let sent = packet((ip(1), 5683), (ip(2), 0xf042), 63, b"content object");
    assert_eq!(round_trip(&sent, &EXTENDED, &[]), 35 + 6);
}

#[test]
fn a_context_takes_the_place_of_its_prefix() {
    let contexts = [Context { id: 0, prefix: elided([0xfd, 0], LinkAddress::Short(0)), len: 64 }];
    let far = |id: u8| Context { id, prefix: elided([0x20, 1], LinkAddress::Short(0)), len: 64 };
    let sent = packet((elided([0xfd, 0], SHORT.source), 5683), (elided([0xfd, 0], SHORT.destination), 5683), 64, b"x");
    assert_eq!(round_trip(&sent, &SHORT, &contexts), 2 + 7);
    // With another context than 0 a byte more; an address that is not the hop's takes its 2 bytes.
    let sent =
        packet((elided([0x20, 1], LinkAddress::Short(9)), 1), (elided([0x20, 1], SHORT.destination), 2), 64, b"x");
    assert_eq!(round_trip(&sent, &SHORT, &[far(3)]), 2 + 1 + 2 + 7);
    // A context that the receiver does not have is refused.
    let compressed = Compressed::of(&sent, &SHORT, &[far(3)]).unwrap();
    let refused = decompress(compressed.bytes(), &SHORT, &[far(4)], None, &mut [0; 48]);
    assert_eq!(refused, Err(HeaderError::UnknownContext(3)));
}

#[test]
fn groups_take_one_byte_to_sixteen() {
    let group = |bytes: &[(usize, u8)]| {
        let mut ip = [0; 16];
        (ip[0], ip[1]) = (0xff, 2);
        bytes.iter().for_each(|(at, byte)| ip[*at] = *byte);
        ip
    };
    let source = (elided([0xfe, 0x80], SHORT.source), 0xf0b0);
    let len = |ip, contexts: &[Context]| round_trip(&packet(source, (ip, 0xf0b0), 64, b"x"), &SHORT, contexts) - 6;
    assert_eq!(len(group(&[(15, 0xfd)]), &[]), 1);
    assert_eq!(len(group(&[(1, 5), (15, 0xfd)]), &[]), 4);
    assert_eq!(len(group(&[(11, 1), (15, 0xfd)]), &[]), 6);
    assert_eq!(len(group(&[(9, 1), (15, 0xfd)]), &[]), 16);
    let context = Context { id: 2, prefix: elided([0xfd, 7], LinkAddress::Short(0)), len: 48 };
    let prefixed = group(&[(1, 0x35), (3, 48), (4, 0xfd), (5, 7), (12, 1), (15, 9)]);
    assert_eq!(len(prefixed, &[context]), 1 + 6);
}

#[test]
fn the_unspecified_address_and_other_protocols_are_written() {
    let mut sent = packet(([0; 16], 1), (elided([0xfe, 0x80], SHORT.destination), 2), 255, b"hello");
    assert_eq!(round_trip(&sent, &SHORT, &[]), 2 + 7);
    sent[6] = 58; // ICMPv6: the header is not touched
    assert_eq!(round_trip(&sent, &SHORT, &[]), 2 + 1);
}

#[test]
fn a_udp_header_without_a_checksum_is_refused() {
    let read = |air: &[u8]| decompress(air, &SHORT, &[], None, &mut [0; 48]).map(|read| (read.read, read.written));
    for (nhc, ports) in [(0xf0, &[0, 1, 0, 2][..]), (0xf1, &[0, 1, 2]), (0xf2, &[1, 0, 2]), (0xf3, &[0x12])] {
        let with = [&[0x7e, 0x33, nhc][..], ports, &[0xab, 0xcd], b"x"].concat();
        assert_eq!(read(&with), Ok((with.len() - 1, 48)), "{with:02x?}");
        let without = [&[0x7e, 0x33, nhc | 4][..], ports, b"xyz"].concat();
        assert_eq!(read(&without), Err(HeaderError::NoChecksum), "{without:02x?}");
    }
}

#[test]
fn what_is_reserved_or_cannot_be_is_refused() {
    let refused = |bytes: &[u8], hop: &Hop| decompress(bytes, hop, &[], None, &mut [0; 48]).unwrap_err();
    assert_eq!(refused(&[0x41, 0], &SHORT), HeaderError::Unsupported);
    assert_eq!(refused(&[0x7a, 0x34, 58], &SHORT), HeaderError::Unsupported); // DAC with DAM 00
    assert_eq!(refused(&[0x7a, 0x3d, 58], &SHORT), HeaderError::Unsupported); // M, DAC, DAM 01
    assert_eq!(refused(&[0x7e, 0x33, 0xe0], &SHORT), HeaderError::Unsupported); // another next header
    assert_eq!(refused(&[0x7e, 0x33, 0xf3], &Hop::default()), HeaderError::NoLinkAddress);
    assert_eq!(
        decompress(&[0x7e, 0x33, 0xf3, 0, 0, 0], &SHORT, &[], Some(47), &mut [0; 48]),
        Err(HeaderError::WrongLength)
    );
    assert_eq!(decompress(&[0x7e, 0x33, 0xf3, 0, 0, 0], &SHORT, &[], None, &mut [0; 47]), Err(HeaderError::TooLong));
}

fn link() -> impl Strategy<Value = LinkAddress> {
    prop_oneof![any::<u16>().prop_map(LinkAddress::Short), any::<[u8; 8]>().prop_map(LinkAddress::Extended)]
}

/// Draws addresses of all kinds that LOWPAN_IPHC compresses in different ways.
fn address(link: LinkAddress, context: [u8; 16]) -> impl Strategy<Value = [u8; 16]> {
    let id = link.interface_id().unwrap();
    (0..8u8, any::<[u8; 16]>()).prop_map(move |(kind, random)| {
        let mut ip = random;
        match kind {
            0 => {}
            1 | 2 => {
                ip[..8].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
                if kind == 1 {
                    ip[8..].copy_from_slice(&id);
                }
            }
            3 | 4 => {
                ip[..8].copy_from_slice(&context[..8]);
                if kind == 3 {
                    ip[8..].copy_from_slice(&id);
                }
            }
            5 => ip[..14].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0]),
            6 => {
                ip[0] = 0xff;
                ip[2..usize::from(random[2] % 14) + 2].fill(0);
            }
            _ => {
                (ip[0], ip[3]) = (0xff, 64);
                ip[4..12].copy_from_slice(&context[..8]);
            }
        }
        ip
    })
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![any::<u16>(), 0xf000..=0xf0ffu16, 0xf0b0..=0xf0bfu16]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_packet_comes_out_as_it_went_in(
        (links, source, destination, prefix, len) in (link(), link(), any::<[u8; 16]>(), 0..=128u8).prop_flat_map(
            |(a, b, prefix, len)| (Just((a, b)), address(a, prefix), address(b, prefix), Just(prefix), Just(len)),
        ),
        ports in (port(), port()), first in 0..1u32 << 28, plain: bool, hop_limit: u8, id in 0..16u8, udp: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let hop = Hop { source: links.0, destination: links.1 };
        let mut sent = packet((source, ports.0), (destination, ports.1), hop_limit, &payload);
        if !plain {
            sent[..4].copy_from_slice(&(first | 6 << 28).to_be_bytes());
        }
        if !udp {
            sent[6] = 58;
        }
        let contexts = [Context { id, prefix, len: if len % 3 == 0 { len } else { 64 } }];
        round_trip(&sent, &hop, &contexts);
        round_trip(&sent, &hop, &[]);
    }

    #[test]
    fn anything_can_be_decompressed(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..60), links in (link(), link()), iphc: bool,
        len in proptest::option::of(0usize..3000),
    ) {
        if iphc && !bytes.is_empty() {
            bytes[0] = bytes[0] & 0x1f | 0x60;
        }
        let contexts = [Context { id: 0, prefix: [0xfd; 16], len: 200 }];
        let hop = Hop { source: links.0, destination: links.1 };
        let mut out = [0; 48];
        if let Ok(read) = decompress(&bytes, &hop, &contexts, len, &mut out) {
            prop_assert!(read.read <= bytes.len() && read.written <= 48);
        }
    }

    #[test]
    fn anything_can_be_compressed(bytes in proptest::collection::vec(any::<u8>(), 0..80), links in (link(), link())) {
        let _ = Compressed::of(&bytes, &Hop { source: links.0, destination: links.1 }, &[]);
    }
}
