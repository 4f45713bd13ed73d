//! `tegmen group`: groups that Axiom or Group OSCORE protects. An operator creates groups at their controller, and adds and evicts
//! members. A member joins a group at its controller, sends requests to the group, and leaves the group. Other members
//! run `tegmen serve --member`, which answers these requests.

mod answers;
mod join;
pub(crate) mod observe;
mod operator;
mod oscore;
mod send;
mod send_image;
mod sender;
mod verify;

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use std::path::Path;
use std::process::ExitCode;
use tegmen_host::contexts::ContextError;
use tegmen_host::controller::ControllerError;
use tegmen_host::group::Membership;

#[derive(Args)]
pub(crate) struct Group {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Operator(operator::Command),
    /// Join a group at its controller, and keep the membership in a directory.
    Join(join::Join),
    /// Ask the controller for the current keys of a member of a Group OSCORE group.
    Update(oscore::Update),
    /// Make a new key pair for a member of a Group OSCORE group, and give the new credential to the controller.
    RenewKey(oscore::RenewKey),
    /// Verify the signatures of captured messages of a Group OSCORE group, without being a member.
    Verify(verify::Verify),
    /// Send a request to a group, print the answer of each member, and name the members that did not answer.
    Send(send::Send),
    /// Send a firmware image to all members of a group, in blocks, and send again the blocks that a member lacks.
    SendImage(send_image::SendImage),
    /// Leave a group, and remove the directory of the membership.
    Leave(join::Leave),
}

impl Group {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Operator(command) => command.run(out),
            Command::Join(join) => join.run(out),
            Command::Update(update) => update.run(out),
            Command::RenewKey(renew) => renew.run(out),
            Command::Verify(verify) => verify.run(out),
            Command::Send(send) => send.run(out),
            Command::SendImage(send) => send.run(out),
            Command::Leave(leave) => leave.run(out),
        }
    }
}

/// Opens the membership in a directory.
fn open(state: &Path) -> Result<Membership, Failure> {
    Membership::open(state).map_err(|error| Failure::usage(format!("--state: {error}")))
}

/// Makes the error for a failure at the controller. The exit code is 2 if no request was sent to the controller, or if
/// the directory of the member cannot be used for the command.
fn failure(error: ControllerError) -> Failure {
    match error {
        ControllerError::Name(_)
        | ControllerError::Uri(_)
        | ControllerError::Membership(_)
        | ControllerError::RolesUnknown(_)
        | ControllerError::Context(ContextError::InUse { .. } | ContextError::Monitor { .. }) => Failure::usage(error),
        ControllerError::Unreachable { source, .. } => Failure::request(source),
        other => Failure::new(other),
    }
}
