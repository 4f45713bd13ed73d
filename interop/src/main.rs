//! Runs third-party peers against the `tegmen` binary over loopback sockets. Prints a table and writes it to
//! `target/interop.json`. The command is
//! `cargo run --release -p tegmen-interop [-- --only TEXT] [--jobs N] [--tegmen PATH]`.

mod access;
mod acme;
mod axiom;
mod capture;
mod cell;
mod connection_id;
mod delegation;
mod directory;
mod dtls;
mod edhoc;
mod gnutls;
mod hello;
mod http;
mod libcoap;
mod mote;
mod ndn;
mod network;
mod objects;
mod openssl;
mod ours;
mod peers;
mod plain;
mod process;
mod proxy;
mod public_keys;
mod resumption;
mod session;
mod talker;
mod tshark;

use cell::{Cell, Check, Role, Trouble};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

struct Options {
    only: Option<String>,
    jobs: usize,
    tegmen: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}; the options are --only TEXT, --jobs N and --tegmen PATH");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::from(2)
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { only: None, jobs: 4, tegmen: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value, or is unknown"))?;
        match name.as_str() {
            "--only" => options.only = Some(value),
            "--jobs" => options.jobs = value.parse().map_err(|_| format!("--jobs {value}: not a number"))?,
            "--tegmen" => options.tegmen = Some(value.into()),
            _ => return Err(format!("{name} is unknown")),
        }
    }
    Ok(options)
}

/// Runs the scenarios that `options` selects, and prints the result table. Returns true if no scenario failed. A
/// scenario whose peer does not support the feature does not count as failed.
fn run(options: &Options) -> Result<bool, String> {
    let started = Instant::now();
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let built = own.parent().ok_or("this program lies nowhere")?;
    let target = built.parent().ok_or("this program lies in no target directory")?;
    let tegmen = match &options.tegmen {
        Some(path) => std::path::absolute(path).map_err(|error| error.to_string())?,
        None => build_tegmen(built, target)?,
    };
    let logs = target.join("interop");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;

    let images = mote::Images::new(target);
    let (mut cells, built) = all_cells(&images, &peers::Places::new(target));
    if let Some(only) = &options.only {
        cells.retain(|cell| cell.name().contains(only));
    }
    if cells.iter().any(|cell| cell.scenario.contains("mote")) {
        images.build_ahead();
    }
    // A run of all scenarios builds all programs ahead. With `--only`, a scenario builds the program that it needs.
    if options.only.is_none() {
        std::thread::spawn(move || built.iter().for_each(|built| drop(built.command())));
    }
    let mut results = play(&cells, options.jobs, &tegmen, &logs);
    let repeated = repeat_failed(&cells, &mut results, &tegmen, &logs);
    print(&cells, &results);
    let failed = results.iter().filter(|result| matches!(result, Err(Trouble::Failed(_)))).count();
    let lacking = results.iter().filter(|result| matches!(result, Err(Trouble::Lacks(_)))).count();
    println!(
        "\n{} passed, {failed} failed, {lacking} beyond the peer, {:.0} s",
        results.len() - failed - lacking,
        started.elapsed().as_secs_f64()
    );
    for line in &repeated {
        println!("{line}");
    }
    for (cell, result) in cells.iter().zip(&results).filter(|(_, result)| matches!(result, Err(Trouble::Failed(_)))) {
        println!("{}: {}", cell.name(), words(result));
    }
    if failed > 0 {
        println!("logs of what failed are under {}", logs.display());
    }
    // The file holds the whole table, so a run with `--only` does not write it.
    if options.only.is_none() {
        let file = target.join("interop.json");
        let rows: Vec<Value> = cells.iter().zip(&results).map(|(cell, result)| row(cell, result)).collect();
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        fs::write(&file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(failed == 0)
}

/// Builds the `tegmen` binary with the profile of this program, so that no scenario tests an old binary.
fn build_tegmen(built: &Path, target: &Path) -> Result<PathBuf, String> {
    let tegmen = built.join("tegmen");
    let Ok(cargo) = std::env::var("CARGO") else {
        // Started without Cargo: the scenarios use the binary in the directory of this program.
        let missing = || format!("{} is missing: cargo build --release -p tegmen-cli", tegmen.display());
        return if tegmen.exists() { Ok(tegmen) } else { Err(missing()) };
    };
    let profile = match built.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "tegmen-cli", "--profile", profile, "--manifest-path", manifest]);
    let status = command.arg("--target-dir").arg(target).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(tegmen) } else { Err("tegmen does not build".to_owned()) }
}

/// Returns one [`Cell`] (a row of the result table) for each scenario, and the programs that must be built for the
/// scenarios.
fn all_cells(images: &Arc<mote::Images>, places: &peers::Places) -> (Vec<Cell>, Vec<Arc<peers::Built>>) {
    let (mut cells, mut built) = (Vec::new(), Vec::new());
    match openssl::version() {
        Some(version) => {
            let (expired, library) = openssl::expired_delegation(&version, places);
            cells.extend(openssl::cells(&version));
            cells.push(expired);
            built.push(library);
        }
        None => cells.push(missing("OpenSSL", openssl::PROGRAM, "openssl")),
    }
    match (libcoap::programs().into_iter().find(|program| !peers::installed(program)), libcoap::version()) {
        (None, Some(version)) => cells.extend(libcoap::cells(&version)),
        (program, _) => {
            cells.push(missing("libcoap", &program.unwrap_or_else(|| "its version".to_owned()), "libcoap3-bin"));
        }
    }
    match ([gnutls::CLIENT, gnutls::SERVER].into_iter().find(|program| !peers::installed(program)), gnutls::version()) {
        (None, Some(version)) => cells.extend(gnutls::cells(&version)),
        (program, _) => cells.push(missing(gnutls::PEER, program.unwrap_or("its version"), "gnutls-bin")),
    }
    match tshark::version() {
        Some(version) => {
            cells.extend(tshark::cells(&version));
            cells.extend(objects::reader_cells(&version));
        }
        None => cells.push(missing("tshark", tshark::PROGRAM, "tshark")),
    }
    match mote::missing_tool() {
        None => cells.extend(mote::cells(images)),
        Some((tool, package)) => cells.push(missing("a mote", tool, package)),
    }
    let java = places.java_peer("californium");
    let aiocoap = places.python_peer("aiocoap_peer.py", "aiocoap[oscore,linkheader]==0.4.17");
    let libraries = [
        talker::all(places, &java),
        plain::all(&aiocoap, &java),
        objects::all(places, &aiocoap),
        edhoc::all(places, &aiocoap),
        proxy::all(places, &aiocoap, &java),
    ];
    cells.extend(directory::cells(&aiocoap));
    cells.extend(http::server_cells());
    match http::version() {
        Some(version) => cells.extend(http::cells(&version, &aiocoap)),
        None => cells.push(missing(http::PEER, http::PEER, "curl")),
    }
    for (more, to_build) in libraries {
        cells.extend(more);
        built.extend(to_build);
    }
    let (more, to_build) = axiom::all(places);
    cells.extend(more);
    built.extend(to_build);
    let (more, to_build) = access::all(images, places);
    cells.extend(more);
    built.extend(to_build);
    let (more, to_build) = ndn::all(places);
    cells.extend(more);
    built.extend(to_build);
    let (more, to_build) = acme::all(places);
    cells.extend(more);
    built.extend(to_build);
    (cells, built)
}

/// Makes a row of the result table ([`Cell`]) for a peer that is not installed. The row fails, and the error contains
/// the command that installs the peer.
fn missing(peer: &str, program: &str, package: &str) -> Cell {
    let why = format!("{program} is not installed: sudo apt-get install {package}");
    Cell::new(peer, "?", Role::Server, "is there", move |_| Err(Trouble::Failed(why.clone())))
}

/// Runs the scenarios `cells`, at most `jobs` at the same time. Returns the results in the order of `cells`.
fn play(cells: &[Cell], jobs: usize, tegmen: &Path, logs: &Path) -> Vec<Check> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Check>> = cells.iter().map(|_| Mutex::new(Ok(()))).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((cell, result)) = cells.get(number).zip(results.get(number)) else { return };
                    let outcome = cell.run(tegmen, logs);
                    if let Ok(mut result) = result.lock() {
                        *result = outcome;
                    }
                }
            });
        }
    });
    let unpoisoned = |result: Mutex<Check>| result.into_inner().unwrap_or_else(|_| Err("the harness panicked".into()));
    results.into_iter().map(unpoisoned).collect()
}

/// Runs each failed scenario again, while no other scenario runs, because on a busy machine a peer may exceed one of
/// its own time limits. Replaces the result of the scenario in `results`. For each scenario that passes the second
/// time, returns a line with the first failure, because this scenario may show an intermittent fault of Tegmen.
fn repeat_failed(cells: &[Cell], results: &mut [Check], tegmen: &Path, logs: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for (cell, result) in cells.iter().zip(results) {
        let Err(Trouble::Failed(why)) = &*result else { continue };
        let second = cell.run(tegmen, &logs.join("second"));
        if second.is_ok() {
            lines.push(format!("{}: passed alone; beside others it failed: {why}", cell.name()));
        }
        *result = second;
    }
    lines
}

fn words(result: &Check) -> String {
    match result {
        Ok(()) => "passed".to_owned(),
        Err(Trouble::Failed(why)) => format!("failed: {why}"),
        Err(Trouble::Lacks(evidence)) => format!("peer lacks it: {evidence}"),
    }
}

fn row(cell: &Cell, result: &Check) -> Value {
    json!({
        "peer": cell.peer,
        "version": cell.version,
        "role": cell.role.name(),
        "scenario": cell.scenario,
        "result": words(result),
    })
}

fn print(cells: &[Cell], results: &[Check]) {
    let width = |field: fn(&Cell) -> &str, title: &str| {
        cells.iter().map(|cell| field(cell).chars().count()).max().unwrap_or(0).max(title.len())
    };
    let peer = width(|cell| &cell.peer, "peer");
    let version = width(|cell| &cell.version, "version");
    let scenario = width(|cell| &cell.scenario, "scenario");
    let line = |a: &str, b: &str, c: &str, d: &str, e: &str| {
        println!("{a:peer$}  {b:version$}  {c:6}  {d:scenario$}  {e}");
    };
    line("peer", "version", "role", "scenario", "result");
    for (cell, result) in cells.iter().zip(results) {
        line(&cell.peer, &cell.version, cell.role.name(), &cell.scenario, &words(result));
    }
}
