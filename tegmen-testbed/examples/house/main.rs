//! Holds the structure of the workspace to values that may only fall: `./ci.sh house` and `./ci.sh layers`.
//!
//! `house.toml` names the counts with the values of the first run and the limits; `ratchet.toml` holds the values that were
//! reached last, and the arrows between modules that may still close a circle. `--update` lowers the ratchet and never raises
//! it; `house --list` prints the places of each count.

mod counts;
mod layers;
mod names;
mod ratchet;
mod source;
#[cfg(test)]
mod tests;

use ratchet::Ratchet;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The words of the command line.
#[derive(Default)]
struct Options {
    update: bool,
    list: bool,
}

/// `house.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    first_run: String,
    count: Vec<Count>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    key: String,
    name: String,
    first: usize,
    limit: usize,
}

/// The project to look at.
struct Project {
    root: PathBuf,
    options: Options,
}

fn main() -> ExitCode {
    let mut steps = Vec::new();
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "house" | "layers" => steps.push(argument),
            "--update" => options.update = true,
            "--list" => options.list = true,
            other => {
                eprintln!("{other}: unknown; the steps are house and layers, the options --update and --list");
                return ExitCode::from(2);
            }
        }
    }
    // Cargo says at run time where the project is; a compiled-in path may be that of another copy.
    let Some(testbed) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        eprintln!("house: to be started by cargo run");
        return ExitCode::from(2);
    };
    let root = Path::new(&testbed).join("..").canonicalize().map_err(|error| error.to_string());
    match root.and_then(|root| Project { root, options }.run(&steps)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("house: {error}");
            ExitCode::from(2)
        }
    }
}

impl Project {
    /// Runs the steps; `Ok(false)` if a value rose, or fell and is not kept.
    fn run(&self, steps: &[String]) -> Result<bool, String> {
        let path = self.root.join("tegmen-testbed/ratchet.toml");
        let mut ratchet = Ratchet::read(&path)?;
        let mut passed = true;
        for step in steps {
            let [rose, fell] = match step.as_str() {
                "house" => self.house(&mut ratchet)?,
                _ => self.layers(&mut ratchet)?,
            };
            rose.iter().chain(&fell).for_each(|line| println!("{step}: {line}"));
            if self.options.update && !fell.is_empty() {
                ratchet.write(&path)?;
            } else if !fell.is_empty() {
                println!("{step}: keep that: ./ci.sh {step} --update");
            }
            passed &= rose.is_empty() && (fell.is_empty() || self.options.update);
        }
        Ok(passed)
    }

    /// Counts the product code.
    fn house(&self, ratchet: &mut Ratchet) -> Result<[Vec<String>; 2], String> {
        let path = self.root.join("tegmen-testbed/house.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let table: Table = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let crates = source::load(&self.root)?;
        let places = counts::count(&crates, &names::Names::of(&crates));
        println!("{:<52} {:>8} {:>6} {:>6}", "product code", table.first_run, "today", "limit");
        for count in &table.count {
            let places = places.get(count.key.as_str()).ok_or_else(|| format!("nothing counts {}", count.key))?;
            let reached = if places.len() <= count.limit { "ok" } else { "not yet" };
            println!("{:<52} {:>8} {:>6} {:>6}  {reached}", count.name, count.first, places.len(), count.limit);
            if self.options.list || count.key == "long_functions" {
                places.iter().for_each(|(place, remark)| println!("    {}:{} {remark}", place.file, place.line));
            }
        }
        let now = places.iter().map(|(key, places)| ((*key).to_owned(), places.len())).collect();
        Ok(ratchet::tighten(&mut ratchet.house, &now))
    }

    /// Looks for circles among modules.
    fn layers(&self, ratchet: &mut Ratchet) -> Result<[Vec<String>; 2], String> {
        let crates = source::load(&self.root)?;
        let now = layers::print_circles(&layers::arrows(&crates, &names::Names::of(&crates)));
        println!("{} arrows lie on circles", now.len());
        Ok(ratchet::shorten(&mut ratchet.layers, &now))
    }
}
