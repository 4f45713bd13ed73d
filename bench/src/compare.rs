//! Compares the working tree of Tegmen with another commit. In each row and each pass, the working tree and the other
//! commit are measured in turn.
//!
//! The other commit is checked out as a worktree in the target directory, and is built there. Each commit has a
//! `tegmen` program and a `tegmen-bench` program. This program measures the servers of both commits with the two
//! `tegmen` programs, and the DTLS stacks of both commits with the two `tegmen-bench ours` programs.

use crate::{
    Options, coap, dtls, isolation, oscore,
    program::{CANDIDATES, Candidate, target},
    report::{Header, Report},
    server::Beside,
};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tegmen_bench_line::Failure;

/// Builds the commit `options.base`, and compares the working tree with this commit.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let Some(base) = &options.base else {
        return Err(Failure::new("compare needs a commit: tegmen-bench compare main"));
    };
    if options.passes < PASSES_MIN {
        return Err(Failure::new(format!("a comparison takes at least {PASSES_MIN} passes")));
    }
    // Without it, rows would be missing after minutes of measurement.
    isolation::tegmen()?;
    let commit = said(&["git", "rev-parse", "--verify", "--end-of-options", &format!("{base}^{{commit}}")])?;
    let programs = build(&commit)?;
    // After the build: the load in it is what the measurement finds.
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    report.header.versions.insert("base", commit);
    report.header.notes.push(
        "interval: the order statistics between which the median of the ratios of each pass lies with at least 95 %"
            .into(),
    );
    {
        let mut pair = [CANDIDATES[0].start()?, Candidate::start_base(&programs)?];
        dtls::measure(options, &mut pair, &mut report)?;
    }
    eprintln!("OSCORE");
    oscore::compare(options, &programs, &mut report)?;
    eprintln!("CoAP");
    let short = Options {
        seconds: options.seconds.min(SECONDS),
        observers: options.observers.min(OBSERVERS),
        ..options.clone()
    };
    coap::measure(&short, Beside::Base(&programs), &mut report)?;
    for row in &mut report.rows {
        // The limits of the ratio to a peer do not apply to the ratio between two commits.
        row.judged = options.bound.map(|bound| row.judge_bound(bound)).unwrap_or_default();
        if let Some(counted) = &mut row.instructions {
            counted.judged = Default::default();
        }
    }
    Ok(report)
}

/// Returns the directory with the programs of a commit. Builds the programs if they do not exist.
fn build(commit: &str) -> Result<PathBuf, Failure> {
    let place = target()?.join("compare");
    let tree = place.join(commit);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    if !tree.is_dir() {
        // By force, because git still knows one whose directory was deleted.
        said(&["git", "worktree", "add", "--force", "--detach", &text(&tree), commit])?;
    }
    eprintln!("building {commit}");
    // One target directory for all of them: what they stand on is built once.
    let built = place.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--release",
        "--locked",
        "-p",
        "tegmen-cli",
        "-p",
        "tegmen-bench",
        "--target-dir",
        &text(&built),
    ]);
    let status = cargo.current_dir(&tree).stdin(Stdio::null()).status();
    match status.map_err(|error| Failure::new(format!("cargo: {error}")))?.success() {
        true => Ok(built.join("release")),
        false => Err(Failure::new(format!("{commit} does not build in {}", text(&tree)))),
    }
}

/// Runs a command. Returns its standard output, or a failure with its standard error.
fn said(words: &[&str]) -> Result<String, Failure> {
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| Failure::new(format!("{}: {error}", words[0])))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(Failure::new(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Minimum number of passes. With fewer passes the intervals of the ratios are too wide.
pub(crate) const PASSES_MIN: usize = 31;
/// Maximum time for which requests are sent in one pass, in seconds. If there are many short passes, other work of the
/// machine changes the result less.
const SECONDS: f64 = 0.2;
/// Maximum number of observers. The registration of ten thousand observers takes too long in each pass.
const OBSERVERS: u32 = 2_000;
