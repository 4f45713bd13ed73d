//! Runs the tests of `faults.toml` and prints a line for each class: `./ci.sh faults`, which writes target/faults.json.
//!
//! With commits as arguments it runs the tests of their classes on the sources before each commit, where they must fail:
//! `./ci.sh red COMMIT`.

mod red;

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

#[derive(Deserialize)]
struct Table {
    fault: Vec<Fault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    number: u32,
    class: String,
    #[serde(default)]
    tests: Vec<String>,
    /// Why it does not apply yet.
    absent: Option<String>,
}

fn main() -> ExitCode {
    let commits: Vec<String> = std::env::args().skip(1).collect();
    if !commits.is_empty() {
        return red::run(&commits);
    }
    let table: Table = toml::from_str(include_str!("../../faults.toml")).expect("faults.toml is well formed");
    let ran = match run_tests() {
        Ok(ran) => ran,
        Err(message) => {
            eprintln!("faults: {message}");
            return ExitCode::FAILURE;
        }
    };
    let (mut rows, mut bad, mut survived, mut absent) = (Vec::new(), 0, 0, 0);
    for fault in &table.fault {
        // A test that is gone, or that was not run, survives nothing.
        let failed: Vec<&String> = fault.tests.iter().filter(|test| ran.get(*test) != Some(&true)).collect();
        let result = match (&fault.absent, fault.tests.is_empty(), failed.is_empty()) {
            (Some(why), true, _) => {
                absent += 1;
                format!("does not apply: {why}")
            }
            (None, false, true) => {
                survived += 1;
                format!("survived ({} tests)", fault.tests.len())
            }
            (None, false, false) => {
                bad += 1;
                let missing = |test: &&String| {
                    format!("{test} {}", if ran.contains_key(*test) { "failed" } else { "is missing" })
                };
                format!("NOT SURVIVED: {}", failed.iter().map(missing).collect::<Vec<_>>().join(", "))
            }
            _ => {
                bad += 1;
                "NOT SURVIVED: the row names neither tests nor a reason, or both".to_owned()
            }
        };
        println!("{:>4}  {:<62} {result}", fault.number, fault.class);
        rows.push(json!({ "number": fault.number, "class": fault.class, "tests": fault.tests, "result": result }));
    }
    let path = "target/faults.json";
    let written = std::fs::write(path, Value::from(rows).to_string());
    println!("{survived} survived, {bad} not survived, {absent} do not apply; {path}");
    match written {
        Ok(()) if bad == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {path} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every test of the workspace, and whether it passed.
fn run_tests() -> Result<BTreeMap<String, bool>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        // The whole workspace, as the step `test` builds it: with fewer packages the dependencies would have other features.
        .args(["test", "--locked", "--no-fail-fast", "--workspace", "--lib", "--bins", "--tests"])
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    // Which binary runs stands on standard error, what it says on standard output: both are in the same order.
    let (stderr, stdout) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let mut binaries = stderr.lines().filter_map(|line| line.trim().strip_prefix("Running ")).map(|line| {
        // "unittests src/lib.rs (target/debug/deps/tegmen-0123)" or "tests/faults.rs (...)".
        let file = line.rsplit_once('(').map_or("", |(_, path)| path.trim_end_matches(')'));
        let name = file.rsplit('/').next().unwrap_or("");
        name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned()
    });
    let (mut ran, mut binary) = (BTreeMap::new(), String::new());
    for line in stdout.lines() {
        if line.starts_with("running ") && line.contains(" test") {
            binary = binaries.next().ok_or("cargo's output is not what it was: a test binary has no name")?;
        } else if let Some((name, result)) = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) {
            ran.insert(format!("{binary}::{name}"), result.trim() == "ok");
        }
    }
    if ran.is_empty() {
        return Err(format!("no test was run:\n{stderr}"));
    }
    Ok(ran)
}
