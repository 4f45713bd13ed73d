//! The plan `axiom`: the paper on secure groups, figure by figure. The figures of the paper are in `data/axiom.toml`.
//!
//! The plan compares five schemes. A scheme is a protocol with which a sender sends a request to a group and receives
//! the responses. Each mote runs the CoAP node of the core library. The schemes are: plain CoAP to each member, plain
//! CoAP to all members at once, DTLS to each member, the protocol of draft-keoh-dice-multicast-security, and Axiom. The
//! losses of the links, the lengths of payloads, and the time that the operating system needs for each datagram were
//! chosen with plain CoAP alone, before the other schemes ran (`plans/axiom.toml`).

mod conclusions;
mod controller;
mod growth;
mod rekeying;
mod state;
mod tables;
mod transaction;
mod unicast;

pub use controller::{Change, Eviction, Joining, Rekeying, Repair};

use crate::deployment::{Deployment, Plan};
use crate::figure::Figure;
use crate::mote::Protection;
use crate::parallel;
use serde::Deserialize;
use std::collections::BTreeMap;
use transaction::{Case, Transaction};
use unicast::Unicast;

/// The number of runs, and the sizes of the groups.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of runs of each case with three listeners. The paper has 20 runs.
    pub seeds: u64,
    /// Number of runs of each case in which the group does not have three listeners.
    pub seeds_of_large: u64,
    /// The sizes of the simulated groups, in listeners.
    pub listeners: &'static [usize],
}

/// The numbers of runs and of listeners that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { seeds: 20, seeds_of_large: 10, listeners: &[1, 2, 3, 5, 9, 19, 39, 79, 126, 254] };

/// Returns all figures of the plan `axiom`. `rekeying` contains the messages of Tegmen's controller. Calls `done` with
/// the number of finished runs and the number of all runs.
pub fn figures(rekeying: &Rekeying, effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let paper = paper();
    let cases = Case::all(effort);
    let jobs: Vec<(Case, u64)> =
        cases.iter().flat_map(|case| (1..=case.seeds(effort)).map(move |seed| (*case, seed))).collect();
    let all = jobs.len();
    let runs = parallel::each(&jobs, |(case, seed)| case.run(*seed), |n| done(n, all));
    let mut results = Results::default();
    for ((case, _), run) in jobs.iter().zip(runs) {
        results.0.entry(*case).or_default().push(run);
    }
    let unicast = Unicast::of(rekeying, UNICAST_RUNS.min(10 * effort.seeds));
    let mut figures = tables::figures(&paper, &results);
    figures.extend(transaction::figures(&results));
    figures.extend(state::figures(&paper));
    figures.extend(growth::figures(&results, rekeying, &unicast, effort));
    figures.extend(rekeying::figures(rekeying, &unicast));
    figures.extend(conclusions::figures(&paper, (rekeying, &unicast), &results, effort));
    figures
}

/// A scheme: one of the protocols that section 8.1 of the paper compares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scheme {
    /// An unprotected request to each listener, one after the other.
    CoapUni,
    /// An unprotected request to all listeners at once.
    CoapMul,
    /// A DTLS session with each listener, and a separate request in each session.
    UniUni,
    /// A request that the keys of the group protect. Each response is protected by a DTLS session with the listener
    /// (draft-keoh-dice-multicast-security).
    MulUni,
    /// Axiom.
    MulMul,
}

impl Scheme {
    const ALL: [Self; 5] = [Self::CoapUni, Self::CoapMul, Self::UniUni, Self::MulUni, Self::MulMul];
    /// The schemes that need DTLS handshakes. Axiom replaces these schemes.
    const WITH_HANDSHAKES: [Self; 2] = [Self::UniUni, Self::MulUni];

    const fn name(self) -> &'static str {
        match self {
            Self::CoapUni => "coap_uni",
            Self::CoapMul => "coap_mul",
            Self::UniUni => "uni_uni",
            Self::MulUni => "mul_uni",
            Self::MulMul => "mul_mul",
        }
    }

    const fn protection(self) -> Protection {
        match self {
            Self::CoapUni | Self::CoapMul => Protection::Coap,
            Self::UniUni => Protection::CoapDtls,
            Self::MulUni => Protection::AxiomDtls,
            Self::MulMul => Protection::Axiom,
        }
    }

    /// Returns true if the sender sends a separate request to each listener.
    const fn asks_each(self) -> bool {
        matches!(self, Self::CoapUni | Self::UniUni)
    }

    const fn has_handshakes(self) -> bool {
        self.protection().has_sessions()
    }
}

/// For each case, the results of its runs.
#[derive(Default)]
struct Results(BTreeMap<Case, Vec<Transaction>>);

impl Results {
    fn of(&self, case: Case) -> &[Transaction] {
        self.0.get(&case).map_or(&[], Vec::as_slice)
    }
}

/// The figures that the paper prints.
#[derive(Deserialize)]
struct Paper {
    table1: BTreeMap<String, Times>,
    figure10: Longer,
    table2: BTreeMap<String, BTreeMap<String, Energies>>,
    figures11and12: BTreeMap<String, f64>,
    memory: PaperMemory,
}

/// The times of a scheme in table I of the paper, in seconds.
#[derive(Deserialize)]
struct Times {
    #[serde(default)]
    handshakes: Vec<f64>,
    exchange: f64,
}

impl Times {
    fn all(&self) -> f64 {
        self.handshakes.iter().sum::<f64>() + self.exchange
    }
}

/// The durations of transactions with one scheme, divided by those with another scheme (figure 10 of the paper).
#[derive(Deserialize)]
struct Longer {
    uni_uni_over_mul_mul: f64,
    mul_uni_over_mul_mul: f64,
    coap_mul_over_coap_uni: f64,
}

/// The energies of a scheme in table II of the paper, in millijoules: for the processor, for sending and for receiving.
#[derive(Deserialize)]
struct Energies {
    keys: Option<[f64; 3]>,
    exchange: [f64; 3],
}

impl Energies {
    fn all(&self) -> f64 {
        self.keys.iter().flatten().chain(&self.exchange).sum()
    }
}

#[derive(Deserialize)]
struct PaperMemory {
    rom_more_than_mul_uni: BTreeMap<String, f64>,
    ram_less_than_mul_uni: BTreeMap<String, f64>,
    listeners_that_fill_32_kb: BTreeMap<String, f64>,
}

fn paper() -> Paper {
    toml::from_str(include_str!("../../data/axiom.toml")).expect("the file is part of the program, and a test reads it")
}

/// Returns the deployment that repeats the experiment of the paper, with the settings of `plans/axiom.toml`.
fn deployment() -> Deployment {
    let plan = Plan::parse("axiom", include_str!("../../plans/axiom.toml"));
    let plan = plan.expect("the plan is part of the program, and a test reads it");
    plan.cases.into_iter().next().expect("a plan has a case").deployment
}

/// Number of runs of each exchange between one node and the controller.
const UNICAST_RUNS: u64 = 200;
/// Number of listeners in the experiment of the paper.
const LISTENERS: usize = 3;

#[cfg(test)]
pub(crate) mod tests;
