//! `tegmen bridge`: carries the packets of a mote on a serial line to real sockets.

use crate::output::{Failure, Output};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Bridge {}

impl Bridge {
    #[expect(clippy::unused_self, reason = "the options come with the bridge itself")]
    pub(crate) fn run(self, _: Output) -> Result<ExitCode, Failure> {
        Err(Failure::new("the bridge is not built yet"))
    }
}
