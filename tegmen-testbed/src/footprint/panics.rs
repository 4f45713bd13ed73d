//! Finds the places in the code of an image that can panic. Such a place is a branch to a panic function of `core` in
//! the disassembly of the image.
//!
//! A place belongs to the crate whose source line contains the branch, after inlining.

use super::build::output_of;
use super::{Error, lines};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// A source line that can panic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct PanicPlace {
    /// The crate to which the line belongs.
    #[serde(rename = "crate")]
    pub krate: String,
    /// The place of the line, such as `src/buf.rs:12`: the file, relative to the folder of the crate, and the line
    /// number.
    pub at: String,
    /// The name of the panic function of `core` that the line calls.
    pub calls: String,
    /// Number of branches in the machine code that result from this line.
    pub branches: u64,
}

impl fmt::Display for PanicPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} calls {}", self.krate, self.at, self.calls)?;
        if self.branches > 1 { write!(f, " ({} times)", self.branches) } else { Ok(()) }
    }
}

/// Finds the source lines of an image whose code can panic.
pub(super) fn find(image: &Path) -> Result<Vec<PanicPlace>, Error> {
    let listing = output_of(Command::new("arm-none-eabi-objdump").arg("--disassemble").arg(image))?;
    let branches = branches(&listing);
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let sources = lines::of(image, branches.iter().map(|(address, _)| address.as_str()))?;
    let mut places = BTreeMap::new();
    for ((_, calls), (krate, at)) in branches.into_iter().zip(sources) {
        *places.entry((krate, at, calls)).or_insert(0) += 1;
    }
    let place = |((krate, at, calls), branches)| PanicPlace { krate, at, calls, branches };
    Ok(places.into_iter().map(place).collect())
}

/// Returns the branches from other functions to a panic function. Each has its address and the name of the panic
/// function.
fn branches(listing: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut within_panic = false;
    for line in listing.lines() {
        // "00000508 <name>:" begins a function, "     3c2:\tf000 f8a1 \tbl\t508 <name>" is one instruction of it.
        if let Some(symbol) = line.strip_suffix(">:").and_then(|line| line.split_once('<')).map(|(_, name)| name) {
            within_panic = is_panic(&demangled(symbol));
            continue;
        }
        let mut fields = line.split('\t');
        let (Some(address), Some(_code), Some(mnemonic), Some(operands)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let target = operands.split_once('<').and_then(|(_, name)| name.split_once('>')).map(|(name, _)| name);
        if let Some(target) = target
            && mnemonic.trim().starts_with('b')
            && !within_panic
            && !target.contains("+0x")
            && is_panic(&demangled(target))
        {
            found.push((address.trim().trim_end_matches(':').to_owned(), demangled(target)));
        }
    }
    found
}

fn demangled(symbol: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(symbol))
}

/// Returns true for a function of `core` that only causes a panic, and for the panic handler.
fn is_panic(function: &str) -> bool {
    let announces = |name: &str| name.contains("panic") || name.ends_with("_fail") || name.ends_with("_failed");
    let of_core = function.starts_with("core::") || function.starts_with("<core::");
    of_core && function.split("::").any(announces) || function.ends_with("rust_begin_unwind")
}

#[cfg(test)]
mod tests;
