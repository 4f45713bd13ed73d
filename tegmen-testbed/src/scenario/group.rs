//! Sends datagrams to a group. 6LoWPAN floods them through the network (RFC 4944, section 11.1). In a star all nodes
//! hear the first frame, so no node relays it.

use super::{Later, World, view};
use crate::deployment::Group;
use crate::mote::Asking;
use crate::sim::{Micros, NodeId};
use tegmen::axiom::Suite;
use tegmen::buf::Reader;
use tegmen::time::Duration;
use tegmen_lowpan::flood::Header;
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::write_flooded;

impl From<Group> for Asking {
    fn from(group: Group) -> Self {
        Self {
            each: group.each,
            leisure: Duration::from_micros((group.leisure_s * 1e6) as u64),
            suite: if group.tag == 8 { Suite::Ccm8 } else { Suite::Ccm },
        }
    }
}

impl World<'_> {
    /// Sends a packet from `node` to all other nodes.
    pub(super) fn flood(&mut self, node: NodeId, packet: &[u8]) {
        if !self.stations.iter().skip(1).any(|station| station.relays) {
            return self.send(node, LinkAddress::BROADCAST, packet);
        }
        let hop_limit = self.deployment.stack.hop_limit;
        let room = self.network.room(node, LinkAddress::BROADCAST);
        let station = &mut self.stations[node];
        let view = view(station.link, &station.address, &self.contexts, &station.routes, true);
        let Ok(mut fragments) = station.interface.send(&view, LinkAddress::BROADCAST, packet) else { return };
        let like =
            Header { hops_left: hop_limit, originator: station.link, destination: LinkAddress::BROADCAST, sequence: 0 };
        let (mut rest, mut out) = ([0; FRAME], [0; FRAME]);
        let room = room.saturating_sub(write_flooded(&like, &[], &mut out).map_or(0, |header| header.len()));
        while let Ok(Some(rest)) = fragments.next_frame(room, &mut rest) {
            let header = station.interface.flood(&view, hop_limit);
            let Ok(payload) = write_flooded(&header, rest, &mut out) else { return };
            self.network.send(node, LinkAddress::BROADCAST, payload);
        }
    }

    /// Relays a flooded frame after a random delay. Without the delay, all nodes that received the frame would relay it
    /// at the same time.
    pub(super) fn relay(&mut self, node: NodeId, header: &Header, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        let mut out = [0; FRAME];
        if let Ok(Some(_)) = Header::read(&mut reader)
            && let Ok(payload) = write_flooded(header, reader.rest(), &mut out)
        {
            let after = self.stations[node].relaying.below(RELAY_SPREAD);
            self.send_later(node, self.network.now() + after, Later::Relay(payload.to_vec()));
        }
    }
}

/// Maximum random delay of a relayed frame, in microseconds.
const RELAY_SPREAD: Micros = 20_000;
/// Maximum length of a frame, in bytes.
const FRAME: usize = 127;
