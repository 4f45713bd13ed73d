//! The connectivity of nodes: signal strength and losses of each link.

use super::radio::milliwatts;
use super::{Micros, NodeId};

/// The links between the nodes. Nodes without a link do not hear each other, and do not disturb each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Links {
    nodes: usize,
    /// For each sender and receiver, the power at the receiver in milliwatts; 0 if the receiver does not hear the
    /// sender.
    power: Vec<f64>,
    /// For each sender and receiver, the share of frames that are lost independently of other frames on the air.
    loss: Vec<f64>,
    bursts: Vec<Option<Bursts>>,
}

/// Losses in bursts (the model of Gilbert and Elliott). A link has good and bad times, and loses frames accordingly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bursts {
    /// The mean length of good times, in microseconds.
    pub good: Micros,
    /// The mean length of bad times, in microseconds.
    pub bad: Micros,
    /// The share of frames that are lost in bad times. In good times it is the loss of the link.
    pub loss: f64,
}

impl Bursts {
    /// Returns the mean share of lost frames of a link that loses `good_loss` in good times.
    pub fn mean_loss(&self, good_loss: f64) -> f64 {
        let (good, bad) = (self.good as f64, self.bad as f64);
        (good * good_loss + bad * self.loss) / (good + bad)
    }
}

impl Links {
    /// Makes links for this number of nodes, none of which hears another.
    pub fn none(nodes: usize) -> Self {
        Self {
            nodes,
            power: vec![0.0; nodes * nodes],
            loss: vec![0.0; nodes * nodes],
            bursts: vec![None; nodes * nodes],
        }
    }

    /// Makes links with which all nodes hear each other equally well.
    pub fn all(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        for a in 0..nodes {
            (0..a).for_each(|b| links.connect(a, b, STRONG_DBM));
        }
        links
    }

    /// Makes links with which each node hears the previous and the next node.
    pub fn chain(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        (1..nodes).for_each(|node| links.connect(node - 1, node, STRONG_DBM));
        links
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Lets two nodes hear each other with this power, in dBm.
    pub fn connect(&mut self, a: NodeId, b: NodeId, dbm: f64) {
        self.set_power(a, b, dbm);
        self.set_power(b, a, dbm);
    }

    /// Lets `to` hear `from` with this power, in dBm.
    pub fn set_power(&mut self, from: NodeId, to: NodeId, dbm: f64) {
        let index = self.index(from, to);
        self.power[index] = milliwatts(dbm);
    }

    /// Lets all links lose this share of the frames.
    pub fn set_all_losses(&mut self, loss: f64) {
        self.loss.fill(loss);
    }

    /// Lets the link from `from` to `to` lose this share of the frames.
    pub fn set_loss(&mut self, from: NodeId, to: NodeId, loss: f64) {
        let index = self.index(from, to);
        self.loss[index] = loss;
    }

    /// Sets or removes the bad times of a link.
    pub fn set_bursts(&mut self, from: NodeId, to: NodeId, bursts: Option<Bursts>) {
        let index = self.index(from, to);
        self.bursts[index] = bursts;
    }

    /// Returns the power at `to` while `from` sends, in milliwatts.
    pub fn power(&self, from: NodeId, to: NodeId) -> f64 {
        self.power[self.index(from, to)]
    }

    /// Returns the share of frames that the link loses. If the link has bad times, this is the share in good times.
    pub fn loss(&self, from: NodeId, to: NodeId) -> f64 {
        self.loss[self.index(from, to)]
    }

    /// Returns the bad times of the link.
    pub fn bursts(&self, from: NodeId, to: NodeId) -> Option<Bursts> {
        self.bursts[self.index(from, to)]
    }

    /// Returns the nodes that hear `from`.
    pub fn audience(&self, from: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes).filter(move |to| self.power(from, *to) > 0.0)
    }

    fn index(&self, from: NodeId, to: NodeId) -> usize {
        assert!(from < self.nodes && to < self.nodes, "a node of this network");
        from * self.nodes + to
    }
}

/// The power of a link on which noise has no effect, in dBm.
pub const STRONG_DBM: f64 = -60.0;
