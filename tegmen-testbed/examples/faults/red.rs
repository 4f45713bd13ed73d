//! Runs the tests of a commit with the source code of its parent commit. At least one test must fail there. If all
//! tests pass, they do not prove that the commit corrects a fault.
//!
//! A commit that corrects a fault of `faults.toml` contains a line `Mends: fault NUMBER`. The program makes a source
//! tree under target/red. The tree has the tests and documents of the commit, and all other files as in the commit's
//! parent. For each fault that the commit names, at least one test must then fail. A tree that does not compile also
//! counts as a failure, and its line shows the error of the compiler.

use crate::{Fault, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode, Output};

/// The packages that contain the tests in faults.toml. Each run of cargo names all of them, so that all runs build with
/// the same features.
const PACKAGES: [&str; 3] = ["tegmen", "tegmen-host", "tegmen-cli"];
const TREE: &str = "target/red/tree";
const BUILD: &str = "target/red/build";
/// The result of all tests if the tree does not compile.
const UNCOMPILED: &str = "does not compile without the mend";
/// Maximum time for the tests of one target, in seconds. A test waits without end for a server that does not answer.
const SECONDS: &str = "120";

/// Tries the commits that the words name. A word is a commit, a number (all commits that correct this fault), or `all`
/// (all commits with a line `Mends:`).
pub(crate) fn run(words: &[String]) -> ExitCode {
    let (mut commits, mut good) = (Vec::new(), true);
    for word in words {
        match named(word) {
            Ok(found) => commits.extend(found),
            Err(message) => return refuse(&message),
        }
    }
    for commit in commits {
        match try_commit(&commit) {
            Ok(red) => good &= red,
            Err(message) => return refuse(&format!("{commit}: {message}")),
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("red: {message}");
    ExitCode::FAILURE
}

/// Returns the commits that one word of the command line names, the oldest first.
fn named(word: &str) -> Result<Vec<String>, String> {
    let pattern = match word.parse::<u32>() {
        Ok(number) if number < 10_000 => format!("^Mends: fault {number}$"),
        _ if word == "all" => "^Mends: fault [0-9]*$".to_owned(),
        _ => return Ok(vec![git(".", &["rev-parse", "--verify", "--quiet", &format!("{word}^{{commit}}")])?]),
    };
    let found = git(".", &["log", "--reverse", "--format=%H", "--grep", &pattern])?;
    if found.is_empty() {
        return Err(format!("no commit has the line 'Mends: fault ...' for {word}"));
    }
    Ok(found.lines().map(str::to_owned).collect())
}

/// Returns true if, for every fault that the commit corrects, a test fails without the source code of the commit.
fn try_commit(commit: &str) -> Result<bool, String> {
    println!("{}", git(".", &["log", "-1", "--format=%h %s", commit])?);
    let faults = mended_by(commit)?;
    before(commit)?;
    let tests: BTreeSet<&str> = faults.iter().flat_map(|fault| fault.tests.iter().map(String::as_str)).collect();
    let results = run_all(&tests)?;
    let uncompiled = |result: &Option<String>| result.as_ref().is_some_and(|why| why.starts_with(UNCOMPILED));
    let broken: BTreeSet<&str> =
        results.iter().filter(|(_, result)| uncompiled(result)).map(|(test, _)| *test).collect();
    if !broken.is_empty() {
        git(TREE, &["checkout", "--quiet", "--force", "--detach", commit])?;
        if let Some((test, Some(why))) = run_all(&broken)?.into_iter().find(|(_, result)| result.is_some()) {
            return Err(format!("{test} fails on the commit itself: {why}"));
        }
    }
    let mut red = true;
    for fault in &faults {
        let failed: Vec<&str> = fault.tests.iter().map(String::as_str).filter(|test| results[test].is_some()).collect();
        red &= !failed.is_empty();
        println!("  {} {}", fault.number, fault.class);
        for test in fault.tests.iter().map(String::as_str) {
            println!("    {test}: {}", results[test].as_deref().unwrap_or("passes without the mend"));
        }
        if failed.is_empty() {
            println!("    NOT RED: no test fails without the mend");
        }
    }
    Ok(red)
}

/// Returns the faults that the commit's message names, as the faults.toml of this commit describes them.
fn mended_by(commit: &str) -> Result<Vec<Fault>, String> {
    let message = git(".", &["log", "-1", "--format=%B", commit])?;
    let numbers: BTreeSet<u32> =
        message.lines().filter_map(|line| line.strip_prefix("Mends: fault ")?.trim().parse().ok()).collect();
    if numbers.is_empty() {
        return Err("its message has no line 'Mends: fault NUMBER'".to_owned());
    }
    let text = git(".", &["show", &format!("{commit}:tegmen-testbed/faults.toml")])?;
    let table: Table = toml::from_str(&text).map_err(|error| error.to_string())?;
    let faults: Vec<Fault> = table.fault.into_iter().filter(|fault| numbers.contains(&fault.number)).collect();
    match faults.iter().find(|fault| fault.tests.is_empty()) {
        Some(fault) => Err(format!("fault {} has no test there", fault.number)),
        None if faults.len() < numbers.len() => Err("faults.toml lacks one of its numbers there".to_owned()),
        None => Ok(faults),
    }
}

/// Makes the source tree: tests and documents as in the commit, and all other files as in its parent.
fn before(commit: &str) -> Result<(), String> {
    if !Path::new(TREE).join(".git").exists() {
        git(".", &["worktree", "prune"])?;
        git(".", &["worktree", "add", "--quiet", "--force", "--detach", TREE, commit])?;
    }
    git(TREE, &["checkout", "--quiet", "--force", "--detach", commit])?;
    git(TREE, &["clean", "--quiet", "--force", "-d"])?;
    let parent = format!("{commit}^");
    for line in git(TREE, &["diff", "--name-status", "--no-renames", &parent, commit])?.lines() {
        let (status, path) = line.split_once('\t').ok_or("git diff's output is not what it was")?;
        match (status, stays(path)) {
            (_, true) => {}
            ("A", _) => std::fs::remove_file(Path::new(TREE).join(path)).map_err(|error| format!("{path}: {error}"))?,
            _ => drop(git(TREE, &["checkout", &parent, "--", path])?),
        }
    }
    Ok(())
}

/// Returns true if a file is a test, data of a test, or a document. Such a file stays as it is in the commit.
fn stays(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let name = parts.last().copied().unwrap_or("");
    parts.iter().any(|part| matches!(*part, "tests" | "vectors" | "corpus" | "docs"))
        || name == "tests.rs"
        || name.starts_with("Cargo.")
        || name.ends_with(".md")
        || name.ends_with(".toml")
}

/// Runs the tests. Returns for each test the reason of its failure, or `None` if it passed.
fn run_all<'a>(tests: &BTreeSet<&'a str>) -> Result<BTreeMap<&'a str, Option<String>>, String> {
    let mut targets: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
    for test in tests {
        targets.entry(test.split("::").next().unwrap_or("")).or_default().push(test);
    }
    let mut results = BTreeMap::new();
    for (target, tests) in targets {
        let output = run_target(target, &tests)?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let stopped = match (output.status.code(), stdout.contains("running ")) {
            (Some(124), _) => "did not end".to_owned(),
            (_, true) => "is not there, or its process ended".to_owned(),
            (_, false) => {
                let cause = stderr.lines().find(|line| line.starts_with("error")).unwrap_or("no reason given");
                format!("{UNCOMPILED} ({cause})")
            }
        };
        for test in tests {
            let name = test.split_once("::").map_or("", |(_, name)| name);
            let line =
                stdout.lines().find_map(|line| line.strip_prefix("test ")?.strip_prefix(name)?.strip_prefix(" ... "));
            let failed = match line.map(str::trim) {
                Some("ok") => None,
                Some("FAILED") => Some("fails".to_owned()),
                _ => Some(stopped.clone()),
            };
            results.insert(test, failed);
        }
    }
    Ok(results)
}

/// Runs these tests of one target: a file in the `tests` folder of a crate, a library, or the unit tests of the command
/// `tegmen`.
fn run_target(target: &str, tests: &[&str]) -> Result<Output, String> {
    let is_file = PACKAGES.iter().any(|package| {
        let tests = Path::new(TREE).join(package).join("tests");
        tests.join(target).with_extension("rs").exists() || tests.join(target).join("main.rs").exists()
    });
    let chosen: &[&str] = match target {
        _ if is_file => &["--test", target],
        "tegmen" if tests.iter().all(|test| in_command(test)) => &["--bins"],
        _ => &["--lib"],
    };
    // Building takes as long as it takes; the limit is for the tests alone.
    let built = cargo_test(&["cargo"], chosen, &["--no-run"])?;
    if !built.status.success() {
        return Ok(built);
    }
    let names = tests.iter().map(|test| test.split_once("::").map_or("", |(_, name)| name));
    let run: Vec<&str> = ["--", "--exact"].into_iter().chain(names).collect();
    cargo_test(&["timeout", SECONDS, "cargo"], chosen, &run)
}

/// Runs `cargo test` in the tree. All commits share a build directory.
fn cargo_test(cargo: &[&str], chosen: &[&str], last: &[&str]) -> Result<Output, String> {
    let build = std::env::current_dir().map_err(|error| error.to_string())?.join(BUILD);
    let (program, words) = cargo.split_first().ok_or("no program")?;
    Command::new(program)
        .args(words)
        .args(["test", "--locked", "--no-fail-fast"])
        .args(PACKAGES.iter().flat_map(|package| ["-p", package]))
        .args(chosen)
        .args(last)
        .current_dir(TREE)
        .env("CARGO_TARGET_DIR", build)
        .output()
        .map_err(|error| format!("{program} cannot be run: {error}"))
}

/// Returns true if a test whose path begins with `tegmen::` belongs to the command. Its binary has the same name as the
/// core library.
fn in_command(test: &str) -> bool {
    let module = test.split("::").nth(1).unwrap_or("");
    Path::new(TREE).join("tegmen-cli/src").join(module).with_extension("rs").exists()
}

fn git(tree: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(tree).args(arguments).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
