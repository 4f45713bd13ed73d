//! Runs every test of the workspace once, and prints a line for each class of `faults.toml`: `./ci.sh faults`, which writes
//! target/faults.json.
//!
//! With commits as arguments it runs the tests of their classes on the sources before each commit, where they must fail:
//! `./ci.sh red COMMIT`.

mod red;

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read};
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
    let Ran { tests: ran, success } = ran;
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
        Ok(()) if bad == 0 && success => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("faults: {path} cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every test of the workspace and its result, and the exit of `cargo test`.
struct Ran {
    /// True for each test that passed, by `target::path`.
    tests: BTreeMap<String, bool>,
    success: bool,
}

/// Runs every test of the workspace once. Prints what cargo prints, without a line for each test that passed.
fn run_tests() -> Result<Ran, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut child = Command::new(cargo)
        // The whole workspace: with fewer packages the dependencies would have other features, and be built again.
        .args(["test", "--locked", "--no-fail-fast", "--workspace", "--lib", "--bins", "--examples", "--tests"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    // Cargo writes the name of a test binary to standard error, and the binary its results to standard output. Both are
    // in the same order.
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || lines_of(stderr, |line| eprintln!("{line}")));
    let output = lines_of(stdout, |line| {
        let passed = line.starts_with("test ") && line.ends_with(" ... ok");
        if !passed && !line.is_empty() {
            println!("{line}");
        }
    });
    let errors = errors.join().map_err(|_| "the reader of cargo's messages panicked")?;
    let status = child.wait().map_err(|error| format!("cargo cannot be waited for: {error}"))?;
    let mut binaries = errors.iter().filter_map(|line| line.trim().strip_prefix("Running ")).map(|line| {
        // "unittests src/lib.rs (target/debug/deps/tegmen-0123)" or "tests/faults.rs (...)".
        let file = line.rsplit_once('(').map_or("", |(_, path)| path.trim_end_matches(')'));
        let name = file.rsplit('/').next().unwrap_or("");
        name.rsplit_once('-').map_or(name, |(name, _)| name).to_owned()
    });
    let (mut tests, mut binary) = (BTreeMap::new(), String::new());
    for line in &output {
        if line.starts_with("running ") && line.contains(" test") {
            binary = binaries.next().ok_or("cargo's output is not what it was: a test binary has no name")?;
        } else if let Some((name, result)) = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) {
            tests.insert(format!("{binary}::{name}"), result.trim() == "ok");
        }
    }
    if tests.is_empty() {
        return Err("no test was run".to_owned());
    }
    Ok(Ran { tests, success: status.success() })
}

/// Reads all lines of a pipe, and passes each to `show` as it comes.
fn lines_of(pipe: Option<impl Read>, show: impl Fn(&str)) -> Vec<String> {
    let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n')).map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).inspect(|line| show(line)).collect()
}
