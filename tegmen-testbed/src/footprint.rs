//! The cost of the firmware on a Cortex-M3: sizes, stack, instructions, and source lines that can panic. The cost is
//! compared with a budget.
//!
//! [`run`] has these steps:
//!
//! * It builds every image of `firmware/` for each crypto provider that the image supports (`build`).
//! * It reads the ELF files (`elf`, `panics`).
//! * It runs the images that contain measurements, in QEMU with the plugin that counts instructions (`emulate`).
//! * It reports an error if an image contains code that this image must not contain (`absent`).
//! * It writes `target/footprint.json`.
//! * It compares the numbers of the images with each other (`relations`), and with `firmware/budget.toml` (`budget`).
//!
//! Each run with the same compiler gives exactly the same numbers, and another compiler gives other numbers. So the
//! images are always built with the compiler of the Linux distribution. `target/footprint.meta.json` contains the
//! version of this compiler.

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
    /// Write the measured values into the budget file, as the new limits.
    pub update: bool,
}

/// The result of the comparison of the measured values with the limits in the budget file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No measured value is above its limit, or the limits in the budget file were updated.
    WithinBudget,
    /// A number is above its limit, or a relation between images does not hold. The program has printed the number or
    /// the relation.
    OverBudget,
}

/// The measured values of one image, built with one cryptographic provider.
#[derive(Clone, Debug, Serialize)]
pub struct Footprint {
    /// Name of the image. Its source is the file with this name in `firmware/src/bin`.
    pub image: String,
    /// The cryptographic provider, whose name is also a feature of the firmware crate.
    pub provider: String,
    /// Size of code, constants and vectors, in bytes.
    pub text: u64,
    /// Size of initialized variables in bytes. They need flash memory and RAM.
    pub data: u64,
    /// Size of other variables, in bytes.
    pub bss: u64,
    /// Maximum use of the stack over all operations, in bytes.
    pub stack: u64,
    /// Number of branches to a panic in the whole image.
    pub panics: u64,
    /// For each operation, the number of its instructions.
    pub operations: BTreeMap<String, u64>,
    /// For each type that the image measures, its size in bytes.
    pub sizes: BTreeMap<String, u64>,
    /// For each component of the project, the sizes of its code and data in the image.
    pub components: BTreeMap<String, Bytes>,
    /// The source lines that can panic.
    pub panic_places: Vec<PanicPlace>,
}

/// Measures the firmware of the project in the folder `project`, and prints the result to standard output.
///
/// # Errors
/// If a tool is missing, a build or a run fails, or a file cannot be written. If a tool is missing, the message
/// contains the command that installs it.
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

/// Builds every image with every cryptographic provider that the image supports, and measures the image.
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

/// The table for people. It has a line for each image, and below it the operations, sizes and panics of the image.
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
    /// A program is missing, or a file that a software package contains.
    MissingTool {
        /// The missing tool.
        tool: String,
        /// The software packages that contain the tool.
        packages: String,
    },
    /// A program failed. Contains its command and its standard error.
    Command(String, String),
    /// A file cannot be read or written.
    File(PathBuf, std::io::Error),
    /// The ELF file of an image does not have the form that the linker script link.x produces. Contains the path of the
    /// file, and the reason.
    Elf(PathBuf, String),
    /// An image did not end in time, or ended with a failure. Contains the path of the image, and the reason.
    Image(PathBuf, String),
    /// The ELF notes of an image contain the name of an operation that the image did not run.
    NotMeasured {
        /// The image.
        image: PathBuf,
        /// The operation.
        operation: String,
    },
    /// An image contains an instruction from a part of the core library. The image must not contain this part.
    Linked {
        /// The image.
        image: String,
        /// The source file and the line from which the forbidden instruction was compiled.
        at: String,
    },
    /// The relations between images cannot be checked, because an image or one of its numbers is missing. Contains
    /// the name of the image, and the name of the missing number.
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
