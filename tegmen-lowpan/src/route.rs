//! Static routes: find the next hop of a packet for another node (route-over, RFC 6606, section 2.2).

use super::frame::LinkAddress;

/// A route: packets to addresses with this prefix go to this neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The prefix of the addresses to which this route leads.
    pub prefix: [u8; 16],
    /// The length of the prefix in bits, at most 128; 0 is the default route.
    pub len: u8,
    /// The link address of the neighbour to which the packets are sent.
    pub next_hop: LinkAddress,
}

impl Route {
    /// Makes the route to a single node.
    pub const fn to(ip: [u8; 16], next_hop: LinkAddress) -> Self {
        Self { prefix: ip, len: 128, next_hop }
    }

    /// Makes the default route, for all nodes without another route.
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

/// Returns the neighbour to which packets for `ip` go; `None` if no route covers `ip`. Of the routes that cover `ip`,
/// the route with the longest prefix decides. If several of them have the longest prefix, the first in `routes`
/// decides. For a link-local address, the link address of the neighbour is computed from `ip` itself.
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

/// The decision to which node a packet goes, or the reason why it is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The packet is for this node.
    Deliver,
    /// The packet goes to this neighbour. The hop limit of the packet is already decremented.
    Forward(LinkAddress),
    /// No route covers the destination.
    NoRoute,
    /// The hop limit of the packet is exhausted.
    HopLimit,
    /// The bytes are not an IPv6 packet, or the packet must not leave its link.
    NotForwarded,
}

/// Decides about a received packet, which begins with its IPv6 header. `own` are the addresses of this node.
pub(crate) fn decide(packet: &mut [u8], own: &[[u8; 16]], routes: &[Route]) -> Decision {
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
mod tests;
