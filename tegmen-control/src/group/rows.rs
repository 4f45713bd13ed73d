//! The rows of a group in a store.
//!
//! ```text
//! group/name/NAME               the identity of the group of this name, 32 hexadecimal digits
//! group/id/PORT/GROUPID         the name of the Axiom group that has this GroupID at this port; empty if several
//!                               groups have it, which an earlier version of this program created
//! group/IDENTITY/head           the main row: configuration, epoch and seed, sealed; each change writes it
//! group/IDENTITY/path/LEAF      the secrets of nodes above LEAF, from the last eviction at LEAF, sealed
//! group/IDENTITY/member/NAME    a member: its leaf, its SenderID, its address, and the origin of its path
//! group/IDENTITY/joined/EPOCH   the members that joined together in this epoch, if none of them has changed since then
//! group/IDENTITY/replica/NAME   the SenderID of a controller
//! group/IDENTITY/guard          a counter that increases only when a backup is restored
//! group/deleted/IDENTITY        the mark, an empty row: rows of this group are being written or deleted
//! ```
//!
//! One transaction makes a change. The transaction writes the head, which is the main row. For each member that joins,
//! it writes the member's row. This row has a nonce that was drawn for this admission. The new secrets of the path, from
//! the member's leaf upwards, are derived from the nonce and the seed in the head. For a member that leaves, the
//! transaction deletes the member's row, and writes the random new secrets of the nodes above the leaf to a path row.
//! If the paths of several rows contain a node, its secret is in the path of the row that was written last. If no path
//! contains a node, its secret is derived from the seed. An earlier version of this program wrote the secrets of each
//! admission to a path row. This version reads such rows.
//!
//! Members that join together in one epoch have one row together, because one row takes less time than a row for each of
//! them. Before one of them changes or leaves, a transaction replaces this row by a row for each of them. Each of these
//! rows has the revision of the row before, at which the member was admitted.

use super::GroupIdentity;
use super::config::GroupConfig;
use super::members::Member;
use super::oscore::SenderIds;
use super::tree::{Nodes, path};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tegmen_base::crypto::{DIGEST_LEN, KEY_LEN};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::secret::Secret;
use tegmen_store::Value;
use tegmen_store::store::{MAX_VALUE, Number};
use zeroize::Zeroizing;

/// Prefix of the keys of all rows of groups.
pub(super) const GROUPS: &str = "group/";

/// Prefix of the keys of the rows that map the name of a group to its identity.
pub(super) const NAMES: &str = "group/name/";

/// Prefix of the keys of the rows that reserve GroupIDs.
pub(super) const GROUP_IDS: &str = "group/id/";

/// Prefix of the keys of all marks. A mark is an empty row. It exists while the rows of a group are being written or
/// deleted, so that the rows of a failed attempt can be found and deleted.
pub(super) const DELETED: &str = "group/deleted/";

/// A row of one group, named by the part of its key after the prefix of the group.
pub(super) enum Row<'k> {
    Head,
    /// The secrets of the nodes from this leaf upwards.
    Path(u32),
    Member(&'k str),
    /// The members that joined together in this epoch.
    Joined(u16),
    Replica(&'k str),
    Guard,
}

impl<'k> Row<'k> {
    /// Returns the row with this key; `None` for a key that this version of the program does not know.
    pub(super) fn of(key: &'k [u8], prefix: &str) -> Option<Self> {
        let end = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
        match end.split_once('/') {
            None if end == "head" => Some(Self::Head),
            None if end == "guard" => Some(Self::Guard),
            Some(("path", leaf)) => u32::from_str_radix(leaf, 16).ok().map(Self::Path),
            Some(("member", name)) => Some(Self::Member(name)),
            Some(("joined", epoch)) => u16::from_str_radix(epoch, 16).ok().map(Self::Joined),
            Some(("replica", name)) => Some(Self::Replica(name)),
            _ => None,
        }
    }

    /// Returns the key of the row. `prefix` is the prefix of the group.
    pub(super) fn key(&self, prefix: &str) -> String {
        match self {
            Self::Head => format!("{prefix}head"),
            Self::Path(leaf) => format!("{prefix}path/{leaf:06x}"),
            Self::Member(name) => format!("{prefix}member/{name}"),
            Self::Joined(epoch) => format!("{prefix}joined/{epoch:04x}"),
            Self::Replica(name) => format!("{prefix}replica/{name}"),
            Self::Guard => format!("{prefix}guard"),
        }
    }
}

/// Returns the key of the row that has the identity of the group `name`.
pub(super) fn name(name: &str) -> String {
    format!("{NAMES}{name}")
}

/// Returns the prefix of the keys of the rows that reserve the GroupIDs of the groups at a port.
pub(super) fn group_ids(port: u16) -> String {
    format!("{GROUP_IDS}{port}/")
}

/// Returns the key of the row that reserves a GroupID for a group at a port.
pub(super) fn group_id(port: u16, id: u8) -> String {
    format!("{GROUP_IDS}{port}/{id}")
}

/// Returns the key of the mark of a group. The mark is an empty row. It exists while the rows of the group are being
/// written or deleted, so that the rows of a failed attempt can be found and deleted.
pub(super) fn deleted(identity: &GroupIdentity) -> String {
    format!("{DELETED}{}", to_hex(identity))
}

/// Returns the prefix of the keys of all rows of a deleted or unfinished group. `key` is the key of the mark of this
/// group: see [`deleted`]. Returns `None` if `key` is not the key of a mark.
pub(super) fn prefix_of_deleted(key: &[u8]) -> Option<String> {
    let identity = std::str::from_utf8(key).ok()?.strip_prefix(DELETED)?;
    Some(format!("group/{identity}/"))
}

/// Returns the prefix of the keys of all rows of a group.
pub(super) fn prefix(identity: &GroupIdentity) -> String {
    format!("group/{}/", to_hex(identity))
}

/// The value of the guard of a group. The guard is a number that the controller never changes. The restore of a backup
/// increases it by at least a million, so another value shows that the store was restored.
pub(super) const GUARD: Number = Number { next: 1, pace: 1_000_000 };

/// The content of the head, the main row of a group.
pub(super) struct Head {
    pub(super) name: String,
    pub(super) config: GroupConfig,
    pub(super) begun: Begun,
    pub(super) seed: Secret<DIGEST_LEN>,
}

/// The current epoch, and the change that began it.
#[derive(Clone)]
pub(super) struct Begun {
    pub(super) epoch: u16,
    /// Time at which the epoch began, in seconds since 1970.
    pub(super) since: u64,
    /// The leaves whose paths to the root got new secrets in the change that began the epoch.
    pub(super) changed: Vec<u32>,
    /// The Sender IDs of a Group OSCORE group.
    pub(super) ids: SenderIds,
}

/// The JSON text at the beginning of the value of the head, the main row of a group. In the value, the seed of the
/// group follows this text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadRecord {
    /// The name of the group. So a program that reads the changes of the store finds the name in this row, and needs no
    /// other row.
    name: String,
    config: GroupConfig,
    epoch: u16,
    #[serde(default)]
    since: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changed: Vec<u32>,
    #[serde(default, skip_serializing_if = "SenderIds::is_unused")]
    ids: SenderIds,
    /// True if the group has rows of members that joined together. An earlier version of this program does not know these
    /// rows. It refuses a head with this field, so it does not take the group for one without these members.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    joined: bool,
}

impl Head {
    /// Reads the head of a group, its main row, from the value `value` of this row. If the value is not valid, returns
    /// the fault as text.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let Value::Secret(bytes) = value else { return Err("it is not sealed".to_owned()) };
        let (text, seed) = bytes.split_last_chunk().ok_or("it has no seed")?;
        let record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let HeadRecord { name, config, epoch, since, changed, ids, joined: _ } = record;
        Ok(Self { name, config, begun: Begun { epoch, since, changed, ids }, seed: Secret::new(*seed) })
    }

    /// Returns the value of the head, the main row of a group. `joined` is true if the group has rows of members that
    /// joined together.
    pub(super) fn value(
        (name, config): (&str, &GroupConfig),
        begun: Begun,
        seed: &Secret<DIGEST_LEN>,
        joined: bool,
    ) -> Value {
        let Begun { epoch, since, changed, ids } = begun;
        let record = HeadRecord { name: name.to_owned(), config: *config, epoch, since, changed, ids, joined };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        // It never outgrows this, so that no copy of the seed remains.
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len().saturating_add(DIGEST_LEN)));
        bytes.extend_from_slice(&text);
        bytes.extend_from_slice(seed.expose());
        Value::Secret(bytes)
    }
}

/// Reads the secrets of a path from its row. The row begins with the number of nodes without a secret. The secrets of
/// the nodes above these nodes follow.
pub(super) fn read_path(leaf: u32, value: &Value) -> Result<Nodes, String> {
    let Value::Secret(bytes) = value else { return Err("it is not sealed".to_owned()) };
    let (without, secrets) = bytes.split_first().ok_or("it is empty")?;
    let (secrets, rest) = secrets.as_chunks();
    let without = std::iter::repeat_with(|| None).take((*without).into());
    let nodes: Nodes = path(leaf).zip(without.chain(secrets.iter().map(|secret| Some(Secret::new(*secret))))).collect();
    let count = nodes.iter().filter(|(_, secret)| secret.is_some()).count();
    if rest.is_empty() && count == secrets.len() { Ok(nodes) } else { Err("it is no path from its leaf".to_owned()) }
}

/// Returns the value of the row that contains the secrets of a path: see [`read_path`].
pub(super) fn path_value(nodes: &Nodes) -> Value {
    let secrets = || nodes.iter().filter_map(|(_, secret)| secret.as_ref());
    let mut bytes = Zeroizing::new(Vec::with_capacity(nodes.len().saturating_mul(KEY_LEN).saturating_add(1)));
    bytes.push(u8::try_from(nodes.len().saturating_sub(secrets().count())).unwrap_or(u8::MAX));
    secrets().for_each(|secret| bytes.extend_from_slice(secret.expose()));
    Value::Secret(bytes)
}

/// Reads the row of a member, or another record that is stored without encryption.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    let text = value.plain().ok_or("it is not stored in clear")?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Converts a record to JSON, as the value of a row that is stored without encryption.
pub(super) fn plain(record: &impl Serialize) -> Value {
    // These records have neither maps nor other content that JSON cannot have.
    Value::Plain(serde_json::to_vec(record).unwrap_or_default())
}

/// Reads the row of members that joined together. Returns the members with their names.
pub(super) fn read_joined(value: &Value) -> Result<Vec<(String, Member)>, String> {
    read(value)
}

/// Returns the value of the row of members that joined together; `None` if they do not fit into one row.
pub(super) fn joined(members: &[(String, Member)]) -> Option<Value> {
    Some(plain(&members)).filter(|value| value.plain().is_some_and(|text| text.len() <= MAX_VALUE))
}

/// Reads the row with the identity of a group.
pub(super) fn read_identity(value: &Value) -> Result<GroupIdentity, String> {
    let digits = value.plain().and_then(|digits| std::str::from_utf8(digits).ok()).ok_or("it is no identity")?;
    from_hex(digits).and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| "it is no identity".to_owned())
}

/// Returns the value of the row with the identity of a group.
pub(super) fn identity(identity: &GroupIdentity) -> Value {
    Value::Plain(to_hex(identity).into_bytes())
}
