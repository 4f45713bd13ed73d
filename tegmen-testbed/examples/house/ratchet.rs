//! `ratchet.toml`: the values that the steps reached last. They only fall.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// First lines of the file.
const HEADER: &str = "\
# The values that the steps house, layers and words reached last. None may rise; `./ci.sh STEP --update` lowers them.
";

#[derive(Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ratchet {
    /// Arrows that may still close a circle.
    pub(crate) layers: BTreeSet<String>,
    /// Values of the counts.
    pub(crate) house: BTreeMap<String, usize>,
    /// Idioms in each folder.
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

/// Lowers the values that fell. Returns a line for each value that rose, where a name that the ratchet does not know
/// has risen from 0, and one for each that fell.
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

/// Removes the names that are gone. Returns a line for each name that is new, and one for each that is gone.
pub(crate) fn shorten(ratchet: &mut BTreeSet<String>, now: &BTreeSet<String>) -> [Vec<String>; 2] {
    let new = now.difference(ratchet).map(|name| format!("{name} is new")).collect();
    let gone: Vec<String> = ratchet.difference(now).cloned().collect();
    ratchet.retain(|name| now.contains(name));
    [new, gone.iter().map(|name| format!("{name} is gone")).collect()]
}
