//! A deployment in one file: nodes, links, traffic, stack and mote, and the settings to vary.
//!
//! An error in a file names its line and the allowed values.

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

/// The content of a file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// A description in one line.
    pub about: String,
    /// Nodes and links.
    pub network: Network,
    /// The traffic of the nodes.
    pub traffic: Traffic,
    /// The stack that carries the traffic.
    #[serde(default)]
    pub stack: Stack,
    /// The motes.
    #[serde(default)]
    pub mote: Hardware,
    /// Changes of address on the way.
    #[serde(default)]
    pub moves: Vec<Move>,
    /// The seeds of the runs.
    #[serde(default)]
    pub run: Runs,
}

/// A node gets another address, like a roaming node, or another port, like a restarted application. Routes follow at
/// once; the state of the old address is lost.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The number of the node; not node 0.
    pub node: usize,
    /// The time of the move, in seconds after the beginning.
    pub at_s: f64,
    /// The part that changes.
    #[serde(default)]
    pub changes: Changes,
}

/// The part of an address that a move changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// The interface identifier of its IPv6 address.
    #[default]
    Address,
    /// The UDP port of the node.
    Port,
}

/// Nodes and links. Node 0 takes the readings; it has no battery.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The topology.
    pub topology: Shape,
    /// Nodes that make readings: the leaves of a star, all but the root of a tree. A chain has one, at its end.
    pub nodes: Option<usize>,
    /// Hops of a chain.
    pub hops: Option<usize>,
    /// Children of each node of a tree.
    pub fanout: Option<usize>,
    /// The number of nodes after node 0 that make no readings and only forward. Not for a chain, where only the last
    /// node makes readings.
    #[serde(default)]
    pub forwarders: usize,
    /// Pairs of nodes that hear each other, for the topology "links".
    pub links: Option<Vec<[usize; 2]>>,
    /// The share of frames that links lose, 0 to 1.
    #[serde(default)]
    pub loss: Loss,
    /// Bad times of every link.
    pub bursts: Option<Weather>,
}

/// The topology of the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// All around node 0, and each hears each.
    Star,
    /// In a row; only the last makes readings.
    Chain,
    /// Below node 0, each hears its parent and its children.
    Tree,
    /// The pairs in `network.links`.
    Links,
}

/// The kind and rate of traffic.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// From one reading of a node to its next, in seconds, in the mean; each is drawn from a quarter below to a quarter
    /// above.
    pub period_s: f64,
    /// Readings of each node.
    #[serde(default = "hundred")]
    pub readings: u32,
    /// Bytes of a reading.
    pub payload: usize,
    /// Bytes of the answer.
    #[serde(default)]
    pub response: usize,
    /// All nodes that make readings lose their memory once, after this share of their readings.
    pub reboot_after: Option<f64>,
    /// Losses of memory at random.
    pub reboots: Option<Reboots>,
    /// The other way round: node 0 asks all nodes, every `period_s`, and each answers.
    pub group: Option<Group>,
}

/// Losses of memory, drawn again before each reading.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reboots {
    /// The share of readings before which there is one.
    pub share: f64,
    /// The end that loses its memory.
    #[serde(default)]
    pub of: Rebooted,
}

/// The end that loses its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rebooted {
    /// The node that makes the reading.
    #[default]
    Client,
    /// Node 0, what it knows by OSCORE of the node that makes the reading.
    Server,
}

/// Requests to all nodes (RFC 7252, section 8).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Members answer at a random time within this number of seconds.
    #[serde(default = "five")]
    pub leisure_s: f64,
    /// Node 0 asks each member alone, one after the other.
    #[serde(default)]
    pub each: bool,
    /// Bytes of the tag of a record of a protected group: 16, or 8.
    #[serde(default = "sixteen")]
    pub tag: u8,
}

fn sixteen() -> u8 {
    16
}

/// DEFAULT_LEISURE (RFC 7252, section 4.8), in seconds.
fn five() -> f64 {
    5.0
}

/// The stack that carries the readings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stack {
    /// The protections of the readings; each is run.
    pub protections: Vec<Protection>,
    /// The profile of DTLS: "default", or "minimal" as in the Blink paper.
    pub profile: ProfileName,
    /// The addresses of nodes on the link.
    pub link_addresses: Addresses,
    /// The addresses of nodes in IPv6.
    pub addresses: Prefix,
    /// UDP ports of a node that makes readings, and of node 0.
    pub ports: [u16; 2],
    /// The first hop limit.
    pub hop_limit: u8,
    /// Frames that come twice are handed up once.
    pub rejects_duplicates: bool,
    /// The radio hears nothing while it waits to send.
    pub deaf: bool,
    /// The MAC acknowledges each frame that goes to one node.
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
    /// With the extensions that make it safe against known attacks.
    Default,
    /// Without any extension.
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

/// Addresses of the link layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Addresses {
    /// Two bytes.
    Short,
    /// Eight bytes.
    Extended,
}

/// Prefixes of IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefix {
    /// fe80::/64: over one hop only, and left out of frames.
    LinkLocal,
    /// A prefix that all nodes know as a context; frames leave it out.
    Context,
    /// A prefix that every frame contains.
    Inline,
}

/// The motes.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hardware {
    /// The name of a platform in `data/platforms.toml`.
    pub platform: String,
    /// Cycles for an instruction, in the mean: 1.0 to 1.3 on a Cortex-M3.
    pub cycles_per_instruction: f64,
    /// The time of the operating system for each datagram that the mote sends, receives or forwards, in microseconds
    /// of its processor.
    pub stack_us: u32,
    /// Capacity of the battery.
    pub battery_mah: f64,
    /// Current of a mote that sleeps, in microamperes.
    pub sleep_ua: f64,
    /// The radio sleeps, and the mote asks node 0 for packets after each time of this length, in seconds; 0 if the radio is always on.
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
    /// The number of seeds, one run each.
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

/// A file: the deployment, and the settings to vary.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Each value of each key under `[sweep]`, in the order of the file, and the deployment with it.
    pub cases: Vec<Case>,
    /// A description in one line.
    pub about: String,
}

/// A deployment with the values that make it differ from others of its plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// `network.hops = 3`, and so on; empty if nothing is varied.
    pub values: BTreeMap<String, String>,
    /// The whole deployment.
    pub deployment: Deployment,
}

impl Plan {
    /// Reads a plan. `name` is the name of its file in errors.
    ///
    /// # Errors
    /// [`Wrong`], with the line.
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

/// Sets `a.b` in a table.
fn set(table: &mut toml::Table, path: &str, value: &toml::Value) -> Result<(), String> {
    let (section, key) = path.split_once('.').ok_or_else(|| format!("{path}: section and key, as network.loss"))?;
    let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let section = section.as_table_mut().ok_or_else(|| format!("{path}: not a section and a key"))?;
    section.insert(key.into(), value.clone());
    Ok(())
}

/// The line, from 1, on which a key of a section is set; or on which a section begins, if `section` is empty.
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

/// The section that begins on this line, if one does; a row of a matrix begins with a bracket as well.
fn head_of(line: &str) -> Option<&str> {
    let head = line.trim().trim_start_matches('[').split(']').next().unwrap_or_default();
    (line.trim_start().starts_with('[') && head.starts_with(|first: char| first.is_ascii_alphabetic())).then_some(head)
}

/// The text with the lines of a section empty, so that all others keep their numbers.
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

/// An error in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The name of the file.
    pub file: String,
    /// The line of the error, from 1.
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

/// A message of the parser, with ranges of numbers in place of the names of types.
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

/// Section and key that are wrong, and why.
type Fault = (&'static str, &'static str, String);

/// Checks that a value is a share of something.
fn share(section: &'static str, key: &'static str, value: f64) -> Result<(), Fault> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(()),
        false => Err((section, key, format!("{key} = {value}: a share is from 0 to 1"))),
    }
}

impl Deployment {
    /// The nodes that make readings.
    pub(crate) fn makers(&self, nodes: usize) -> Vec<NodeId> {
        match self.network.topology {
            Shape::Chain if self.traffic.group.is_none() => vec![nodes - 1],
            _ => (1 + self.network.forwarders..nodes).collect(),
        }
    }
}

/// Seeds of a plan.
pub(crate) const MAX_SEEDS: u64 = 1_000_000;
/// The last seed.
pub(crate) const MAX_SEED: u64 = u32::MAX as u64;
