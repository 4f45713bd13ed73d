//! Cases that the paper does not have: the return of all peers after the end of an epoch, a fleet of devices, and
//! devices whose radio sleeps. Their settings differ from those in `plans/delegation.toml` in topology, traffic and
//! sleep.

mod fleet;
mod sleepy;
mod storm;

use super::{Effort, PERCENT};
use crate::deployment::{Deployment, Plan};
use crate::figure::Figure;
use crate::interval::{self, Mean};
use crate::parallel;
use std::ops::Range;

/// A function that runs a case with one seed.
type Job = Box<dyn Fn() -> Measured + Send + Sync>;

/// The measured values of one run, with their names.
type Measured = Vec<(&'static str, f64)>;

/// A function that makes the figures of a case from its runs.
type Figures = Box<dyn Fn(&Runs) -> Vec<Figure>>;

/// A case, which is one combination of settings of a simulation: the functions that run the case, and the function that
/// makes its figures.
struct Case {
    jobs: Vec<Job>,
    figures: Figures,
}

/// The measured values of all runs of a case.
struct Runs(Vec<Measured>);

impl Runs {
    fn values(&self, what: &str) -> Vec<f64> {
        let of_run = |run: &Measured| run.iter().find(|(name, _)| *name == what).map(|(_, value)| *value);
        self.0.iter().filter_map(of_run).collect()
    }

    /// Returns the mean of the value with this name, over the runs that have this value.
    fn mean(&self, what: &str) -> Mean {
        interval::mean(&self.values(what))
    }

    /// For each entry of `readings`, makes a figure that shows the mean of a measured value and compares it with
    /// nothing. An entry has the name of the value, its unit, and the reason why the value has no limit. `n` is the
    /// number of exchanges from which the value was measured. There is no figure for a value that no run has.
    fn shown(&self, name: &str, n: u64, readings: &[(&str, &'static str, &str)]) -> Vec<Figure> {
        let known = readings.iter().filter(|(what, ..)| !self.values(what).is_empty());
        let shown = known.map(|(what, unit, why)| {
            let mean = self.mean(what);
            Figure::shown(format!("{name}/{what}"), None, mean.mean, unit, why).sampled(n, self.seeds(), &mean)
        });
        shown.collect()
    }

    /// Makes a figure for the measured share with the name `what`, which must be 100 % in every run. `n` is the number
    /// of exchanges from which the share was measured.
    fn complete(&self, name: &str, n: u64, what: &str) -> Figure {
        let mean = self.mean(what);
        let id = format!("{name}/{what}");
        Figure::at_least(id, None, mean.mean, 100.0, PERCENT, "").sampled(n, self.seeds(), &mean)
    }

    fn seeds(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Returns all figures. Calls `done` with the number of finished runs and the number of all runs.
pub(super) fn figures(effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let cases = storm::cases(effort).into_iter().chain(fleet::cases(effort)).chain(sleepy::cases(effort));
    let mut figures = of_cases(cases.collect(), done);
    let verdicts = storm::verdicts(effort, &figures);
    figures.extend(verdicts);
    figures
}

fn of_cases(cases: Vec<Case>, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let jobs: Vec<&Job> = cases.iter().flat_map(|case| &case.jobs).collect();
    let all = jobs.len();
    let mut measured = parallel::each(&jobs, |job| job(), |n| done(n, all)).into_iter();
    let mut figures = Vec::new();
    for case in &cases {
        let runs = Runs(measured.by_ref().take(case.jobs.len()).collect());
        figures.extend((case.figures)(&runs));
    }
    figures
}

/// Returns the deployment in `plans/delegation.toml`.
fn deployment() -> Deployment {
    let plan = Plan::parse("delegation", include_str!("../../../plans/delegation.toml"));
    let plan = plan.expect("the plan is part of the program, and a test reads it");
    plan.cases.into_iter().next().expect("a plan has a case").deployment
}

/// Returns a range with this number of seeds, from 1 on.
const fn seeds(runs: u64) -> Range<u64> {
    1..runs + 1
}

/// Converts microseconds to seconds.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
