//! The links of a deployment: the nodes that hear each other, the losses of frames, and the shortest paths to node 0.

use super::{Deployment, Fault, Shape, share};
use crate::mote;
use crate::sim::links::STRONG_DBM;
use crate::sim::{Bursts, Links, Micros, NodeId};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::VecDeque;
use std::fmt;

/// The share of frames that links lose, from 0 to 1. It is one value for all links, or a matrix with a row for each
/// sender and a column for each receiver.
#[derive(Clone, PartialEq, Debug)]
pub enum Loss {
    /// Every link loses the same share of frames.
    Every(f64),
    /// The share of frames that each link loses: a row for each sender, with a column for each receiver. The value for
    /// two nodes that do not hear each other has no effect.
    Matrix(Vec<Vec<f64>>),
}

impl Default for Loss {
    fn default() -> Self {
        Self::Every(0.0)
    }
}

impl Loss {
    fn apply(&self, links: &mut Links) -> Result<(), Fault> {
        let rows = match self {
            Self::Every(loss) => {
                share("network", "loss", *loss)?;
                links.set_all_losses(*loss);
                return Ok(());
            }
            Self::Matrix(rows) => rows,
        };
        let nodes = links.nodes();
        if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
            let lengths: Vec<_> = rows.iter().map(|row| row.len().to_string()).collect();
            let what = format!(
                "loss: {nodes} nodes with node 0, so {nodes} rows of {nodes} shares; these are {} rows of {}",
                rows.len(),
                lengths.join(", ")
            );
            return Err(("network", "loss", what));
        }
        for (from, row) in rows.iter().enumerate() {
            for (to, loss) in row.iter().enumerate() {
                share("network", "loss", *loss)?;
                links.set_loss(from, to, *loss);
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Loss;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share from 0 to 1, or a list of lists of them: a row for each sender, a column for each receiver")
            }

            fn visit_f64<E: Error>(self, loss: f64) -> Result<Loss, E> {
                Ok(Loss::Every(loss))
            }

            fn visit_i64<E: Error>(self, loss: i64) -> Result<Loss, E> {
                Ok(Loss::Every(loss as f64))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, rows: A) -> Result<Loss, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(rows)).map(Loss::Matrix)
            }
        }
        deserializer.deserialize_any(Reads)
    }
}

/// Good and bad periods of links (the Gilbert-Elliott model). The lengths of both kinds of periods are random, with an
/// exponential distribution.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weather {
    /// Mean length of the good periods, in seconds.
    pub good_s: f64,
    /// Mean length of the bad periods, in seconds.
    pub bad_s: f64,
    /// The share of frames that are lost in bad periods, from 0 to 1.
    pub loss: f64,
}

/// Named settings for bad periods. Their values are round numbers that are typical for the name, and were not measured.
pub const BURSTS: &[(&str, Weather)] = &[
    // A WLAN near the motes sends during a tenth of the time, a few frames at once.
    ("wlan", Weather { good_s: 0.045, bad_s: 0.005, loss: 0.9 }),
    // Radio waves cancel out while something moves, for half a second in every five seconds.
    ("fading", Weather { good_s: 4.5, bad_s: 0.5, loss: 0.9 }),
    // A person is between the nodes, for five seconds in every hundred seconds.
    ("shadow", Weather { good_s: 95.0, bad_s: 5.0, loss: 1.0 }),
];

impl Weather {
    fn bursts(&self) -> Result<Bursts, Fault> {
        share("network", "bursts", self.loss)?;
        let micros = |seconds: f64| (seconds * 1e6) as Micros;
        if ![self.good_s, self.bad_s].iter().all(|seconds| (1e-6..=1e9).contains(seconds)) {
            return Err(("network", "bursts", "bursts: good_s and bad_s are seconds, more than 0, 1e9 at most".into()));
        }
        Ok(Bursts { good: micros(self.good_s), bad: micros(self.bad_s), loss: self.loss })
    }
}

impl<'de> Deserialize<'de> for Weather {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            good_s: f64,
            bad_s: f64,
            loss: f64,
        }

        fn names() -> String {
            BURSTS.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
        }

        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Weather;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "one of {}, or {{ good_s = ..., bad_s = ..., loss = ... }}", names())
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Weather, E> {
                let found = BURSTS.iter().find(|(known, _)| *known == name).map(|(_, weather)| *weather);
                found.ok_or_else(|| {
                    E::custom(format!(
                        "there are no bursts {name:?}: one of {}, or {{ good_s = ..., bad_s = ..., loss = ... }}",
                        names()
                    ))
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Weather, A::Error> {
                let Table { good_s, bad_s, loss } = Table::deserialize(MapAccessDeserializer::new(table))?;
                Ok(Weather { good_s, bad_s, loss })
            }
        }
        deserializer.deserialize_any(Reads)
    }
}

impl Deployment {
    /// Returns the links between the nodes, with their losses.
    pub(crate) fn links(&self) -> Result<Links, Fault> {
        let network = &self.network;
        let count = |key: &'static str, value: Option<usize>, most: usize| match value {
            Some(value) if (1..=most).contains(&value) => Ok(value),
            Some(value) => Err(("network", key, format!("{key} = {value}: from 1 to {most}"))),
            None => Err(("network", "topology", format!("this topology needs {key}, from 1 to {most}"))),
        };
        let unused = |key: &'static str, set: bool| match set {
            true => Err(("network", key, format!("{key} has no meaning in this topology"))),
            false => Ok(()),
        };
        let mut links = match network.topology {
            Shape::Star => {
                unused("hops", network.hops.is_some())?;
                Links::all(count("nodes", network.nodes, mote::MAX_NODES)? + 1)
            }
            Shape::Chain => {
                unused("nodes", network.nodes.is_some())?;
                Links::chain(count("hops", network.hops, 32)? + 1)
            }
            Shape::Tree => {
                unused("hops", network.hops.is_some())?;
                let nodes = count("nodes", network.nodes, mote::MAX_NODES)? + 1;
                let fanout = count("fanout", network.fanout, mote::MAX_NODES)?;
                let mut links = Links::none(nodes);
                (1..nodes).for_each(|node| links.connect(node, (node - 1) / fanout, STRONG_DBM));
                links
            }
            Shape::Links => {
                unused("hops", network.hops.is_some())?;
                let nodes = count("nodes", network.nodes, mote::MAX_NODES)? + 1;
                let mut links = Links::none(nodes);
                let pairs = network.links.as_deref();
                let pairs = pairs.ok_or(("network", "topology", "this topology needs links = [[0, 1], ...]".into()))?;
                for [a, b] in pairs {
                    if *a >= nodes || *b >= nodes || a == b {
                        let what = format!("links: [{a}, {b}] is not a pair of the nodes 0 to {}", nodes - 1);
                        return Err(("network", "links", what));
                    }
                    links.connect(*a, *b, STRONG_DBM);
                }
                links
            }
        };
        unused("fanout", network.fanout.is_some() && network.topology != Shape::Tree)?;
        unused("links", network.links.is_some() && network.topology != Shape::Links)?;
        network.loss.apply(&mut links)?;
        if let Some(weather) = network.bursts {
            let bursts = weather.bursts()?;
            for from in 0..links.nodes() {
                (0..links.nodes()).for_each(|to| links.set_bursts(from, to, Some(bursts)));
            }
        }
        Ok(links)
    }

    /// Returns, for each node, its neighbour on the shortest path to node 0.
    pub(crate) fn parents(&self, links: &Links) -> Result<Vec<NodeId>, Fault> {
        let mut parents = vec![None; links.nodes()];
        let mut reached = VecDeque::from([0]);
        parents[0] = Some(0);
        while let Some(node) = reached.pop_front() {
            for next in links.audience(node) {
                if parents[next].is_none() {
                    parents[next] = Some(node);
                    reached.push_back(next);
                }
            }
        }
        if let Some(lost) = parents.iter().position(Option::is_none) {
            return Err(("network", "links", format!("node {lost} is not reached from node 0: a link is missing")));
        }
        Ok(parents.into_iter().flatten().collect())
    }

    /// Returns the maximum number of hops from any node to node 0.
    pub(crate) fn depth(&self, links: &Links) -> Result<usize, Fault> {
        let parents = self.parents(links)?;
        let hops = |node: NodeId| std::iter::successors(Some(node), |n| (*n != 0).then(|| parents[*n])).count() - 1;
        Ok((0..links.nodes()).map(hops).max().unwrap_or(0))
    }
}
