//! Sends NDN packets between neighbours. Frames contain the packets directly, without IPv6.

use super::World;
use crate::deployment::Deployment;
use crate::frames::{ndn_packet, with_ndn};
use crate::mote::{NamedNode, Protection};
use crate::sim::NodeId;
use tegmen::address::Address;
use tegmen_lowpan::fragment::{Fragments, Reassembly};
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::iphc::Hop;

/// Makes the nodes of a deployment. Each has an NDN forwarder. Node 0 is the producer of all readings.
pub(super) fn world_of(deployment: &Deployment, protection: Protection, seed: u64) -> World<'_> {
    let links = deployment.links().expect("a checked deployment");
    let parents = deployment.parents(&links).expect("a checked deployment");
    let makers = deployment.makers(links.nodes());
    World::new(deployment, protection, seed, |node, addresses, setup| {
        let parent = (node != 0).then(|| addresses[parents[node]]);
        let forwards = parents.iter().skip(1).any(|parent| *parent == node);
        Box::new(NamedNode::of_deployment(seed, node, setup, parent, &makers, forwards))
    })
}

/// The reassembly of packets that neighbours have sent.
pub(super) type Packets = Reassembly<4, 1280>;

impl World<'_> {
    /// Sends an NDN packet to a neighbour.
    pub(super) fn send_named(&mut self, node: NodeId, to: Address, packet: &[u8]) {
        let next = self.stations.iter().find(|station| station.address == to).map(|station| station.link);
        let Some((next, payload)) = next.zip(with_ndn(packet)) else { return };
        let room = self.network.room(node, next);
        let station = &mut self.stations[node];
        station.next_tag = station.next_tag.wrapping_add(1);
        let Ok(mut fragments) = Fragments::of_page(&payload, station.next_tag) else { return };
        let mut out = [0; 127];
        while let Ok(Some(payload)) = fragments.next_frame(room, &mut out) {
            self.network.send(node, next, payload);
        }
    }

    /// Processes a frame that a neighbour has sent.
    pub(super) fn receive_named(&mut self, node: NodeId, from: LinkAddress, payload: &[u8]) {
        let now = self.instant();
        let neighbour = self.stations.iter().find(|station| station.link == from).map(|station| station.address);
        let station = &mut self.stations[node];
        let hop = Hop { source: from, destination: station.link };
        let packet = station.packets.as_mut().and_then(|packets| packets.receive_page(now, &hop, payload).ok()?);
        let packet = packet.and_then(ndn_packet);
        let Some((neighbour, mut packet)) = neighbour.zip(packet) else { return };
        let mut wishes = Vec::new();
        station.mote.receive(now, neighbour, &mut packet, &mut wishes);
        self.work(node, self.costs.receive_of(packet.len()), 1);
        self.fulfil(node, wishes);
    }
}
