//! Parts of a plan. Several machines run the same plan with different seeds. The parts are then merged into one file.
//!
//! A part is a CSV file. Its first line identifies the plan and the program. A header and a line for each run follow.
//! The runs are sorted by case, protection and seed. The merged file is equal, byte for byte, to the file that one
//! machine writes if it runs the whole plan.

use super::{Kept, Run, fnv, program, text_of};
use crate::deployment::{Case, MAX_SEED, MAX_SEEDS, Plan};
use crate::mote::Protection;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// Replaces the seeds of the plan.
pub fn set_seeds(plan: &mut Plan, seeds: &RangeInclusive<u64>) {
    for case in &mut plan.cases {
        case.deployment.run.first_seed = *seeds.start();
        case.deployment.run.seeds = seeds.end() - seeds.start() + 1;
    }
}

/// Reads a range of seeds, written as `first..last`. The range includes both seeds.
///
/// # Errors
/// If the text is not a range, or exceeds the limits. The message contains the correct form and the limits.
pub fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let range = text.split_once("..").and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    let range = range.filter(|range: &RangeInclusive<u64>| {
        range.start() <= range.end() && *range.end() <= MAX_SEED && range.end() - range.start() < MAX_SEEDS
    });
    range.ok_or_else(|| {
        format!("{text}: first and last seed, both included, as 1..50; up to {MAX_SEED}, and {MAX_SEEDS} at once")
    })
}

/// Returns the text of a CSV file that contains these runs of the plan. The file is one part of the plan's results:
/// several machines can each run a part.
///
/// # Errors
/// If the executable file of this program cannot be read.
pub fn write(plan: &Plan, runs: &[Run]) -> std::io::Result<String> {
    let mut text = first_line(plan, program()?);
    let columns = columns();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "case,protection,seed,{},values", columns.join(","));
    for run in runs {
        let kept = serde_json::to_value(&run.kept).unwrap_or_default();
        let cells: Vec<String> = columns.iter().map(|column| cell(&kept[column])).collect();
        let values = plan.cases.get(run.case).map(values).unwrap_or_default().replace('"', "\"\"");
        let name = run.protection.name();
        let _ = writeln!(text, "{},{name},{},{},\"{values}\"", run.case + 1, run.seed, cells.join(","));
    }
    Ok(text)
}

/// Merges the parts of a plan. Each part has the name of its file, and its text. The returned runs are in the order in
/// which one program runs the whole plan.
///
/// # Errors
/// If a part was made with another plan or another program, if two parts have a run with the same seed, or if a file is
/// not a part. The message contains the name of the part.
pub fn merge(plan: &Plan, parts: &[(String, String)]) -> Result<Vec<Run>, String> {
    let program = program().map_err(|error| format!("the program's own file: {error}"))?;
    let mut runs: Vec<(Run, &str)> = Vec::new();
    for (name, text) in parts {
        runs.extend(read(plan, program, name, text)?.into_iter().map(|run| (run, name.as_str())));
    }
    let order = |run: &Run| {
        let protections = plan.cases.get(run.case).map(|case| &case.deployment.stack.protections);
        let place = protections.and_then(|all| all.iter().position(|protection| *protection == run.protection));
        (run.case, place, run.seed)
    };
    runs.sort_by_key(|(run, _)| order(run));
    for pair in runs.windows(2) {
        let [(a, first), (b, second)] = pair else { continue };
        if order(a) == order(b) {
            return Err(format!("{first} and {second} both have seed {}: each seed is run in one part only", a.seed));
        }
    }
    Ok(runs.into_iter().map(|(run, _)| run).collect())
}

fn read(plan: &Plan, program: u64, name: &str, text: &str) -> Result<Vec<Run>, String> {
    let (expected, columns) = (first_line(plan, program), columns());
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    if first != expected.trim_end() {
        let same_plan = first.split(';').next() == expected.split(';').next();
        return Err(match (first.starts_with(MARK), same_plan) {
            (false, _) => format!("{name}: not a file that `tegmen lab run FILE --out` wrote"),
            (true, false) => format!("{name}: made from another plan: run each part with the same file"),
            (true, true) => format!("{name}: made by another build of tegmen: run each part with the same program"),
        });
    }
    lines.next();
    let run = |line: &str| {
        let cells: Vec<&str> = line.splitn(columns.len() + 4, ',').collect();
        let [case, protection, seed, kept @ .., _] = cells.as_slice() else { return None };
        let case = case.parse::<usize>().ok()?.checked_sub(1)?;
        let protections = &plan.cases.get(case)?.deployment.stack.protections;
        let protection = protections.iter().copied().find(|known: &Protection| known.name() == *protection)?;
        let field = |(column, cell): (&String, &&str)| Some((column.clone(), field(column, cell)?));
        let kept: Map<String, Value> = columns.iter().zip(kept).map(field).collect::<Option<_>>()?;
        let kept = serde_json::from_value(Value::Object(kept)).ok()?;
        Some(Run { case, protection, seed: seed.parse().ok()?, kept, speed: None })
    };
    let rows = lines.enumerate().map(|(number, line)| {
        run(line).ok_or_else(|| format!("{name}, line {}: not a run of this plan", number + FIRST_RUN))
    });
    rows.collect()
}

/// Formats a value for a cell of the file. A number stays as it is. In a list, each pair becomes `a/b`, and spaces
/// separate the pairs.
fn cell(value: &Value) -> String {
    match value {
        Value::Array(values) if values.iter().all(Value::is_array) => {
            values.iter().map(cell).collect::<Vec<_>>().join(" ")
        }
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join("/"),
        number => number.to_string(),
    }
}

fn field(column: &str, cell: &str) -> Option<Value> {
    let number = |text: &str| text.parse::<u64>().ok().map(Value::from);
    if !LISTS.contains(&column) {
        return number(cell);
    }
    let pair = |pair: &str| Some(Value::Array(pair.split('/').map(number).collect::<Option<_>>()?));
    Some(Value::Array(cell.split_whitespace().map(pair).collect::<Option<_>>()?))
}

fn first_line(plan: &Plan, program: u64) -> String {
    let cases = plan.cases.iter().map(|case| format!("{} {}\n", values(case), text_of(&case.deployment)));
    format!("{MARK} {:016x}; program {program:016x}\n", fnv(cases.collect::<String>().as_bytes()))
}

fn values(case: &Case) -> String {
    case.values.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join("; ")
}

/// Returns the names of the columns, which are the fields of a run.
fn columns() -> Vec<String> {
    let kept = serde_json::to_value(Kept::default()).unwrap_or_default();
    kept.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
}

const MARK: &str = "# runs of tegmen lab, plan";
/// The names of the columns that contain lists.
const LISTS: [&str; 2] = ["by_node", "delays"];
/// The number of the line in a CSV file that contains the first run, counted from 1. The lines before it identify the
/// plan and name the columns.
const FIRST_RUN: usize = 3;

#[cfg(test)]
mod tests;
