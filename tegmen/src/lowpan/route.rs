//! Static routes: where a packet that is not for this node goes next (route-over, RFC 6606, section 2.2).

use super::frame::LinkAddress;

/// Packets for this prefix go to this neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The prefix.
    pub prefix: [u8; 16],
    /// Its bits, at most 128; 0 is the default route.
    pub len: u8,
    /// The neighbour.
    pub next_hop: LinkAddress,
}

impl Route {
    /// The way to a single node.
    pub const fn to(ip: [u8; 16], next_hop: LinkAddress) -> Self {
        Self { prefix: ip, len: 128, next_hop }
    }

    /// The way to everybody for whom there is no other.
    pub const fn default(next_hop: LinkAddress) -> Self {
        Self { prefix: [0; 16], len: 0, next_hop }
    }

    fn covers(&self, ip: &[u8; 16]) -> bool {
        if self.len >= 128 {
            return self.prefix == *ip;
        }
        let mut left = self.len;
        self.prefix.iter().zip(ip).all(|(prefix, byte)| {
            let mask = if left >= 8 { 0xff } else { !(0xff_u8 >> left) };
            left = left.saturating_sub(8);
            prefix & mask == byte & mask
        })
    }
}

/// The neighbour to which packets for `ip` go: by the longest prefix, the first among equals. A link-local address of a
/// neighbour is its own way.
pub fn next_hop(routes: &[Route], ip: &[u8; 16]) -> Option<LinkAddress> {
    if let [0xfe, 0x80, 0, 0, 0, 0, 0, 0, id @ ..] = ip {
        return Some(match *id {
            [0, 0, 0, 0xff, 0xfe, 0, high, low] => LinkAddress::Short(u16::from_be_bytes([high, low])),
            [a, b, c, d, e, f, g, h] => LinkAddress::Extended([a ^ 2, b, c, d, e, f, g, h]),
        });
    }
    let covering = routes.iter().filter(|route| route.covers(ip));
    covering.rev().max_by_key(|route| route.len).map(|route| route.next_hop)
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It is for this node.
    Deliver,
    /// It goes to this neighbour; its hop limit was lowered.
    Forward(LinkAddress),
    /// Nobody knows the way.
    NoRoute,
    /// It took as many hops as it may.
    HopLimit,
    /// It is not an IPv6 packet, or may not leave its link.
    NotForwarded,
}

/// Decides about a received packet, which begins with its IPv6 header; `own` are the addresses of this node.
pub fn decide(packet: &mut [u8], own: &[[u8; 16]], routes: &[Route]) -> Decision {
    let Some((header, _)) = packet.split_first_chunk_mut::<40>() else { return Decision::NotForwarded };
    let [_, _, _, _, _, _, _, hop_limit, rest @ ..] = header;
    let (Some(source), Some(destination)) = (rest.first_chunk::<16>(), rest.last_chunk::<16>()) else {
        return Decision::NotForwarded;
    };
    if own.contains(destination) || destination.first() == Some(&0xff) {
        return Decision::Deliver;
    }
    let link_local = |ip: &[u8]| matches!(ip, [0xfe, 0x80..=0xbf, ..]);
    if link_local(destination) || link_local(source) || source.first() == Some(&0xff) {
        return Decision::NotForwarded;
    }
    let Some(lower) = hop_limit.checked_sub(1).filter(|lower| *lower > 0) else { return Decision::HopLimit };
    let Some(next) = next_hop(routes, destination) else { return Decision::NoRoute };
    *hop_limit = lower;
    Decision::Forward(next)
}

#[cfg(test)]
mod tests {
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
        let routes = [
            Route::default(via(1)),
            Route { prefix: ip(7, 0), len: 64, next_hop: via(2) },
            Route::to(ip(7, 9), via(3)),
        ];
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
}
