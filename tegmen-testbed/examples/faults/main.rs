//! Runs every test of the workspace once, and prints a line for each class of faults in `faults.toml`: `./ci.sh
//! faults`. Also writes the results to target/faults.json.
//!
//! If the first argument is an option, all arguments are options for `cargo test`. If the arguments are commits, the
//! program runs the tests of their faults with the source code before each commit: `./ci.sh red COMMIT`. With this
//! source code at least one test of each fault must fail.

mod red;

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

/// Maximum time for one test binary, in seconds. The slowest test binary needs about two minutes.
const SECONDS: &str = "900";
/// The folder for the output of each test binary.
const OUTPUT: &str = "target/tests";

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
    /// The reason why the class of faults does not apply yet; `None` if it applies.
    absent: Option<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| !first.starts_with("--")) {
        return red::run(&arguments);
    }
    let table: Table = toml::from_str(include_str!("../../faults.toml")).expect("faults.toml is well formed");
    let ran = match run_tests(&arguments) {
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

/// The results of all tests in the workspace.
struct Ran {
    /// For each test, true if it passed. The key is `target::path`.
    tests: BTreeMap<String, bool>,
    /// True if every test binary ended with success.
    success: bool,
}

/// A test binary, which contains the tests of one target.
struct Binary {
    path: PathBuf,
    /// The folder of its package. Cargo would run the binary in this folder.
    package: PathBuf,
}

impl Binary {
    fn file(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("")
    }

    /// Returns the name of the target of this binary.
    fn name(&self) -> &str {
        let file = self.file();
        file.rsplit_once('-').map_or(file, |(name, _)| name)
    }

    /// Runs the binary, and ends it after [`SECONDS`]. Prints its output without the lines of tests that passed.
    fn run(&self, ran: &Mutex<Ran>) -> Result<(), String> {
        println!("running {}", self.path.display());
        // Files, because a process that a failed test leaves behind keeps a pipe open for ever.
        let [out, err] = ["out", "err"].map(|end| Path::new(OUTPUT).join(self.file()).with_extension(end));
        let failed = |error: std::io::Error| format!("{} cannot be run: {error}", self.path.display());
        std::fs::create_dir_all(OUTPUT).map_err(failed)?;
        let status = Command::new("timeout")
            .args(["--kill-after", "10", SECONDS])
            .arg(&self.path)
            .current_dir(&self.package)
            .env("CARGO_MANIFEST_DIR", &self.package)
            .stdin(Stdio::null())
            .stdout(File::create(&out).map_err(failed)?)
            .stderr(File::create(&err).map_err(failed)?)
            .status()
            .map_err(failed)?;
        let [text, errors] = [out, err].map(std::fs::read).map(|read| read.map_err(failed));
        let (text, errors) = (text?, errors?);
        let text = String::from_utf8_lossy(&text);
        // Locked while it prints, so that the output of another binary does not come in between.
        let mut ran = ran.lock().unwrap_or_else(PoisonError::into_inner);
        println!("finished {}", self.path.display());
        for line in text.lines() {
            let result = line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... "));
            let passed = result.is_some_and(|(_, result)| result.trim() == "ok");
            if !passed && !line.is_empty() {
                println!("{line}");
            }
            if let Some((name, _)) = result {
                ran.tests.insert(format!("{}::{name}", self.name()), passed);
            }
        }
        eprint!("{}", String::from_utf8_lossy(&errors));
        if !status.success() {
            let cause = if status.code() == Some(124) { "did not end within" } else { "failed within" };
            println!("{} {cause} {SECONDS} s: {status}", self.path.display());
            ran.success = false;
        }
        Ok(())
    }
}

/// Runs every test of the workspace once. Runs as many test binaries at the same time as there are processor cores.
fn run_tests(options: &[String]) -> Result<Ran, String> {
    let binaries = Mutex::new(build(options)?.into_iter());
    let ran = Mutex::new(Ran { tests: BTreeMap::new(), success: true });
    let next = || binaries.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<(), String> {
        while let Some(binary) = next() {
            binary.run(&ran)?;
        }
        Ok(())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker panicked")?)
    })?;
    let ran = ran.into_inner().unwrap_or_else(PoisonError::into_inner);
    if ran.tests.is_empty() {
        return Err("no test was run".to_owned());
    }
    Ok(ran)
}

/// Builds all tests of the workspace with these options of cargo. Returns the test binaries.
fn build(options: &[String]) -> Result<Vec<Binary>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        // The whole workspace: with fewer packages the dependencies would have other features, and be built again.
        .args(["test", "--locked", "--workspace", "--lib", "--bins", "--examples", "--tests"])
        .args(options)
        .args(["--no-run", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests cannot be built: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let artifacts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let binary = |artifact: Value| {
        let path = artifact["executable"].as_str()?;
        let package = Path::new(artifact["manifest_path"].as_str()?).parent()?;
        let test = artifact["profile"]["test"].as_bool()?;
        test.then(|| Binary { path: path.into(), package: package.to_owned() })
    };
    Ok(artifacts.filter_map(binary).collect())
}
