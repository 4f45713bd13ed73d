//! The cost of the firmware on a Cortex-M3: sizes, stack, instructions and places that can panic, compared with a
//! budget.
//!
//! [`run`] has these steps:
//!
//! * It builds every image of `firmware/` for each crypto provider that the image supports (`build`).
//! * It reads the ELF files (`elf`, `panics`).
//! * It executes the images that measure, under QEMU with the counting plugin (`emulate`).
//! * It refuses an image with code that is forbidden in it (`absent`).
//! * It writes `target/footprint.json`.
//! * It compares the numbers with each other (`relations`) and with `firmware/budget.toml` (`budget`).
//!
//! The numbers are exactly the same for each run with one compiler, so the compiler is always that of the distribution.
//! `target/footprint.meta.json` contains its version.

mod absent;
mod budget;
pub(crate) mod build;
mod components;
mod elf;
mod emulate;
mod lines;
mod panics;
mod relations;

use budget::Budget;
pub use components::Bytes;
use elf::Image;
pub use panics::PanicPlace;
use relations::Relation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The options of [`run`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Print the result as a JSON array, not as a table.
    pub json: bool,
    /// Write the measured values into the budget.
    pub update: bool,
}

/// The result of the comparison with the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No number is above its limit, or the budget was updated.
    WithinBudget,
    /// A number is above its limit, or a relation among images does not hold. The program printed which one.
    OverBudget,
}

/// The measured values of one image, built with one cryptographic provider.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    /// Name of the image, which is the name of its file in `firmware/src/bin`.
    pub image: String,
    /// The cryptographic provider, which is a feature of the firmware crate.
    pub provider: String,
    /// Size of code, constants and vectors, in bytes.
    pub text: u64,
    /// Size of initialized variables in bytes. They need flash memory and RAM.
    pub data: u64,
    /// Size of other variables, in bytes.
    pub bss: u64,
    /// Maximum use of the stack by any operation, in bytes from the top of the stack.
    pub stack: u64,
    /// Number of branches to a panic in the whole image.
    pub panics: u64,
    /// Instructions of each operation.
    pub operations: BTreeMap<String, u64>,
    /// Sizes of the types that the image names, in bytes.
    pub sizes: BTreeMap<String, u64>,
    /// The sizes of each component.
    pub components: BTreeMap<String, Bytes>,
    /// The source lines that can panic.
    pub panic_places: Vec<PanicPlace>,
}

/// Measures the firmware of the project in the folder `project`, and prints the result to standard output.
///
/// # Errors
/// If a tool is missing (the message has the command that installs it), a build or a run fails, or a file cannot be
/// written.
pub fn run(project: &Path, options: &Options) -> Result<Verdict, Error> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project.join("target"), PathBuf::from);
    let footprints = measure(project, &target)?;
    write_json(&target.join("footprint.json"), &footprints)?;
    write_json(&target.join("footprint.meta.json"), &build::Versions::read(project)?)?;

    if options.json {
        for footprint in &footprints {
            println!("{}", serde_json::to_string(footprint).map_err(|error| Error::Json(error.to_string()))?);
        }
    } else {
        print!("{}", Table(&footprints));
    }
    let relations = relations::of(&footprints)?;
    let hold = relations.iter().all(Relation::holds);
    if !options.json {
        print!("{}", relations::Table(&relations));
    }
    if !hold {
        eprint!("above a limit that no budget raises:\n{}", relations::Table(&relations));
        return Ok(Verdict::OverBudget);
    }

    let budget_file = project.join("firmware/budget.toml");
    if options.update {
        Budget::of(&footprints).write(&budget_file)?;
        return Ok(Verdict::WithinBudget);
    }
    let excesses = Budget::read(&budget_file)?.compare(&footprints);
    if excesses.is_empty() {
        return Ok(Verdict::WithinBudget);
    }
    eprint!("{}", budget::Report(&excesses));
    Ok(Verdict::OverBudget)
}

/// Builds every image with every cryptographic provider, and measures it.
///
/// # Errors
/// The same errors as [`run`].
pub fn measure(project: &Path, target: &Path) -> Result<Vec<Footprint>, Error> {
    build::require_tools()?;
    let plugin = build::plugin(project, target)?;
    let mut footprints = Vec::new();
    for provider in PROVIDERS {
        for (name, path) in build::images(project, target, provider)? {
            footprints.push(footprint(name, provider, &path, &plugin)?);
        }
    }
    // The empty image first: the others are compared with it.
    footprints.sort_by_key(|footprint| (footprint.image != EMPTY, footprint.image.clone(), footprint.provider.clone()));
    Ok(footprints)
}

fn footprint(image: String, provider: &str, path: &Path, plugin: &Path) -> Result<Footprint, Error> {
    let elf = Image::read(path)?;
    let regions = if elf.operations.is_empty() { BTreeMap::new() } else { emulate::run(&elf, plugin)? };
    let mut operations = BTreeMap::new();
    for (id, name) in &elf.operations {
        let region =
            regions.get(id).ok_or_else(|| Error::NotMeasured { image: path.into(), operation: name.clone() })?;
        operations.insert(name.clone(), region.instructions);
    }
    let panic_places = panics::find(path)?;
    let instructions = components::instructions(path)?;
    let sources = lines::of(path, instructions.iter().map(|(address, _)| address.as_str()))?;
    absent::check(&image, &sources)?;
    let sections = Bytes { text: elf.text, data: elf.data, bss: elf.bss };
    let components = components::of(path, &instructions, &sources, sections)?;
    Ok(Footprint {
        image,
        provider: provider.to_owned(),
        text: elf.text,
        data: elf.data,
        bss: elf.bss,
        stack: regions.values().map(|region| region.stack).max().unwrap_or(0),
        panics: panic_places.iter().map(|place| place.branches).sum(),
        operations,
        sizes: elf.sizes,
        components,
        panic_places,
    })
}

/// The table for people: a line for each image, followed by its operations, sizes and panics.
struct Table<'a>(&'a [Footprint]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:<10} {:>8} {:>8} {:>6} {:>7} {:>6} {:>6}",
            "image", "provider", "text", "beyond", "data", "bss", "stack", "panics"
        )?;
        for footprint in self.0 {
            let empty = self.0.iter().find(|other| other.image == EMPTY && other.provider == footprint.provider);
            let beyond = footprint.text.saturating_sub(empty.map_or(0, |empty| empty.text));
            let Footprint { image, provider, text, data, bss, stack, panics, .. } = footprint;
            writeln!(
                f,
                "{image:<20} {provider:<10} {:>8} {:>8} {:>6} {:>7} {:>6} {panics:>6}",
                grouped(*text),
                grouped(beyond),
                grouped(*data),
                grouped(*bss),
                grouped(*stack)
            )?;
            for (name, Bytes { text, data, bss }) in &footprint.components {
                let (name, text, data, bss) =
                    (format!("    of it {name}"), grouped(*text), grouped(*data), grouped(*bss));
                writeln!(f, "{name:<31} {text:>8} {:>8} {data:>6} {bss:>7}", "")?;
            }
            for (operation, instructions) in &footprint.operations {
                writeln!(f, "    {operation:<27} {:>8} instructions", grouped(*instructions))?;
            }
            for (name, bytes) in &footprint.sizes {
                writeln!(f, "    {name:<27} {:>8} bytes", grouped(*bytes))?;
            }
            for place in &footprint.panic_places {
                writeln!(f, "    panic in {place}")?;
            }
        }
        writeln!(f, "(beyond: bytes of text over the empty image of the same provider)")
    }
}

/// Formats a number with separators, such as 12345 as `12,345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::Json(error.to_string()))?;
    std::fs::write(path, text + "\n").map_err(|error| Error::File(path.into(), error))
}

/// The reason why a measurement has no result.
#[derive(Debug)]
pub enum Error {
    /// A program or a file that a package contains is missing.
    MissingTool {
        /// The missing tool.
        tool: String,
        /// The packages to install.
        packages: String,
    },
    /// A program failed. Contains its command and its standard error.
    Command(String, String),
    /// A file cannot be read or written.
    File(PathBuf, std::io::Error),
    /// An image does not have the form that link.x produces.
    Elf(PathBuf, String),
    /// An image did not end in time, or ended with a failure.
    Image(PathBuf, String),
    /// An image did not run an operation that its notes name.
    NotMeasured {
        /// The image.
        image: PathBuf,
        /// The operation.
        operation: String,
    },
    /// An image contains an instruction of a part of the core that it must not link.
    Linked {
        /// The image.
        image: String,
        /// The file and the line of this instruction.
        at: String,
    },
    /// An image, or the size of a type in it, is missing for the relations among images.
    NoRelation(&'static str, &'static str),
    /// The budget file has a wrong format.
    Budget(String),
    /// The result cannot be written as JSON.
    Json(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingTool { tool, packages } => write!(f, "{tool} is missing; type: apt install {packages}"),
            Self::Command(command, output) => write!(f, "{command} failed\n{output}"),
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Elf(path, what) | Self::Image(path, what) => write!(f, "{}: {what}", path.display()),
            Self::NotMeasured { image, operation } => {
                write!(f, "{}: never reached the operation {operation}", image.display())
            }
            Self::Linked { image, at } => write!(f, "{image} must not link {at}"),
            Self::NoRelation(image, what) => write!(f, "relations among images: {what} of {image} is missing"),
            Self::Budget(what) => write!(f, "firmware/budget.toml: {what}"),
            Self::Json(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

/// The cryptographic providers. Each is a feature of the firmware crate and needs its own build.
const PROVIDERS: [&str; 2] = ["compact", "rustcrypto"];
/// The image that does nothing.
const EMPTY: &str = "empty";

#[cfg(test)]
mod tests;
