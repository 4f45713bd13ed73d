//! The plan `objects-caches`: figures 12 and 13, requests over a row of forwarders, which are caching proxies or forward IP alone.
//!
//! One number is fitted: the share of frames that every link loses. It is in `plans/objects-caches.toml`, and chosen so that plain CoAP
//! has the paper's share of responses in the largest topology.

use super::{NO_NDN, delay, deployment, paper};
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
    /// Requests of each consumer for each producer.
    pub requests: u32,
    /// Runs of each case.
    pub seeds: u64,
}

/// The effort of the command and the report.
pub const FULL: Effort = Effort { requests: 100, seeds: 5 };

/// Returns all figures of the plan. Calls `done` with the number of finished runs and of all runs.
pub fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let stack_us = delay::stack_us();
    let mut jobs = Vec::new();
    for forwarders in 1..=LARGEST {
        for system in SYSTEMS {
            jobs.extend((1..=effort.seeds).map(|seed| (Topology::of_paper(forwarders), system, seed)));
        }
    }
    let all = jobs.len();
    let once = |(topology, system, seed): &(Topology, System, u64)| {
        topology.run(&topology.deployment(effort.requests, stack_us), *system, *seed)
    };
    let outcomes = parallel::each(&jobs, once, |n| done(n, all));
    let mut results: BTreeMap<(usize, &str), Vec<Outcome>> = BTreeMap::new();
    for ((topology, system, _), outcome) in jobs.iter().zip(outcomes) {
        results.entry((topology.forwarders, system.name)).or_default().push(outcome);
    }
    fig13(&results)
}

/// The way of a request, and its protection.
#[derive(Clone, Copy, Debug)]
struct System {
    name: &'static str,
    protection: Protection,
    /// Forwarders are proxies.
    has_proxies: bool,
    /// Forwarders store responses.
    stores: bool,
}

/// A row of forwarders, with producers behind the last one and consumers before the first one.
#[derive(Clone, Copy, Debug)]
struct Topology {
    forwarders: usize,
    producers: usize,
    consumers: usize,
}

impl Topology {
    /// Figure 12 with this number of forwarders.
    const fn of_paper(forwarders: usize) -> Self {
        Self { forwarders, producers: 2 * forwarders, consumers: 3 }
    }

    fn links(self) -> Vec<[NodeId; 2]> {
        let Self { forwarders, producers, consumers } = self;
        let row = (1..forwarders).map(|forwarder| [forwarder - 1, forwarder]);
        let producers = (0..producers).map(|place| [forwarders - 1, forwarders + place]);
        let first = forwarders + self.producers;
        row.chain(producers).chain((0..consumers).map(|place| [0, first + place])).collect()
    }

    /// The deployment of the plan with this topology.
    fn deployment(self, requests: u32, stack_us: u32) -> Deployment {
        let mut deployment = deployment(include_str!("../../../plans/objects-caches.toml"));
        let Self { forwarders, producers, consumers } = self;
        let largest = Self::of_paper(LARGEST);
        deployment.network.nodes = Some(forwarders + producers + consumers - 1);
        deployment.network.forwarders = forwarders + producers - 1;
        deployment.network.links = Some(self.links());
        deployment.traffic.period_s *= largest.producers as f64 / producers as f64;
        deployment.traffic.readings = requests * producers as u32;
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
            _ if node >= forwarders => Part::Producer,
            _ => {
                let next = (node + 1 < forwarders).then(|| addresses[node + 1]);
                let towards = all.iter().map(|producer| next.unwrap_or(*producer)).collect();
                Part::Forwarder { towards, producers: all.to_vec(), stores: system.stores }
            }
        }
    }

    fn run(self, deployment: &Deployment, system: System, seed: u64) -> Outcome {
        scenario::run_objects(deployment, |node, all| self.part(system, node, all), system.protection, seed)
    }
}

/// The share of requests that were answered, in percent.
fn success(outcomes: &[Outcome]) -> Mean {
    let share = interval::share(&outcomes.iter().map(|run| (run.answered, run.made)).collect::<Vec<_>>());
    Mean { mean: share.mean * 100.0, interval: share.interval.map(|bounds| bounds.map(|bound| bound * 100.0)) }
}

fn fig13(results: &BTreeMap<(usize, &str), Vec<Outcome>>) -> Vec<Figure> {
    let paper = paper().fig13;
    let mut figures = Vec::new();
    for ((forwarders, name), outcomes) in results {
        let ours = success(outcomes);
        let (printed, why) = match (*forwarders, *name) {
            (LARGEST, "coap") => (Some(paper.coap), "calibrated"),
            (1..=2, "coap") => (Some(paper.simple), "predicted; the paper: close to 100 %"),
            _ => (None, "predicted"),
        };
        let id = format!("fig13/{forwarders}_forwarders/{name}/success");
        let made = outcomes.iter().map(|run| run.made).sum();
        figures.push(Figure::shown(id, printed, ours.mean, PERCENT, why).sampled(made, outcomes.len() as u64, &ours));
    }
    let id = format!("fig13/{LARGEST}_forwarders/ndn/success");
    figures.push(Figure::missing(id, paper.ndn, PERCENT, NO_NDN));
    figures
}

const COAP: System = System { name: "coap", protection: Protection::Coap, has_proxies: false, stores: false };
const SYSTEMS: [System; 1] = [COAP];
/// Forwarders of the largest topology.
const LARGEST: usize = 5;
const PERCENT: &str = "percent";

#[cfg(test)]
mod tests;
