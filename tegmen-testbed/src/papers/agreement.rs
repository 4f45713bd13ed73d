//! The plan `ns3-agreement`: compares the simulator with ns-3, case by case.
//!
//! Two files in `data/` contain the results of ns-3 with its model lr-wpan. The traffic consists of request frames and
//! answer frames, without a protocol above the MAC layer. The simulator runs the same traffic here, and none of its
//! parameters is fitted to these results. In `ns3-lrwpan-reference.csv` node 0 sends the requests, so all requests wait
//! in the queue of one node. In `ns3-lrwpan-measured.csv` the leaves send the requests, except in the cases with a
//! chain of nodes. In a saturated case a queue grows for the whole run, so a small difference of the capacity becomes a
//! large difference of the delay. Such a case has a wider tolerance.

use crate::figure::Source;
use crate::interval;
use crate::parallel;
use crate::runs::Store;
use crate::sim::random::{Purpose, Stream};
use crate::sim::{Links, Micros, Network, NodeId, Radio, Told};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Write as _;

/// The topology of the nodes, and the direction of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// Node 0 sends requests to each of N leaves. All nodes hear each other.
    Star {
        /// The number of leaves.
        leaves: usize,
    },
    /// Each of N leaves sends requests to node 0. All nodes hear each other.
    Gather {
        /// The number of leaves.
        leaves: usize,
    },
    /// Node 0 sends requests to a node at a distance of N hops. Only neighbours hear each other.
    Chain {
        /// The number of hops.
        hops: usize,
    },
}

/// A case: request and answer frames with payloads of a given size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Case {
    /// The topology, and the direction of the requests.
    pub topology: Topology,
    /// Payload length of a request frame, in bytes.
    pub request: usize,
    /// Payload length of an answer frame, in bytes.
    pub response: usize,
    /// Mean time between two requests from the same node to the same receiver, in microseconds. The first request is
    /// sent within one period. Each further request follows after three quarters to five quarters of a period.
    pub period: Micros,
    /// The share of frames that each link loses, from 0 to 1. Acknowledgements can be lost too.
    pub loss: f64,
    /// Number of requests from each node to each of its receivers.
    pub requests: u32,
}

/// The result of a case in one run, or the mean over runs with several seeds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The share of requests that were answered, from 0 to 1.
    pub delivered: f64,
    /// Mean time from request to answer, in milliseconds.
    pub mean_ms: f64,
    /// Median time from request to answer, in milliseconds.
    pub p50_ms: f64,
    /// The 95th percentile of the time from request to answer, in milliseconds.
    pub p95_ms: f64,
    /// Number of frames on the air for each request, including acknowledgements.
    pub frames_per_request: f64,
}

/// One row of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The name of the case.
    pub id: String,
    /// The file that contains the result of ns-3 for this case: `given` ([`GIVEN`]), or `measured` ([`MEASURED`]).
    pub file: Cow<'static, str>,
    /// The source of the simulator's results. It is always [`Source::Simulated`].
    pub source: Source,
    /// Number of requests of the case, over all runs of the simulator.
    pub n: u64,
    /// Number of runs of the simulator, each with another seed.
    pub seeds: u64,
    /// The lower and the upper bound of the 95 % confidence interval of the simulator's share of answered requests;
    /// `None` if the simulator ran only once.
    pub delivered_interval: Option<[f64; 2]>,
    /// The lower and the upper bound of the 95 % confidence interval of the simulator's mean time, in milliseconds;
    /// `None` if the simulator ran only once.
    pub mean_ms_interval: Option<[f64; 2]>,
    /// The results of ns-3.
    pub ns3: Figures,
    /// The results of the simulator.
    pub ours: Figures,
    /// The difference between the results of the simulator and the results of ns-3.
    pub difference: Difference,
    /// True if a queue of a node grows for the whole run.
    pub saturated: bool,
    /// The verdict, which is `agrees` or `differs`.
    pub verdict: Cow<'static, str>,
}

/// The maximum differences between the results of the simulator and the results of ns-3. Up to these differences the
/// results agree.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Maximum difference between the simulator's and ns-3's shares of answered requests, in percentage points.
    pub points: f64,
    /// Maximum difference between the simulator's and ns-3's mean time from request to answer, in percent of the mean
    /// time of ns-3. It is also the maximum difference between the median times.
    pub percent: f64,
}

/// The results of the simulator minus the results of ns-3.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The difference of the shares of answered requests, in percentage points.
    pub delivered_points: f64,
    /// The difference of the mean times, in percent of the mean time of ns-3.
    pub mean_percent: f64,
    /// The difference of the median times, in percent of the median time of ns-3.
    pub p50_percent: f64,
}

impl Case {
    /// Runs the case with one seed.
    pub fn run(&self, seed: u64) -> Figures {
        Run::new(self, seed).go()
    }

    /// Runs the case with each seed from 1 to `seeds`, and returns the means over these runs.
    pub fn average(&self, seeds: u64) -> Figures {
        mean(&(1..=seeds).map(|seed| self.run(seed)).collect::<Vec<_>>())
    }

    fn nodes(&self) -> usize {
        1 + match self.topology {
            Topology::Star { leaves } | Topology::Gather { leaves } => leaves,
            Topology::Chain { hops } => hops,
        }
    }

    /// Returns all pairs of nodes. The first node of a pair sends requests, and the second node answers them.
    fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        match self.topology {
            Topology::Star { leaves } => (1..=leaves).map(|leaf| (0, leaf)).collect(),
            Topology::Gather { leaves } => (1..=leaves).map(|leaf| (leaf, 0)).collect(),
            Topology::Chain { hops } => vec![(0, hops)],
        }
    }
}

/// A run of a case.
struct Run<'c> {
    case: &'c Case,
    network: Network,
    timers: Vec<Timer>,
    answered: Vec<Micros>,
}

/// A timer that makes the node `asker` send requests to the node `answerer`.
struct Timer {
    asker: NodeId,
    answerer: NodeId,
    random: Stream,
    /// The times when the requests were passed to the MAC, in the order of their numbers. An entry is `None` after the
    /// request was answered.
    asked: Vec<Option<Micros>>,
}

impl<'c> Run<'c> {
    fn new(case: &'c Case, seed: u64) -> Self {
        let nodes = case.nodes();
        let mut links = match case.topology {
            Topology::Star { .. } | Topology::Gather { .. } => Links::all(nodes),
            Topology::Chain { .. } => Links::chain(nodes),
        };
        links.set_all_losses(case.loss);
        let mut network = Network::new(seed, Radio::NS3, links);
        let mut timers = Vec::new();
        for (number, (asker, answerer)) in case.pairs().into_iter().enumerate() {
            let mut random = Stream::new(seed, number, Purpose::Traffic);
            network.alarm(asker, random.below(case.period), number as u64);
            timers.push(Timer { asker, answerer, random, asked: Vec::new() });
        }
        Self { case, network, timers, answered: Vec::new() }
    }

    fn go(mut self) -> Figures {
        while let Some(told) = self.network.next(Micros::MAX) {
            match told {
                Told::Alarm { token, .. } => self.ask(token as usize),
                Told::Received { node, payload, .. } => self.receive(node, &payload),
                Told::Sent { .. } => {}
            }
        }
        let asked = self.timers.iter().map(|timer| timer.asked.len()).sum::<usize>() as f64;
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

    /// Passes the next request of the [`Timer`] with the index `timer` to the MAC, even if earlier frames still wait in
    /// the queue of the MAC.
    fn ask(&mut self, timer: usize) {
        let (now, period) = (self.network.now(), self.case.period);
        let Timer { asker, answerer, random, asked } = &mut self.timers[timer];
        let (asker, answerer, number) = (*asker, *answerer, asked.len() as u32);
        asked.push(Some(now));
        if number + 1 < self.case.requests {
            let next = now + period - period / 4 + random.below(period / 2 + 1);
            self.network.alarm(asker, next, timer as u64);
        }
        self.send(asker, answerer, ASKS, timer, number);
    }

    fn receive(&mut self, node: NodeId, payload: &[u8]) {
        let [kind, timer, a, b, c, d, ..] = *payload else { return };
        let (place, number) = (usize::from(timer), u32::from_be_bytes([a, b, c, d]));
        let Timer { asker, answerer, asked, .. } = &mut self.timers[place];
        let (asker, answerer) = (*asker, *answerer);
        match kind {
            ASKS if node == answerer => self.send(node, asker, ANSWERS, place, number),
            ASKS => self.send(node, answerer, ASKS, place, number),
            _ if node != asker => self.send(node, asker, ANSWERS, place, number),
            _ => {
                // The answer to a request that was already answered counts once.
                if let Some(at) = asked.get_mut(number as usize).and_then(Option::take) {
                    self.answered.push(self.network.now() - at);
                }
            }
        }
    }

    /// Sends a frame towards the node `to`. In a chain the frame goes to the next node on the path.
    fn send(&mut self, from: NodeId, to: NodeId, kind: u8, timer: usize, number: u32) {
        let len = if kind == ASKS { self.case.request } else { self.case.response };
        let mut payload = vec![0; len.max(6)];
        payload[..2].copy_from_slice(&[kind, timer as u8]);
        payload[2..6].copy_from_slice(&number.to_be_bytes());
        let next = match self.case.topology {
            Topology::Chain { .. } if to > from => from + 1,
            Topology::Chain { .. } => from - 1,
            Topology::Star { .. } | Topology::Gather { .. } => to,
        };
        let next = self.network.address(next);
        let _ = self.network.send(from, next, &payload);
    }
}

/// Returns the stored result of an earlier call of [`rows`]; `None` if there is none.
pub(super) fn kept(store: &Store, seeds: u64) -> Option<Vec<Row>> {
    store.kept(&key(seeds))
}

/// Returns the stored result of an earlier call of [`rows`]. If there is none, calls [`rows`] and stores the result.
pub fn kept_or_new(store: &Store, seeds: u64, done: impl Fn(usize, usize) + Sync) -> Vec<Row> {
    let Ok(rows) = store.keep(&key(seeds), || Ok::<_, Infallible>(rows(seeds, done)));
    rows
}

fn key(seeds: u64) -> String {
    format!("plan ns3-agreement {seeds}")
}

/// Runs every case with as many seeds as are needed for [`REQUESTS`] requests, but with at most `seeds` seeds. Calls
/// `done` with the number of finished runs and the number of all runs.
pub fn rows(seeds: u64, done: impl Fn(usize, usize) + Sync) -> Vec<Row> {
    let mut reference = reference();
    for Reference { case, seeds: runs, .. } in &mut reference {
        *runs = REQUESTS.div_ceil(u64::from(case.requests) * case.pairs().len() as u64).min(seeds);
    }
    let jobs: Vec<(Case, u64)> =
        reference.iter().flat_map(|case| (1..=case.seeds).map(|seed| (case.case, seed))).collect();
    let all = jobs.len();
    let results = parallel::each(&jobs, |(case, seed)| case.run(*seed), |finished| done(finished, all));
    let mut results = results.into_iter();
    let rows = reference.into_iter().map(|reference| {
        let runs: Vec<_> = results.by_ref().take(reference.seeds as usize).collect();
        let mut row = compare(&reference, mean(&runs));
        let asked = u64::from(reference.case.requests) * reference.case.pairs().len() as u64;
        (row.n, row.seeds) = (asked * reference.seeds, reference.seeds);
        let answered = |run: &Figures| ((run.delivered * asked as f64).round() as u64, asked);
        row.delivered_interval = interval::share(&runs.iter().map(answered).collect::<Vec<_>>()).interval;
        row.mean_ms_interval = interval::mean(&runs.iter().map(|run| run.mean_ms).collect::<Vec<_>>()).interval;
        row
    });
    rows.collect()
}

fn compare(reference: &Reference, ours: Figures) -> Row {
    let Reference { id, source, figures: ns3, saturated, .. } = reference;
    let percent = |ours: f64, theirs: f64| (ours - theirs) / theirs * 100.0;
    let difference = Difference {
        delivered_points: (ours.delivered - ns3.delivered) * 100.0,
        mean_percent: percent(ours.mean_ms, ns3.mean_ms),
        p50_percent: percent(ours.p50_ms, ns3.p50_ms),
    };
    let Tolerance { points, percent } = if *saturated { SATURATED } else { TOLERANCE };
    let agrees = difference.delivered_points.abs() <= points
        && difference.mean_percent.abs() <= percent
        && (difference.p50_percent.abs() <= percent || (ours.p50_ms - ns3.p50_ms).abs() <= STEP_MS);
    let verdict = Cow::Borrowed(if agrees { AGREES } else { DIFFERS });
    let (n, seeds, delivered_interval, mean_ms_interval) = (0, 0, None, None);
    let (file, source, saturated) = (Cow::Borrowed(*source), Source::Simulated, *saturated);
    let id = id.clone();
    Row {
        id,
        file,
        source,
        n,
        seeds,
        delivered_interval,
        mean_ms_interval,
        ns3: *ns3,
        ours,
        difference,
        saturated,
        verdict,
    }
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

/// A case that ns-3 ran, with the result of ns-3.
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
        (GIVEN, include_str!("../../data/ns3-lrwpan-reference.csv")),
        (MEASURED, include_str!("../../data/ns3-lrwpan-measured.csv")),
    ];
    let lines = files.into_iter().flat_map(|(source, text)| text.lines().map(move |line| (source, line)));
    let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.starts_with("topology"));
    lines
        .map(|(source, line)| read(source, line).expect("the file is part of the program, and a test reads it"))
        .collect()
}

/// Reads one line of a file. The fields of a line are: topology, leaves, hops, payload length of the request, payload
/// length of the answer, period, loss, seeds, share of answered requests, mean time, standard deviation of the time,
/// median time, 95th percentile of the time, frames for each request, saturated. Returns `None` if the line has another
/// form.
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
    let (topology, name) = match topology {
        "star" => (Topology::Star { leaves }, format!("star of {leaves}")),
        "gather" => (Topology::Gather { leaves }, format!("{leaves} leaves ask")),
        "chain" => (Topology::Chain { hops }, format!("chain of {hops}")),
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

/// Formats the rows as a table for people.
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

/// The value of [`Row::file`] for a case whose ns-3 result is from `ns3-lrwpan-reference.csv`. In these cases node 0
/// sends the requests.
pub const GIVEN: &str = "given";
/// The value of [`Row::file`] for a case whose ns-3 result is from `ns3-lrwpan-measured.csv`. In some of these cases
/// the leaves send requests to node 0. In the other cases node 0 sends requests over a chain of nodes.
pub const MEASURED: &str = "measured";
/// The verdict on a case in which the results of the simulator agree with those of ns-3.
pub const AGREES: &str = "agrees";
/// The verdict on a case in which the results of the simulator do not agree with those of ns-3.
pub const DIFFERS: &str = "differs";
/// The maximum differences between the results of the simulator and those of ns-3, for a case in which no queue grows
/// for the whole run.
pub const TOLERANCE: Tolerance = Tolerance { points: 0.4, percent: 2.0 };
/// The maximum differences between the results of the simulator and those of ns-3, for a case in which a queue grows
/// for the whole run.
pub const SATURATED: Tolerance = Tolerance { points: 2.0, percent: 15.0 };
/// Minimum number of requests of each case. With this number, a measured share of 0.97 is accurate within 0.14
/// percentage points.
pub const REQUESTS: u64 = 60_000;
/// The length of a backoff period, in milliseconds. If the median times of the simulator and of ns-3 differ by at most
/// one backoff period, they agree. They then agree even if their difference is larger than [`TOLERANCE`] or
/// [`SATURATED`].
const STEP_MS: f64 = 0.32;
const ASKS: u8 = 0;
const ANSWERS: u8 = 1;

#[cfg(test)]
mod tests;
