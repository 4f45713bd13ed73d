use super::*;
use proptest::prelude::*;

fn ip(prefix: u8, last: u8) -> [u8; 16] {
    [0xfd, prefix, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, last]
}

fn packet(source: [u8; 16], destination: [u8; 16], hop_limit: u8) -> [u8; 40] {
    let mut packet = [0; 40];
    (packet[0], packet[7]) = (0x60, hop_limit);
    packet[8..24].copy_from_slice(&source);
    packet[24..].copy_from_slice(&destination);
    packet
}

#[test]
fn the_longest_prefix_wins() {
    let via = LinkAddress::Short;
    let routes =
        [Route::default(via(1)), Route { prefix: ip(7, 0), len: 64, next_hop: via(2) }, Route::to(ip(7, 9), via(3))];
    let next = |ip| next_hop(&routes, &ip);
    assert_eq!([next(ip(7, 9)), next(ip(7, 8)), next(ip(8, 9))], [Some(via(3)), Some(via(2)), Some(via(1))]);
    assert_eq!(next_hop(&routes[1..], &ip(8, 9)), None);
    assert_eq!(next([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 5]), Some(via(5)));
}

#[test]
fn a_hop_is_taken_off_until_none_is_left() {
    let routes = [Route::default(LinkAddress::Short(1))];
    let mut sent = packet(ip(0, 1), ip(0, 2), 2);
    assert_eq!(decide(&mut sent, &[ip(0, 3)], &routes), Decision::Forward(LinkAddress::Short(1)));
    assert_eq!(sent[7], 1);
    assert_eq!(decide(&mut sent, &[ip(0, 3)], &routes), Decision::HopLimit);
    assert_eq!(decide(&mut sent, &[ip(0, 2)], &routes), Decision::Deliver);
}

#[test]
fn what_belongs_to_a_link_stays_on_it() {
    let routes = [Route::default(LinkAddress::Short(1))];
    let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 9];
    assert_eq!(decide(&mut packet(ip(0, 1), local, 9), &[], &routes), Decision::NotForwarded);
    assert_eq!(decide(&mut packet(local, ip(0, 1), 9), &[], &routes), Decision::NotForwarded);
    assert_eq!(decide(&mut packet(ip(0, 1), ip(0, 2), 9), &[], &[]), Decision::NoRoute);
    assert_eq!(decide(&mut [0x60; 39], &[], &routes), Decision::NotForwarded);
}

proptest! {
    #[test]
    fn anything_can_be_decided_about(mut bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = decide(&mut bytes, &[], &[Route::default(LinkAddress::Short(1))]);
    }
}
