//! Checks whether the tests of a rule fail if the rule's code is broken: `./ci.sh mutants SEED` or `./ci.sh mutants
//! SEED ROWS`. The code is broken by mutants, which are small changes of a function.
//!
//! A row in the tables of `conformance/` names a rule, functions and tests. The program chooses random rows that have
//! both, and for each row a random function. `cargo mutants` lists the mutants of this function. The program applies a
//! few random mutants to a source tree under target/mutants, one after the other, until a test of the row fails. If the
//! tests pass with all these mutants, the row is printed as not caught. Its tests may then prove nothing, or the
//! mutants change code that does not belong to the rule.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

/// Number of rows that are chosen if the command line contains no number.
const ROWS: usize = 30;
/// Maximum number of mutants that are tried for a function.
const TRIES: usize = 4;
/// Maximum time for the tests of one target, in seconds. A mutant can contain an endless loop.
const SECONDS: &str = "300";
const TREE: &str = "target/mutants/tree";
const BUILD: &str = "target/mutants/build";

#[derive(Deserialize)]
struct Table {
    title: String,
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    section: String,
    rule: String,
    #[serde(default)]
    code: Vec<String>,
    #[serde(default)]
    tests: Vec<String>,
}

/// A function, and its tests. The row is caught if, for at least one mutant of the function, at least one of the tests
/// fails.
struct Row {
    place: String,
    code: String,
    tests: Vec<String>,
}

struct Mutant {
    name: String,
    patch: String,
}

enum Outcome {
    /// This test failed, so the mutant was caught.
    Caught(String),
    Missed,
    Uncompiled,
}

/// A generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end.max(1) as u64) as usize
    }

    /// Chooses at most `most` random elements of `all`.
    fn draw<T>(&mut self, mut all: Vec<T>, most: usize) -> Vec<T> {
        let count = most.min(all.len());
        (0..count).map(|_| all.swap_remove(self.below(all.len()))).collect()
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let (Some(Ok(seed)), Ok(rows)) = (words.next(), words.next().unwrap_or(Ok(ROWS))) else {
        eprintln!("mutants: name a seed, and perhaps a number of rows");
        return ExitCode::from(2);
    };
    match run(Random(seed as u64), rows) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("mutants: {message}");
            ExitCode::from(2)
        }
    }
}

/// Returns the number of rows whose tests pass with every tried mutant.
fn run(mut random: Random, rows: usize) -> Result<usize, String> {
    make_tree()?;
    let all = read_rows(&mut random)?;
    let (mut caught, mut missed, mut without) = (0, 0, 0);
    for Row { place, code, tests } in random.draw(all, rows) {
        println!("{place}\n  {code}");
        let (mut passed, mut found) = (Vec::new(), false);
        for mutant in random.draw(mutants_of(&code)?, TRIES) {
            match try_mutant(&mutant, &tests)? {
                Outcome::Caught(test) => {
                    println!("  caught: {} ({test})", mutant.name);
                    found = true;
                    break;
                }
                Outcome::Missed => passed.push(mutant.name),
                Outcome::Uncompiled => {}
            }
        }
        match (found, passed.is_empty()) {
            (true, _) => caught += 1,
            (false, true) => {
                without += 1;
                println!("  no mutant that compiles");
            }
            (false, false) => {
                missed += 1;
                println!("  NOT CAUGHT by {}:\n    {}", tests.join(", "), passed.join("\n    "));
            }
        }
    }
    println!("{caught} rows caught, {missed} not caught, {without} without a mutant");
    Ok(missed)
}

/// Returns the rows that have a function and tests. Each has one random function of its functions.
fn read_rows(random: &mut Random) -> Result<Vec<Row>, String> {
    let folder = Path::new(TREE).join("conformance");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|kind| kind == "toml")).collect();
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let table: Table = toml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        for Rule { section, rule, code, tests } in table.rule {
            if let Some(code) = random.draw(code, 1).pop().filter(|_| !tests.is_empty()) {
                rows.push(Row { place: format!("{}, section {section}: {rule}", table.title), code, tests });
            }
        }
    }
    Ok(rows)
}

/// Returns the mutants of a function. Each mutant is a patch of the function's file.
fn mutants_of(code: &str) -> Result<Vec<Mutant>, String> {
    let (file, function) = code.split_once(".rs::").ok_or_else(|| format!("{code} is no path"))?;
    let (file, name) = (format!("{file}.rs"), function.rsplit("::").next().unwrap_or(function));
    let of_type = function.rsplit_once("::").map_or("", |(of_type, _)| of_type);
    let package = file.split('/').next().unwrap_or("");
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--diff", "--package", package, "--file", &file]).current_dir(TREE);
    let output = command.output().map_err(|error| format!("cargo mutants cannot be run: {error}"))?;
    let parsed = serde_json::from_slice::<Value>(&output.stdout);
    let Ok(Value::Array(all)) = parsed else {
        return Err(format!("cargo mutants --list: {}", String::from_utf8_lossy(&output.stderr).trim()));
    };
    let is_it = |mutant: &&Value| {
        let of = mutant["function"]["function_name"].as_str().unwrap_or("");
        of.rsplit("::").next() == Some(name) && of.contains(of_type)
    };
    let read = |mutant: &Value| {
        let diff = mutant["diff"].as_str()?;
        let hunks = diff.split_inclusive('\n').skip_while(|line| !line.starts_with("@@")).collect::<String>();
        let replacement = mutant["replacement"].as_str().unwrap_or("").to_owned();
        let name = mutant["name"].as_str().map_or(replacement, str::to_owned);
        Some(Mutant { name, patch: format!("--- a/{file}\n+++ b/{file}\n{hunks}") })
    };
    Ok(all.iter().filter(is_it).filter_map(read).collect())
}

/// Applies a mutant to the tree, runs the tests of a row, and removes the mutant.
fn try_mutant(mutant: &Mutant, tests: &[String]) -> Result<Outcome, String> {
    let patch = Path::new("target/mutants/patch");
    std::fs::write(patch, &mutant.patch).map_err(|error| error.to_string())?;
    git(TREE, &["apply", "--recount", "../patch"])?;
    let outcome = run_tests(tests);
    git(TREE, &["checkout", "--quiet", "--force", "--", "."])?;
    outcome
}

fn run_tests(tests: &[String]) -> Result<Outcome, String> {
    let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for test in tests {
        let (target, name) = test.split_once("::").ok_or_else(|| format!("{test} has no target"))?;
        targets.entry(target).or_default().push(name);
    }
    for (target, names) in targets {
        let mut has_run = false;
        // Two packages may have a target of one name.
        for chosen in chosen(target)? {
            if !cargo_test(&["cargo"], &chosen, &["--no-run"])?.status.success() {
                return Ok(Outcome::Uncompiled);
            }
            let run: Vec<&str> = ["--", "--exact"].into_iter().chain(names.iter().copied()).collect();
            let output = cargo_test(&["timeout", SECONDS, "cargo"], &chosen, &run)?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            has_run |= names.iter().any(|name| text.contains(&format!("test {name} ... ")));
            if !output.status.success() {
                let failed = names.iter().find(|name| text.contains(&format!("test {name} ... FAILED")));
                return Ok(Outcome::Caught(
                    failed.map_or(format!("{target} ended"), |name| format!("{target}::{name}")),
                ));
            }
        }
        if !has_run {
            return Err(format!("no test of {target} has run"));
        }
    }
    Ok(Outcome::Missed)
}

/// Returns the options with which `cargo test` selects each target that has this name. A target is a file or a folder
/// in the `tests` folder of a crate, or a library.
fn chosen(target: &str) -> Result<Vec<Vec<String>>, String> {
    let entries = std::fs::read_dir(TREE).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.join("Cargo.toml").exists()) {
        let package = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tests = path.join("tests").join(target);
        if tests.with_extension("rs").exists() || tests.join("main.rs").exists() {
            found.push(["-p", &package, "--test", target].map(str::to_owned).to_vec());
        }
        if package.replace('-', "_") == target {
            // The command has no library: its unit tests are in its binary.
            let unit_tests = if path.join("src/lib.rs").exists() { "--lib" } else { "--bins" };
            found.push(["-p", &package, unit_tests].map(str::to_owned).to_vec());
        }
    }
    if found.is_empty() { Err(format!("there is no target {target}")) } else { Ok(found) }
}

/// Runs `cargo test` in the tree. All mutants share a build directory, so that a mutant needs no full build.
fn cargo_test(cargo: &[&str], chosen: &[String], last: &[&str]) -> Result<Output, String> {
    let build = std::env::current_dir().map_err(|error| error.to_string())?.join(BUILD);
    let (program, words) = cargo.split_first().ok_or("no program")?;
    let mut command = Command::new(program);
    command.args(words).args(["test", "--locked", "--no-fail-fast"]).args(chosen).args(last);
    command.current_dir(TREE).env("CARGO_TARGET_DIR", build);
    command.output().map_err(|error| format!("{program} cannot be run: {error}"))
}

/// Makes the source tree, or updates it to the last commit.
fn make_tree() -> Result<(), String> {
    if !Path::new(TREE).join(".git").exists() {
        git(".", &["worktree", "prune"])?;
        git(".", &["worktree", "add", "--quiet", "--force", "--detach", TREE, "HEAD"])?;
    }
    let head = git(".", &["rev-parse", "HEAD"])?;
    git(TREE, &["checkout", "--quiet", "--force", "--detach", &head])?;
    git(TREE, &["clean", "--quiet", "--force", "-d"])?;
    Ok(())
}

fn git(tree: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(tree).args(arguments).output();
    let output = output.map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
