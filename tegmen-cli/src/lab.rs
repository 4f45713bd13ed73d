//! `tegmen lab`: runs what the papers measured.

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the plans.
    List,
    /// Run a plan.
    #[command(after_help = "Example:\n  tegmen lab run blink-bytes --json")]
    Run {
        /// Its name, from `tegmen lab list`.
        plan: String,
    },
}

impl Lab {
    pub(crate) fn run(self, _out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::List => Ok(ExitCode::SUCCESS),
            Command::Run { plan } => {
                Err(Failure::usage(format!("no plan {plan}: `tegmen lab list` names those that are")))
            }
        }
    }
}
