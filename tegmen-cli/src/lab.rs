//! `tegmen lab`: runs what the papers measured, and measures the motes.

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_testbed::{agreement, blink, footprint};

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen lab list\n  tegmen lab run blink-bytes --json\n  tegmen lab footprint")]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the plans.
    List,
    /// Run a plan: one figure or table of a paper, measured on the real stack.
    #[command(after_help = "Example:\n  tegmen lab run blink-bytes --json")]
    Run {
        /// Its name, from `tegmen lab list`.
        plan: String,
    },
    /// Build the firmware images, count them under QEMU, and compare with the committed budget.
    #[command(
        after_help = "Examples:\n  tegmen lab footprint\n  tegmen lab footprint --update   make what was measured the budget"
    )]
    Footprint {
        /// Make what was measured the budget.
        #[arg(long)]
        update: bool,
        /// The source tree of Tegmen.
        #[arg(long, default_value = ".")]
        project: PathBuf,
    },
}

struct Plan {
    name: &'static str,
    about: &'static str,
    run: fn(Output) -> ExitCode,
}

const PLANS: &[Plan] = &[
    Plan {
        name: "blink-bytes",
        about: "bytes of the Blink exchange and its handshake (BlinkToSCoAP, tables II and III), and what extensions cost",
        run: run_blink_bytes,
    },
    Plan {
        name: "ns3-agreement",
        about: "the radio and MAC of the simulator beside the model lr-wpan of ns-3, case by case",
        run: run_agreement,
    },
];

fn run_blink_bytes(out: Output) -> ExitCode {
    let rows = blink::blink_bytes();
    let differs = rows.iter().any(|row| row.paper.is_some_and(|paper| paper != row.ours));
    print_rows(out, &rows, || blink::table(&rows));
    if differs { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn run_agreement(out: Output) -> ExitCode {
    let progress = Progress::new();
    let rows = agreement::rows(|done, all| progress.set(done, all));
    progress.end();
    let differs = rows.iter().any(|row| row.verdict == agreement::DIFFERS);
    print_rows(out, &rows, || agreement::table(&rows));
    if differs { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Rows as one JSON array, or as a table.
fn print_rows<R: Serialize>(out: Output, rows: &[R], table: impl FnOnce() -> String) {
    if out.json {
        out.line(String::new, || Value::Array(rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect()));
    } else {
        out.text(table().trim_end());
    }
}

/// A bar with the time left, where somebody looks.
struct Progress(indicatif::ProgressBar);

impl Progress {
    fn new() -> Self {
        let style = indicatif::ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left");
        let bar = indicatif::ProgressBar::new(0);
        Self(style.map(|style| bar.clone().with_style(style)).unwrap_or(bar))
    }

    fn set(&self, done: usize, all: usize) {
        self.0.set_length(all as u64);
        self.0.set_position(done as u64);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

impl Lab {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::List => {
                for plan in PLANS {
                    out.line(
                        || format!("{:16} {}", plan.name, plan.about),
                        || json!({ "plan": plan.name, "about": plan.about }),
                    );
                }
                Ok(ExitCode::SUCCESS)
            }
            Command::Run { plan } => {
                let found = PLANS.iter().find(|known| known.name == plan);
                let found = found.ok_or_else(|| {
                    Failure::usage(format!("there is no plan {plan}: `tegmen lab list` names those that are"))
                })?;
                Ok((found.run)(out))
            }
            Command::Footprint { update, project } => {
                let options = footprint::Options { json: out.json, update };
                if !project.join("firmware/budget.toml").exists() {
                    let project = project.display();
                    return Err(Failure::usage(format!(
                        "{project} is not the source tree of Tegmen: go there, or name it with --project"
                    )));
                }
                match footprint::run(&project, &options) {
                    Ok(footprint::Verdict::WithinBudget) => Ok(ExitCode::SUCCESS),
                    Ok(footprint::Verdict::OverBudget) => Ok(ExitCode::from(1)),
                    Err(error) => Err(Failure::new(error)),
                }
            }
        }
    }
}
