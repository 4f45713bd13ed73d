//! Checks counts of the structure and of the prose of the workspace, which may only fall: `./ci.sh house`, `layers` and
//! `words`. Also compares the code with that of a commit: `./ci.sh prose BASE`.
//!
//! `house.toml` has the counts of the structure, with their values at the first run and their limits. `words.toml` has
//! the idioms that the prose must not contain. `ratchet.toml` has the last value of each count, and the arrows between
//! modules that still form a circle. An arrow is the use of one module by another. `--update` writes lower values into
//! `ratchet.toml`, and never higher values. The arrows of a crate may have other names, but their number must not
//! increase. `house --list` and `words --list [FOLDER]` print the counted places. `words --draw SEED [COUNT]` prints
//! random lines of prose for a reader, 200 lines if COUNT is missing, and compares no value.

mod counts;
mod draw;
mod layers;
mod names;
mod prose;
mod ratchet;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod words;

use ratchet::Ratchet;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The options of the command line.
#[derive(Default)]
struct Options {
    update: bool,
    /// The folder whose places are printed. It is empty for all folders, and `None` without `--list`.
    list: Option<String>,
    /// The seed and the number of lines for `--draw`; `None` without it.
    draw: Option<(u64, usize)>,
    /// The commit with which `prose` compares the code.
    base: String,
}

/// The content of `house.toml`.
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

/// The project whose files are examined.
struct Project {
    root: PathBuf,
    options: Options,
}

fn main() -> ExitCode {
    let mut steps = Vec::new();
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "house" | "layers" | "words" => steps.push(argument),
            "prose" => {
                let Some(base) = arguments.next() else {
                    eprintln!("prose: name the commit before the rewrite: ./ci.sh prose BASE");
                    return ExitCode::from(2);
                };
                options.base = base;
                steps.push(argument);
            }
            "--update" => options.update = true,
            "--list" => options.list = Some(arguments.next_if(|next| !next.starts_with('-')).unwrap_or_default()),
            "--draw" => {
                let Some(seed) = arguments.next().and_then(|seed| seed.parse().ok()) else {
                    eprintln!("--draw: a seed must follow, for example --draw 2026 200");
                    return ExitCode::from(2);
                };
                let count = arguments.peek().and_then(|count| count.parse().ok());
                arguments.next_if(|_| count.is_some());
                options.draw = Some((seed, count.unwrap_or(200)));
            }
            other => {
                eprintln!(
                    "{other}: unknown; the steps are house, layers, words, prose BASE, the options --update, --list [FOLDER] and, of words, --draw SEED [COUNT]"
                );
                return ExitCode::from(2);
            }
        }
    }
    // Cargo names the package at run time; a compiled-in path may be that of another copy.
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
    /// Runs the steps. Returns false if a value is higher than the last value. Also returns false if a value is lower,
    /// unless `--update` writes it.
    fn run(&self, steps: &[String]) -> Result<bool, String> {
        let path = self.root.join("tegmen-testbed/ratchet.toml");
        let mut ratchet = Ratchet::read(&path)?;
        let mut passed = true;
        for step in steps {
            let [rose, fell] = match step.as_str() {
                "house" => self.house(&mut ratchet)?,
                "layers" => self.layers(&mut ratchet)?,
                "prose" => [self.prose()?, Vec::new()],
                _ => self.words(&mut ratchet)?,
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

    /// Runs the step `house`, which counts in the product code.
    fn house(&self, ratchet: &mut Ratchet) -> Result<[Vec<String>; 2], String> {
        let table: Table = self.read("house.toml")?;
        let crates = source::load(&self.root)?;
        let places = counts::count(&crates, &names::Names::of(&crates));
        println!("{:<52} {:>8} {:>6} {:>6}", "product code", table.first_run, "today", "limit");
        for count in &table.count {
            let places = places.get(count.key.as_str()).ok_or_else(|| format!("nothing counts {}", count.key))?;
            let reached = if places.len() <= count.limit { "ok" } else { "not yet" };
            println!("{:<52} {:>8} {:>6} {:>6}  {reached}", count.name, count.first, places.len(), count.limit);
            if self.options.list.is_some() || count.key == "long_functions" {
                places.iter().for_each(|(place, remark)| println!("    {}:{} {remark}", place.file, place.line));
            }
        }
        let now = places.iter().map(|(key, places)| ((*key).to_owned(), places.len())).collect();
        Ok(ratchet::tighten(&mut ratchet.house, &now))
    }

    /// Runs the step `layers`, which searches for circles of modules that use each other.
    fn layers(&self, ratchet: &mut Ratchet) -> Result<[Vec<String>; 2], String> {
        let crates = source::load(&self.root)?;
        let now = layers::print_circles(&layers::arrows(&crates, &names::Names::of(&crates)));
        println!("{} arrows lie on circles", now.len());
        Ok(ratchet::shorten(&mut ratchet.layers, &now))
    }

    /// Runs the step `words`, which searches for idioms in the prose, or prints random lines of prose.
    fn words(&self, ratchet: &mut Ratchet) -> Result<[Vec<String>; 2], String> {
        if let Some((seed, count)) = self.options.draw {
            for draw::Line { place, text } in draw::draw(&self.root, seed, count)? {
                println!("{}:{}: {text}", place.file, place.line);
            }
            return Ok(Default::default());
        }
        let words: words::Words = self.read("words.toml")?;
        let hits = words::hits(&self.root, &words)?;
        match &self.options.list {
            Some(folder) => words::list(&hits, folder),
            None => words::print(&words, &hits),
        }
        Ok(ratchet::tighten(&mut ratchet.words, &words::by_folder(&hits)))
    }

    /// Runs the step `prose`, which compares the code with that of a commit. Returns a line for each difference.
    fn prose(&self) -> Result<Vec<String>, String> {
        let (files, changes) = prose::changes(&self.root, &self.options.base)?;
        let changed = changes.len();
        println!("{files} files differ from {}, {changed} of them in more than their prose", self.options.base);
        Ok(changes)
    }

    /// Reads one of the data files of this crate.
    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, String> {
        let path = self.root.join("tegmen-testbed").join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}
