//! Nodes whose radios sleep (IEEE 802.15.4-2006, section 7.5.6.3). Node 0 is their parent. It stores the packets for a
//! node until this node asks for its packets.

use super::{ASK_PARENT, World};
use crate::sim::{Micros, NodeId};
use std::collections::VecDeque;
use tegmen_lowpan::frame::LinkAddress;

/// The state of a radio that may sleep.
#[derive(Default)]
pub(super) struct Sleeping {
    /// The virtual time until which the radio stays on, in microseconds.
    awake_until: Micros,
    /// The total time for which the radio has been on, counted up to [`Self::awake_until`], in microseconds.
    on: Micros,
    /// The packets that node 0 stores for this node.
    held: VecDeque<Vec<u8>>,
}

impl World<'_> {
    /// Returns the time between two requests of a node to its parent; `None` if radios are always on.
    fn sleep_interval(&self) -> Option<Micros> {
        let micros = (self.deployment.mote.polls_s * 1e6) as Micros;
        (micros > 0).then_some(micros)
    }

    /// Plans the first request of each node to its parent, at a random time. Does nothing if radios are always on.
    pub(super) fn plan_polls(&mut self) {
        let Some(interval) = self.sleep_interval() else { return };
        for node in 1..self.stations.len() {
            let first = self.stations[node].traffic.below(interval);
            self.network.alarm(node, first, ASK_PARENT);
        }
    }

    /// Lets a node ask its parent for packets, and plans the node's next request.
    pub(super) fn ask_parent(&mut self, node: NodeId) {
        let Some(interval) = self.sleep_interval() else { return };
        self.stay_awake(node, AFTER_REQUEST);
        let parent = self.stations[0].link;
        self.network.send(node, parent, DATA_REQUEST);
        self.network.alarm(node, self.network.now() + interval, ASK_PARENT);
    }

    /// Keeps the radio of a node on for at least this time. Does nothing if radios are always on.
    pub(super) fn stay_awake(&mut self, node: NodeId, time: Micros) {
        if node == 0 || self.sleep_interval().is_none() {
            return;
        }
        let now = self.network.now();
        let radio = &mut self.stations[node].radio;
        let until = radio.awake_until.max(now + time);
        radio.on += until - radio.awake_until.max(now);
        radio.awake_until = until;
    }

    /// Stores a packet if the radio of its receiver sleeps, and returns true. Returns false if the packet can be sent
    /// now.
    pub(super) fn holds(&mut self, to: LinkAddress, packet: &[u8]) -> bool {
        if self.sleep_interval().is_none() {
            return false;
        }
        let now = self.network.now();
        let Some(child) = self.stations.iter_mut().skip(1).find(|station| station.link == to) else { return false };
        let sleeps = child.radio.awake_until <= now;
        if sleeps {
            // If all places are used, the oldest packet is dropped. A newer packet is often a retransmission of the
            // same datagram.
            if child.radio.held.len() == PLACES {
                child.radio.held.pop_front();
            }
            child.radio.held.push_back(packet.to_vec());
        }
        sleeps
    }

    /// Sends the packets that are stored for `child`, which has asked for them.
    pub(super) fn release(&mut self, node: NodeId, child: LinkAddress) {
        let asked = self.stations.iter_mut().find(|station| station.link == child);
        let held = asked.map(|station| std::mem::take(&mut station.radio.held)).unwrap_or_default();
        for packet in held {
            self.send(node, child, &packet);
        }
    }

    /// Returns the time for which the radio of a node was on, in a run of the length `elapsed`.
    pub(super) fn radio_on(&self, node: NodeId, elapsed: Micros) -> Micros {
        match self.sleep_interval() {
            Some(_) if node != 0 => self.stations[node].radio.on,
            _ => elapsed,
        }
    }
}

/// The payload of a request to the parent: the number of the command in IEEE 802.15.4. No 6LoWPAN frame begins with
/// this byte (RFC 4944, section 5.1).
pub(super) const DATA_REQUEST: &[u8] = &[4];
/// Time for which the radio stays on after a request to the parent, in microseconds. It covers the channel access, the
/// frame, its acknowledgement, and the beginning of a packet from the parent.
const AFTER_REQUEST: Micros = 10_000;
/// Time for which the radio stays on after a datagram, in microseconds. An answer that arrives later waits at the
/// parent until the node's next request.
pub(super) const AFTER_DATAGRAM: Micros = 250_000;
/// Maximum number of packets that a parent stores for a node.
const PLACES: usize = 4;
