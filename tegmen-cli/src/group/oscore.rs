//! `tegmen group join --group-oscore`, `update`, `renew-key` and `leave`: a member of a Group OSCORE group, and its Group Manager.

use super::failure;
use crate::connect::Connect;
use crate::output::{Failure, Output, printable, runtime};
use clap::Args;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_host::contexts::{Manager, MemberFile};
use tegmen_host::controller::{Controller, ControllerError, OscoreJoining};
use tegmen_host::hex::to_hex;

#[derive(Args)]
#[command(after_help = "Example:\n  tegmen group update --state switch --credentials switch.toml\n\n\
    A server (tegmen serve --oscore DIR --member-credentials FILE) asks by itself.")]
pub(crate) struct Update {
    /// The directory of the member.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tegmen group renew-key --state switch --credentials switch.toml\n\n\
    First end the server that uses the directory. If the command is interrupted, run it again.")]
pub(crate) struct RenewKey {
    /// The directory of the member.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

impl RenewKey {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let (_, _, controller) = open(&self.state, &self.connect)?;
        runtime()?.block_on(controller.renew_credential_oscore(&self.state)).map_err(failure)?;
        let file = MemberFile::read(&self.state).map_err(Failure::new)?;
        report("renewed", "New key pair", &file, out);
        Ok(ExitCode::SUCCESS)
    }
}

/// Joins a group, and writes the security context of the member into a directory. `joining` makes the request of the
/// device from its name.
pub(super) fn join(
    (uri, state): (&str, &Path),
    joining: impl FnOnce(String) -> OscoreJoining,
    connect: &Connect,
    out: Output,
) -> Result<ExitCode, Failure> {
    let config = connect.of_member(uri)?;
    let name = config.trust.key.as_ref().map(|key| key.identity.clone());
    let name = name.ok_or_else(|| {
        Failure::usage("--group-oscore: the member has the name of its pre-shared key: give --credentials with a key")
    })?;
    let controller = Controller::of_group(uri, config).map_err(failure)?;
    let joined = runtime()?.block_on(controller.join_oscore(state, &joining(name))).map_err(failure)?;
    report("joined", "Member", &joined, out);
    Ok(ExitCode::SUCCESS)
}

fn report(event: &str, text: &str, file: &MemberFile, out: Output) {
    let epoch = file.manager.as_ref().map_or(0, |manager| manager.epoch);
    let (gid, id) = (to_hex(&file.group_id), file.own.as_ref().map(|own| to_hex(own.sender_id.as_bytes())));
    let role = id.as_ref().map_or_else(|| "monitor".to_owned(), |id| format!("Sender ID {id}"));
    out.line(
        || {
            printable(&format!(
                "{text} of the Group OSCORE group {}, epoch {epoch}, Group Identifier {gid}, {role}.",
                file.group
            ))
        },
        || json!({ "event": event, "group": file.group, "epoch": epoch, "gid": gid, "sender_id": id }),
    );
}

/// Returns the file of a member, its Group Manager, and the controller to ask.
fn open(state: &Path, connect: &Connect) -> Result<(MemberFile, Manager, Controller), Failure> {
    if !state.join("context.toml").exists() {
        let state = state.display();
        return Err(Failure::usage(format!(
            "--state: {state} has no membership in a Group OSCORE group: make it with `tegmen group join --group-oscore --state \
             {state}`, or correct the path"
        )));
    }
    let file = MemberFile::read(state).map_err(|error| Failure::usage(format!("--state: {error}")))?;
    let manager = file
        .manager
        .clone()
        .ok_or_else(|| Failure::usage(format!("--state: {} is of a group without a Group Manager", state.display())))?;
    let config = connect.of_member(&manager.uri)?;
    let controller = Controller::of_group(&manager.uri, config).map_err(failure)?;
    Ok((file, manager, controller))
}

impl Update {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let (_, _, controller) = open(&self.state, &self.connect)?;
        runtime()?.block_on(controller.update_oscore(&self.state)).map_err(failure)?;
        let file = MemberFile::read(&self.state).map_err(Failure::new)?;
        report("updated", "Keys", &file, out);
        Ok(ExitCode::SUCCESS)
    }
}

/// Leaves a group, and removes the files of the member.
pub(super) fn leave(state: &Path, connect: &Connect, out: Output) -> Result<ExitCode, Failure> {
    let (file, manager, controller) = open(state, connect)?;
    match runtime()?.block_on(controller.leave_oscore(&manager.node)) {
        // The controller evicted it before.
        Ok(()) | Err(ControllerError::NotAMember(_)) => {}
        Err(error) => return Err(failure(error)),
    }
    for name in ["context.toml", "numbers.toml", "used"] {
        let path = state.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::new(format!("{}: {error}: remove the file", path.display())));
            }
            _ => {}
        }
    }
    let group = file.group;
    out.line(|| printable(&format!("Left the group {group}.")), || json!({ "event": "left", "group": group }));
    Ok(ExitCode::SUCCESS)
}
