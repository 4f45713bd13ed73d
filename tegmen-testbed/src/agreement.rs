//! The plan `ns3-agreement`: the simulator beside ns-3, case by case.
//!
//! Two files in `data/` hold what the model lr-wpan of ns-3 gave for bare frames that ask and answer; the same is run
//! here. `ns3-lrwpan-measured.csv` was measured for this plan, and says all that a case is. `ns3-lrwpan-reference.csv` is
//! given, and says neither whom of each other the leaves of a star hear nor when they ask: of what was tried, the ring and
//! the slots that are run here agree with all its cases that are judged (`docs/lab.md` has the doubts). In a saturated case
//! queues grow for as long as it runs, and means say more about its length than about the MAC: those are shown, and not
//! judged.

use crate::parallel;
use crate::sim::links::STRONG_DBM;
use crate::sim::random::{Purpose, Stream};
use crate::sim::{Links, Micros, Network, NodeId, Radio, Told};
use serde::Serialize;
use std::fmt::Write as _;

/// Who asks whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// So many leaves ask one hub; everybody hears everybody.
    Star {
        /// How many.
        leaves: usize,
    },
    /// One node asks another, so many hops away; only neighbours hear each other.
    Chain {
        /// How many.
        hops: usize,
    },
    /// As a star, but its leaves lie on a ring, and each hears the hub and two leaves on either side, as where the range is
    /// one and a half times the radius.
    Ring {
        /// How many.
        leaves: usize,
    },
}

/// When a node asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// First within a period, then from three quarters of a period to five quarters after the last time.
    Drifting,
    /// Once in each of its slots, which are a period long, within the first half. The slots of `n` nodes begin an `n`th of a
    /// period apart.
    Slots,
}

/// A case: payloads of so many bytes ask, and payloads of so many bytes answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// Who asks whom.
    pub topology: Topology,
    /// Bytes of payload in a frame that asks.
    pub request: usize,
    /// Bytes of payload in a frame that answers.
    pub response: usize,
    /// From one request of a node to its next, in the mean.
    pub period: Micros,
    /// When in its period.
    pub timing: Timing,
    /// The share of frames that are lost on each link, acknowledgements as well.
    pub loss: f64,
    /// Requests of each node.
    pub requests: u32,
}

/// What a case led to, over one or more seeds: means over the seeds of what each run gave.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// The share of requests that were answered.
    pub delivered: f64,
    /// Mean time from request to answer, in milliseconds.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// What 95 of 100 stay below.
    pub p95_ms: f64,
    /// Frames on the air for each request, acknowledgements included.
    pub frames_per_request: f64,
}

/// One line of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which case.
    pub id: String,
    /// The file that it is from: `given`, or `measured`.
    pub source: &'static str,
    /// What ns-3 gave.
    pub ns3: Figures,
    /// What the simulator gave.
    pub ours: Figures,
    /// Ours less theirs.
    pub difference: Difference,
    /// Queues grow without bound: not judged.
    pub saturated: bool,
    /// `agrees`, `differs`, or `not judged`.
    pub verdict: &'static str,
}

/// How far apart two figures are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Difference {
    /// Of the shares delivered, in points of a hundred.
    pub delivered_points: f64,
    /// Of the means, in percent of theirs.
    pub mean_percent: f64,
    /// Of the medians, in percent of theirs.
    pub p50_percent: f64,
}

impl Case {
    /// Runs the case with one seed.
    pub fn run(&self, seed: u64) -> Figures {
        Run::new(self, seed).go()
    }

    /// Runs the case with seeds from 1.
    pub fn average(&self, seeds: u64) -> Figures {
        mean(&(1..=seeds).map(|seed| self.run(seed)).collect::<Vec<_>>())
    }

    fn nodes(&self) -> usize {
        1 + match self.topology {
            Topology::Star { leaves } | Topology::Ring { leaves } => leaves,
            Topology::Chain { hops } => hops,
        }
    }
}

/// Node 0 is the hub of a star, or the end of a chain that asks.
struct Run<'c> {
    case: &'c Case,
    network: Network,
    traffic: Vec<Stream>,
    asked: Vec<Vec<Option<Micros>>>,
    answered: Vec<Micros>,
}

impl<'c> Run<'c> {
    fn new(case: &'c Case, seed: u64) -> Self {
        let nodes = case.nodes();
        let mut links = match case.topology {
            Topology::Star { .. } => Links::all(nodes),
            Topology::Chain { .. } => Links::chain(nodes),
            Topology::Ring { leaves } => ring(leaves),
        };
        links.set_all_losses(case.loss);
        let mut traffic: Vec<_> = (0..nodes).map(|node| Stream::new(seed, node, Purpose::Traffic)).collect();
        let mut network = Network::new(seed, Radio::STANDARD, links);
        let askers = match case.topology {
            Topology::Star { leaves } | Topology::Ring { leaves } => 1..leaves + 1,
            Topology::Chain { .. } => 0..1,
        };
        for node in askers {
            let first = match case.timing {
                Timing::Drifting => traffic[node].below(case.period),
                Timing::Slots => slot(case, node, 0) + traffic[node].below(case.period / 2),
            };
            network.alarm(node, first, 0);
        }
        Self { case, network, traffic, asked: vec![Vec::new(); nodes], answered: Vec::new() }
    }

    fn go(mut self) -> Figures {
        while let Some(told) = self.network.next(Micros::MAX) {
            match told {
                Told::Alarm { node, .. } => self.ask(node),
                Told::Received { node, payload, .. } => self.receive(node, &payload),
                Told::Sent { .. } => {}
            }
        }
        let asked = self.asked.iter().map(Vec::len).sum::<usize>() as f64;
        let frames: u64 = (0..self.case.nodes()).map(|node| self.network.activity(node).frames).sum();
        self.answered.sort_unstable();
        let ms = |micros: Micros| micros as f64 / 1e3;
        let percentile = |percent: usize| {
            let index = self.answered.len() * percent / 100;
            self.answered.get(index).copied().map_or(f64::NAN, ms)
        };
        Figures {
            delivered: self.answered.len() as f64 / asked,
            mean_ms: ms(self.answered.iter().sum()) / self.answered.len() as f64,
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            frames_per_request: frames as f64 / asked,
        }
    }

    fn ask(&mut self, node: NodeId) {
        let now = self.network.now();
        let number = self.asked[node].len() as u32;
        self.asked[node].push(Some(now));
        let next = if matches!(self.case.topology, Topology::Chain { .. }) { 1 } else { 0 };
        self.send(node, next, ASKS, node, number);
        if number + 1 < self.case.requests {
            let period = self.case.period;
            let next = match self.case.timing {
                Timing::Drifting => now + period - period / 4 + self.traffic[node].below(period / 2 + 1),
                Timing::Slots => slot(self.case, node, number + 1) + self.traffic[node].below(period / 2),
            };
            self.network.alarm(node, next, 0);
        }
    }

    fn receive(&mut self, node: NodeId, payload: &[u8]) {
        let [kind, origin, a, b, c, d, ..] = *payload else { return };
        let (origin, number) = (usize::from(origin), u32::from_be_bytes([a, b, c, d]));
        match (self.case.topology, kind) {
            (Topology::Star { .. } | Topology::Ring { .. }, ASKS) => self.send(node, origin, ANSWERS, origin, number),
            (Topology::Chain { hops }, ASKS) if node == hops => self.send(node, node - 1, ANSWERS, origin, number),
            (Topology::Chain { .. }, ASKS) => self.send(node, node + 1, ASKS, origin, number),
            (Topology::Chain { .. }, ANSWERS) if node > 0 => self.send(node, node - 1, ANSWERS, origin, number),
            _ => {
                // The answer to a request that was already answered counts once.
                if let Some(at) = self.asked[node].get_mut(number as usize).and_then(Option::take) {
                    self.answered.push(self.network.now() - at);
                }
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, kind: u8, origin: NodeId, number: u32) {
        let len = if kind == ASKS { self.case.request } else { self.case.response };
        let mut payload = vec![0; len.max(6)];
        payload[..2].copy_from_slice(&[kind, origin as u8]);
        payload[2..6].copy_from_slice(&number.to_be_bytes());
        let to = self.network.address(to);
        let _ = self.network.send(from, to, &payload);
    }
}

/// When a slot of a node begins. Of a chain only node 0 asks.
fn slot(case: &Case, node: NodeId, number: u32) -> Micros {
    let shift = case.period * (node as u64).saturating_sub(1) / (case.nodes() as u64 - 1);
    case.period * u64::from(number) + shift
}

/// Node 0 and leaves around it, each of which hears it and two neighbours on either side.
fn ring(leaves: usize) -> Links {
    let mut links = Links::none(leaves + 1);
    for leaf in 1..=leaves {
        links.connect(0, leaf, STRONG_DBM);
        for other in 1..leaf {
            let gap = leaf - other;
            if gap.min(leaves - gap) <= 2 {
                links.connect(leaf, other, STRONG_DBM);
            }
        }
    }
    links
}

/// Runs every case, with as many seeds as ns-3 had, at most `seeds`; `done` is told how many of how many runs are.
pub fn rows(seeds: u64, done: impl Fn(usize, usize) + Sync) -> Vec<Row> {
    let mut reference = reference();
    reference.iter_mut().for_each(|case| case.seeds = case.seeds.min(seeds));
    let jobs: Vec<(Case, u64)> =
        reference.iter().flat_map(|case| (1..=case.seeds).map(|seed| (case.case, seed))).collect();
    let all = jobs.len();
    let results = parallel::each(&jobs, |(case, seed)| case.run(*seed), |finished| done(finished, all));
    let mut results = results.into_iter();
    let rows = reference.into_iter().map(|reference| {
        let runs: Vec<_> = results.by_ref().take(reference.seeds as usize).collect();
        compare(&reference, mean(&runs))
    });
    rows.collect()
}

fn compare(reference: &Reference, ours: Figures) -> Row {
    let Reference { id, source, case, figures: ns3, saturated, .. } = reference;
    let percent = |ours: f64, theirs: f64| (ours - theirs) / theirs * 100.0;
    let difference = Difference {
        delivered_points: (ours.delivered - ns3.delivered) * 100.0,
        mean_percent: percent(ours.mean_ms, ns3.mean_ms),
        p50_percent: percent(ours.p50_ms, ns3.p50_ms),
    };
    let chain_at_its_limit = matches!(case.topology, Topology::Chain { .. }) && case.loss >= 0.3;
    let points = if chain_at_its_limit { 1.0 } else { 0.5 };
    let agrees = difference.delivered_points.abs() <= points
        && difference.mean_percent.abs() <= 3.0
        && difference.p50_percent.abs() <= 3.0;
    let verdict = match (saturated, agrees) {
        (true, _) => NOT_JUDGED,
        (false, true) => AGREES,
        (false, false) => DIFFERS,
    };
    Row { id: id.clone(), source, ns3: *ns3, ours, difference, saturated: *saturated, verdict }
}

fn mean(runs: &[Figures]) -> Figures {
    let of = |field: fn(&Figures) -> f64| runs.iter().map(field).sum::<f64>() / runs.len() as f64;
    Figures {
        delivered: of(|run| run.delivered),
        mean_ms: of(|run| run.mean_ms),
        p50_ms: of(|run| run.p50_ms),
        p95_ms: of(|run| run.p95_ms),
        frames_per_request: of(|run| run.frames_per_request),
    }
}

/// A case that ns-3 ran.
struct Reference {
    id: String,
    source: &'static str,
    case: Case,
    seeds: u64,
    figures: Figures,
    saturated: bool,
}

fn reference() -> Vec<Reference> {
    let files = [
        (GIVEN, include_str!("../data/ns3-lrwpan-reference.csv")),
        (MEASURED, include_str!("../data/ns3-lrwpan-measured.csv")),
    ];
    let lines = files.into_iter().flat_map(|(source, text)| text.lines().map(move |line| (source, line)));
    let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.starts_with("topology"));
    lines
        .map(|(source, line)| read(source, line).expect("the file is part of the program, and a test reads it"))
        .collect()
}

/// One line: topology, leaves, hops, payloads, period, loss, seeds, delivered, mean, its deviation, median, 95 %, frames,
/// saturated.
fn read(source: &'static str, line: &str) -> Option<Reference> {
    let fields: Vec<&str> = line.split(',').collect();
    let &[
        topology,
        leaves,
        hops,
        request,
        response,
        period,
        loss,
        seeds,
        delivered,
        mean,
        _,
        p50,
        p95,
        frames,
        saturated,
    ] = fields.as_slice()
    else {
        return None;
    };
    let (leaves, hops) = (leaves.parse().ok()?, hops.parse().ok()?);
    let (name, slots) = topology.split_once('-').unwrap_or((topology, ""));
    let (topology, name) = match name {
        // The given file has no more words for it.
        "star" if source == GIVEN => (Topology::Ring { leaves }, format!("star of {leaves}")),
        "star" => (Topology::Star { leaves }, format!("star of {leaves}")),
        "ring" => (Topology::Ring { leaves }, format!("ring of {leaves}")),
        "chain" => (Topology::Chain { hops }, format!("chain of {hops}")),
        _ => return None,
    };
    let (timing, name) = match slots {
        "slots" => (Timing::Slots, name + " in slots"),
        "" if source == GIVEN => (Timing::Slots, name),
        "" => (Timing::Drifting, name),
        _ => return None,
    };
    let id = format!("{source}: {name}, {request} and {response} B, {period} s, loss {loss}");
    Some(Reference {
        id,
        source,
        case: Case {
            topology,
            request: request.parse().ok()?,
            response: response.parse().ok()?,
            period: (period.parse::<f64>().ok()? * 1e6).round() as Micros,
            timing,
            loss: loss.parse().ok()?,
            requests: 300,
        },
        seeds: seeds.parse().ok()?,
        figures: Figures {
            delivered: delivered.parse().ok()?,
            mean_ms: mean.parse().ok()?,
            p50_ms: p50.parse().ok()?,
            p95_ms: p95.parse().ok()?,
            frames_per_request: frames.parse().ok()?,
        },
        saturated: saturated == "yes",
    })
}

/// The rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  {:>17}  {:>19}  {:>19}  {:>24}\n", "", "delivered", "mean, ms", "median, ms", "difference");
    for Row { id, ns3, ours, difference, verdict, .. } in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{id:width$}  {:>8.4} {:>8.4}  {:>9.2} {:>9.2}  {:>9.2} {:>9.2}  {:>+6.2} {:>+7.2}% {:>+7.2}%  {verdict}",
            ns3.delivered,
            ours.delivered,
            ns3.mean_ms,
            ours.mean_ms,
            ns3.p50_ms,
            ours.p50_ms,
            difference.delivered_points,
            difference.mean_percent,
            difference.p50_percent,
        );
    }
    text + "(ns-3 first, then ours; the differences are points of delivery, and percent of the mean and of the median)\n"
}

/// The rows that were given.
pub const GIVEN: &str = "given";
/// The rows that were measured for this plan.
pub const MEASURED: &str = "measured";
/// The verdict on a row that agrees with ns-3.
pub const AGREES: &str = "agrees";
/// The verdict on a row that does not.
pub const DIFFERS: &str = "differs";
/// The verdict on a row that is shown only.
pub const NOT_JUDGED: &str = "not judged";
const ASKS: u8 = 0;
const ANSWERS: u8 = 1;

#[cfg(test)]
mod tests;
