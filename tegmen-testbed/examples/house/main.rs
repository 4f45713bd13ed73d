//! Holds the structure of the workspace to numbers that may only fall: `./ci.sh house`.
//!
//! `house.toml` names the counts with the values of the first run and the limits; `ratchet.toml` holds the values that were
//! reached last. `--update` lowers these and never raises one; `--list` prints the places of each count.

mod counts;
mod names;
mod source;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// First lines of `ratchet.toml`.
const HEADER: &str = "\
# The values that `./ci.sh house` reached last. None may rise; `./ci.sh house --update` lowers them.
";

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

/// `ratchet.toml`.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratchet {
    house: BTreeMap<String, usize>,
}

/// The project and the data files of this program.
struct Project {
    root: PathBuf,
    options: Options,
}

fn main() -> ExitCode {
    let mut steps = Vec::new();
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "house" => steps.push(argument),
            "--update" => options.update = true,
            "--list" => options.list = true,
            other => {
                eprintln!("{other}: unknown; the step is house, the options are --update and --list");
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
    match root.and_then(|root| Project { root, options }.house()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("house: {error}");
            ExitCode::from(2)
        }
    }
}

impl Project {
    /// Counts the product code; `Ok(false)` if a value differs from its ratchet.
    fn house(&self) -> Result<bool, String> {
        let table: Table = self.read("house.toml")?;
        let mut ratchet: Ratchet = self.read("ratchet.toml")?;
        let crates = source::load(&self.root)?;
        let places = counts::count(&crates, &names::Names::of(&crates));
        let now = places.iter().map(|(key, places)| ((*key).to_owned(), places.len())).collect();
        println!("{:<52} {:>8} {:>6} {:>6}", "product code", table.first_run, "today", "limit");
        for count in &table.count {
            let places = places.get(count.key.as_str()).ok_or_else(|| format!("nothing counts {}", count.key))?;
            let reached = if places.len() <= count.limit { "ok" } else { "not yet" };
            println!("{:<52} {:>8} {:>6} {:>6}  {reached}", count.name, count.first, places.len(), count.limit);
            if self.options.list || count.key == "long_functions" {
                places.iter().for_each(|(place, remark)| println!("    {}:{} {remark}", place.file, place.line));
            }
        }
        let kept = self.hold("house", &mut ratchet.house, &now);
        self.write(&ratchet)?;
        Ok(kept)
    }

    /// Compares the values of a step with the ratchet and lowers it if asked; prints each difference. A name that the ratchet
    /// does not know may have no hits.
    fn hold(&self, step: &str, ratchet: &mut BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> bool {
        let mut kept = true;
        for (name, value) in now {
            let limit = ratchet.get(name).copied().unwrap_or(0);
            if *value > limit {
                println!("{step}: {name} rose from {limit} to {value}");
                kept = false;
            }
        }
        for (name, limit) in ratchet.iter_mut() {
            let value = now.get(name).copied().unwrap_or(0);
            if value < *limit && self.options.update {
                println!("{step}: {name} lowered from {limit} to {value}");
                *limit = value;
            } else if value < *limit {
                println!("{step}: {name} fell from {limit} to {value}; keep that: ./ci.sh {step} --update");
                kept = false;
            }
        }
        kept
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, String> {
        let path = self.root.join("tegmen-testbed").join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the ratchet if `--update` was given.
    fn write(&self, ratchet: &Ratchet) -> Result<(), String> {
        if !self.options.update {
            return Ok(());
        }
        let path = self.root.join("tegmen-testbed/ratchet.toml");
        let text = toml::to_string(ratchet).map_err(|error| error.to_string())?;
        std::fs::write(&path, HEADER.to_owned() + &text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
