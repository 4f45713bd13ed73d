//! Runs a plan: every case with every protection and every seed, on all processor cores. Each combination is run at
//! most once.
//!
//! A folder stores the results of finished runs. The name of a stored file depends on all inputs of the run, including
//! this program. If the program stops before the end, only the runs in progress are lost. [`parts`] combines the
//! results of seeds that ran on different machines.

pub mod distribution;
pub mod parts;

use crate::cost::Memory;
use crate::deployment::{Case, Deployment, Plan, Runs};
use crate::figure::Source;
use crate::interval::{Mean, mean, share};
use crate::mote::Protection;
use crate::parallel;
use crate::platform::{Energy, Platform};
use crate::scenario::{self, Outcome};
use crate::sim::{Micros, NodeId};
use distribution::Distribution;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of all runs of a [case](crate::deployment::Case) with one protection.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The settings that distinguish this case from the other cases of the plan.
    pub case: BTreeMap<String, String>,
    /// The protection of the readings.
    pub protection: Protection,
    /// The source of the values in this summary. It is always [`Source::Simulated`].
    pub source: Source,
    /// The number of hops from node 0 to the farthest node.
    pub hops: usize,
    /// The number of runs, each with another seed.
    pub seeds: u64,
    /// The number of readings in all runs together.
    pub readings: u64,
    /// The share of readings that were answered, from 0 to 1.
    pub delivered: Mean,
    /// The share of readings that were answered at the first try: they did not wait for an earlier reading, and were
    /// sent only once.
    pub first_try: Mean,
    /// The mean time from a reading to its answer, in milliseconds.
    pub delay_mean_ms: Mean,
    /// The median time from a reading to its answer, in milliseconds.
    pub delay_p50_ms: Mean,
    /// The 95th percentile of the time from a reading to its answer, in milliseconds.
    pub delay_p95_ms: Mean,
    /// Bytes on the air for each reading. All frames of all nodes are counted, including those of handshakes.
    pub bytes_per_reading: Mean,
    /// Frames on the air for each reading.
    pub frames_per_reading: Mean,
    /// Energy of a mote for each of its readings, in microjoules, if its radio receives only during frames for this
    /// mote.
    pub energy_uj: Mean,
    /// Energy of a mote for each of its readings, in microjoules, if its radio is always on.
    pub energy_always_on_uj: Mean,
    /// Energy of a mote for receiving frames that are addressed to other nodes, for each of its readings, in
    /// microjoules. The field `energy_always_on_uj` includes this energy, and the field `energy_uj` does not.
    pub overheard_uj: Mean,
    /// The number of sessions that motes opened in a run.
    pub sessions: Mean,
    /// The number of changes of addresses in a run.
    pub moves: Mean,
    /// The mean time in milliseconds until a mote with a changed address receives an answer again; 0 if no address
    /// changed. The time begins with the mote's next reading.
    pub recovery_ms: Mean,
    /// Battery life in years of the mote that uses the most energy, if its radio receives only during frames for this
    /// mote.
    pub battery_years: f64,
    /// Battery life in years of the mote that uses the most energy, if its radio is always on.
    pub battery_years_always_on: f64,
    /// The ROM of a firmware image that has a client with this protection, in bytes. The number comes from the budget
    /// file (`firmware/budget.toml`).
    pub rom: u64,
    /// The RAM that the variables of the firmware image in the field `rom` need, in bytes. The number comes from the
    /// budget file (`firmware/budget.toml`).
    pub ram: u64,
    /// The results of each mote that makes readings or answers requests to a group.
    pub by_node: Vec<OfNode>,
    /// The distribution of the delays in all runs. Each pair has a delay in milliseconds, and the share of readings
    /// that were answered within this delay.
    pub delays: Vec<(f64, f64)>,
    /// The virtual time of a run divided by the CPU time of its computation; `None` if the results of all runs were
    /// read from the store.
    #[serde(skip)]
    pub speed: Option<f64>,
}

/// The results of one node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct OfNode {
    /// The number of the node.
    pub node: NodeId,
    /// The share of the node's readings to which the node received an answer, from 0 to 1. For a member of a group, it
    /// is the share of requests that the member answered.
    pub delivered: Mean,
    /// The median time from a reading to its answer in milliseconds, over the runs in which the node had an answer.
    pub delay_p50_ms: Mean,
}

/// The result of one run of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The index of the case in the plan.
    case: usize,
    protection: Protection,
    seed: u64,
    kept: Kept,
    speed: Option<f64>,
}

impl Run {
    /// Returns the virtual time of the run divided by the CPU time of its computation; `None` if the result was read
    /// from the store.
    pub const fn speed(&self) -> Option<f64> {
        self.speed
    }
}

/// The result of one run in the form in which it is stored. Times are whole microseconds, and energies whole
/// nanojoules, so that reading a stored result gives exactly the written values.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Kept {
    made: u64,
    answered: u64,
    first_try: u64,
    /// The sum of all delays, in microseconds.
    delay: Micros,
    p50: Micros,
    p95: Micros,
    bytes: u64,
    frames: u64,
    sessions: u64,
    moves: u64,
    recovery: Micros,
    elapsed: Micros,
    makers: u64,
    by_frame: u64,
    overheard: u64,
    always_on: u64,
    hungriest_by_frame: u64,
    hungriest_always_on: u64,
    /// For each mote that makes readings or answers requests to a group: the number of answers, and the median delay in
    /// microseconds.
    by_node: Vec<(u64, Micros)>,
    /// The distribution of all delays: for each range of delays, the number of delays in it.
    delays: Distribution,
}

impl Kept {
    fn of(outcome: &Outcome, makers: &[NodeId]) -> Self {
        let percentile = |delays: &[Micros], percent: usize| {
            let last = delays.len().saturating_sub(1);
            delays.get((delays.len() * percent / 100).min(last)).copied().unwrap_or(0)
        };
        let of_node = |delays: &Vec<Micros>| (delays.len() as u64, percentile(delays, 50));
        let nanojoules = |microjoules: f64| (microjoules * 1e3).round() as u64;
        let both = |energy: &Energy| (nanojoules(energy.radio_by_frame()), nanojoules(energy.radio_always_on()));
        let ((by_frame, always_on), (hungriest_by_frame, hungriest_always_on)) =
            (both(&outcome.energy), both(&outcome.hungriest));
        Self {
            made: outcome.made,
            answered: outcome.answered,
            first_try: outcome.first_try.len() as u64,
            delay: outcome.delays.iter().sum(),
            p50: percentile(&outcome.delays, 50),
            p95: percentile(&outcome.delays, 95),
            bytes: outcome.bytes,
            frames: outcome.frames,
            sessions: outcome.sessions,
            moves: outcome.moves,
            recovery: outcome.recoveries.iter().sum::<Micros>() / outcome.recoveries.len().max(1) as u64,
            elapsed: outcome.elapsed,
            makers: makers.len() as u64,
            by_frame,
            overheard: nanojoules(outcome.energy.overheard_uj),
            always_on,
            hungriest_by_frame,
            hungriest_always_on,
            by_node: makers.iter().filter_map(|node| outcome.by_node.get(*node)).map(of_node).collect(),
            delays: Distribution::of(&outcome.delays),
        }
    }
}

/// The folder that stores the results of finished runs.
#[derive(Clone, Debug)]
pub struct Store {
    folder: Option<PathBuf>,
    program: u64,
}

impl Store {
    /// Makes a store that stores nothing.
    pub const fn none() -> Self {
        Self { folder: None, program: 0 }
    }

    /// Makes a store in this folder. The store returns only results that the same program has stored.
    ///
    /// # Errors
    /// If the folder cannot be made, or if the executable file of this program cannot be read.
    pub fn at(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: Some(folder.into()), program: program()? })
    }

    fn file(&self, deployment: &Deployment, protection: Protection, seed: u64) -> Option<PathBuf> {
        self.file_of(&format!("{protection:?} {seed} {}", text_of(deployment)))
    }

    fn file_of(&self, inputs: &str) -> Option<PathBuf> {
        let key = format!("{} {inputs}", self.program);
        Some(self.folder.as_ref()?.join(format!("{:016x}.json", fnv(key.as_bytes()))))
    }

    /// Returns the stored result with this name; `None` if there is none. The name must contain everything that the
    /// result depends on, except this program.
    pub fn kept<R: DeserializeOwned>(&self, name: &str) -> Option<R> {
        read(self.file_of(name)?)
    }

    /// Returns the stored result with this name. If there is none, calls `compute` and stores its result.
    ///
    /// # Errors
    /// The errors of `compute`.
    pub fn keep<R: Serialize + DeserializeOwned, E>(
        &self,
        name: &str,
        compute: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        if let Some(kept) = self.kept(name) {
            return Ok(kept);
        }
        let result = compute()?;
        if let Some(file) = self.file_of(name) {
            write(&file, &result);
        }
        Ok(result)
    }
}

/// Reads a stored result; `None` if the file does not contain one.
fn read<R: DeserializeOwned>(file: PathBuf) -> Option<R> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// Stores a result. Another process sees the whole file or no file. If the result cannot be stored, it is computed
/// again later.
fn write(file: &Path, result: &impl Serialize) {
    let Ok(text) = serde_json::to_string(result) else { return };
    let half = file.with_extension(format!("{}.part", std::process::id()));
    if fs::write(&half, text).is_ok() {
        let _ = fs::rename(&half, file);
    }
}

/// Computes the hash FNV-1a with 64 bits. The hash is part of the names of stored files. It is not a cryptographic
/// hash.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns a number that identifies this program: a hash of its executable file. A changed program can compute other
/// results, so its number must be different.
fn program() -> std::io::Result<u64> {
    Ok(fnv(&fs::read(std::env::current_exe()?)?))
}

/// Returns a text with all settings that determine a run, except its seed.
fn text_of(deployment: &Deployment) -> String {
    format!("{:?}", Deployment { run: Runs::default(), ..deployment.clone() })
}

/// Runs a plan and summarizes it. Calls `done` with the number of finished runs and the number of all runs.
pub fn run(plan: &Plan, store: &Store, done: impl Fn(usize, usize) + Sync) -> Vec<Summary> {
    summarize(plan, &all(plan, store, done))
}

/// Runs every case of a plan with every protection and every seed. Calls `done` with the number of finished runs and
/// the number of all runs.
pub fn all(plan: &Plan, store: &Store, done: impl Fn(usize, usize) + Sync) -> Vec<Run> {
    let jobs = jobs(plan);
    let all = jobs.len();
    let once = |(number, protection, seed): &(usize, Protection, u64)| {
        let (kept, speed) = once(&plan.cases[*number], *protection, *seed, store);
        Run { case: *number, protection: *protection, seed: *seed, kept, speed }
    };
    parallel::each(&jobs, once, |n| done(n, all))
}

/// Returns the runs of a plan if all of them are stored; `None` otherwise.
pub fn kept(plan: &Plan, store: &Store) -> Option<Vec<Run>> {
    let run = |(case, protection, seed): (usize, Protection, u64)| {
        let kept = read(store.file(&plan.cases[case].deployment, protection, seed)?)?;
        Some(Run { case, protection, seed, kept, speed: None })
    };
    jobs(plan).into_iter().map(run).collect()
}

/// Returns the index of the case, the protection and the seed of each run of a plan.
fn jobs(plan: &Plan) -> Vec<(usize, Protection, u64)> {
    let mut jobs = Vec::new();
    for (number, case) in plan.cases.iter().enumerate() {
        let seeds = &case.deployment.run;
        for protection in &case.deployment.stack.protections {
            jobs.extend((0..seeds.seeds).map(|seed| (number, *protection, seeds.first_seed + seed)));
        }
    }
    jobs
}

/// Summarizes the runs of a plan. There is a summary for each case and each protection.
pub fn summarize(plan: &Plan, runs: &[Run]) -> Vec<Summary> {
    let mut summaries = Vec::new();
    for (number, case) in plan.cases.iter().enumerate() {
        for protection in &case.deployment.stack.protections {
            let of_it = runs.iter().filter(|run| run.case == number && run.protection == *protection);
            let of_it: Vec<_> = of_it.map(|run| (run.kept.clone(), run.speed)).collect();
            if !of_it.is_empty() {
                summaries.push(summary(case, *protection, &of_it));
            }
        }
    }
    summaries
}

/// Returns the CPU time of this thread. Unlike the time of a clock, it does not depend on other programs.
#[cfg(target_os = "linux")]
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the time since the first call, on systems where this program cannot read the CPU time of a thread.
#[cfg(not(target_os = "linux"))]
fn spent() -> Duration {
    static BEGIN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    BEGIN.elapsed()
}

fn once(case: &Case, protection: Protection, seed: u64, store: &Store) -> (Kept, Option<f64>) {
    let file = store.file(&case.deployment, protection, seed);
    if let Some(kept) = file.clone().and_then(read) {
        return (kept, None);
    }
    let begin = spent();
    let (outcome, _) = scenario::run(&case.deployment, protection, seed, false);
    let speed = outcome.elapsed as f64 / 1e6 / spent().saturating_sub(begin).as_secs_f64();
    let nodes = case.deployment.links().map_or(1, |links| links.nodes());
    let kept = Kept::of(&outcome, &case.deployment.makers(nodes));
    if let Some(file) = file {
        write(&file, &kept);
    }
    (kept, Some(speed))
}

fn summary(case: &Case, protection: Protection, runs: &[(Kept, Option<f64>)]) -> Summary {
    let over = |figure: &dyn Fn(&Kept) -> f64| mean(&runs.iter().map(|(run, _)| figure(run)).collect::<Vec<_>>());
    let of_made =
        |hits: &dyn Fn(&Kept) -> u64| share(&runs.iter().map(|(run, _)| (hits(run), run.made)).collect::<Vec<_>>());
    let answered: Vec<&Kept> = runs.iter().map(|(run, _)| run).filter(|run| run.answered > 0).collect();
    let readings_of_a_mote = |run: &Kept| run.made as f64 / run.makers as f64;
    let hardware = &case.deployment.mote;
    let volts = Platform::find(&hardware.platform).map_or(3.0, |platform| platform.volts);
    let years = |nanojoules: &dyn Fn(&Kept) -> u64| {
        let watts =
            over(&|run| nanojoules(run) as f64 / 1e3 / run.elapsed as f64).mean + hardware.sleep_ua * volts * 1e-6;
        hardware.battery_mah * 3.6 * volts / watts / (365.25 * 86_400.0)
    };
    let memory = Memory::of_image(protection.image());
    let hops = case.deployment.links().and_then(|links| case.deployment.depth(&links)).unwrap_or(0);
    let speeds: Vec<f64> = runs.iter().filter_map(|(_, speed)| *speed).collect();
    let nodes = case.deployment.links().map_or(1, |links| links.nodes());
    let by_node = case.deployment.makers(nodes).into_iter().enumerate().map(|(place, node)| {
        let of = |run: &Kept| run.by_node.get(place).copied().unwrap_or_default();
        let delays = runs.iter().map(|(run, _)| of(run)).filter(|(answered, _)| *answered > 0);
        OfNode {
            node,
            delivered: share(&runs.iter().map(|(run, _)| (of(run).0, run.made / run.makers)).collect::<Vec<_>>()),
            delay_p50_ms: mean(&delays.map(|(_, p50)| p50 as f64 / 1e3).collect::<Vec<_>>()),
        }
    });
    let (mut delays, made) = (Distribution::default(), runs.iter().map(|(run, _)| run.made).sum());
    runs.iter().for_each(|(run, _)| delays.add(&run.delays));
    Summary {
        by_node: by_node.collect(),
        delays: delays.shares(made),
        case: case.values.clone(),
        protection,
        source: Source::Simulated,
        hops,
        seeds: runs.len() as u64,
        readings: made,
        delivered: of_made(&|run| run.answered),
        first_try: of_made(&|run| run.first_try),
        delay_mean_ms: mean(
            &answered.iter().map(|run| run.delay as f64 / run.answered as f64 / 1e3).collect::<Vec<_>>(),
        ),
        delay_p50_ms: over(&|run| run.p50 as f64 / 1e3),
        delay_p95_ms: over(&|run| run.p95 as f64 / 1e3),
        bytes_per_reading: over(&|run| run.bytes as f64 / run.made as f64),
        frames_per_reading: over(&|run| run.frames as f64 / run.made as f64),
        energy_uj: over(&|run| run.by_frame as f64 / 1e3 / readings_of_a_mote(run)),
        energy_always_on_uj: over(&|run| run.always_on as f64 / 1e3 / readings_of_a_mote(run)),
        overheard_uj: over(&|run| run.overheard as f64 / 1e3 / readings_of_a_mote(run)),
        sessions: over(&|run| run.sessions as f64),
        moves: over(&|run| run.moves as f64),
        recovery_ms: over(&|run| run.recovery as f64 / 1e3),
        battery_years: years(&|run| run.hungriest_by_frame),
        battery_years_always_on: years(&|run| run.hungriest_always_on),
        rom: memory.map_or(0, |memory| memory.rom),
        ram: memory.map_or(0, |memory| memory.ram),
        speed: (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64),
    }
}

/// Formats a share in percent, followed by the bounds of its interval.
fn percent(share: &Mean) -> String {
    let bounds = share.interval.map(|[low, high]| format!(" ({:.2} to {:.2})", low * 100.0, high * 100.0));
    format!("{:.2}%{}", share.mean * 100.0, bounds.unwrap_or_default())
}

fn with_interval(mean: &Mean) -> String {
    format!("{:.2} ±{:>5}", mean.mean, mean.half_width(2))
}

/// Formats the summaries as a table for people.
pub fn table(summaries: &[Summary]) -> String {
    let name = |summary: &Summary| {
        summary.case.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
    };
    let width = summaries.iter().map(|summary| name(summary).len()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$}  {:<10} {:>4} {:>24} {:>9} {:>15} {:>15} {:>9} {:>13} {:>12} {:>10} {:>15} {:>8} {:>14} {:>7} {:>6}\n",
        "",
        "protection",
        "hops",
        "delivered (95 %)",
        "first try",
        "delay mean, ms",
        "p50, ms",
        "p95, ms",
        "bytes/reading",
        "uJ/reading",
        "overheard",
        "always on",
        "sessions",
        "battery, years",
        "ROM",
        "RAM"
    );
    for summary in summaries {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {:<10} {:>4} {:>24} {:>8.2}% {:>15} {:>15} {:>9.2} {:>13.1} {:>12.0} {:>10.0} {:>15.0} {:>8.1} {:>14} {:>7} {:>6}",
            name(summary),
            summary.protection.name(),
            summary.hops,
            percent(&summary.delivered),
            summary.first_try.mean * 100.0,
            with_interval(&summary.delay_mean_ms),
            with_interval(&summary.delay_p50_ms),
            summary.delay_p95_ms.mean,
            summary.bytes_per_reading.mean,
            summary.energy_uj.mean,
            summary.overheard_uj.mean,
            summary.energy_always_on_uj.mean,
            summary.sessions.mean,
            format!("{:.2} / {:.2}", summary.battery_years, summary.battery_years_always_on),
            summary.rom,
            summary.ram,
        );
    }
    for summary in summaries.iter().filter(|summary| summary.by_node.len() > 1) {
        let worst = summary.by_node.iter().min_by(|a, b| a.delivered.mean.total_cmp(&b.delivered.mean));
        if let Some(worst) = worst.filter(|worst| worst.delivered.mean < 1.0) {
            let _ = writeln!(
                text,
                "{:width$}  {:<10} worst off: node {} with {}, {:.0} ms ±{}; every node with --json",
                name(summary),
                summary.protection.name(),
                worst.node,
                percent(&worst.delivered),
                worst.delay_p50_ms.mean,
                worst.delay_p50_ms.half_width(0),
            );
        }
    }
    for summary in summaries.iter().filter(|summary| summary.moves.mean > 0.0) {
        let _ = writeln!(
            text,
            "{:width$}  {:<10} {:.1} changes of address; the next answer {:.1} ms ±{} after the mote wanted to speak",
            name(summary),
            summary.protection.name(),
            summary.moves.mean,
            summary.recovery_ms.mean,
            summary.recovery_ms.half_width(1),
        );
    }
    text
}

#[cfg(test)]
mod tests;
