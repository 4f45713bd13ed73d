//! The connectivity of nodes: signal strength and losses of each link.

use super::radio::milliwatts;
use super::{Micros, NodeId};

/// The links between the nodes. Nodes without a link do not hear each other, and do not disturb each other.
#[derive(Clone, PartialEq, Debug)]
pub struct Links {
    nodes: usize,
    /// By sender, then receiver: milliwatts at the receiver, 0 where nothing arrives.
    power: Vec<f64>,
    /// By sender, then receiver: the share of frames that are lost without regard to other frames on the air.
    loss: Vec<f64>,
    bursts: Vec<Option<Bursts>>,
}

/// Losses that come together (Gilbert and Elliott): a link is good or bad for a while, and loses frames accordingly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bursts {
    /// The mean length of good times.
    pub good: Micros,
    /// The mean length of bad times.
    pub bad: Micros,
    /// The share of frames that are lost in bad times; in good ones it is the link's.
    pub loss: f64,
}

impl Bursts {
    /// The share of frames that are lost in the long run on a link that loses `good_loss` in good times.
    pub fn mean_loss(&self, good_loss: f64) -> f64 {
        let (good, bad) = (self.good as f64, self.bad as f64);
        (good * good_loss + bad * self.loss) / (good + bad)
    }
}

impl Links {
    /// Creates this number of nodes, none of which hears another.
    pub fn none(nodes: usize) -> Self {
        Self {
            nodes,
            power: vec![0.0; nodes * nodes],
            loss: vec![0.0; nodes * nodes],
            bursts: vec![None; nodes * nodes],
        }
    }

    /// All nodes hear each other equally well.
    pub fn all(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        for a in 0..nodes {
            (0..a).for_each(|b| links.connect(a, b, STRONG_DBM));
        }
        links
    }

    /// Each node hears the one before and the one behind.
    pub fn chain(nodes: usize) -> Self {
        let mut links = Self::none(nodes);
        (1..nodes).for_each(|node| links.connect(node - 1, node, STRONG_DBM));
        links
    }

    /// Returns the number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Lets two nodes hear each other with this power.
    pub fn connect(&mut self, a: NodeId, b: NodeId, dbm: f64) {
        self.set_power(a, b, dbm);
        self.set_power(b, a, dbm);
    }

    /// Lets `to` hear `from` with this power.
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

    /// Lets the link have bad times.
    pub fn set_bursts(&mut self, from: NodeId, to: NodeId, bursts: Option<Bursts>) {
        let index = self.index(from, to);
        self.bursts[index] = bursts;
    }

    /// Milliwatts that arrive at `to` while `from` sends.
    pub fn power(&self, from: NodeId, to: NodeId) -> f64 {
        self.power[self.index(from, to)]
    }

    /// The share of frames that the link loses, in its good times if it has bad ones.
    pub fn loss(&self, from: NodeId, to: NodeId) -> f64 {
        self.loss[self.index(from, to)]
    }

    /// The link's bad times.
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

/// A link without noise that matters.
pub const STRONG_DBM: f64 = -60.0;
