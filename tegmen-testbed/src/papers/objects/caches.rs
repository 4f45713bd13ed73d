//! The plan `objects-cache`, which reproduces figures 12 and 13 of the paper: requests over a row of forwarders. The
//! forwarders are caching proxies, or forward only IP packets, or are nodes of Named Data Networking. Further topologies
//! are trees of up to 1,000 nodes.
//!
//! One parameter is fitted to the paper: the share of frames that every link loses (`plans/objects-cache.toml`). It is
//! chosen so that plain CoAP has the paper's share of answered requests in the largest topology.

use super::{Fig13, delay, deployment, paper};
use crate::deployment::Deployment;
use crate::figure::Figure;
use crate::interval::{self, Mean};
use crate::mote::{Part, Protection};
use crate::parallel;
use crate::scenario::{self, Outcome};
use crate::sim::NodeId;
use std::collections::BTreeMap;
use tegmen::address::Address;

/// The number of requests and runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of requests from each consumer to each producer.
    pub requests: u32,
    /// Number of runs of each case.
    pub seeds: u64,
}

/// The number of requests and runs that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { requests: 100, seeds: 5 };

/// Returns all figures of the plan `objects-cache`. Calls `done` with the number of finished runs and the number of all
/// runs.
pub fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let stack_us = delay::stack_us();
    let mut jobs = Vec::new();
    for topology in (1..=LARGEST).map(Topology::of_paper).chain([BEYOND]).chain(TREES) {
        for system in SYSTEMS {
            jobs.extend((1..=effort.seeds).map(|seed| (topology, system, seed)));
        }
    }
    let all = jobs.len();
    let once = |(topology, system, seed): &(Topology, System, u64)| {
        topology.run(&topology.deployment(effort.requests, stack_us), *system, *seed)
    };
    let outcomes = parallel::each(&jobs, once, |n| done(n, all));
    let mut results = Results::new();
    for ((topology, system, _), outcome) in jobs.iter().zip(outcomes) {
        results.entry((topology.name(), system.name)).or_default().push(outcome);
    }
    fig13(&results)
}

/// The protocol that carries the requests, and its protection.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    protection: Protection,
    /// True if the forwarders are CoAP proxies.
    has_proxies: bool,
    /// True if the forwarders store responses in a cache.
    stores: bool,
}

/// A tree of forwarders. Forwarder 0 is its root, and the consumers are connected to the root. The producers are
/// connected to the forwarders that have no child, in turn. With one branch the tree is a row.
#[derive(Clone, Copy, Debug)]
struct Topology {
    forwarders: usize,
    producers: usize,
    consumers: usize,
    /// Number of children of each forwarder that has children.
    branches: usize,
}

impl Topology {
    /// Returns the topology of figure 12 with this number of forwarders.
    const fn of_paper(forwarders: usize) -> Self {
        Self { forwarders, producers: 2 * forwarders, consumers: 3, branches: 1 }
    }

    /// Returns a tree of this number of nodes. The forwarders have this number of levels, and each forwarder above the
    /// last level has three children.
    const fn tree(levels: u32, nodes: usize) -> Self {
        let (branches, consumers) = (3, 3);
        let forwarders = (3_usize.pow(levels) - 1) / 2;
        Self { forwarders, producers: nodes - forwarders - consumers, consumers, branches }
    }

    /// Returns the parent of a forwarder other than the root.
    fn parent(self, forwarder: NodeId) -> NodeId {
        (forwarder - 1) / self.branches
    }

    /// Returns the forwarder to which a producer is connected.
    fn leaf(self, producer: usize) -> NodeId {
        let first = (self.forwarders - 1).div_ceil(self.branches);
        first + producer % (self.forwarders - first)
    }

    /// Returns the next node on the path from a forwarder to a producer.
    fn next(self, forwarder: NodeId, producer: usize) -> NodeId {
        let mut before = self.forwarders + producer;
        let mut node = self.leaf(producer);
        while node != forwarder {
            if node == 0 {
                return self.parent(forwarder);
            }
            (before, node) = (node, self.parent(node));
        }
        before
    }

    fn links(self) -> Vec<[NodeId; 2]> {
        let Self { forwarders, producers, consumers, .. } = self;
        let tree = (1..forwarders).map(|forwarder| [self.parent(forwarder), forwarder]);
        let leaves = (0..producers).map(|place| [self.leaf(place), forwarders + place]);
        let first = forwarders + producers;
        tree.chain(leaves).chain((0..consumers).map(|place| [0, first + place])).collect()
    }

    /// Returns the part of a figure's name that identifies the topology.
    fn name(self) -> String {
        let Self { forwarders, producers, branches, .. } = self;
        let part = if branches == 1 && producers == 2 * forwarders { "fig13" } else { "beyond" };
        format!("{part}/{forwarders}_forwarders_{producers}_producers")
    }

    /// Returns the deployment of the plan with this topology. Each consumer sends a request to each producer every 2.5
    /// s. If the topology has more producers than the largest topology of the paper, this time is longer, so that the
    /// load is not higher than in the largest topology of the paper.
    fn deployment(self, requests: u32, stack_us: u32) -> Deployment {
        let mut deployment = deployment(include_str!("../../../plans/objects-cache.toml"));
        let Self { forwarders, producers, consumers, .. } = self;
        let largest = Self::of_paper(LARGEST);
        deployment.network.nodes = Some(forwarders + producers + consumers - 1);
        deployment.network.forwarders = forwarders + producers - 1;
        deployment.network.links = Some(self.links());
        let asked = producers.min(largest.producers);
        deployment.traffic.period_s *= largest.producers as f64 / asked as f64;
        deployment.traffic.readings = requests * asked as u32;
        deployment.mote.stack_us = stack_us;
        deployment
    }

    fn part(self, system: System, node: NodeId, addresses: &[Address]) -> Part {
        let Self { forwarders, producers, .. } = self;
        let all = &addresses[forwarders..forwarders + producers];
        match node {
            _ if node >= forwarders + producers => Part::Consumer {
                place: node - forwarders - producers,
                producers: all.to_vec(),
                proxy: system.has_proxies.then_some(addresses[0]),
            },
            _ if node >= forwarders => Part::Producer { place: node - forwarders },
            _ => {
                let towards = (0..producers).map(|producer| addresses[self.next(node, producer)]).collect();
                Part::Forwarder { towards, producers: all.to_vec(), stores: system.stores }
            }
        }
    }

    fn run(self, deployment: &Deployment, system: System, seed: u64) -> Outcome {
        scenario::run_objects(deployment, |node, all| self.part(system, node, all), system.protection, seed)
    }
}

/// Returns the mean share of answered requests in these runs, in percent.
fn success(outcomes: &[Outcome]) -> Mean {
    let share = interval::share(&outcomes.iter().map(|run| (run.answered, run.made)).collect::<Vec<_>>());
    Mean { mean: share.mean * 100.0, interval: share.interval.map(|bounds| bounds.map(|bound| bound * 100.0)) }
}

fn fig13(results: &Results) -> Vec<Figure> {
    let paper = paper().fig13;
    let mut figures = Vec::new();
    for ((topology, name), outcomes) in results {
        let Mean { mean, .. } = success(outcomes);
        let id = format!("{topology}/{name}/success");
        let simple = SIMPLE.iter().any(|forwarders| *topology == Topology::of_paper(*forwarders).name());
        let largest = *topology == Topology::of_paper(LARGEST).name();
        let shown = |printed, why| Figure::shown(id.clone(), printed, mean, PERCENT, why);
        let figure = match *name {
            "coap" | "coap_caches" | "ndn" if simple => {
                Figure::at_least(id, Some(paper.simple), mean, paper.simple - TOLERANCE, PERCENT, "")
            }
            "coap" if largest => shown(Some(paper.coap), "calibrated"),
            "coap_caches" if largest => shown(Some(paper.coap_caches), "predicted; the conclusion is judged"),
            "ndn" if largest => shown(Some(paper.ndn), "predicted; the conclusion is judged"),
            _ => shown(None, "predicted"),
        };
        figures.push(sampled(figure, outcomes));
    }
    figures.extend(conclusions(results, &paper));
    figures.extend(fig9(results));
    figures
}

/// Compares NDN's shares of answered requests in the largest topology with the shares in figure 9, which has another
/// topology.
fn fig9(results: &Results) -> Vec<Figure> {
    let largest = Topology::of_paper(LARGEST).name();
    let [least, most] = paper().fig9.success_percent["ndn_family"];
    let row = |name: &&str| {
        let outcomes = &results[&(largest.clone(), system(name))];
        let ours = success(outcomes).mean;
        let place = if (least..=most).contains(&ours) { "within" } else { "outside" };
        let why = format!("{place} the {least} to {most} of figure 9, whose topology is another one");
        let id = format!("fig9/multi_hop/beside_fig13/{name}/success");
        sampled(Figure::shown(id, Some((least + most) / 2.0), ours, PERCENT, &why), outcomes)
    };
    ["ndn", "ndn_protected"].iter().map(row).collect()
}

/// Returns the conclusions that the paper draws from figure 13 for the largest topology, each with the verdict whether
/// it holds for Tegmen.
fn conclusions(results: &Results, paper: &Fig13) -> Vec<Figure> {
    let largest = Topology::of_paper(LARGEST).name();
    let ours = |name: &str| success(&results[&(largest.clone(), system(name))]).mean;
    let [coap, proxies, caches] = ["coap", "coap_proxies", "coap_caches"].map(ours);
    let [oscore, oscore_caches] = ["oscore", "oscore_caches"].map(ours);
    let [ndn, ndn_without_stores, ndn_protected] = ["ndn", "ndn_without_stores", "ndn_protected"].map(ours);
    let least = (paper.coap_caches - paper.coap) / 2.0;
    let recovered = format!(
        "caching proxies answer at least {least} percent of the requests more than plain CoAP, half of the paper's difference: {caches:.1} \
         beside {coap:.1} here, {} beside {} in the paper",
        paper.coap_caches, paper.coap
    );
    let near =
        format!("{caches:.1} is at least {} - {TOLERANCE}: the paper has this share and more", paper.coap_caches);
    let parts = format!(
        "{:.1} percent come from retransmission on each hop, and {:.1} more from responses that are stored",
        proxies - coap,
        caches - proxies
    );
    let stores = format!(
        "{:.1} percent come from retransmission on each hop, and {:.1} more from packets that are stored",
        ndn_without_stores - coap,
        ndn - ndn_without_stores
    );
    let as_far = format!(
        "NDN answers at least {least} percent of the requests more than plain CoAP: {ndn:.1} beside {coap:.1} here, {} beside {} in the paper",
        paper.ndn, paper.coap
    );
    let near_ndn = format!("{ndn:.1} is at least {} - {TOLERANCE}: the paper has this share and more", paper.ndn);
    let protected = format!(
        "{ndn_protected:.1} percent with protection and {ndn:.1} without: a protected packet is stored as any other. With OSCORE {oscore_caches:.1} \
         beside {caches:.1}, because no proxy stores its responses"
    );
    let keeps = ndn - ndn_protected < TOLERANCE && caches - oscore_caches > TOLERANCE;
    let shown = |id: &str, value, why: &str| Figure::shown(format!("{largest}/{id}"), None, value, PERCENT, why);
    let figures = vec![
        Figure::conclusion(format!("{largest}/ndn_lifts_what_plain_coap_loses"), ndn - coap >= least, &as_far),
        Figure::conclusion(
            format!("{largest}/ndn_reaches_the_share_of_the_paper"),
            ndn >= paper.ndn - TOLERANCE,
            &near_ndn,
        ),
        Figure::conclusion(format!("{largest}/protection_leaves_ndn_its_stores"), keeps, &protected),
        shown("gain_of_ndn_without_stores", ndn_without_stores - coap, &stores),
        Figure::conclusion(format!("{largest}/caches_lift_what_plain_coap_loses"), caches - coap >= least, &recovered),
        Figure::conclusion(
            format!("{largest}/caches_reach_the_share_of_the_paper"),
            caches >= paper.coap_caches - TOLERANCE,
            &near,
        ),
        shown("gain_of_proxies_without_caches", proxies - coap, &parts),
        shown(
            "gain_of_oscore_with_proxies",
            oscore_caches - oscore,
            "proxies store no response with OSCORE: each request differs",
        ),
    ];
    let all: Vec<Outcome> =
        results.iter().filter(|((topology, _), _)| *topology == largest).flat_map(|(_, runs)| runs.clone()).collect();
    let without_interval = |figure: Figure| {
        let made = all.iter().map(|run| run.made).sum();
        figure.sampled(made, (all.len() / SYSTEMS.len()) as u64, &Mean { mean: 0.0, interval: None })
    };
    figures.into_iter().map(without_interval).collect()
}

/// Adds two data to a figure: the numbers of requests and runs from which it was computed, and the 95 % confidence
/// interval of the share of answered requests in these runs.
fn sampled(figure: Figure, outcomes: &[Outcome]) -> Figure {
    figure.sampled(outcomes.iter().map(|run| run.made).sum(), outcomes.len() as u64, &success(outcomes))
}

/// The results of the runs of each topology and each system. The key has the names of both.
type Results = BTreeMap<(String, &'static str), Vec<Outcome>>;

fn system(name: &str) -> &'static str {
    SYSTEMS.iter().find(|system| system.name == name).map_or("", |system| system.name)
}

const COAP: System = System { name: "coap", protection: Protection::Coap, has_proxies: false, stores: false };
const NDN: System = System { name: "ndn", protection: Protection::Ndn, has_proxies: true, stores: true };
const SYSTEMS: [System; 8] = [
    COAP,
    System { name: "coap_proxies", has_proxies: true, ..COAP },
    System { name: "coap_caches", has_proxies: true, stores: true, ..COAP },
    System { name: "oscore", protection: Protection::Oscore, ..COAP },
    System { name: "oscore_caches", protection: Protection::Oscore, has_proxies: true, stores: true },
    NDN,
    System { name: "ndn_without_stores", stores: false, ..NDN },
    System { name: "ndn_protected", protection: Protection::NdnProtected, ..NDN },
];
/// Number of forwarders in the largest topology of the paper.
const LARGEST: usize = 5;
/// The numbers of forwarders with which nearly all requests are answered in the paper.
const SIMPLE: [usize; 2] = [1, 2];
/// The number of percentage points by which a share may be less than that of the paper.
const TOLERANCE: f64 = 10.0;
/// A topology with a hundred producers. They nearly fill the peer table of the last forwarder. The load is the same as
/// in the largest topology of the paper.
const BEYOND: Topology = Topology { producers: 100, ..Topology::of_paper(LARGEST) };
/// Trees of a hundred, three hundred and a thousand nodes. The load is the same as in the largest topology of the paper.
const TREES: [Topology; 3] = [Topology::tree(3, 100), Topology::tree(4, 300), Topology::tree(5, 1000)];
const PERCENT: &str = "percent";

#[cfg(test)]
mod tests;
