//! Nodes whose radio sleeps (IEEE 802.15.4-2006, section 7.5.6.3): node 0 is their parent, keeps their packets, and sends them when they
//! ask.

use super::{ASK_PARENT, World};
use crate::sim::{Micros, NodeId};
use std::collections::VecDeque;
use tegmen_lowpan::frame::LinkAddress;

/// The radio of a node that sleeps.
#[derive(Default)]
pub(super) struct Sleeping {
    /// It receives until then.
    awake_until: Micros,
    /// The time for which it has been on, and will be until then.
    on: Micros,
    /// Packets that its parent keeps for it.
    held: VecDeque<Vec<u8>>,
}

impl World<'_> {
    /// The time from one request to the parent to the next; `None` if radios are always on.
    fn sleep_interval(&self) -> Option<Micros> {
        let micros = (self.deployment.mote.polls_s * 1e6) as Micros;
        (micros > 0).then_some(micros)
    }

    /// Lets each node ask its parent, from a random time on.
    pub(super) fn plan_polls(&mut self) {
        let Some(interval) = self.sleep_interval() else { return };
        for node in 1..self.stations.len() {
            let first = self.stations[node].traffic.below(interval);
            self.network.alarm(node, first, ASK_PARENT);
        }
    }

    /// A node asks its parent for packets, and does so again after the interval.
    pub(super) fn ask_parent(&mut self, node: NodeId) {
        let Some(interval) = self.sleep_interval() else { return };
        self.stay_awake(node, AFTER_REQUEST);
        let parent = self.stations[0].link;
        self.network.send(node, parent, DATA_REQUEST);
        self.network.alarm(node, self.network.now() + interval, ASK_PARENT);
    }

    /// The radio of a node is on for this time at least, if it sleeps at all.
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

    /// Keeps a packet for a node whose radio sleeps. Returns false if the packet can be sent.
    pub(super) fn holds(&mut self, to: LinkAddress, packet: &[u8]) -> bool {
        if self.sleep_interval().is_none() {
            return false;
        }
        let now = self.network.now();
        let Some(child) = self.stations.iter_mut().skip(1).find(|station| station.link == to) else { return false };
        let sleeps = child.radio.awake_until <= now;
        if sleeps {
            // The latest are worth most: the others are often the same datagram, sent before.
            if child.radio.held.len() == PLACES {
                child.radio.held.pop_front();
            }
            child.radio.held.push_back(packet.to_vec());
        }
        sleeps
    }

    /// Sends the packets that are kept for a node, which asked for them.
    pub(super) fn release(&mut self, node: NodeId, child: LinkAddress) {
        let asked = self.stations.iter_mut().find(|station| station.link == child);
        let held = asked.map(|station| std::mem::take(&mut station.radio.held)).unwrap_or_default();
        for packet in held {
            self.send(node, child, &packet);
        }
    }

    /// The time for which the radio of a node was on in a run of this length.
    pub(super) fn radio_on(&self, node: NodeId, elapsed: Micros) -> Micros {
        match self.sleep_interval() {
            Some(_) if node != 0 => self.stations[node].radio.on,
            _ => elapsed,
        }
    }
}

/// The payload of a request to the parent: the command of IEEE 802.15.4, which no frame of 6LoWPAN begins with (RFC 4944, section 5.1).
pub(super) const DATA_REQUEST: &[u8] = &[4];
/// The radio is on for this time after a request: channel access, the frame, its acknowledgement, and the begin of a packet.
const AFTER_REQUEST: Micros = 10_000;
/// The radio is on for this time after a datagram. A later answer waits for the next request.
pub(super) const AFTER_DATAGRAM: Micros = 250_000;
/// Packets that a parent keeps for a node.
const PLACES: usize = 4;
