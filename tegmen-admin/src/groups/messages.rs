//! The bodies of requests and responses about groups.

use crate::problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use tegmen_base::hex::to_hex;
use tegmen_control::group::{
    Epochs, GroupConfig, GroupError, Member, MemberFile, NewMember, OscoreMember, PROTOCOLS, Protocol, Report,
    SIGNATURES, SUITES,
};

/// Maximum number of members in a request that creates a group.
const MOST: usize = 256;
/// The names of the suites.
const NAMES: [&str; 4] = ["ccm", "ccm-8", "gcm", "mac-only"];
/// The names of the signature schemes.
const SIGNATURE_NAMES: [&str; 3] = ["none", "p256", "ed25519"];
/// The names of the protocols.
const PROTOCOL_NAMES: [&str; 2] = ["axiom", "oscore"];
/// Pattern for the hexadecimal digits of a file.
const FILE: &str = "^([0-9a-f]{2})+$";
/// Pattern for the URI of the server of a controller.
const CONTROLLER: &str = "^coaps://[^/]+/?$";

/// A group to be created.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGroup")]
pub(crate) struct Wanted {
    /// The name of the group: 1 to 64 letters, digits, dots, hyphens and underscores.
    name: String,
    /// The multicast address and the port of the group, such as `[ff15::1]:5684`.
    #[schemars(with = "String")]
    address: SocketAddr,
    /// The protocol of the group. A Group OSCORE group has signatures, and an operator cannot add members to it: each
    /// device joins with its own request to the controller.
    #[serde(default = "protocol")]
    #[schemars(extend("enum" = PROTOCOL_NAMES))]
    protocol: String,
    /// The suite that protects requests and responses. In a Group OSCORE group `ccm-8` is AES-CCM-16-64-128, `ccm` is
    /// AES-CCM-16-128-128, and `gcm` is A128GCM.
    #[serde(default = "suite")]
    #[schemars(extend("enum" = NAMES))]
    suite: String,
    /// The GroupID in the header of a response. It must differ from the GroupIDs of the other groups at the same port.
    /// If this field is missing, the controller chooses the lowest free GroupID. A Group OSCORE group has no GroupID.
    #[schemars(range(min = 1))]
    group_id: Option<u8>,
    /// The group has space for 2^`levels` members.
    #[serde(default = "levels")]
    #[schemars(range(min = 1, max = 23))]
    levels: u8,
    /// The number of the last epoch. Each change begins an epoch.
    #[serde(default = "last_epoch")]
    #[schemars(range(min = 2))]
    last_epoch: u16,
    /// Maximum number of SenderIDs in use at the same time.
    #[serde(default = "senders")]
    #[schemars(range(min = 1, max = 256))]
    senders: u16,
    /// The scheme of the signatures of records, with which a member proves to all others that it sent a record. An
    /// operator cannot add members to a group with signatures: each device joins with its own request to the
    /// controller.
    #[serde(default = "signature")]
    #[schemars(extend("enum" = SIGNATURE_NAMES))]
    signature: String,
    /// The members that belong to the group from its creation, at most 256. The response contains the file of each of
    /// these members, for epoch 1.
    #[serde(default)]
    members: Vec<WantedMember>,
    /// The URI of the server of the controller, such as `coaps://HOST`, for the files of members.
    #[schemars(extend("pattern" = CONTROLLER))]
    controller: Option<String>,
}

/// Returns the default configuration of a group.
fn usual() -> GroupConfig {
    GroupConfig::at(SocketAddr::from(([0; 16], 0)))
}

fn protocol() -> String {
    protocol_name(&usual()).to_owned()
}

fn suite() -> String {
    suite_name(&usual()).to_owned()
}

fn levels() -> u8 {
    usual().levels
}

fn last_epoch() -> u16 {
    usual().last_epoch
}

fn senders() -> u16 {
    usual().senders
}

fn signature() -> String {
    signature_name(&usual()).to_owned()
}

fn signature_name(config: &GroupConfig) -> &'static str {
    SIGNATURES.iter().find(|(scheme, _)| *scheme == config.signature).map_or("", |(_, name)| name)
}

fn protocol_name(config: &GroupConfig) -> &'static str {
    PROTOCOLS.iter().find(|(protocol, _)| *protocol == config.protocol).map_or("", |(_, name)| name)
}

fn suite_name(config: &GroupConfig) -> &'static str {
    SUITES.iter().find(|(suite, _)| *suite == config.suite).map_or("", |(_, name)| name)
}

/// A group to be created, from a request whose fields [`Wanted::check`] has checked.
pub(crate) struct Creation {
    pub(crate) name: String,
    pub(crate) config: GroupConfig,
    pub(crate) members: Vec<NewMember>,
    pub(crate) controller: Option<String>,
}

impl Wanted {
    pub(crate) fn check(self) -> Result<Creation, Problem> {
        let Self { name, address, protocol, suite, group_id, levels, .. } = &self;
        let known = PROTOCOLS.iter().find(|(_, known)| known == protocol);
        let (protocol, _) = *known.ok_or_else(|| invalid("protocol is axiom or oscore"))?;
        let known = SUITES.iter().find(|(_, known)| known == suite);
        let (suite, _) = known.ok_or_else(|| invalid("suite is ccm, ccm-8, gcm or mac-only"))?;
        let known = SIGNATURES.iter().find(|(_, known)| *known == self.signature);
        let (signature, _) = known.ok_or_else(|| invalid("signature is none, p256 or ed25519"))?;
        if self.members.len() > MOST {
            return Err(invalid("a request has at most 256 members: add the others afterwards"));
        }
        let (suite, signature, name) = (*suite, *signature, name.clone());
        let (group_id, address, levels) = (*group_id, *address, *levels);
        let Self { last_epoch, senders, members, controller, .. } = self;
        let config = GroupConfig { protocol, group_id, address, suite, levels, last_epoch, senders, signature };
        let members = members.into_iter().map(NewMember::from).collect();
        Ok(Creation { name, config, members, controller: check_controller(controller)? })
    }
}

/// A member to be admitted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GroupMember")]
pub(crate) struct WantedMember {
    /// The name of the member.
    name: String,
    /// The source IP address of the member's responses; missing for a member that does not listen.
    #[schemars(with = "Option<String>")]
    address: Option<IpAddr>,
    /// True if the member sends requests.
    #[serde(default)]
    sends: bool,
    /// False for a member that does not check signatures, and so gets separate rekey messages.
    #[serde(default = "yes")]
    checks_signatures: bool,
}

fn yes() -> bool {
    true
}

impl From<WantedMember> for NewMember {
    fn from(wanted: WantedMember) -> Self {
        let WantedMember { name, address, sends, checks_signatures } = wanted;
        Self { name, address, sends, checks_signatures, public_key: None, oscore: None }
    }
}

/// A member to be added.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewGroupMember")]
pub(crate) struct Added {
    /// The member.
    member: WantedMember,
    /// The URI of the controller's CoAP server, such as `coaps://HOST`. The member's file then contains the URI of the
    /// group on this server, from which the member gets the keys of an epoch that it missed.
    #[schemars(extend("pattern" = CONTROLLER))]
    controller: Option<String>,
}

impl Added {
    pub(crate) fn check(self) -> Result<(NewMember, Option<String>), Problem> {
        Ok((self.member.into(), check_controller(self.controller)?))
    }
}

fn invalid(why: &str) -> Problem {
    Problem::new(Code::InvalidGroup, why)
}

/// Checks the form of a URI. The member later resolves the host.
fn check_controller(uri: Option<String>) -> Result<Option<String>, Problem> {
    let is_right = |uri: &String| {
        let host = uri.strip_prefix("coaps://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        host.is_some_and(|host| (1..=255).contains(&host.len()) && !host.contains(['/', '?', '#', '@', ' ']))
    };
    let wrong =
        || invalid("controller is the URI of the server of the controller, as coaps://HOST or coaps://HOST:PORT");
    uri.map(|uri| is_right(&uri).then_some(uri).ok_or_else(wrong)).transpose()
}

/// A member of a group.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ShownGroupMember")]
pub(crate) struct ShownMember {
    name: String,
    /// The number of the member's leaf in the key tree.
    leaf: u32,
    /// The SenderID of the member, if the member sends requests.
    sender_id: Option<u8>,
    /// The source IP address of the member's responses, if the member listens.
    address: Option<String>,
    /// False for a member that gets separate rekey messages.
    checks_signatures: bool,
    /// The number of the epoch that began when the member was admitted.
    since: u16,
    /// The SubjectPublicKeyInfo of the member in hexadecimal digits, in a group with signatures.
    public_key: Option<String>,
    /// The Sender ID, the roles and the credential of a member of a Group OSCORE group.
    oscore: Option<ShownOscore>,
}

/// The additional data of a member of a Group OSCORE group.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ShownOscoreMember")]
struct ShownOscore {
    /// The Sender ID in hexadecimal digits; null for a monitor.
    id: Option<String>,
    /// The roles: `requester`, `responder`, `monitor`.
    roles: Vec<&'static str>,
    /// The credential in hexadecimal digits, a CWT Claims Set; null for a monitor.
    credential: Option<String>,
}

impl ShownOscore {
    fn of(member: &OscoreMember) -> Self {
        let id = member.sender_id().map(|id| to_hex(&id));
        Self { id, roles: member.role_names().collect(), credential: member.credential.clone() }
    }
}

impl ShownMember {
    pub(crate) fn of(name: &str, member: &Member) -> Self {
        let Member { leaf, sender_id, address, checks_signatures, since, ref public_key, ref oscore, .. } = *member;
        let oscore = oscore.as_ref().map(ShownOscore::of);
        let (address, public_key) = (address.map(|address| address.to_string()), public_key.clone());
        Self { name: name.to_owned(), leaf, sender_id, address, checks_signatures, since, public_key, oscore }
    }

    /// Returns a member of an Axiom group that was just admitted at this leaf and with this SenderID, in the epoch
    /// `since`.
    pub(crate) fn admitted(new: NewMember, (leaf, sender_id): (u32, Option<u8>), since: u16) -> Self {
        let NewMember { name, address, checks_signatures, .. } = new;
        let address = address.map(|address| address.to_string());
        Self { name, leaf, sender_id, address, checks_signatures, since, public_key: None, oscore: None }
    }
}

/// The SenderID of a controller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GroupController")]
struct ShownController {
    name: String,
    sender_id: u8,
}

/// The configuration of a group, which never changes after the group is created.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "GroupConfiguration")]
pub(crate) struct ShownConfig {
    /// The multicast address and the port of the group.
    address: String,
    #[schemars(extend("enum" = PROTOCOL_NAMES))]
    protocol: &'static str,
    #[schemars(extend("enum" = NAMES))]
    suite: &'static str,
    /// The GroupID in the header of a response; null for a Group OSCORE group.
    group_id: Option<u8>,
    /// Maximum number of members.
    space: u32,
    /// Maximum number of SenderIDs in use at the same time.
    senders: u16,
    /// The number of the last epoch.
    last_epoch: u16,
    /// The scheme of the signatures of records.
    #[schemars(extend("enum" = SIGNATURE_NAMES))]
    signature: &'static str,
}

impl From<&GroupConfig> for ShownConfig {
    fn from(config: &GroupConfig) -> Self {
        let GroupConfig { group_id, address, levels, last_epoch, senders, .. } = *config;
        let space = 1_u32.checked_shl(levels.into()).unwrap_or(u32::MAX);
        let (address, suite, signature) = (address.to_string(), suite_name(config), signature_name(config));
        let protocol = protocol_name(config);
        // The row of a Group OSCORE group of an earlier version has a GroupID, which nothing uses.
        let group_id = group_id.filter(|_| config.protocol == Protocol::Axiom);
        Self { address, protocol, suite, group_id, space, senders, last_epoch, signature }
    }
}

/// A group, without its secrets.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Group")]
pub(crate) struct ShownGroup {
    name: String,
    /// The identity of the group in hexadecimal digits. No other group ever has it, not even after this group is
    /// deleted.
    identity: String,
    config: ShownConfig,
    /// The Group Identifier of the current epoch in hexadecimal digits, in a Group OSCORE group.
    gid: Option<String>,
    /// The number of the current epoch.
    epoch: u16,
    /// The number of epochs that can follow the current epoch, including those in `epochs_reserved`.
    epochs_left: usize,
    /// The number of epochs that are reserved for evictions. These epochs are the last ones that the group can have.
    epochs_reserved: usize,
    /// The number of members.
    size: usize,
    /// The number of SenderIDs in use.
    sender_ids: usize,
    /// Controllers that send requests to the group.
    controllers: Vec<ShownController>,
    /// Resources that the group lacks, each with the next step.
    lacks: Vec<String>,
    /// A page of members in the order of their names.
    members: Vec<ShownMember>,
    /// The cursor of the next page; null on the last page.
    next: Option<String>,
}

impl ShownGroup {
    /// Makes the message that shows the group `name`, from its `report`. The message contains at most `most` members.
    pub(crate) fn of(name: &str, report: &Report, most: usize) -> Self {
        let members: Vec<_> =
            report.members.iter().take(most).map(|(name, member)| ShownMember::of(name, member)).collect();
        let last = members.last().filter(|_| report.members.len() > most);
        let next = last.map(|member| to_hex(member.name.as_bytes()));
        let controllers = report.replicas.iter();
        let controllers =
            controllers.map(|(name, id)| ShownController { name: name.clone(), sender_id: *id }).collect();
        Self {
            name: name.to_owned(),
            identity: to_hex(&report.identity),
            config: (&report.config).into(),
            gid: report.gid.as_deref().map(to_hex),
            epoch: report.epoch,
            epochs_left: report.epochs_left,
            epochs_reserved: report.epochs_reserved,
            size: report.size,
            sender_ids: report.sender_ids,
            controllers,
            lacks: report.lacks(name),
            members,
            next,
        }
    }
}

/// A group in a list.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListedGroup {
    name: String,
    /// The number of the current epoch; null if the group cannot be read.
    epoch: Option<u16>,
    /// The number of epochs that may follow; null if the group cannot be read.
    epochs_left: Option<u16>,
    /// A warning that few epochs are left, or that the group cannot be read, with the next step.
    warning: Option<String>,
}

impl ListedGroup {
    pub(crate) fn of(name: String, Epochs { current, left, warning }: Epochs) -> Self {
        Self { name, epoch: Some(current), epochs_left: Some(left), warning }
    }

    pub(crate) fn unreadable(name: String, error: &GroupError) -> Self {
        Self { name, epoch: None, epochs_left: None, warning: Some(error.to_string()) }
    }
}

/// A page of groups in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Groups")]
pub(crate) struct ShownGroups {
    /// The groups.
    pub(crate) groups: Vec<ListedGroup>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// The file with which an operator provisions a member.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MemberFile")]
pub(crate) struct ShownFile {
    /// The name of the member.
    member: String,
    /// The bytes of the member's file, from which a host joins the group, in hexadecimal digits.
    #[schemars(extend("pattern" = FILE))]
    file: String,
}

impl From<&MemberFile> for ShownFile {
    fn from(file: &MemberFile) -> Self {
        Self { member: file.member.clone(), file: to_hex(&file.encode()) }
    }
}

/// A group that was created.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedGroup")]
pub(crate) struct Created {
    pub(crate) group: ShownGroup,
    /// The files of the members that belong to the group from its creation. The response to a repeated request does not
    /// contain these files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<Vec<ShownFile>>,
}

/// A member that was added.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AddedGroupMember")]
pub(crate) struct NewlyAdded {
    pub(crate) member: ShownMember,
    pub(crate) rekeyed: Rekeyed,
    /// A list of one file: the file of the new member. The response to a repeated request does not contain this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<Vec<ShownFile>>,
}

/// The epoch that a change has begun.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Rekeyed")]
pub(crate) struct Rekeyed {
    /// The number of the epoch.
    pub(crate) epoch: u16,
    /// A warning for the operator if the group needs an action, with the next step.
    pub(crate) warning: Option<String>,
}

#[cfg(test)]
mod tests;
