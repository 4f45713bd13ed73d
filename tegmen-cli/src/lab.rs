//! `tegmen lab`: runs what the papers measured, and measures the motes.

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_testbed::{blink, footprint};

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
    run: fn() -> Vec<blink::Row>,
}

const PLANS: &[Plan] = &[Plan {
    name: "blink-bytes",
    about: "bytes of the Blink exchange and its handshake (BlinkToSCoAP, tables II and III), and what extensions cost",
    run: blink::blink_bytes,
}];

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
                let rows = (found.run)();
                let differs = rows.iter().any(|row| row.paper.is_some_and(|paper| paper != row.ours));
                if out.json {
                    let rows: Vec<Value> = rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect();
                    out.line(String::new, || Value::Array(rows));
                } else {
                    out.text(blink::table(&rows).trim_end());
                }
                Ok(if differs { ExitCode::from(1) } else { ExitCode::SUCCESS })
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
