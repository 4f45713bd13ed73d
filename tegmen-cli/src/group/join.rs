//! `tegmen group join` and `leave`.

use super::{failure, open};
use crate::connect::Connect;
use crate::output::{Failure, Output, printable, runtime};
use clap::Args;
use serde_json::json;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_host::contexts::is_member;
use tegmen_host::controller::{Controller, ControllerError, Joining, OscoreJoining};
use tegmen_host::credentials::is_rule;
use tegmen_host::group::groupcomm::oscore::Roles;
use tegmen_host::group::member_file::MemberFile;
use tegmen_host::group::{MemberSettings, Membership};
use tegmen_store::files::{beside, rename, sync_directory};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen group join coaps://controller.example/ace-group/lamps --state hall --credentials hall.toml\n  \
    tegmen group join coaps://controller.example/ace-group/lamps --state switch --send --interface eth0 --credentials switch.toml\n  \
    tegmen group join coaps://controller.example/ace-group/lights --group-oscore --state hall --credentials hall.toml\n  \
    tegmen group join --file hall.member --state hall\n\n\
    The responses of the member come from its address, so it has to be an address of this machine that no other member has.")]
pub(crate) struct Join {
    /// The group at its controller: coaps://host[:port]/ace-group/NAME.
    #[arg(required_unless_present = "file")]
    uri: Option<String>,
    /// Read the keys of the member from this file, which the operator of the controller made, and do not ask the
    /// controller.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["uri", "address", "send", "no_listen"])]
    file: Option<PathBuf>,
    /// Keep the membership in this directory. The directory must stay secret: anyone who reads it can read and forge
    /// messages of the group.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The group is a Group OSCORE group. The directory is then for the option --oscore of tegmen serve, get and put.
    #[arg(long, conflicts_with_all = ["file", "address", "interface"])]
    group_oscore: bool,
    /// The source address of this member's responses. Default: the address from which this machine reaches the
    /// controller.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// The network interface of the group, such as eth0. Default: the interface of the multicast route, or for IPv4
    /// the interface that has --address.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Also send requests to the group.
    #[arg(long)]
    send: bool,
    /// Do not answer requests to the group.
    #[arg(long, requires = "send")]
    no_listen: bool,
    /// Join a Group OSCORE group as a monitor: the member processes requests to the group, and sends nothing.
    #[arg(long, requires = "group_oscore", conflicts_with_all = ["send", "no_listen"])]
    monitor: bool,
    /// Take the keys of each epoch at this UDP port, in place of an observation of a Group OSCORE group. The controller
    /// must reach the port at the address from which this machine reaches the controller.
    #[arg(long, value_name = "PORT", requires = "group_oscore", value_parser = clap::value_parser!(u16).range(1..))]
    control_port: Option<u16>,
    /// Right of the members of the group, such as 'PUT /light'; may be repeated. Default: all rights.
    #[arg(long, value_name = "RULE")]
    allow: Vec<String>,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
#[command(after_help = "Example:\n  tegmen group leave --state hall --credentials hall.toml")]
pub(crate) struct Leave {
    /// The directory of the membership.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

impl Join {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        if let Some(wrong) = self.allow.iter().find(|rule| !is_rule(rule)) {
            return Err(Failure::usage(format!("--allow {wrong}: write it as 'PUT /light'")));
        }
        let allow = (!self.allow.is_empty()).then(|| self.allow.clone());
        if self.group_oscore {
            let uri = self.uri.as_deref().unwrap_or_default();
            let roles =
                Roles { requester: self.send, responder: !self.no_listen && !self.monitor, monitor: self.monitor };
            let joining = |name| OscoreJoining { name, roles, allow, control_port: self.control_port };
            return super::oscore::join((uri, &self.state), joining, &self.connect, out);
        }
        let settings = MemberSettings { interface: self.interface.clone(), allow, ..MemberSettings::default() };
        let membership = match &self.file {
            Some(file) => provisioned(file, &self.state, settings)?,
            None => self.ask(&settings)?,
        };
        let (name, group, epoch) = (membership.name(), membership.group(), membership.epoch());
        let (address, sender_id) = (membership.address(), membership.sender_id());
        let answers = address.map_or_else(String::new, |address| format!(", answers from {address}"));
        let sends = sender_id.map_or_else(String::new, |id| format!(", sends with the SenderID {id}"));
        out.line(
            || printable(&format!("Member of the group {name} at {group}, epoch {epoch}{answers}{sends}.")),
            || json!({ "event": "joined", "group": name, "at": group, "epoch": epoch, "address": address, "sender_id": sender_id }),
        );
        Ok(ExitCode::SUCCESS)
    }

    fn ask(&self, settings: &MemberSettings) -> Result<Membership, Failure> {
        let uri = self.uri.as_deref().unwrap_or_default();
        let config = self.connect.of_member(uri)?;
        let controller = Controller::of_group(uri, config).map_err(failure)?;
        let joining = Joining { address: self.address, listens: !self.no_listen, sends: self.send };
        runtime()?.block_on(controller.join(&self.state, joining, settings)).map_err(failure)
    }
}

/// Makes the membership from a file of the operator. First renames the file, so that a second run does not find it, and
/// removes the renamed file at the end. Two members with the keys of this file would repeat nonces.
fn provisioned(file: &PathBuf, state: &Path, settings: MemberSettings) -> Result<Membership, Failure> {
    let failed = |at: &Path, error: io::Error, next: &str| Failure::new(format!("{}: {error}; {next}", at.display()));
    let member = MemberFile::open(file).map_err(|error| Failure::usage(format!("--file: {error}")))?;
    if state.join("member.toml").exists() {
        let state = state.display();
        return Err(Failure::usage(format!(
            "--state: {state} has a membership already. If it is from this file, remove the file; otherwise name another directory"
        )));
    }
    let settings = MemberSettings { group: member.group, controller: member.controller, ..settings };
    let used = beside(file, "used");
    let claimed = rename(file, &used);
    claimed.map_err(|error| failed(file, error, "nothing is joined: copy the file into a directory of your own"))?;
    let membership = Membership::create(state, &settings, member.keys).map_err(|error| {
        // Nothing uses its keys.
        let _ = std::fs::rename(&used, file);
        Failure::usage(error)
    })?;
    let removed = std::fs::remove_file(&used).and_then(|()| sync_directory(&used));
    removed.map_err(|error| {
        let next =
            "the membership is made: remove this file, because a second member with its keys would repeat nonces";
        failed(&used, error, next)
    })?;
    Ok(membership)
}

impl Leave {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        if is_member(&self.state) {
            return super::oscore::leave(&self.state, &self.connect, out);
        }
        let membership = open(&self.state)?;
        let name = membership.name().to_owned();
        let uri = membership.settings().controller.ok_or_else(|| {
            Failure::usage(format!("{name}: the membership names no controller: let its operator evict the member"))
        })?;
        let config = self.connect.of_member(&uri)?;
        let controller = Controller::of_group(&uri, config).map_err(failure)?;
        match runtime()?.block_on(controller.leave(&membership)) {
            // The controller evicted it before.
            Ok(()) | Err(ControllerError::NotAMember(_)) => {}
            Err(error) => return Err(failure(error)),
        }
        membership.remove().map_err(Failure::new)?;
        out.line(|| printable(&format!("Left the group {name}.")), || json!({ "event": "left", "group": name }));
        Ok(ExitCode::SUCCESS)
    }
}
