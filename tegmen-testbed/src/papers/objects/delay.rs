//! The plan `objects-delay`, which reproduces figure 9 and table III of the paper: the time from a request to its
//! answer, over one hop and over several hops. It also measures the additional time of the first request after a node
//! has lost the content of its RAM in a restart.
//!
//! The paper does not give the time that its operating system needs. One parameter replaces it: the microseconds for
//! each datagram that a node sends, receives or forwards. The parameter is chosen so that plain CoAP has the median of
//! the paper. All other results follow from the bytes on the air and the instructions of each protocol.

use super::{Paper, Spread, deployment, paper};
use crate::deployment::{Deployment, Loss, Rebooted, Reboots, Weather};
use crate::figure::Figure;
use crate::interval::{self, Mean};
use crate::mote::Protection;
use crate::parallel;
use crate::runs::distribution::Distribution;
use crate::scenario::{self, Outcome};
use crate::sim::Micros;
use std::collections::BTreeMap;

/// The number of requests and runs of the plan `objects-delay`.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of requests of each sensor over one hop. Over several hops each sensor sends a fifth of this number.
    pub readings: u32,
    /// Number of runs of each case.
    pub seeds: u64,
}

/// The number of requests and runs that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { readings: 300, seeds: 3 };

/// Returns all figures of the plan `objects-delay`. Calls `done` with the number of finished runs and the number of all
/// runs.
pub fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let paper = paper();
    let mut single = deployment(SINGLE_HOP);
    let mut multi = deployment(include_str!("../../../plans/objects-multi-hop.toml"));
    single.traffic.readings = effort.readings;
    multi.traffic.readings = effort.readings.div_ceil(5);
    let stack_us = calibrated(&single, paper.table3["coap"].median);
    (single.mote.stack_us, multi.mote.stack_us) = (stack_us, stack_us);
    let cases = cases(&single, &multi);
    let jobs: Vec<(&Case, u64)> =
        cases.iter().flat_map(|case| (1..=effort.seeds).map(move |seed| (case, seed))).collect();
    let all = jobs.len();
    let once = |(case, seed): &(&Case, u64)| scenario::run(&case.deployment, case.protection, *seed, false).0;
    let outcomes = parallel::each(&jobs, once, |n| done(n, all));
    let mut results: BTreeMap<Key, Result> = BTreeMap::new();
    for ((case, _), outcome) in jobs.iter().zip(&outcomes) {
        let result = results.entry((case.name, case.protection)).or_default();
        let mut run = Result::default();
        run.add(outcome);
        run.first_try.sort_unstable();
        result.add(outcome);
        result.runs.push(run);
    }
    results.values_mut().for_each(|result| result.first_try.sort_unstable());
    let mut figures = table3(&paper, &results, stack_us);
    figures.extend(single_hop(&paper, &results));
    figures.extend(recovery(&results));
    figures.extend(multi_hop(&paper, &results));
    figures
}

/// Returns the time that the operating system needs for each datagram, in microseconds. It is computed with the
/// requests of the whole plan ([`FULL`]).
pub(super) fn stack_us() -> u32 {
    let mut single = deployment(SINGLE_HOP);
    single.traffic.readings = FULL.readings;
    // Another thread, because the stack of the caller can be too small for a node.
    parallel::each(&[single], |single| calibrated(single, paper().table3["coap"].median), |_| {})[0]
}

/// Chooses the time that the operating system needs for each datagram so that plain CoAP has the median `median_ms`.
/// Returns this time in microseconds.
fn calibrated(single: &Deployment, median_ms: f64) -> u32 {
    let mut deployment = single.clone();
    for _ in 0..2 {
        let mut delays = scenario::run(&deployment, Protection::Coap, 1, false).0.first_try;
        delays.sort_unstable();
        // A request is sent once and received once, and so is its response: four times in all.
        let missing = (median_ms * 1e3 - quantile(&delays, 0.5) as f64) / 4.0;
        deployment.mote.stack_us = (f64::from(deployment.mote.stack_us) + missing).round().max(0.0) as u32;
    }
    deployment.mote.stack_us
}

/// A deployment that is run with one protection.
struct Case {
    name: &'static str,
    protection: Protection,
    deployment: Deployment,
}

type Key = (&'static str, Protection);

/// The results of all runs of a case.
#[derive(Default)]
struct Result {
    made: u64,
    sessions: u64,
    challenges: u64,
    answered: u64,
    /// The delays of the requests that were answered at the first try, and within a second. Longer delays are left out,
    /// because the paper's results contain none. This follows from the paper's standard deviations, which are at most
    /// 34 ms. If one request in a thousand had a delay of two seconds, the standard deviation would be about 60 ms.
    first_try: Vec<Micros>,
    /// The distribution of the delays of all answered requests.
    delays: Distribution,
    /// The results of the single runs. The other fields of this [`Result`] contain the sum of these runs.
    runs: Vec<Result>,
}

impl Result {
    fn add(&mut self, outcome: &Outcome) {
        self.made += outcome.made;
        self.sessions += outcome.sessions;
        self.challenges += outcome.challenges;
        self.answered += outcome.answered;
        self.delays.add(&Distribution::of(&outcome.delays));
        self.first_try.extend(outcome.first_try.iter().filter(|delay| **delay < SECOND));
    }

    /// Adds two data to a figure: the numbers of requests and runs from which it was computed, and the 95 % confidence
    /// interval of the value that `of` computes from each run.
    fn sampled(&self, figure: Figure, of: impl Fn(&Self) -> f64) -> Figure {
        figure.sampled(
            self.made,
            self.runs.len() as u64,
            &interval::mean(&self.runs.iter().map(of).collect::<Vec<_>>()),
        )
    }

    /// Adds to a figure the distribution of the delays of all requests.
    fn with_delays(&self, figure: Figure) -> Figure {
        Figure { distribution: self.delays.shares(self.made), ..figure }
    }

    /// Adds two data to a figure whose value is a percentage of the requests: the numbers of requests and runs, and the
    /// 95 % confidence interval of the percentage. `hits` returns the number of requests of a run that are counted in
    /// the percentage.
    fn sampled_share(&self, figure: Figure, hits: impl Fn(&Self) -> u64) -> Figure {
        let share = interval::share(&self.runs.iter().map(|run| (hits(run), run.made)).collect::<Vec<_>>());
        let percent = Mean { interval: share.interval.map(|bounds| bounds.map(|bound| bound * 100.0)), ..share };
        figure.sampled(self.made, self.runs.len() as u64, &percent)
    }

    fn mean_ms(&self) -> f64 {
        self.first_try.iter().sum::<Micros>() as f64 / self.first_try.len() as f64 / 1e3
    }

    fn median_ms(&self) -> f64 {
        quantile(&self.first_try, 0.5) as f64 / 1e3
    }

    fn spread(&self) -> Spread {
        let (delays, mean) = (&self.first_try, self.mean_ms());
        let squares = delays.iter().map(|delay| (*delay as f64 / 1e3 - mean).powi(2)).sum::<f64>();
        let quartile = |share| quantile(delays, share) as f64 / 1e3;
        let sd = (squares / delays.len() as f64).sqrt();
        Spread { mean, sd, q1: quartile(0.25), median: quartile(0.5), q3: quartile(0.75) }
    }

    /// Returns the number of requests that were answered at the first try, and then the number of all answered
    /// requests.
    fn hits(&self) -> [u64; 2] {
        [self.first_try.len() as u64, self.answered]
    }

    /// Returns the two numbers of [`Self::hits`] in percent of all requests.
    fn percent(&self) -> [f64; 2] {
        self.hits().map(|count| count as f64 / self.made as f64 * 100.0)
    }
}

fn quantile(sorted: &[Micros], share: f64) -> Micros {
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0)
}

fn cases(single: &Deployment, multi: &Deployment) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, protection, deployment: &Deployment| {
        cases.push(Case { name, protection, deployment: deployment.clone() });
    };
    for (protection, _) in PROTOCOLS {
        add(STEADY, protection, single);
    }
    for (protection, of) in [(Protection::CoapDtls, Rebooted::Client), (Protection::Oscore, Rebooted::Server)] {
        let mut rebooting = single.clone();
        rebooting.traffic.reboots = Some(Reboots { share: 0.2, of });
        add(REBOOTING, protection, &rebooting);
    }
    for (name, losses, bursts) in LINKS {
        let mut lossy = multi.clone();
        lossy.network.loss = matrix(&lossy, losses);
        lossy.network.bursts = bursts;
        for (protection, _) in PROTOCOLS {
            add(name, protection, &lossy);
        }
    }
    cases
}

/// Makes the matrix of losses between all nodes from the losses between each node and its parent. Both directions of a
/// link have the same loss.
fn matrix(deployment: &Deployment, losses: [f64; 15]) -> Loss {
    let mut rows = vec![vec![0.0; losses.len() + 1]; losses.len() + 1];
    for [parent, child] in deployment.network.links.iter().flatten() {
        let loss = losses[child - 1];
        (rows[*parent][*child], rows[*child][*parent]) = (loss, loss);
    }
    Loss::Matrix(rows)
}

fn table3(paper: &Paper, results: &BTreeMap<Key, Result>, stack_us: u32) -> Vec<Figure> {
    let mut figures = Vec::new();
    let calibration =
        "chosen so that plain CoAP has the paper's median; every other figure follows from bytes and instructions";
    let stack = Figure::shown("calibration/stack_for_a_datagram".into(), None, stack_us.into(), "us", calibration);
    figures.push(results[&(STEADY, Protection::Coap)].sampled(stack, |_| f64::from(stack_us)));
    let mut rows = |name: &str, printed: Option<Spread>, result: &Result, why: &str| {
        let ours = result.spread().parts();
        for (place, (part, printed)) in printed.map(Spread::parts).into_iter().flatten().enumerate() {
            let (id, ours) = (format!("table3/{name}/{part}"), ours[place].1);
            let figure = match (name, part) {
                ("coap", "median") => Figure::shown(id, Some(printed), ours, MS, "calibrated"),
                (_, "median") => Figure::near(id, printed, ours, MS, MEDIAN_PERCENT),
                _ => Figure::shown(id, Some(printed), ours, MS, why),
            };
            figures.push(result.sampled(figure, |run| run.spread().parts()[place].1));
        }
    };
    for (name, printed) in &paper.table3 {
        let protection = protection(name);
        let result = results.get(&(REBOOTING, protection)).unwrap_or_else(|| &results[&(STEADY, protection)]);
        let why = match protection {
            Protection::CoapDtls => {
                "predicted, with a handshake before a fifth of the requests, which fits the paper's"
            }
            Protection::Oscore => {
                "predicted, with a loss of the window before a fifth of the requests; the paper's deviation is below \
                 that of plain CoAP, so that it can hold few: see oscore_without_reboots"
            }
            _ => "predicted; there is no state to lose",
        };
        rows(name, Some(*printed), result, why);
    }
    let steady = &results[&(STEADY, Protection::Oscore)];
    rows("oscore_without_reboots", paper.table3.get("oscore").copied(), steady, "predicted");
    figures
}

/// Returns the protection that has this name in `data/objects.toml`.
fn protection(name: &str) -> Protection {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == name);
    known.map(|(protection, _)| *protection).expect("a test reads the file")
}

/// Returns the values of the left part of figure 9, for requests over one hop.
fn single_hop(paper: &Paper, results: &BTreeMap<Key, Result>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, printed) in &paper.fig9.single_hop_median_ms {
        let id = format!("fig9/single_hop/{name}/median");
        let ours = &results[&(STEADY, protection(name))];
        let figure = match name.as_str() {
            "coap" => Figure::shown(id, Some(*printed), ours.median_ms(), MS, "calibrated"),
            "ndn" => {
                let most = printed * (100.0 + MEDIAN_PERCENT) / 100.0;
                Figure::at_most(id, Some(*printed), ours.median_ms(), most, MS, ROUNDED)
            }
            _ => Figure::near(id, *printed, ours.median_ms(), MS, MEDIAN_PERCENT),
        };
        figures.push(ours.with_delays(ours.sampled(figure, Result::median_ms)));
    }
    let medians = PROTOCOLS.map(|(protection, _)| results[&(STEADY, protection)].median_ms());
    let order = "ndn, coap, coap-protected, ndn-protected, oscore, coap+dtls: in this order, as in the paper";
    let order = Figure::holds("fig9/single_hop/order".into(), medians.is_sorted_by(|a, b| a < b), order);
    figures.push(all_runs(order, results, STEADY));
    figures
}

/// Adds to a figure the number of requests in all results whose case has the name `name`, and the number of runs. The
/// figure gets no confidence interval.
fn all_runs(figure: Figure, results: &BTreeMap<Key, Result>, name: &str) -> Figure {
    let of_it = || results.iter().filter(|((known, _), _)| *known == name).map(|(_, result)| result);
    let seeds = of_it().map(|result| result.runs.len() as u64).max().unwrap_or(0);
    figure.sampled(of_it().map(|result| result.made).sum(), seeds, &Mean { mean: 0.0, interval: None })
}

/// Returns the figures of the additional time that the first request needs after a node has lost the content of its RAM
/// in a restart.
fn recovery(results: &BTreeMap<Key, Result>) -> Vec<Figure> {
    let cost = |protection: Protection, count: fn(&Result) -> u64| {
        let (steady, rebooting) = (&results[&(STEADY, protection)], &results[&(REBOOTING, protection)]);
        let times = (count(rebooting) - count(steady)) as f64 / rebooting.made as f64;
        let more = (rebooting.mean_ms() - steady.mean_ms()) / times;
        (more, more / steady.mean_ms())
    };
    let (oscore_ms, oscore_trips) = cost(Protection::Oscore, |result| result.challenges);
    let (dtls_ms, dtls_trips) = cost(Protection::CoapDtls, |result| result.sessions);
    let row = |id: &str, paper, ours, unit, why| Figure::shown(format!("recovery/{id}"), paper, ours, unit, why);
    let figures = vec![
        row("oscore/time", None, oscore_ms, MS, "the challenge and the request that repeats it"),
        row("oscore/round_trips", Some(1.0), oscore_trips, "round trips", "in the mean time of an exchange"),
        row(
            "coap_dtls/time",
            Some(100.0),
            dtls_ms,
            MS,
            "the paper has about 100, rarely 150; table III alone gives 85",
        ),
        row("coap_dtls/round_trips", None, dtls_trips, "round trips", "in the mean time of an exchange"),
        Figure::holds(
            "recovery/oscore_takes_one_round_trip".into(),
            (0.8..1.3).contains(&oscore_trips),
            "OSCORE recovers in one more round trip",
        ),
        Figure::holds(
            "recovery/dtls_takes_a_handshake".into(),
            dtls_trips > 3.0,
            "DTLS needs a new handshake, several times as long",
        ),
    ];
    figures.into_iter().map(|figure| all_runs(figure, results, REBOOTING)).collect()
}

/// Returns the values of the right part of figure 9, for requests over several hops.
fn multi_hop(paper: &Paper, results: &BTreeMap<Key, Result>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (place, what, unit, printed) in [
        (0, "first_try", "percent within 1 s", &paper.fig9.first_try_percent),
        (1, "success", "percent", &paper.fig9.success_percent),
    ] {
        for (links, ..) in LINKS {
            for (protection, name) in PROTOCOLS {
                let (family, of_all) = match protection.is_named() {
                    true => ("ndn_family", "both variants of NDN"),
                    false => ("coap_family", "all variants of CoAP"),
                };
                let [least, most] = printed[family];
                let result = &results[&(links, protection)];
                let ours = result.percent()[place];
                let compared = if (least..=most).contains(&ours) { "within" } else { "outside" };
                let why = format!("{compared} the paper's {least} to {most} of {of_all}");
                let id = format!("fig9/multi_hop/{links}/{name}/{what}");
                let figure = Figure::shown(id, Some((least + most) / 2.0), ours, unit, &why);
                let figure = result.sampled_share(figure, |run| run.hits()[place]);
                figures.push(if what == "success" { result.with_delays(figure) } else { figure });
            }
        }
    }
    let of = |protection, links| results[&(links, protection)].percent()[1];
    for (links, ..) in LINKS {
        let [ndn, coap] = [Protection::Ndn, Protection::Coap].map(|protection| of(protection, links));
        let why = format!("{ndn:.1} beside {coap:.1} percent. {}", why_of_ndn(links));
        let figure = Figure::conclusion(format!("fig9/multi_hop/{links}/ndn_answers_more_than_coap"), ndn > coap, &why);
        figures.push(all_runs(figure, results, links));
    }
    let success = |links| of(Protection::Coap, links);
    let equal = "links that lose frames equally and independently answer nearly all in the end, whatever is lost at first: \
                 the paper's 70 to 77 % needs links that differ and stay bad";
    let equal = Figure::holds("fig9/multi_hop/equal_links_do_not_explain_it".into(), success("equal") > 90.0, equal);
    figures.push(all_runs(equal, results, "equal"));
    let bursty = "links that differ and stay bad for a minute come near the paper's";
    let near = (65.0..82.0).contains(&success("unequal_bursty"));
    let bursty = Figure::holds("fig9/multi_hop/unequal_bursty_links_come_near".into(), near, bursty);
    figures.push(all_runs(bursty, results, "unequal_bursty"));
    figures
}

/// Explains the share of requests that NDN answers over the links with this name.
fn why_of_ndn(links: &str) -> &'static str {
    match links {
        "equal" => "Each hop repeats an Interest at most four times",
        "unequal" => {
            "Retransmission on each hop does not replace the links of three sensors, which lose nearly all. So the paper's links did not \
             differ in this way: it has 92 to 97 beside 70 to 77"
        }
        _ => {
            "An Interest lasts ten seconds, and a request of CoAP is repeated for up to 93, longer than a link is bad. In the paper both are \
             repeated for ten"
        }
    }
}

/// The protections, sorted by the median delay over one hop in the paper. Each has its name in the file with the
/// figures of the paper (`data/objects.toml`).
const PROTOCOLS: [(Protection, &str); 6] = [
    (Protection::Ndn, "ndn"),
    (Protection::Coap, "coap"),
    (Protection::CoapProtected, "coap_protected"),
    (Protection::NdnProtected, "ndn_protected"),
    (Protection::Oscore, "oscore"),
    (Protection::CoapDtls, "coap_dtls"),
];
/// The reason why the median of NDN can differ from the value in the paper's text about figure 9.
const ROUNDED: &str = "the text of the paper has 11 ms and 13 ms, its table III has 11.95 ms and 13.48 ms; the time of the operating \
                       system is chosen for 13.48 ms; ours is within 10 % of table III";
/// Maximum difference between the simulated medians and those of the paper, in percent.
const MEDIAN_PERCENT: f64 = 10.0;
const STEADY: &str = "steady";
const REBOOTING: &str = "rebooting";
/// Three guesses of the losses of the paper's links. Each guess has a name, the losses between each node and its parent
/// (the forwarders are the first nodes), and the periods in which every link loses more frames. With each guess, about
/// the same share of requests as in the paper is answered at the first try.
const LINKS: [(&str, [f64; 15], Option<Weather>); 3] = [
    ("equal", [0.525; 15], None),
    ("unequal", UNEQUAL, None),
    ("unequal_bursty", MILD, Some(Weather { good_s: 600.0, bad_s: 60.0, loss: 1.0 })),
];
const UNEQUAL: [f64; 15] = [0.3, 0.3, 0.4, 0.4, 0.4, 0.45, 0.45, 0.45, 0.93, 0.45, 0.45, 0.93, 0.45, 0.45, 0.93];
const MILD: [f64; 15] = [0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.5, 0.3, 0.5, 0.3, 0.5, 0.3, 0.5, 0.3, 0.5];
/// Maximum time of an answer at the first try, in microseconds. If an answer arrives later, a message of the request or
/// of its handshake was retransmitted.
const SECOND: Micros = 1_000_000;
const MS: &str = "ms";
const SINGLE_HOP: &str = include_str!("../../../plans/objects-single-hop.toml");

#[cfg(test)]
mod tests;
