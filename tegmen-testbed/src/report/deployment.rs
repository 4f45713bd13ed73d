//! The section of a deployment in the report. It contains plots of the results and of the delays, maps of the nodes, a
//! table, and advice about the protections that the deployment can afford.

use super::{Report, Row};
use crate::advice::Advice;
use crate::deployment::{Case, Plan};
use crate::interval::Mean;
use crate::plot::{self, Bars, Node, Series};
use crate::runs::{OfNode, Summary};
use std::collections::BTreeMap;
use std::io;

impl Report<'_> {
    /// Writes the section of a plan. `own` is true for a plan that the user wrote.
    pub(crate) fn plan(&mut self, name: &str, own: bool, plan: &Plan, summaries: Vec<Summary>) -> io::Result<()> {
        self.section(name, &plan.about);
        let (seeds, readings) =
            (summaries.first().map_or(0, |s| s.seeds), summaries.iter().map(|s| s.readings).sum::<u64>());
        self.say(&format!(
            "Simulated: {readings} readings in all, {seeds} seeds for each line, with intervals of 95 %. Energy is that \
             of the mote's processor and radio for one reading: with a radio that is on for frames only, and with one \
             that is always on."
        ));
        for (key, label, figure) in FIGURES {
            let svg = match series(&summaries, *figure) {
                Some((x_label, series)) => plot::lines(label, &x_label, "", &series),
                None if summaries.len() <= MOST_BARS => plot::bars(label, "", &[], &bars(&summaries, *figure)),
                None => continue,
            };
            self.plot(&format!("{name}-{key}"), &svg)?;
        }
        self.hardest(name, plan, &summaries)?;
        let rows: Vec<Row> = summaries.iter().map(|summary| Row { anchor: None, cells: row(summary) }).collect();
        self.table(HEADER, &rows)?;
        self.overview.deployment(name, own, Some(line(plan, &summaries)));
        for sentence in Advice::of(summaries).recommendation {
            self.say(&sentence);
        }
        self.end();
        Ok(())
    }

    /// Adds a plan without stored runs to the first page of the report, with the command that runs the plan.
    pub(crate) fn missing(&mut self, name: &str, own: bool) {
        self.overview.deployment(name, own, None);
    }

    /// Plots the delays and the maps of the case in which the fewest readings were answered.
    fn hardest(&mut self, name: &str, plan: &Plan, summaries: &[Summary]) -> io::Result<()> {
        let least = summaries.iter().min_by(|a, b| a.delivered.mean.total_cmp(&b.delivered.mean));
        let Some(hardest) = least.map(|summary| &summary.case) else { return Ok(()) };
        let of_it: Vec<_> = summaries.iter().filter(|summary| summary.case == *hardest).collect();
        if of_it.len() < summaries.len() {
            let case = settings(hardest);
            self.say(&format!("Delays and maps are those of the case that delivers least: {case}."));
        }
        let line = |summary: &&Summary| Series {
            name: summary.protection.name().into(),
            points: summary.delays.iter().map(|(delay, share)| (*delay, (*share, None))).collect(),
        };
        let series: Vec<_> = of_it.iter().map(line).collect();
        let title = "Time from reading to answer";
        self.plot(&format!("{name}-delays"), &plot::distribution(title, "ms", "share of readings", &series))?;
        let Some(case) = plan.cases.iter().find(|case| case.values == *hardest) else { return Ok(()) };
        for summary in of_it.iter().filter(|summary| summary.by_node.len() > 1).take(MOST_MAPS) {
            let protection = summary.protection.name();
            let title = format!("Nodes under {protection}");
            self.plot(&format!("{name}-nodes-{protection}"), &plot::map(&title, &nodes(case, summary)))?;
        }
        for summary in of_it.iter().filter(|summary| summary.by_node.len() > 1) {
            self.say(&extremes(summary));
        }
        Ok(())
    }
}

/// Returns the line with which the first page of the report describes the results of a deployment.
fn line(plan: &Plan, summaries: &[Summary]) -> String {
    let delivered = || summaries.iter().map(|summary| summary.delivered.mean * 100.0);
    let (least, most) = (delivered().fold(f64::INFINITY, f64::min), delivered().fold(0.0, f64::max));
    format!(
        "{}. {} cases and protections: {least:.1} to {most:.1} % of the readings were answered.",
        plan.about,
        summaries.len()
    )
}

/// Returns the nodes of a case for a map, with their shares of answered readings in this summary.
fn nodes(case: &Case, summary: &Summary) -> Vec<Node> {
    let parents = case.deployment.links().and_then(|links| case.deployment.parents(&links)).unwrap_or_default();
    let answered = |number| summary.by_node.iter().find(|of| of.node == number).map(|of| of.delivered.mean);
    parents.iter().enumerate().map(|(number, parent)| Node { parent: *parent, answered: answered(number) }).collect()
}

/// Returns a sentence that names the node with the fewest answers, and the node with the longest median delay.
fn extremes(summary: &Summary) -> String {
    let answered = |node: &OfNode| node.delivered.mean;
    let fewest = summary.by_node.iter().min_by(|a, b| answered(a).total_cmp(&answered(b)));
    let slowest = summary.by_node.iter().max_by(|a, b| a.delay_p50_ms.mean.total_cmp(&b.delay_p50_ms.mean));
    let (Some(fewest), Some(slowest)) = (fewest, slowest) else { return String::new() };
    let percent = answered(fewest) * 100.0;
    let answers = match summary.by_node.iter().all(|node| answered(node) == answered(fewest)) {
        true => format!("all nodes have {percent:.1} % of their readings answered"),
        false => format!("node {} has the fewest answers ({percent:.1} % of its readings)", fewest.node),
    };
    let (name, node, median) = (summary.protection.name(), slowest.node, slowest.delay_p50_ms.mean);
    format!("{name}: {answers}, node {node} has the longest median ({median:.1} ms).")
}

/// Formats the settings of a case as one line.
fn settings(case: &BTreeMap<String, String>) -> String {
    case.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("; ")
}

/// Returns a bar for each case and each protection. `pick` selects the plotted value of a summary.
fn bars(summaries: &[Summary], pick: Pick) -> Vec<Bars> {
    let bar = |summary: &Summary| {
        let case = settings(&summary.case);
        let separator = if case.is_empty() { "" } else { ", " };
        let figure = pick(summary);
        let name = format!("{}{separator}{case}", summary.protection.name());
        Bars { name, values: vec![(figure.mean, figure.interval)] }
    };
    summaries.iter().map(bar).collect()
}

/// Maximum number of bars that are plotted for a plan.
const MOST_BARS: usize = 24;
/// Maximum number of maps that are drawn for a plan.
const MOST_MAPS: usize = 8;

type Pick = fn(&Summary) -> Mean;

/// The values that are plotted for a deployment. Each has a name for the file, a label, and a function that selects the
/// value of a summary.
const FIGURES: &[(&str, &str, Pick)] = &[
    ("delivered", "delivered, share of readings", |summary| summary.delivered),
    ("delay", "median from reading to answer, ms", |summary| summary.delay_p50_ms),
    ("energy", "energy of a reading, uJ, radio on for frames", |summary| summary.energy_uj),
];

/// Returns the key for the horizontal axis of a plot, and the lines of the plot. The key is the setting that has the
/// largest count of different numeric values in the cases. There is a line for each protection and each combination of
/// values of the other keys. Returns `None` if no key has at least three numbers, or if a case has no number for the
/// key.
fn series(summaries: &[Summary], pick: Pick) -> Option<(String, Vec<Series>)> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (key, value) in summaries.iter().flat_map(|summary| &summary.case) {
        let numbers = values.entry(key).or_default();
        if let Ok(number) = value.parse::<f64>()
            && !numbers.contains(&number)
        {
            numbers.push(number);
        }
    }
    let (key, _) = values.iter().filter(|(_, numbers)| numbers.len() >= 3).max_by_key(|(_, numbers)| numbers.len())?;
    let key = (*key).to_owned();
    let mut series: Vec<Series> = Vec::new();
    for summary in summaries {
        let others = summary.case.iter().filter(|(other, _)| **other != key);
        let others = others.map(|(other, value)| format!(", {other} = {value}")).collect::<String>();
        let name = summary.protection.name().to_owned() + &others;
        let x = summary.case.get(&key)?.parse().ok()?;
        let figure = pick(summary);
        let point = (x, (figure.mean, figure.interval));
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point] }),
        }
    }
    Some((key, series))
}

const HEADER: &[&str] = &[
    "case",
    "protection",
    "hops",
    "source",
    "readings",
    "delivered",
    "low_95",
    "high_95",
    "first_try",
    "mean_ms",
    "low_95",
    "high_95",
    "median_ms",
    "low_95",
    "high_95",
    "p95_ms",
    "bytes_per_reading",
    "frames_per_reading",
    "energy_uj",
    "energy_uj_overheard",
    "energy_uj_always_on",
    "sessions",
    "battery_years",
    "battery_years_always_on",
    "rom",
    "ram",
    "seeds",
];

/// Formats the lower (`end` 0) or the upper (`end` 1) bound of a confidence interval. The text is empty if there is no
/// interval.
fn bound(mean: &Mean, end: usize) -> String {
    mean.interval.map_or(String::new(), |bounds| format!("{:.4}", bounds[end]))
}

fn row(summary: &Summary) -> Vec<String> {
    vec![
        settings(&summary.case),
        summary.protection.name().into(),
        summary.hops.to_string(),
        summary.source.name().into(),
        summary.readings.to_string(),
        format!("{:.4}", summary.delivered.mean),
        bound(&summary.delivered, 0),
        bound(&summary.delivered, 1),
        format!("{:.4}", summary.first_try.mean),
        format!("{:.3}", summary.delay_mean_ms.mean),
        bound(&summary.delay_mean_ms, 0),
        bound(&summary.delay_mean_ms, 1),
        format!("{:.3}", summary.delay_p50_ms.mean),
        bound(&summary.delay_p50_ms, 0),
        bound(&summary.delay_p50_ms, 1),
        format!("{:.3}", summary.delay_p95_ms.mean),
        format!("{:.2}", summary.bytes_per_reading.mean),
        format!("{:.2}", summary.frames_per_reading.mean),
        format!("{:.1}", summary.energy_uj.mean),
        format!("{:.1}", summary.overheard_uj.mean),
        format!("{:.0}", summary.energy_always_on_uj.mean),
        format!("{:.1}", summary.sessions.mean),
        format!("{:.2}", summary.battery_years),
        format!("{:.3}", summary.battery_years_always_on),
        summary.rom.to_string(),
        summary.ram.to_string(),
        summary.seeds.to_string(),
    ]
}
