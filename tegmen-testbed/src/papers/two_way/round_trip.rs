//! Figure 6: the times of round trips of plain text and of records, over one hop and over four, for several sizes.

use super::{Increase, Increases, Paper, Protection};
use crate::deployment::{Deployment, Plan};
use crate::figure::{Figure, Source};
use crate::interval::{self, Mean};
use crate::mote;
use crate::parallel;
use crate::scenario;
use crate::sim::Micros;
use std::collections::BTreeMap;

/// The number of round trips and runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of round trips with each size.
    pub readings: u32,
    /// Number of runs of each case.
    pub seeds: u64,
}

/// The number of round trips and runs that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { readings: 60, seeds: 3 };

/// One case: the number of hops, the protection, and the number of plain text bytes in each direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Case {
    hops: usize,
    protection: Protection,
    size: usize,
}

pub(super) fn figures(paper: &Paper, effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let mut jobs = Vec::new();
    for (hops, _) in HOPS {
        for (protection, _) in PROTECTIONS {
            for size in sizes() {
                jobs.extend((1..=effort.seeds).map(|seed| (Case { hops, protection, size }, seed)));
            }
        }
    }
    let all = jobs.len();
    let times = parallel::each(&jobs, |(case, seed)| run(*case, effort, *seed), |n| done(n, all));
    let mut round_trips: BTreeMap<Case, Vec<Vec<Micros>>> = BTreeMap::new();
    for ((case, _), times) in jobs.iter().zip(times) {
        round_trips.entry(*case).or_default().push(times);
    }
    // Returns the number of exchanges of a case, and the mean time of an exchange over the runs.
    let sample = |case: Case| {
        let runs = &round_trips[&case];
        let mean = |times: &Vec<Micros>| times.iter().sum::<Micros>() as f64 / times.len() as f64 / 1e3;
        let means: Vec<f64> = runs.iter().map(|times| mean(times) + cipher_ms(paper, case)).collect();
        (runs.iter().map(|times| times.len() as u64).sum::<u64>(), interval::mean(&means))
    };
    let mut figures = Vec::new();
    for (hops, name) in HOPS {
        for (protection, called) in PROTECTIONS {
            for size in sizes() {
                let id = format!("fig6/{name}/{called}/{size}_bytes");
                let drawn = "the paper draws it and prints no number";
                let (n, mean) = sample(Case { hops, protection, size });
                figures.push(Figure::shown(id, None, mean.mean, "ms", drawn).sampled(n, effort.seeds, &mean));
            }
        }
        let printed = if hops == 1 { &paper.round_trip.single_hop } else { &paper.round_trip.four_hops };
        figures.extend(increases(name, printed, effort, |protection, size| sample(Case { hops, protection, size })));
    }
    let ms = paper.round_trip.sha1_255_bytes_ms + paper.round_trip.aes_255_bytes_ms;
    let milliwatts = paper.table1.supply_v * paper.table1.minimum["computation"].ma;
    let (id, why) = ("fig6/ciphers/energy_for_each_byte".into(), "the paper gives an order of magnitude");
    let printed = Some(paper.round_trip.uj_for_each_byte);
    figures.push(Figure::shown(id, printed, milliwatts * ms / 255.0, "uJ", why).of(Source::Paper));
    figures
}

/// Returns the figures (values of the paper, each with Tegmen's value) for the time that each protection adds to a
/// round trip.
fn increases(
    hops: &str,
    printed: &Increases,
    effort: Effort,
    sample: impl Fn(Protection, usize) -> (u64, Mean),
) -> Vec<Figure> {
    let ms = |protection, size| sample(protection, size).1.mean;
    // The sample contains the exchanges of all sizes, with and without this protection. A figure that follows from
    // several means has no confidence interval.
    let sampled = |figure: Figure, protection| {
        let n = sizes().map(|size| sample(Protection::None, size).0 + sample(protection, size).0).sum();
        figure.sampled(n, effort.seeds, &Mean { mean: 0.0, interval: None })
    };
    let mut figures = Vec::new();
    let mut means = Vec::new();
    for (protection, name, printed) in [
        (Protection::Sha1Only, "sha1_only", printed.sha1_only),
        (Protection::Aes128Sha1, "aes128_sha1", printed.aes128_sha1),
    ] {
        let Increase { mean_percent, max_ms } = printed;
        let more = |size| ms(protection, size) - ms(Protection::None, size);
        let count = sizes().count() as f64;
        let mean = sizes().map(|size| more(size) / ms(Protection::None, size) * 100.0).sum::<f64>() / count;
        let max = sizes().map(more).fold(0.0, f64::max);
        let id = |what: &str| format!("fig6/{hops}/{name}/{what}");
        let mean_increase = Figure::shown(id("mean_increase"), Some(mean_percent), mean, "percent", WHY);
        let most_increase = Figure::shown(id("most_increase"), Some(max_ms), max, "ms", WHY);
        figures.extend([mean_increase, most_increase].map(|figure| sampled(figure, protection)));
        means.push(mean);
    }
    let order = "plain text is fastest at every size, an HMAC alone comes next, and AES is slowest";
    let sorted = |size| {
        ms(Protection::None, size) < ms(Protection::Sha1Only, size)
            && ms(Protection::Sha1Only, size) < ms(Protection::Aes128Sha1, size)
    };
    let order = Figure::holds(format!("fig6/{hops}/order"), sizes().all(sorted), order);
    let jumps = PROTECTIONS.map(|(protection, _)| first_jump(|size| ms(protection, size)));
    let earlier = "round trips jump where one more frame is needed, and the more is added to the content, the earlier";
    let jumps = Figure::holds(format!("fig6/{hops}/jumps"), jumps.is_sorted_by(|less, more| less > more), earlier);
    figures.extend([order, jumps].map(|figure| sampled(figure, Protection::Aes128Sha1)));
    figures
}

/// Returns the first size at which the round trip takes much longer than at the previous size: the difference is more
/// than twice the smallest difference between two successive sizes. Returns the largest size if there is no such size.
fn first_jump(ms: impl Fn(usize) -> f64) -> usize {
    let step = |size: &usize| ms(*size) - ms(size - STEP);
    let least = sizes().skip(1).map(|size| step(&size)).fold(f64::INFINITY, f64::min);
    sizes().skip(1).find(|size| step(size) > 2.0 * least).unwrap_or(LARGEST)
}

/// Returns the times of the round trips of a case. The time for encryption and HMAC is not included.
fn run(case: Case, effort: Effort, seed: u64) -> Vec<Micros> {
    let mut deployment = deployment();
    deployment.network.hops = Some(case.hops);
    deployment.network.forwarders = case.hops - 1;
    deployment.traffic.readings = effort.readings;
    let len = case.protection.record_len(case.size);
    (deployment.traffic.payload, deployment.traffic.response) = (len, len);
    scenario::run(&deployment, mote::Protection::Coap, seed, false).0.first_try
}

/// Returns the time that the mote needs to protect the request and to open the response, in milliseconds.
fn cipher_ms(paper: &Paper, case: Case) -> f64 {
    let of_255 = match case.protection {
        Protection::None => 0.0,
        Protection::Sha1Only => paper.round_trip.sha1_255_bytes_ms,
        Protection::Aes128Sha1 => paper.round_trip.sha1_255_bytes_ms + paper.round_trip.aes_255_bytes_ms,
    };
    2.0 * of_255 * case.size as f64 / 255.0
}

fn deployment() -> Deployment {
    let plan = Plan::parse("two-way", include_str!("../../../plans/two-way.toml"));
    let plan = plan.expect("the plan is part of the program, and a test reads it");
    plan.cases.into_iter().next().expect("a plan has a case").deployment
}

/// Returns the measured lengths of plain text, in bytes.
fn sizes() -> impl Iterator<Item = usize> {
    (STEP..=LARGEST).step_by(STEP)
}

const STEP: usize = 16;
const LARGEST: usize = 256;

const HOPS: [(usize, &str); 2] = [(1, "single_hop"), (4, "four_hops")];
const PROTECTIONS: [(Protection, &str); 3] =
    [(Protection::None, "plain"), (Protection::Sha1Only, "sha1_only"), (Protection::Aes128Sha1, "aes128_sha1")];
const WHY: &str =
    "radio and ciphers alone: the paper's plain text goes through the drivers of TinyOS as well, and is slower";
