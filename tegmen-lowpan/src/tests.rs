use super::*;
use crate::ip;
use proptest::prelude::*;
use std::vec::Vec;
use tegmen_base::address::{Address, Path};

const ROOM: usize = 116;
const NOW: Instant = Instant::from_micros(1);

fn ip_of(node: u16) -> [u8; 16] {
    let [high, low] = node.to_be_bytes();
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, high, low]
}

fn packet(from: [u8; 16], to: [u8; 16], hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let address = |ip| Address { ip, port: 5683, scope: 0 };
    let mut packet =
        ip::headers(&Path { local: address(from), remote: address(to) }, hop_limit, payload).unwrap().to_vec();
    packet.extend(payload);
    packet
}

/// Sends `packet` from node to node along the routes. Returns the last node, and the packet's hop limit at this node.
/// If a node drops the packet, returns this node and the reason as the error.
fn walk(nodes: u16, from: u16, packet: &[u8]) -> Result<(u16, u8), (u16, Decision)> {
    let mut interfaces: Vec<_> = (0..nodes).map(|_| Interface::<1, 1280>::new()).collect();
    let contexts = [Context { id: 0, prefix: ip_of(0), len: 64 }];
    let (mut at, mut packet) = (from, packet.to_vec());
    let mut next = from + 1;
    loop {
        let network = |node: u16, own, routes| Network {
            link: LinkAddress::Short(node),
            own,
            contexts: &[],
            routes,
            relays: true,
        };
        let here = Network { contexts: &contexts, ..network(at, &[], &[]) };
        let mut fragments = interfaces[usize::from(at)].send(&here, LinkAddress::Short(next), &packet).unwrap();
        let (own, routes) = ([ip_of(next)], [Route::default(LinkAddress::Short(next + 1))]);
        let there = Network { contexts: &contexts, ..network(next, &own, &routes) };
        let hop = Hop { source: LinkAddress::Short(at), destination: LinkAddress::Short(next) };
        let mut out = [0; 127];
        let mut arrived = None;
        while let Some(payload) = fragments.next_frame(ROOM, &mut out).unwrap() {
            let received = interfaces[usize::from(next)].receive(NOW, &there, &hop, payload).unwrap();
            assert_eq!(received.relay, None);
            arrived = received.packet.map(|arrived| match arrived {
                Arrived::Here(packet) => Ok((None, packet.to_vec())),
                Arrived::On(next, packet) => Ok((Some(next), packet.to_vec())),
                Arrived::Dropped(why) => Err(why),
            });
        }
        match arrived.unwrap() {
            Ok((None, packet)) => return Ok((next, packet[7])),
            Ok((Some(LinkAddress::Short(on)), whole)) => (at, next, packet) = (next, on, whole),
            Ok(_) => panic!("a short address"),
            Err(why) => return Err((next, why)),
        }
    }
}

#[test]
fn a_packet_walks_to_its_node_and_no_further_than_its_hop_limit() {
    for len in [1, 80, 500] {
        let sent = packet(ip_of(0), ip_of(4), 63, &std::vec![7; len]);
        assert_eq!(walk(6, 0, &sent), Ok((4, 60)));
        let sent = packet(ip_of(0), ip_of(4), 2, &std::vec![7; len]);
        assert_eq!(walk(6, 0, &sent), Err((2, Decision::HopLimit)));
    }
}

#[test]
fn a_flood_reaches_everybody_once() {
    // Five nodes in a row; each hears its neighbours.
    const NODES: usize = 5;
    let group = [0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xfd];
    let flooded = |hops: u8| {
        let mut interfaces: Vec<_> = (0..NODES).map(|_| Interface::<1, 256>::new()).collect();
        let network = |node: usize| Network {
            link: LinkAddress::Short(node as u16),
            own: &[],
            contexts: &[],
            routes: &[],
            relays: true,
        };
        let sent = packet(ip_of(0), group, 8, b"to all");
        let header = interfaces[0].flood(&network(0), hops);
        let mut out = [0; 127];
        let mut fragments = interfaces[0].send(&network(0), LinkAddress::BROADCAST, &sent).unwrap();
        let rest = fragments.next_frame(ROOM, &mut out).unwrap().unwrap().to_vec();
        let mut flying = std::vec![(0usize, header)];
        let (mut heard, mut frames) = ([0; NODES], 0);
        while let Some((from, header)) = flying.pop() {
            frames += 1;
            let mut out = [0; 127];
            let payload = write_flooded(&header, &rest, &mut out).unwrap().to_vec();
            for to in [from.wrapping_sub(1), from + 1].into_iter().filter(|to| *to < NODES) {
                let hop = Hop { source: LinkAddress::Short(from as u16), destination: LinkAddress::BROADCAST };
                let received = interfaces[to].receive(NOW, &network(to), &hop, &payload).unwrap();
                if let Some(Arrived::Here(packet)) = received.packet {
                    assert_eq!(packet, sent);
                    heard[to] += 1;
                }
                flying.extend(received.relay.map(|header| (to, header)));
            }
        }
        (heard, frames)
    };
    assert_eq!(flooded(8), ([0, 1, 1, 1, 1], 5));
    assert_eq!(flooded(2), ([0, 1, 1, 0, 0], 2));
}

proptest! {
    #[test]
    fn frames_of_anything_stop_no_node(payloads in proptest::collection::vec(
        (proptest::collection::vec(any::<u8>(), 0..118), 0..6u8, any::<u16>()), 1..40,
    )) {
        let mut interface = Interface::<2, 256>::new();
        let (own, contexts) = ([ip_of(1)], [Context { id: 0, prefix: ip_of(0), len: 64 }]);
        let routes = [Route::default(LinkAddress::Short(2))];
        let network = Network { link: LinkAddress::Short(1), own: &own, contexts: &contexts, routes: &routes, relays: true };
        for (mut payload, kind, from) in payloads {
            if let Some(first) = payload.first_mut() {
                // What random bytes would rarely begin with.
                match kind {
                    0 => *first = 0x60 | (*first & 0x1f),
                    1 => *first = 0xc0,
                    2 => *first = 0xe0,
                    3 => *first = 0x80 | (*first & 0x3f),
                    4 => *first = 0x41,
                    _ => {}
                }
            }
            let hop = Hop { source: LinkAddress::Short(from), destination: LinkAddress::Short(1) };
            let _ = interface.receive(NOW, &network, &hop, &payload);
        }
        // It still does its work.
        let sent = packet(ip_of(9), ip_of(1), 9, b"hello");
        let hop = Hop { source: LinkAddress::Short(9), destination: LinkAddress::Short(1) };
        let mut out = [0; 127];
        let mut fragments = Fragments::new(&sent, &hop, &contexts, 0).unwrap();
        let payload = fragments.next_frame(ROOM, &mut out).unwrap().unwrap();
        let received = interface.receive(NOW, &network, &hop, payload).unwrap();
        prop_assert!(matches!(received.packet, Some(Arrived::Here(_))));
    }
}
