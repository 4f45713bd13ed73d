//! Commands for the groups of a controller. They use the HTTPS interface of the server that contains the controller.

use crate::admin::{Admin, done, pages, save_once, segment};
use crate::events::watch;
use crate::members::{describe, describe_listed, describe_member, path};
use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use tegmen_host::group::member_file::MemberFile;
use tegmen_host::hex::from_hex;
use zeroize::Zeroizing;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Create a group. A device can then join the group in its session with the server, if the policy allows this.
    #[command(after_help = "Examples:\n  tegmen group create lamps --address '[ff15::1]:5684'\n  \
        tegmen group create lights --oscore --address '[ff15::1]:5683'\n  \
        tegmen group create lamps --address '[ff15::1]:5684' --sender switch --listener hall=fd00::1 --listener porch=fd00::2 \\\n      \
        --controller coaps://controller.example --output-dir members")]
    Create(Create),
    /// Add a member, and write its keys to a file that only you can read. You bring the file to the member. The server
    /// cannot show the keys again.
    #[command(
        after_help = "Example:\n  tegmen group add lamps hall --address fd00::1 --controller coaps://controller.example \
        --output hall.member"
    )]
    Add(Add),
    /// Evict members: they cannot read messages of the next epoch or of later epochs. Each eviction begins an epoch.
    Remove {
        /// Name of the group.
        name: String,
        /// Names of the members.
        #[arg(required = true)]
        members: Vec<String>,
        #[command(flatten)]
        admin: Admin,
    },
    /// Begin the next epoch with the same members.
    Rekey(Named),
    /// List all groups, and print a warning for each group with few epochs left.
    List {
        #[command(flatten)]
        admin: Admin,
    },
    /// Show a group, its members, and warnings. Its secrets are never shown.
    Show(Named),
    /// Print a group, and then its changes as they happen. Ctrl-C ends the command.
    #[command(after_help = "The key needs the scopes groups:read and audit:read.")]
    Watch {
        #[command(flatten)]
        named: Named,
        /// Stop after N changes.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// Delete a group. Its members get no further keys. A later group of the same name has other secrets.
    Delete(Named),
}

#[derive(Args)]
pub(super) struct Named {
    /// Name of the group.
    name: String,
    #[command(flatten)]
    admin: Admin,
}

/// A member that the group has from its creation: its name, and its address if the member answers requests.
#[derive(Clone)]
pub(super) struct First {
    name: String,
    address: Option<IpAddr>,
}

impl FromStr for First {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').map_or((text, None), |(name, address)| (name, Some(address)));
        let wrong = |_| format!("{}: write it as NAME=IP", address.unwrap_or_default());
        Ok(Self { name: name.to_owned(), address: address.map(str::parse).transpose().map_err(wrong)? })
    }
}

/// A member that the group has from its creation, and that answers requests. Such a member has an address.
#[derive(Clone)]
pub(super) struct Listener(First);

impl FromStr for Listener {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let first: First = text.parse()?;
        match first.address {
            Some(_) => Ok(Self(first)),
            None => Err("write it as NAME=IP, with the address that its responses come from".to_owned()),
        }
    }
}

#[derive(Args)]
pub(super) struct Create {
    #[command(flatten)]
    named: Named,
    /// The multicast address and the port of the group, such as [ff15::1]:5684.
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    address: SocketAddr,
    /// Make a Group OSCORE group in place of an Axiom group. Each device joins this group with its own request to the
    /// controller.
    #[arg(long, conflicts_with_all = ["listeners", "first_senders"])]
    oscore: bool,
    /// Protection of the messages: ccm and gcm encrypt with tags of 16 bytes, ccm-8 with tags of 8 bytes; mac-only does
    /// not encrypt, and only Axiom groups have it. Default: ccm, or ccm-8 (AES-CCM-16-64-128) if --oscore is given.
    #[arg(long, value_name = "SUITE", value_parser = ["ccm", "ccm-8", "gcm", "mac-only"])]
    suite: Option<String>,
    /// The group has space for 2^N members.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=23))]
    levels: u8,
    /// Maximum number of senders that the group has at any time. One key may protect only a limited number of records,
    /// and all senders share this limit.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    senders: u16,
    /// Number of the last epoch of the group, after which the group cannot change any more. Each change begins an
    /// epoch.
    #[arg(long, value_name = "N", default_value_t = u16::MAX, value_parser = clap::value_parser!(u16).range(2..))]
    last_epoch: u16,
    /// The signature scheme for messages. A signature proves to all members which member sent the message. In a group
    /// with signatures, each device must join with its own request to the controller. Default: none, or ed25519 if
    /// --oscore is given.
    #[arg(long, value_name = "KIND", value_parser = ["none", "p256", "ed25519"])]
    signature: Option<String>,
    /// The GroupID: the number of the group in the header of a response. It must differ from the GroupIDs of the other
    /// groups of the server at the same port. Without this option the server chooses the lowest free GroupID. Give a
    /// GroupID if a device is to be a member of groups of several servers.
    #[arg(long, value_name = "N", conflicts_with = "oscore", value_parser = clap::value_parser!(u8).range(1..))]
    group_id: Option<u8>,
    /// A member that answers requests and belongs to the group from its creation, as NAME=IP with the source address of
    /// its responses; may be repeated.
    #[arg(long = "listener", value_name = "NAME=IP", requires = "output_dir")]
    listeners: Vec<Listener>,
    /// A member that sends requests and belongs to the group from its creation, as NAME, or as NAME=IP if it also
    /// answers requests; may be repeated.
    #[arg(long = "sender", value_name = "NAME[=IP]", requires = "output_dir")]
    first_senders: Vec<First>,
    #[command(flatten)]
    provision: Provision,
    /// Write the keys of each member of --listener and --sender to the file NAME.member in this directory.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "a multicast address with a port, as [ff15::1]:5684 or 239.255.0.1:5684".to_owned())
}

#[derive(Args)]
pub(super) struct Provision {
    /// The member checks no signatures, so the controller sends each rekey message to it separately.
    #[arg(long)]
    without_signatures: bool,
    /// Write this URI of the server, such as coaps://HOST, into the file with the keys of a member. The member gets the
    /// keys of a missed epoch at this URI.
    #[arg(long, value_name = "URI")]
    controller: Option<String>,
}

#[derive(Args)]
pub(super) struct Add {
    /// Name of the group.
    name: String,
    /// Name of the member.
    member: String,
    /// The source address of the member's responses, if the member answers requests. No other member may have this
    /// address.
    #[arg(long, value_name = "IP", required_unless_present = "send")]
    address: Option<IpAddr>,
    /// The member sends requests.
    #[arg(long)]
    send: bool,
    #[command(flatten)]
    provision: Provision,
    /// Write the keys to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    admin: Admin,
}

impl Command {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self {
            Self::Create(create) => create.run(out)?,
            Self::Add(add) => add.run(out)?,
            Self::Remove { name, members, admin } => remove(&admin, &name, &members, out)?,
            Self::Rekey(named) => {
                let rekeyed = named.admin.send(Method::POST, &format!("{}/rekey", named.path()))?;
                let text = format!("The group {} is in the epoch {}.", named.name, rekeyed["epoch"]);
                out.line(|| printable(&text), || with(&rekeyed, "rekeyed", &named.name));
                warn(&rekeyed, out);
            }
            Self::List { admin } => {
                pages(&admin, "groups", |group| out.line(|| describe_listed(group), || group.clone()))?;
            }
            Self::Show(named) => {
                let group = named.show()?;
                out.line(|| describe(&group), || group.clone());
            }
            Self::Watch { named, count } => {
                let Named { name, admin } = named;
                return watch(&admin, name, count, out);
            }
            Self::Delete(named) => {
                named.admin.send(Method::DELETE, &named.path())?;
                let text = format!("The group {} is deleted. Its members get no further keys.", named.name);
                out.line(|| printable(&text), || done("deleted", &named.name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Named {
    fn path(&self) -> String {
        path(&self.name)
    }

    /// Requests the group with all its members. The server sends the members in pages.
    fn show(&self) -> Result<Value, Failure> {
        let mut group = Value::Null;
        self.admin.pages(&self.path(), |mut page| match group["members"].as_array_mut() {
            None => group = page,
            Some(members) => members.append(page["members"].as_array_mut().unwrap_or(&mut Vec::new())),
        })?;
        group.as_object_mut().map(|fields| fields.remove("next"));
        Ok(group)
    }
}

/// Returns `change` as a JSON object with two more fields: the name of the event, and the name of the group.
fn with(change: &Value, event: &str, group: &str) -> Value {
    let mut object = change.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.insert("event".to_owned(), event.into());
        fields.insert("group".to_owned(), group.into());
    }
    object
}

fn warn(rekeyed: &Value, out: Output) {
    if let Some(warning) = rekeyed["warning"].as_str() {
        out.text(printable(&format!("Warning: {warning}")));
    }
}

impl Create {
    /// Returns the members that the group has from its creation, in the JSON form that the server reads.
    fn members(&self) -> Vec<Value> {
        let checks_signatures = !self.provision.without_signatures;
        let member = |sends: bool| move |First { name, address }: &First| json!({ "name": name, "address": address, "sends": sends, "checks_signatures": checks_signatures });
        let listeners = self.listeners.iter().map(|Listener(first)| first);
        self.first_senders.iter().map(member(true)).chain(listeners.map(member(false))).collect()
    }

    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { named, address, levels, senders, last_epoch, group_id, provision, oscore, .. } = &self;
        let (protocol, suite, signature) =
            if *oscore { ("oscore", "ccm-8", "ed25519") } else { ("axiom", "ccm", "none") };
        let suite = self.suite.as_deref().unwrap_or(suite);
        let signature = self.signature.as_deref().unwrap_or(signature);
        let output_dir = self.output_dir.as_deref();
        let (name, members) = (&named.name, self.members());
        let names: Vec<&str> = members.iter().filter_map(|member| member["name"].as_str()).collect();
        let outputs = outputs(output_dir.unwrap_or(Path::new("")), &names)?;
        let body = json!({
            "name": name,
            "address": address,
            "protocol": protocol,
            "suite": suite,
            "levels": levels,
            "senders": senders,
            "last_epoch": last_epoch,
            "signature": signature,
            "group_id": group_id,
            "members": members,
            "controller": provision.controller,
        });
        let create = || {
            let mut created = named.admin.send_body(Method::POST, "/v1/groups", &body)?;
            let files = files(&mut created, &names)?;
            Ok((created["group"].take(), files))
        };
        let undo = |_: &Value| format!("delete the group by tegmen group delete {name}");
        let group = save_once(&outputs, create, undo)?;
        out.line(|| format!("Created {}", describe(&group)), || with(&group, "created", name));
        outputs.iter().for_each(|file| out.text(wrote(file)));
        provision.remind(!outputs.is_empty(), out);
        Ok(())
    }
}

impl Add {
    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { name, member, address, send, provision, output, admin } = self;
        let wanted = json!({
            "name": member,
            "address": address,
            "sends": send,
            "checks_signatures": !provision.without_signatures,
        });
        let body = json!({ "member": wanted, "controller": provision.controller });
        let create = || {
            let mut added = admin.send_body(Method::POST, &format!("{}/members", path(&name)), &body)?;
            let files = files(&mut added, &[&member])?;
            Ok((added, files))
        };
        let undo = |_: &Value| format!("evict it by tegmen group remove {name} {member}, and add it again");
        let added = save_once(std::slice::from_ref(&output), create, undo)?;
        let epoch = &added["rekeyed"]["epoch"];
        let text =
            || printable(&format!("Added to {name} in the epoch {epoch}: {}", describe_member(&added["member"])));
        let object = || {
            let mut object = with(&added, "added", &name);
            object["file"] = output.display().to_string().into();
            object
        };
        out.line(text, object);
        out.text(wrote(&output));
        warn(&added["rekeyed"], out);
        provision.remind(true, out);
        Ok(())
    }
}

impl Provision {
    /// Reminds the operator of the option for the URI of the controller, if the written files have no URI.
    fn remind(&self, has_files: bool, out: Output) {
        if has_files && self.controller.is_none() {
            out.text("A file without --controller names no server: a member with it cannot get the keys of an epoch that it missed.");
        }
    }
}

fn wrote(file: &Path) -> String {
    printable(&format!("Wrote {} (mode 600).", file.display()))
}

/// Evicts members one after the other. Continues with the next member after a failure.
fn remove(admin: &Admin, group: &str, members: &[String], out: Output) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for member in members {
        match admin.send(Method::DELETE, &format!("{}/members/{}", path(group), segment(member))) {
            Ok(rekeyed) => {
                let text = format!("Evicted {member} from {group}, which is in the epoch {}.", rekeyed["epoch"]);
                let mut object = with(&rekeyed, "removed", group);
                object["name"] = member.as_str().into();
                out.line(|| printable(&text), || object);
                warn(&rekeyed, out);
            }
            Err(failure) => failures.push(failure.message),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("\n"))) }
}

/// Returns for each member the path in `dir` to which the file of the member will be written. Makes the directory if it
/// does not exist.
fn outputs(dir: &Path, names: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(name) = names.iter().find(|name| name.contains(['/', '\\']) || name.starts_with('.')) {
        return Err(Failure::usage(format!(
            "{name} is no name of a file: add this member by tegmen group add --output"
        )));
    }
    let wrong = |error| Failure::usage(format!("--output-dir: {}: {error}: correct the path", dir.display()));
    std::fs::create_dir_all(dir).map_err(wrong)?;
    Ok(names.iter().map(|name| dir.join(format!("{name}.member"))).collect())
}

/// Takes the files of these members out of an answer of the server. Returns their contents in the order of `members`.
fn files(answer: &mut Value, members: &[&str]) -> Result<Vec<Zeroizing<Vec<u8>>>, Failure> {
    let mut files = Vec::with_capacity(members.len());
    for (number, member) in members.iter().enumerate() {
        let Value::String(digits) = answer["files"][number]["file"].take() else { return Err(no_file(member)) };
        let bytes = from_hex(&Zeroizing::new(digits)).map(Zeroizing::new).ok_or_else(|| no_file(member))?;
        let file = MemberFile::parse(&bytes).map_err(|_| no_file(member))?;
        if file.member != *member {
            return Err(no_file(member));
        }
        files.push(bytes);
    }
    answer.as_object_mut().map(|fields| fields.remove("files"));
    Ok(files)
}

fn no_file(member: &str) -> Failure {
    Failure::new(format!("the server answered without the file of {member}: evict it and add it again"))
}
