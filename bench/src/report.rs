//! The results of a run, which are printed as a table for people or as one JSON object for programs.

use serde::Serialize;
use std::{collections::BTreeMap, fs, process::Command};

/// All results of one run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Circumstances of the run.
    pub(crate) header: Header,
    /// One row for each measured operation and each peer.
    pub(crate) rows: Vec<Row>,
    /// Programs that could not be measured, with the reasons.
    pub(crate) absent: Vec<Absent>,
}

/// The circumstances of a run: commit, date, machine and versions.
#[derive(Serialize)]
pub(crate) struct Header {
    /// Commit of this source tree, with the suffix `-dirty` if files were changed after the commit.
    pub(crate) commit: String,
    /// Date and time of the start, in UTC.
    pub(crate) date: String,
    /// Model and number of processors.
    pub(crate) cpu: String,
    /// Load average of the last minute when the run began. Other work on the machine changes absolute rates.
    pub(crate) load: String,
    /// Number of passes. A pass measures Tegmen, and each program with which it is compared, in turn. Every number of
    /// the report is the median over all passes.
    pub(crate) passes: usize,
    /// For each stack, its name, and the version that the stack itself reports.
    pub(crate) versions: BTreeMap<&'static str, String>,
    /// Facts that a reader needs to repeat the run.
    pub(crate) notes: Vec<String>,
}

/// The comparison of Tegmen with one peer in one operation.
#[derive(Serialize)]
pub(crate) struct Row {
    /// The measured operation.
    pub(crate) operation: String,
    /// The result of Tegmen, in the unit [`Self::unit`]; `None` if Tegmen was not measured.
    pub(crate) ours: Option<f64>,
    /// The result of the peer, in the unit [`Self::unit`]; `None` if no peer was measured.
    pub(crate) peer: Option<f64>,
    /// Name of the peer.
    pub(crate) peer_name: &'static str,
    /// The result of Tegmen divided by the result of the peer: the median of the ratios of all passes. `None` if one of
    /// the two was not measured.
    pub(crate) ratio: Option<f64>,
    /// Interval that contains the true median of the ratio with a probability of at least 95 %. `None` if there were
    /// fewer than six passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<[f64; 2]>,
    /// Unit of the results of Tegmen and of the peer.
    pub(crate) unit: &'static str,
    /// True if a larger result is better.
    pub(crate) more_is_better: bool,
    /// The result of Tegmen minus twice the result of the peer. The module [`limit`](crate::limit) sets a maximum for
    /// this difference. This field is set only if the peer is the cryptography alone, without a protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) surplus: Option<f64>,
    /// The share of notifications that the servers sent as confirmable messages, for Tegmen and for the peer; `None` if
    /// this measurement has no notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confirmable: Option<Confirmable>,
    /// The limit for one of the results in this row, and the verdict: whether the result meets the limit.
    #[serde(flatten)]
    pub(crate) judged: Judged,
    /// Number of processor instructions for one operation; `None` if they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instructions: Option<Instructions>,
}

impl Row {
    /// Makes a row that has no results yet. For this row smaller results are better.
    pub(crate) fn new(
        operation: impl Into<String>,
        peer_name: &'static str,
        unit: &'static str,
        judged: Option<Judged>,
    ) -> Self {
        Self {
            operation: operation.into(),
            ours: None,
            peer: None,
            peer_name,
            ratio: None,
            interval: None,
            unit,
            more_is_better: false,
            surplus: None,
            confirmable: None,
            judged: judged.unwrap_or_default(),
            instructions: None,
        }
    }
}

/// The share of notifications that Tegmen's server and the peer's server sent as confirmable messages, from 0 to 1.
#[derive(Serialize, Clone, Copy)]
pub(crate) struct Confirmable {
    /// The share of notifications that Tegmen's server sent as confirmable messages, from 0 to 1.
    pub(crate) ours: f64,
    /// The share of notifications that the peer's server sent as confirmable messages, from 0 to 1.
    pub(crate) peer: f64,
}

impl Row {
    /// Sets a limit for the ratio of Tegmen's result to the peer's result: Tegmen must be at least as fast as the peer.
    pub(crate) fn not_behind(self) -> Self {
        Self { judged: Judged { binds: false, ..self.judge_bound(1.0) }, ..self }
    }

    /// Returns the limit `bound` with its verdict. `bound` is the minimum of Tegmen's speed, as a share of the peer's
    /// speed. The verdict is `missed` if [`is_below`](Self::is_below) returns true. The command then fails. There is no
    /// verdict if the row has no interval.
    pub(crate) fn judge_bound(&self, bound: f64) -> Judged {
        let verdict = self.interval.map(|_| if self.is_below(bound) { "missed" } else { "met" });
        Judged { limit: Some(bound), limit_of: Some("interval"), verdict, binds: true }
    }

    /// Returns true if Tegmen's speed, as a share of the peer's speed, is less than `bound` in the whole confidence
    /// interval of the ratio.
    pub(crate) fn is_below(&self, bound: f64) -> bool {
        self.interval.is_some_and(|[low, high]| if self.more_is_better { high < bound } else { low * bound > 1.0 })
    }
}

/// The limit of a measured result.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
    Below(f64),
}

impl Limit {
    /// Compares `number` with the limit. `limit_of` is the name of the field of [`Row`] that contains `number`.
    pub(crate) fn judge(self, limit_of: &'static str, number: Option<f64>) -> Judged {
        let (limit, is_met) = match self {
            Self::AtMost(limit) => (limit, number.map(|number| number <= limit)),
            Self::AtLeast(limit) => (limit, number.map(|number| number >= limit)),
            Self::Below(limit) => (limit, number.map(|number| number < limit)),
        };
        let verdict = is_met.map(|is_met| if is_met { "met" } else { "missed" });
        Judged { limit: Some(limit), limit_of: Some(limit_of), verdict, binds: false }
    }
}

/// A limit and its verdict. All fields are `None` if there is no limit.
#[derive(Serialize, Clone, Copy, Default)]
pub(crate) struct Judged {
    /// The limit with which the result is compared.
    pub(crate) limit: Option<f64>,
    /// The name of the field of [`Row`] to which the limit applies (`ours`, `ratio`, `surplus`, `interval` or
    /// `instructions`).
    pub(crate) limit_of: Option<&'static str>,
    /// `met` or `missed`.
    pub(crate) verdict: Option<&'static str>,
    /// True if the command fails when the result misses the limit. It is always true if `limit_of` is `interval`: the
    /// confidence interval of the ratio is then compared with the limit.
    #[serde(skip)]
    pub(crate) binds: bool,
}

impl Judged {
    /// Returns the same limit with the rule that the command fails if the limit is missed.
    pub(crate) const fn binding(self) -> Self {
        Self { binds: true, ..self }
    }
}

/// Number of processor instructions for one operation: the sum of the client's and the server's instructions.
#[derive(Serialize, Clone, Copy)]
pub(crate) struct Instructions {
    /// Number of processor instructions of Tegmen; `None` if they were not counted.
    pub(crate) ours: Option<f64>,
    /// Number of processor instructions of the peer; `None` if they were not counted.
    pub(crate) peer: Option<f64>,
    /// The number of Tegmen's instructions divided by the number of the peer's instructions; `None` if one of them was
    /// not counted.
    pub(crate) ratio: Option<f64>,
    /// The limit for the number of Tegmen's instructions, and the verdict.
    #[serde(flatten)]
    pub(crate) judged: Judged,
}

/// A program that could not be measured: Tegmen, or a program with which Tegmen is compared. Usually it is not
/// installed or not built.
#[derive(Serialize)]
pub(crate) struct Absent {
    /// Name of the program.
    pub(crate) name: &'static str,
    /// The reason why the program was not measured.
    pub(crate) reason: String,
    /// The steps with which a user installs the program.
    pub(crate) install: String,
}

/// The results of one operation: for Tegmen, and for each program with which it is compared, one result for each pass.
pub(crate) struct Samples {
    /// The measured operation.
    pub(crate) operation: String,
    /// Unit of every number.
    pub(crate) unit: &'static str,
    /// True if a larger number is better.
    pub(crate) more_is_better: bool,
    /// For Tegmen, and for each program with which it is compared: its name, and its results in the order of the
    /// passes.
    pub(crate) numbers: Vec<(&'static str, Vec<f64>)>,
    /// For Tegmen, and for each program with which it is compared: its name, and the number of processor instructions
    /// that it executes for one operation.
    pub(crate) instructions: Vec<(&'static str, f64)>,
    /// Two limits, each `None` if there is no limit. The first is the minimum of Tegmen's speed, as a share of the speed
    /// of each peer ([`Row::judge_bound`]). The second is for the number of Tegmen's instructions.
    pub(crate) demanded: (Option<f64>, Option<Limit>),
}

impl Samples {
    /// Creates the samples of an operation, without any result yet.
    pub(crate) fn new(operation: impl Into<String>, unit: &'static str, more_is_better: bool) -> Self {
        Self {
            operation: operation.into(),
            unit,
            more_is_better,
            numbers: Vec::new(),
            instructions: Vec::new(),
            demanded: (None, None),
        }
    }

    /// Adds `number`, the result of the program `name` in one pass. Its unit is [`Self::unit`].
    pub(crate) fn push(&mut self, name: &'static str, number: f64) {
        match self.numbers.iter_mut().find(|(known, _)| *known == name) {
            Some((_, numbers)) => numbers.push(number),
            None => self.numbers.push((name, vec![number])),
        }
    }

    /// Returns one row of the report for each peer that was measured. If no peer was measured, returns one row with the
    /// results of Tegmen alone.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let ours = self.numbers.iter().find(|(name, _)| *name == OURS).map(|(_, numbers)| numbers);
        let mut rows: Vec<Row> = self
            .numbers
            .iter()
            .filter(|(name, _)| *name != OURS)
            .map(|(name, numbers)| self.row(ours, name, Some(numbers)))
            .collect();
        if rows.is_empty() && ours.is_some() {
            rows.push(self.row(ours, "none", None));
        }
        rows
    }

    fn row(&self, ours: Option<&Vec<f64>>, peer_name: &'static str, peer: Option<&Vec<f64>>) -> Row {
        let ratios = ours.zip(peer).map(|(ours, peer)| ours.iter().zip(peer).map(|(a, b)| a / b).collect::<Vec<_>>());
        let counted = |name| self.instructions.iter().find(|(known, _)| *known == name).map(|&(_, count)| count);
        let (our_count, peer_count) = (counted(OURS), counted(peer_name));
        let ratio = ratios.as_ref().and_then(|ratios| median(ratios));
        let interval = ratios.as_ref().and_then(|ratios| interval(ratios));
        let judged = self.demanded.1.map(|limit| limit.judge("instructions", our_count)).unwrap_or_default();
        let row = Row {
            operation: self.operation.clone(),
            ours: ours.and_then(|numbers| median(numbers)),
            peer: peer.and_then(|numbers| median(numbers)),
            peer_name,
            ratio,
            interval,
            unit: self.unit,
            more_is_better: self.more_is_better,
            surplus: None,
            confirmable: None,
            judged: Judged::default(),
            instructions: (our_count.is_some() || peer_count.is_some()).then(|| Instructions {
                ours: our_count,
                peer: peer_count,
                ratio: our_count.zip(peer_count).map(|(ours, peer)| ours / peer),
                judged,
            }),
        };
        let judged = self.demanded.0.map(|bound| Judged { binds: false, ..row.judge_bound(bound) });
        Row { judged: judged.unwrap_or_default(), ..row }
    }
}

impl Header {
    /// Collects the facts about the machine and the source tree that are known before the run.
    pub(crate) fn new(passes: usize) -> Self {
        let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            commit: said(&["git", "describe", "--always", "--dirty", "--abbrev=12"]),
            date: said(&["date", "--utc", "+%Y-%m-%dT%H:%M:%SZ"]),
            cpu: format!("{count} x {}", model.trim_start_matches([' ', '\t', ':'])),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            passes,
            versions: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}

impl Report {
    /// Returns true if a row has a limit that makes the command fail, and the limit was missed or could not be checked.
    pub(crate) fn is_behind(&self) -> bool {
        self.rows.iter().any(|row| row.judged.binds && row.judged.verdict != Some("met"))
    }

    /// Writes the report to standard output.
    pub(crate) fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string_pretty(self).unwrap_or_default());
            return;
        }
        let Header { commit, date, cpu, load, passes, versions, notes } = &self.header;
        println!("commit {commit}, {date}, {cpu}, load {load}, medians of {passes} interleaved passes");
        for (name, version) in versions {
            println!("  {name}: {version}");
        }
        for note in notes {
            println!("  {note}");
        }
        println!();
        println!(
            "{:<62} {:>12} {:>12}  {:<15} {:>7} {:>15}  {:>11} {:>11} {:>6}  demanded",
            "operation", "ours", "peer", "peer name", "ratio", "95 % interval", "ours instr.", "peer instr.", "ratio"
        );
        for row in &self.rows {
            let counts = row.instructions.as_ref();
            println!(
                "{:<62} {:>12} {:>12}  {:<15} {:>7} {:>15}  {:>11} {:>11} {:>6}  {}{}",
                format!("{}, {}", row.operation, row.unit),
                short(row.ours),
                short(row.peer),
                row.peer_name,
                thousandths(row.ratio),
                row.interval.map_or_else(|| "-".into(), |[low, high]| format!("{low:.3} to {high:.3}")),
                short(counts.and_then(|counts| counts.ours)),
                short(counts.and_then(|counts| counts.peer)),
                thousandths(counts.and_then(|counts| counts.ratio)),
                row.judged.said(row.surplus),
                counts.map_or_else(String::new, |counts| counts.judged.said(None)),
            );
        }
        for Absent { name, reason, install } in &self.absent {
            println!("absent: {name} ({reason}); type: {install}");
        }
    }
}

/// Returns the median: the number in the middle of the sorted numbers, or the mean of both middle numbers if their
/// count is even. Returns `None` without numbers.
pub(crate) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Returns two of the numbers in `numbers`: the bounds of a 95 % interval. With a probability of at least 95 % the
/// interval contains the median of the distribution from which the numbers come. This holds for every distribution,
/// because each number is below the median with a probability of one half. Returns `None` if there are too few numbers.
pub(crate) fn interval(numbers: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The probability that exactly `below` of them are, and that this number or fewer are.
    let (mut exactly, mut at_most) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0);
    let mut outside = 0;
    for below in 0..n {
        at_most += exactly;
        if at_most > 0.025 {
            break;
        }
        outside = below + 1;
        exactly *= (n - below) as f64 / (below + 1) as f64;
    }
    Some([*sorted.get(outside.checked_sub(1)?)?, *sorted.get(n - outside)?])
}

/// Returns the output of a command, or `unknown` if the command fails.
fn said(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().ok().filter(|output| output.status.success());
    output.map_or_else(|| "unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Judged {
    fn said(&self, surplus: Option<f64>) -> String {
        let Self { limit: Some(limit), limit_of: Some(of), verdict, .. } = self else { return String::new() };
        let surplus = surplus.map_or_else(String::new, |surplus| format!(" {surplus:.1}"));
        format!("{of}{surplus} against {limit}: {}; ", verdict.unwrap_or("not known"))
    }
}

/// Formats a number with one decimal if it is below 1,000, and otherwise without decimals; `None` as `-`.
fn short(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), |number| format!("{number:.*}", usize::from(number < 1000.0)))
}

fn thousandths(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), |number| format!("{number:.3}"))
}

/// The name of Tegmen in [`Samples`]. The report has its results in the column `ours`.
pub(crate) const OURS: &str = "ours";
/// The name, in [`Samples`], of the commit with which the working tree is compared. The report has its results in the
/// column `peer`.
pub(crate) const BASE: &str = "base";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_interval_leaves_out_so_many_numbers_that_the_median_is_among_them_in_95_of_100() {
        let numbers = |n: i32| (1..=n).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&numbers(5)), None); // 2 / 2^5 is more than 5 %
        assert_eq!(interval(&numbers(6)), Some([1.0, 6.0]));
        assert_eq!(interval(&numbers(9)), Some([2.0, 8.0]));
        assert_eq!(interval(&numbers(31)), Some([10.0, 22.0]));
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn a_row_is_worse_when_its_whole_interval_is() {
        let row = |more_is_better, interval| Row { interval, more_is_better, ..Row::new("row", BASE, "1/s", None) };
        assert!(row(true, Some([0.90, 0.94])).is_below(0.95));
        assert!(!row(true, Some([0.90, 0.96])).is_below(0.95));
        assert!(row(false, Some([1.07, 1.20])).is_below(0.95));
        assert!(!row(false, Some([1.02, 1.20])).is_below(0.95));
        assert!(!row(true, None).is_below(0.95));
    }

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_each_pass() {
        let mut samples = Samples::new("handshake", "1/s", true);
        for (ours, peer) in [(30.0, 10.0), (20.0, 10.0), (100.0, 10.0)] {
            samples.push(OURS, ours);
            samples.push("peer", peer);
        }
        let rows = samples.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].ours, rows[0].peer, rows[0].ratio), (Some(30.0), Some(10.0), Some(3.0)));
    }

    #[test]
    fn a_peer_alone_has_a_row_without_a_ratio() {
        let mut samples = Samples::new("handshake", "1/s", true);
        samples.push("peer", 10.0);
        assert_eq!((samples.rows()[0].peer, samples.rows()[0].ratio), (Some(10.0), None));
    }
}
