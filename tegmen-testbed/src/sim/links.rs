//! The links between nodes, each with its signal power and its losses.

use super::radio::milliwatts;
use super::{Micros, NodeId};

/// The links between the nodes. Two nodes without a link neither hear nor disturb each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Links {
    nodes: usize,
    /// For each pair of a sender and a receiver, the power at the receiver in milliwatts. It is 0 if the receiver does
    /// not hear the sender.
    power: Vec<f64>,
    /// For each pair of a sender and a receiver, the share of frames that are lost for another reason than
    /// interference.
    loss: Vec<f64>,
    bursts: Vec<Option<Bursts>>,
}

/// Losses in bursts (the Gilbert-Elliott model). Good and bad periods of a link alternate. The link loses more frames
/// in bad periods than in good periods.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bursts {
    /// The mean length of the good periods, in which the link loses its usual share of frames, in microseconds.
    pub good: Micros,
    /// The mean length of the bad periods, in which the link loses more frames, in microseconds.
    pub bad: Micros,
    /// The share of frames that the link loses in bad periods. In good periods the link loses its usual share.
    pub loss: f64,
}

impl Bursts {
    /// Returns the mean share of lost frames for a link that loses the share `good_loss` in good periods.
    pub fn mean_loss(&self, good_loss: f64) -> f64 {
        let (good, bad) = (self.good as f64, self.bad as f64);
        (good * good_loss + bad * self.loss) / (good + bad)
    }
}

impl Links {
    /// Makes a [`Links`] value for this number of nodes, without any link.
    pub fn none(nodes: usize) -> Self {
        Self {
            nodes,
            power: vec![0.0; nodes * nodes],
            loss: vec![0.0; nodes * nodes],
            bursts: vec![None; nodes * nodes],
        }
    }

    /// Makes links between all nodes, with the same power.
    pub fn all(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        for a in 0..nodes {
            (0..a).for_each(|b| links.connect(a, b, STRONG_DBM));
        }
        links
    }

    /// Makes the links of a chain: each node hears the previous node and the next node.
    pub fn chain(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        (1..nodes).for_each(|node| links.connect(node - 1, node, STRONG_DBM));
        links
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Makes a link between two nodes in both directions, with this power in dBm.
    pub fn connect(&mut self, a: NodeId, b: NodeId, dbm: f64) {
        self.set_power(a, b, dbm);
        self.set_power(b, a, dbm);
    }

    /// Makes a link on which `to` hears `from` with this power, in dBm.
    pub fn set_power(&mut self, from: NodeId, to: NodeId, dbm: f64) {
        let index = self.index(from, to);
        self.power[index] = milliwatts(dbm);
    }

    /// Sets the share of frames that all links lose.
    pub fn set_all_losses(&mut self, loss: f64) {
        self.loss.fill(loss);
    }

    /// Sets the share of frames that the link from `from` to `to` loses.
    pub fn set_loss(&mut self, from: NodeId, to: NodeId, loss: f64) {
        let index = self.index(from, to);
        self.loss[index] = loss;
    }

    /// Sets the bursts of losses on a link. Removes the link's bursts if `bursts` is `None`.
    pub fn set_bursts(&mut self, from: NodeId, to: NodeId, bursts: Option<Bursts>) {
        let index = self.index(from, to);
        self.bursts[index] = bursts;
    }

    /// Returns the power of the signal of `from` at `to`, in milliwatts.
    pub fn power(&self, from: NodeId, to: NodeId) -> f64 {
        self.power[self.index(from, to)]
    }

    /// Returns the share of frames that the link loses. If it has bursts of losses, this is the share in good periods.
    pub fn loss(&self, from: NodeId, to: NodeId) -> f64 {
        self.loss[self.index(from, to)]
    }

    /// Returns the bursts of losses on the link; `None` if it has none.
    pub fn bursts(&self, from: NodeId, to: NodeId) -> Option<Bursts> {
        self.bursts[self.index(from, to)]
    }

    /// Returns all nodes that hear the node `from`.
    pub fn audience(&self, from: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes).filter(move |to| self.power(from, *to) > 0.0)
    }

    fn index(&self, from: NodeId, to: NodeId) -> usize {
        assert!(from < self.nodes && to < self.nodes, "a node of this network");
        from * self.nodes + to
    }
}

/// The power in dBm of a link that is strong enough to make noise irrelevant.
pub const STRONG_DBM: f64 = -60.0;
