//! The budget: the limits of every image. It is committed in the folder of the firmware.

use super::{Error, Footprint, grouped};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The limits of each image with each cryptographic provider.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Budget(BTreeMap<String, BTreeMap<String, Limits>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    text: u64,
    data: u64,
    bss: u64,
    stack: u64,
    panics: u64,
    /// For each operation, the maximum number of instructions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    operations: BTreeMap<String, u64>,
    /// For each type, its maximum size in bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sizes: BTreeMap<String, u64>,
}

/// A measured number that is above its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excess {
    image: String,
    provider: String,
    what: String,
    measured: u64,
    /// The limit of the measured number; `None` if the budget file contains no limit for it.
    limit: Option<u64>,
}

impl Budget {
    /// Makes a budget whose limits are equal to these measured values.
    pub(super) fn of(footprints: &[Footprint]) -> Self {
        let mut budget = Self::default();
        for footprint in footprints {
            let limits = Limits::of(footprint);
            budget.0.entry(footprint.image.clone()).or_default().insert(footprint.provider.clone(), limits);
        }
        budget
    }

    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::File(path.into(), error))?;
        toml::from_str(&text).map_err(|error| Error::Budget(error.to_string()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let limits = toml::to_string(self).map_err(|error| Error::Budget(error.to_string()))?;
        std::fs::write(path, HEADER.to_owned() + &limits).map_err(|error| Error::File(path.into(), error))
    }

    /// Returns every number that is above its limit, and every number without a limit.
    pub(super) fn compare(&self, footprints: &[Footprint]) -> Vec<Excess> {
        let mut excesses = Vec::new();
        for footprint in footprints {
            let Footprint { image, provider, .. } = footprint;
            let limits = self.0.get(image).and_then(|providers| providers.get(provider));
            let limits = limits.map(Limits::all).unwrap_or_default();
            for (what, measured) in Limits::of(footprint).all() {
                let limit = limits.get(&what).copied();
                if limit.is_none_or(|limit| measured > limit.saturating_add(slack(&what, limit))) {
                    excesses.push(Excess { image: image.clone(), provider: provider.clone(), what, measured, limit });
                }
            }
        }
        excesses
    }
}

/// Returns by how much a number may exceed its limit: 16 bytes of text, or one instruction in a thousand. This
/// tolerance is necessary because the names of functions contain the path of the source code. The linker orders
/// functions by name, so another path gives slightly different numbers.
fn slack(what: &str, limit: u64) -> u64 {
    match what {
        "text" => 16,
        what if what.starts_with("instructions") => limit / 1000,
        _ => 0,
    }
}

impl Limits {
    fn of(footprint: &Footprint) -> Self {
        let Footprint { text, data, bss, stack, panics, operations, sizes, .. } = footprint.clone();
        Self { text, data, bss, stack, panics, operations, sizes }
    }

    /// Returns every limit, with the name under which the report shows it.
    fn all(&self) -> BTreeMap<String, u64> {
        let Self { text, data, bss, stack, panics, operations, sizes } = self;
        let fixed = [("text", text), ("data", data), ("bss", bss), ("stack", stack), ("panics", panics)];
        let fixed = fixed.map(|(name, &value)| (name.to_owned(), value)).into_iter();
        let operations = operations.iter().map(|(name, &value)| (format!("instructions of {name}"), value));
        let sizes = sizes.iter().map(|(name, &value)| (format!("bytes of {name}"), value));
        fixed.chain(operations).chain(sizes).collect()
    }
}

/// Prints the numbers above their limits as a table.
pub(super) struct Report<'a>(pub(super) &'a [Excess]);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "over budget:")?;
        writeln!(
            f,
            "{:<20} {:<10} {:<40} {:>9} {:>9} {:>8}",
            "image", "provider", "what", "measured", "limit", "over"
        )?;
        for Excess { image, provider, what, measured, limit } in self.0 {
            let over = limit.map_or("new".into(), |limit| grouped(measured - limit));
            let limit = limit.map_or("none".into(), grouped);
            writeln!(f, "{image:<20} {provider:<10} {what:<40} {:>9} {limit:>9} {over:>8}", grouped(*measured))?;
        }
        writeln!(f, "if it is worth it, measure with --update and commit firmware/budget.toml")
    }
}

const HEADER: &str = "\
# The most each image may cost, by image and crypto provider: bytes of text, data, bss and stack, places that can
# panic, instructions of operations, bytes of types. Written by the footprint measurement with --update; 16 bytes of text
# and one instruction in a thousand more are let pass, since they depend on where the sources lie.

";

#[cfg(test)]
mod tests;
