//! Finds the imports between the modules of a crate, and the circles among sibling modules: `./ci.sh layers`.
//!
//! The top-level modules of a crate are siblings, and so are the children of one module. A child may use its parent,
//! and a parent its children. An arrow is an import from one sibling, or from inside it, to another sibling.

use crate::names::{Names, absolute, imports, paths};
use crate::source::{Crate, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of places that are printed for one arrow.
const SHOWN: usize = 3;

/// The arrows in one folder. The key has the name of the importing child and the name of the imported child.
pub(crate) type Arrows = BTreeMap<(String, String), BTreeSet<Place>>;

/// Returns the arrows in every folder. The name of a folder consists of its crate and its modules.
pub(crate) fn arrows(crates: &[Crate], names: &Names) -> BTreeMap<String, Arrows> {
    let mut folders: BTreeMap<String, Arrows> = BTreeMap::new();
    for krate in crates {
        for module in &krate.modules {
            let from = absolute(krate, &module.path);
            let imports = imports(module).into_iter().map(|import| (import.path, import.line));
            // A name alone, or one that an import brought, was seen where it was imported.
            let paths = module.items.iter().flat_map(paths).filter(|path| {
                let first = path.segments.get(..1).and_then(|first| names.resolve(&from, first));
                path.segments.len() > 1 && first.is_none_or(|target| target.item.is_none())
            });
            for (path, line) in imports.chain(paths.map(|path| (path.segments, path.line))) {
                let Some(to) = names.resolve(&from, &path).map(|target| target.module) else { continue };
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(common), to.get(common))
                    && common > 0
                {
                    let arrows = folders.entry(from[..common].join("::")).or_default();
                    let places = arrows.entry((a.clone(), b.clone())).or_default();
                    places.insert(Place { file: module.file.clone(), line });
                }
            }
        }
    }
    folders
}

/// Returns the circles in one folder. A circle consists of the arrows between children that can all reach each other.
pub(crate) fn circles(arrows: &Arrows) -> Vec<Vec<&(String, String)>> {
    let mut reached: BTreeSet<(&str, &str)> = arrows.keys().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let children: BTreeSet<&str> = reached.iter().flat_map(|(a, b)| [*a, *b]).collect();
    for via in &children {
        for from in &children {
            for to in children.iter().filter(|to| *to != from) {
                if reached.contains(&(*from, *via)) && reached.contains(&(*via, *to)) {
                    reached.insert((from, to));
                }
            }
        }
    }
    let mutual = |a: &str, b: &str| reached.contains(&(a, b)) && reached.contains(&(b, a));
    let mut circles: Vec<Vec<&(String, String)>> = Vec::new();
    for arrow in arrows.keys().filter(|(a, b)| mutual(a, b)) {
        match circles.iter_mut().find(|circle| circle.iter().any(|(a, _)| *a == arrow.0 || mutual(a, &arrow.0))) {
            Some(circle) => circle.push(arrow),
            None => circles.push(vec![arrow]),
        }
    }
    circles
}

/// Prints each circle with the imports of which it consists. Returns the arrows of all circles, in the form in which
/// `ratchet.toml` contains them.
pub(crate) fn print_circles(folders: &BTreeMap<String, Arrows>) -> BTreeSet<String> {
    let mut closing = BTreeSet::new();
    for (folder, arrows) in folders {
        for circle in circles(arrows) {
            let children: BTreeSet<&str> = circle.iter().map(|(a, _)| a.as_str()).collect();
            println!("{folder}: a circle of {}", children.into_iter().collect::<Vec<_>>().join(", "));
            for (from, to) in circle {
                let places = &arrows[&(from.clone(), to.clone())];
                let shown: Vec<String> =
                    places.iter().take(SHOWN).map(|place| format!("{}:{}", place.file, place.line)).collect();
                let more = places.len().saturating_sub(SHOWN);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                println!("    {from} -> {to}: {}{more}", shown.join(" "));
                closing.insert(format!("{folder}: {from} -> {to}"));
            }
        }
    }
    closing
}
