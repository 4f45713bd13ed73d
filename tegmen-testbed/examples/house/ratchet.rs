//! The file `ratchet.toml` with the last values of the steps. These values may only fall.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The first lines of the file.
const HEADER: &str = "\
# The values that the steps house, layers and words reached last. None may rise; `./ci.sh STEP --update` lowers them.
";

#[derive(Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratchet {
    /// The arrows between modules that are still part of a circle. An arrow is the use of one module by another module.
    pub(crate) layers: BTreeSet<String>,
    /// The value of each count.
    pub(crate) house: BTreeMap<String, usize>,
    /// The number of idioms in each folder.
    pub(crate) words: BTreeMap<String, usize>,
}

impl Ratchet {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let text = toml::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::write(path, HEADER.to_owned() + &text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Lowers the values that have fallen. Returns a line for each value that has risen, and a line for each value that has
/// fallen. A name that the file does not contain has the last value 0.
pub(crate) fn tighten(ratchet: &mut BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> [Vec<String>; 2] {
    let (mut rose, mut fell) = (Vec::new(), Vec::new());
    for (name, value) in now {
        let limit = ratchet.get(name).copied().unwrap_or(0);
        if *value > limit {
            rose.push(format!("{name} rose from {limit} to {value}"));
        }
    }
    for (name, limit) in ratchet.iter_mut() {
        let value = now.get(name).copied().unwrap_or(0);
        if value < *limit {
            fell.push(format!("{name} fell from {limit} to {value}"));
            *limit = value;
        }
    }
    [rose, fell]
}

/// Replaces the stored arrows of each crate by its current arrows, unless their number has increased. So a module can
/// be renamed. An arrow is the use of one module by another module. Returns two lists with a line for each new and each
/// removed arrow: first the crates whose number of arrows has increased, then all other crates.
pub(crate) fn shorten(ratchet: &mut BTreeSet<String>, now: &BTreeSet<String>) -> [Vec<String>; 2] {
    let (mut rose, mut fell) = (Vec::new(), Vec::new());
    let crates: BTreeSet<String> = ratchet.union(now).map(|arrow| of_crate(arrow).to_owned()).collect();
    for krate in &crates {
        let of = |arrows: &BTreeSet<String>| -> BTreeSet<String> {
            arrows.iter().filter(|arrow| of_crate(arrow) == krate).cloned().collect()
        };
        let (before, after) = (of(ratchet), of(now));
        let changes = if after.len() > before.len() { &mut rose } else { &mut fell };
        changes.extend(after.difference(&before).map(|arrow| format!("{arrow} is new")));
        changes.extend(before.difference(&after).map(|arrow| format!("{arrow} is gone")));
        if after.len() <= before.len() {
            ratchet.retain(|arrow| of_crate(arrow) != krate);
            ratchet.extend(after);
        }
    }
    [rose, fell]
}

/// Returns the name of the crate in an arrow such as "crate::module: from -> to".
fn of_crate(arrow: &str) -> &str {
    arrow.split(':').next().unwrap_or(arrow)
}
