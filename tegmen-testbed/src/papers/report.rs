//! Writes the whole report. It has a section for each plan of a paper, for the comparison with ns-3, and for each
//! deployment.

use super::agreement;
use super::plans::{self, Inputs};
use super::sections;
use crate::deployment::Plan;
use crate::report::Report;
use crate::report::overview::Paper;
use crate::runs::{self, Store};
use std::io;
use std::path::{Path, PathBuf};

/// The content of a report.
pub struct Content<'c> {
    /// The commit of this program.
    pub commit: &'c str,
    /// Maximum number of seeds for each case of a paper's plan.
    pub seeds: u64,
    /// The deployments of the user, and then those of the laboratory. Each has a name.
    pub deployments: [&'c [(String, Plan)]; 2],
    /// The inputs that the plans of papers need. With `None` nothing is computed: the report contains only stored
    /// results, and names the plans without stored results.
    pub inputs: Option<&'c Inputs<'c>>,
}

/// Writes a report into `folder`: the plans of the papers, the comparison with ns-3, and the deployments. Uses the
/// results in `store`, and computes the missing results if [`Content::inputs`] is set. Returns the path of the HTML file. Calls
/// `done` with the name of a plan or deployment, the number of its finished runs, and the number of all its runs.
///
/// # Errors
/// If a file cannot be written, or if one of the inputs (such as a measured image of a mote) cannot be made.
pub fn write(
    folder: &Path,
    store: &Store,
    content: &Content<'_>,
    done: impl Fn(&str, usize, usize) + Sync,
) -> io::Result<PathBuf> {
    let mut report = Report::new(folder)?;
    let mut names = Vec::new();
    for plan in plans::ALL {
        let figures = match content.inputs {
            Some(inputs) => Some(plan.figures(store, inputs, content.seeds, &|n, all| done(plan.name, n, all))?),
            None => plan.kept(store, content.seeds),
        };
        let Some(figures) = figures else {
            report.overview.begin(plan.paper, plan.name);
            continue;
        };
        report.begin(plan.paper, plan.name, plan.title);
        (plan.section)(&mut report, &figures)?;
        report.end();
        names.push(plan.name);
    }
    let rows = match content.inputs {
        Some(_) => Some(agreement::kept_or_new(store, content.seeds, |n, all| done(NS3, n, all))),
        None => agreement::kept(store, content.seeds),
    };
    match rows {
        Some(rows) => {
            report.begin(SIMULATOR, NS3, "The radio and MAC beside ns-3");
            sections::agreement(&mut report, &rows)?;
            report.end();
            names.push(NS3);
        }
        None => report.overview.begin(SIMULATOR, NS3),
    }
    for (own, deployments) in [true, false].into_iter().zip(content.deployments) {
        for (name, plan) in deployments {
            let runs = match content.inputs {
                Some(_) => Some(runs::all(plan, store, |n, all| done(name, n, all))),
                None => runs::kept(plan, store),
            };
            match runs {
                Some(runs) => {
                    report.plan(name, own, plan, runs::summarize(plan, &runs))?;
                    names.push(name);
                }
                None => report.missing(name, own),
            }
        }
    }
    report.finish(content.commit, &names)
}

/// The name of the plan that compares the simulator with ns-3.
const NS3: &str = "ns3-agreement";
const SIMULATOR: Paper =
    Paper { name: "The simulator", title: "Its radio and MAC beside the model lr-wpan of ns-3 3.37" };

#[cfg(test)]
mod tests;
