//! Reads a plan from one file. A plan describes a deployment: nodes, links, traffic, protocol stack and motes. A plan
//! can also list several values for a setting. The deployment is then run with each of these values.
//!
//! If the file is wrong, the error message contains the number of the wrong line, and the allowed values.

use crate::mote::Protection;
use crate::sim::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tegmen::dtls::Profile;

mod check;
mod links;
#[cfg(test)]
mod tests;

pub use links::{BURSTS, Loss, Weather};

/// The content of a deployment file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// A description of the deployment in one line.
    pub about: String,
    /// The nodes and their links.
    pub network: Network,
    /// The traffic of the nodes.
    pub traffic: Traffic,
    /// The protocol stack that carries the traffic.
    #[serde(default)]
    pub stack: Stack,
    /// The hardware of the motes.
    #[serde(default)]
    pub mote: Hardware,
    /// Changes of addresses during the run.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// The seeds of the runs.
    #[serde(default)]
    pub run: Runs,
}

/// A move: a node gets another address, like a roaming node, or another port, like a restarted application. Routes
/// change immediately. Other nodes have no session and no other state for the new address.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The number of the node whose address or port changes. Node 0 cannot move.
    pub node: usize,
    /// The time at which the address or the port of the node changes, in seconds after the beginning of the run.
    pub at_s: f64,
    /// The part of the address that changes.
    #[serde(default)]
    pub changes: Changes,
}

/// The part of a node's address that changes in a [`Move`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// The interface identifier in the node's IPv6 address changes.
    #[default]
    Address,
    /// The UDP port of the node changes.
    Port,
}

/// The nodes and their links. Node 0 receives the readings, and has no battery.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The topology.
    pub topology: Shape,
    /// The number of nodes that make readings: the leaves of a star, or all nodes of a tree except the root. `None` for
    /// a chain, in which only the last node makes readings.
    pub nodes: Option<usize>,
    /// The number of hops of a chain; `None` for any other topology.
    pub hops: Option<usize>,
    /// The number of children of each node of a tree; `None` for any other topology.
    pub fanout: Option<usize>,
    /// The number of nodes that only forward packets and make no readings. They have the lowest numbers after node 0. A
    /// chain does not need this setting, because only its last node makes readings.
    #[serde(default)]
    pub forwarders: usize,
    /// The pairs of nodes that hear each other, for the topology "links"; `None` for any other topology.
    pub links: Option<Vec<[usize; 2]>>,
    /// The share of frames that links lose, from 0 to 1.
    #[serde(default)]
    pub loss: Loss,
    /// The periods of time in which every link loses more frames; `None` if there are none.
    pub bursts: Option<Weather>,
}

/// The topology of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// All nodes are around node 0, and each node hears each other node.
    Star,
    /// The nodes are in a row. Only the last node makes readings.
    Chain,
    /// Node 0 is the root. Each node hears its parent and its children.
    Tree,
    /// The two nodes of each pair in `network.links` hear each other.
    Links,
}

/// The kind and rate of traffic.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Mean time between two readings of a node, in seconds. Each time is random, from a quarter below the mean to a
    /// quarter above it.
    pub period_s: f64,
    /// Number of readings of each node.
    #[serde(default = "hundred")]
    pub readings: u32,
    /// Length of a reading, in bytes.
    pub payload: usize,
    /// Length of the answer to a reading, in bytes.
    #[serde(default)]
    pub response: usize,
    /// The share of readings after which a node loses its memory, from 0 to 1. Each node that makes readings loses its
    /// memory once in the run, after it has made this share of its readings. With `None` no node loses its memory in
    /// this way.
    pub reboot_after: Option<f64>,
    /// Random losses of memory; `None` if there are none.
    pub reboots: Option<Reboots>,
    /// Group traffic in place of readings: node 0 sends a request to all nodes every `period_s` seconds, and each node
    /// answers. `None` if nodes make readings.
    pub group: Option<Group>,
}

/// Random losses of memory. Before a node makes a reading (measures a value), a random number decides whether a node
/// loses the content of its RAM.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reboots {
    /// The share of readings before which a node loses its memory, from 0 to 1.
    pub share: f64,
    /// The node that loses the content of its RAM: the client or the server of the reading.
    #[serde(default)]
    pub of: Rebooted,
}

/// Selects the node that loses the content of its RAM before a reading (a measured value) is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rebooted {
    /// The node that makes the reading loses the content of its RAM.
    #[default]
    Client,
    /// Node 0 loses only the OSCORE state that it has for the node that makes the reading.
    Server,
}

/// Requests to all nodes (RFC 7252, section 8).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Maximum time that a member waits before it answers, in seconds. Each wait is random.
    #[serde(default = "five")]
    pub leisure_s: f64,
    /// True if node 0 sends a separate request to each member, one after the other; false if one request goes to all
    /// members.
    #[serde(default)]
    pub each: bool,
    /// Length of the tag in a record of a protected group, in bytes: 16, or 8.
    #[serde(default = "sixteen")]
    pub tag: u8,
}

fn sixteen() -> u8 {
    16
}

/// Returns DEFAULT_LEISURE (RFC 7252, section 4.8), in seconds.
fn five() -> f64 {
    5.0
}

/// The stack that carries the readings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stack {
    /// The protections of the readings. The deployment runs once with each protection.
    pub protections: Vec<Protection>,
    /// The profile of DTLS: "default", or "minimal" for the profile of the Blink paper.
    pub profile: ProfileName,
    /// The kind of the nodes' link-layer addresses.
    pub link_addresses: Addresses,
    /// The prefix of the nodes' IPv6 addresses.
    pub addresses: Prefix,
    /// The UDP port of the nodes that make readings, and then the UDP port of node 0.
    pub ports: [u16; 2],
    /// The initial hop limit of packets.
    pub hop_limit: u8,
    /// True if a node ignores the second copy of a received frame. The sender sends such a copy if the acknowledgement
    /// of the frame was lost.
    pub rejects_duplicates: bool,
    /// True if the radio of a node receives nothing during its medium access, from the first backoff to the
    /// transmission.
    pub deaf: bool,
    /// True if a node acknowledges each frame that is addressed to it alone.
    pub acknowledgements: bool,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            protections: Protection::USUAL.to_vec(),
            profile: ProfileName::Default,
            link_addresses: Addresses::Short,
            addresses: Prefix::Context,
            ports: [5683, 5683],
            hop_limit: 64,
            rejects_duplicates: true,
            deaf: false,
            acknowledgements: true,
        }
    }
}

/// A profile of DTLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileName {
    /// The profile with the extensions that protect against known attacks.
    Default,
    /// The profile without extensions.
    Minimal,
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Self {
        match name {
            ProfileName::Default => Self::Default,
            ProfileName::Minimal => Self::Minimal,
        }
    }
}

/// The kinds of link-layer addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    /// Short addresses of two bytes.
    Short,
    /// Extended addresses of eight bytes.
    Extended,
}

/// The prefixes of IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefix {
    /// The prefix fe80::/64, which frames do not contain. It works only over one hop.
    LinkLocal,
    /// A prefix that all nodes know as a 6LoWPAN compression context, so that frames do not contain it.
    Context,
    /// A prefix that every frame contains.
    Inline,
}

/// The hardware of the motes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// The name of a platform in `data/platforms.toml`.
    pub platform: String,
    /// Mean number of cycles for an instruction: 1.0 to 1.3 on a Cortex-M3.
    pub cycles_per_instruction: f64,
    /// The processor time that the operating system needs for each datagram that the mote sends, receives or forwards,
    /// in microseconds.
    pub stack_us: u32,
    /// Capacity of the battery, in mAh.
    pub battery_mah: f64,
    /// Current of a sleeping mote, in microamperes.
    pub sleep_ua: f64,
    /// Interval in seconds at which a mote whose radio sleeps asks node 0 for packets; 0 if the radio is always on.
    pub polls_s: f64,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            platform: "z1".into(),
            cycles_per_instruction: 1.15,
            stack_us: 0,
            battery_mah: 2600.0,
            sleep_ua: 5.0,
            polls_s: 0.0,
        }
    }
}

/// The seeds of the runs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runs {
    /// The first seed.
    pub first_seed: u64,
    /// The number of seeds. There is one run for each seed.
    pub seeds: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Self { first_seed: 1, seeds: 5 }
    }
}

fn hundred() -> u32 {
    100
}

/// The content of a file: the deployment, and the settings that take several values.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The deployments that are run, in the order of the file. Each deployment has one combination of the values that
    /// the section `[sweep]` of the file contains.
    pub cases: Vec<Case>,
    /// A description of the plan in one line.
    pub about: String,
}

/// A deployment of a plan, with the values that distinguish it from the other deployments of the plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The settings that take several values in the plan, and their values in this deployment, such as `network.hops =
    /// 3`. The map is empty if the plan varies no setting.
    pub values: BTreeMap<String, String>,
    /// The whole deployment.
    pub deployment: Deployment,
}

impl Plan {
    /// Reads a plan from the text of a file. Error messages contain `name`, the name of the file.
    ///
    /// # Errors
    /// [`Wrong`], with the line of the error.
    pub fn parse(name: &str, text: &str) -> Result<Self, Wrong> {
        let wrong = |line: Option<usize>, what: String| Wrong { file: name.into(), line, what };
        let mut table: toml::Table = toml::from_str(text).map_err(|error| Wrong::of_toml(name, text, &error))?;
        let sweep = match table.remove("sweep") {
            None => toml::Table::new(),
            Some(toml::Value::Table(sweep)) => sweep,
            Some(_) => {
                let line = line_of(text, "", "sweep");
                return Err(wrong(
                    line,
                    "sweep is a table of lists: [sweep], then \"network.loss\" = [0.0, 0.1]".into(),
                ));
            }
        };
        let plain = match sweep.is_empty() {
            true => text.to_owned(),
            false => without_section(text, "sweep"),
        };
        let base: Deployment = toml::from_str(&plain).map_err(|error| Wrong::of_toml(name, &plain, &error))?;
        let mut cases = vec![(BTreeMap::new(), table)];
        for (key, values) in &sweep {
            let line = line_of(text, "sweep", key);
            let values = values.as_array().filter(|values| !values.is_empty());
            let values = values.ok_or_else(|| wrong(line, format!("{key}: a list of values to try")))?;
            cases = cases
                .into_iter()
                .flat_map(|(named, table)| values.iter().map(move |value| (named.clone(), table.clone(), value)))
                .map(|(mut named, mut table, value)| {
                    named.insert(key.clone(), value.to_string());
                    set(&mut table, key, value).map_err(|what| wrong(line, what))?;
                    Ok((named, table))
                })
                .collect::<Result<_, Wrong>>()?;
        }
        let cases = cases.into_iter().map(|(values, table)| {
            let deployment: Deployment = table.try_into().map_err(|error: toml::de::Error| {
                let what = values.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ");
                wrong(line_of(text, "", "[sweep]"), format!("with {what}: {}", in_words(error.message())))
            })?;
            deployment.check().map_err(|(section, key, what)| {
                let swept = line_of(text, "sweep", &format!("{section}.{key}"));
                wrong(swept.or_else(|| line_of(text, section, key)).or_else(|| line_of(text, "", section)), what)
            })?;
            Ok(Case { values, deployment })
        });
        Ok(Self { about: base.about.clone(), cases: cases.collect::<Result<_, _>>()? })
    }
}

/// Sets the key `path`, such as `network.loss`, in a table.
fn set(table: &mut toml::Table, path: &str, value: &toml::Value) -> Result<(), String> {
    let (section, key) = path.split_once('.').ok_or_else(|| format!("{path}: section and key, as network.loss"))?;
    let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let section = section.as_table_mut().ok_or_else(|| format!("{path}: not a section and a key"))?;
    section.insert(key.into(), value.clone());
    Ok(())
}

/// Returns the number of the line, from 1, on which the key `key` of the section `section` is set. If `section` is
/// empty, returns the line on which the section `key` begins. Returns `None` if the text contains no such line.
fn line_of(text: &str, section: &str, key: &str) -> Option<usize> {
    let mut inside = section.is_empty();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(head) = head_of(line) {
            if section.is_empty() && (head == key || line == key) {
                return Some(number + 1);
            }
            inside = head == section;
        } else if inside && line.split('=').next().is_some_and(|name| name.trim().trim_matches('"') == key) {
            return Some(number + 1);
        }
    }
    None
}

/// Returns the name of the section that begins on this line, or `None` if no section begins. A line that continues a
/// list of lists also begins with a bracket, but begins no section.
fn head_of(line: &str) -> Option<&str> {
    let head = line.trim().trim_start_matches('[').split(']').next().unwrap_or_default();
    (line.trim_start().starts_with('[') && head.starts_with(|first: char| first.is_ascii_alphabetic())).then_some(head)
}

/// Returns the text with empty lines in place of the lines of a section. So all other lines keep their line numbers.
fn without_section(text: &str, section: &str) -> String {
    let mut inside = false;
    let lines = text.lines().map(|line| {
        if let Some(head) = head_of(line) {
            inside = head == section;
        }
        if inside { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// An error in a deployment file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The name of the file.
    pub file: String,
    /// The number of the line with the error, from 1; `None` if the line is not known.
    pub line: Option<usize>,
    /// The error, and the allowed values.
    pub what: String,
}

impl Wrong {
    fn of_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Self { file: file.into(), line, what: in_words(error.message()) }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for Wrong {}

/// Returns a message of the TOML parser, in which the range of allowed numbers replaces the name of a Rust type.
fn in_words(message: &str) -> String {
    let Some((head, expected)) = message.rsplit_once("expected ") else { return message.into() };
    let most = match expected {
        "usize" | "u64" => u64::MAX,
        "u32" => u32::MAX.into(),
        "u16" => u16::MAX.into(),
        "u8" => u8::MAX.into(),
        "f64" => return format!("{head}expected a number"),
        _ => return message.into(),
    };
    format!("{head}expected a whole number from 0 to {most}")
}

/// A wrong setting: its section, its key, and the reason why it is wrong.
type Fault = (&'static str, &'static str, String);

/// Checks that a value is a share, from 0 to 1.
fn share(section: &'static str, key: &'static str, value: f64) -> Result<(), Fault> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err((section, key, format!("{key} = {value}: a share is from 0 to 1"))),
    }
}

impl Deployment {
    /// Returns the nodes that make readings. `nodes` is the number of all nodes of the deployment.
    pub(crate) fn makers(&self, nodes: usize) -> Vec<NodeId> {
        match self.network.topology {
            Shape::Chain if self.traffic.group.is_none() => vec![nodes - 1],
            _ => (1 + self.network.forwarders..nodes).collect(),
        }
    }
}

/// Maximum number of seeds of a plan.
pub(crate) const MAX_SEEDS: u64 = 1_000_000;
/// The highest seed.
pub(crate) const MAX_SEED: u64 = u32::MAX as u64;
