//! The rows of delegations in the store: the key and the value of each row.
//!
//! ```text
//! delegation/device/NAME                    a device: its configuration and the keys of its epochs, sealed
//! delegation/number/NAME/TAG/new            the counter of the connection numbers reserved for new connections
//! delegation/number/NAME/TAG/again          the counter of those for connections that continue from the previous epoch
//! delegation/connection/NAME/TAG/NUMBER     a connection: its peer, its scope and its end
//! delegation/refused/NAME/TAG/NUMBER        a connection that was revoked
//! ```
//!
//! TAG is the check of the epoch ([`Epoch::check`](tegmen_delegation::Epoch::check)) in hexadecimal digits. A tag
//! belongs to one epoch of one device key. So if a device gets another device key, the rows of its earlier key are
//! never used for the later key.

use super::numbers::Purpose;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tegmen_base::hex::{digits, from_hex, to_hex};
use tegmen_delegation::CHECK_LEN;
use tegmen_store::Value;

/// Prefix of the keys of all rows with a device in the store.
pub(super) const DEVICES: &str = "delegation/device/";
/// Prefix of the keys of all rows with a counter of reserved connection numbers.
pub(super) const NUMBERS: &str = "delegation/number/";
const CONNECTIONS: &str = "delegation/connection/";
/// Prefix of the keys of all rows with a revoked connection.
pub(super) const REFUSED: &str = "delegation/refused/";

/// Number of bytes that most records have as JSON. The next constant is the number of bytes of most keys.
const USUAL_LEN: usize = 160;
const USUAL_KEY_LEN: usize = 96;

/// The check value of an epoch. It names the epoch in the keys of rows.
pub(super) type Tag = [u8; CHECK_LEN];

/// Returns three prefixes of the keys of a device's rows in the store, for all its epochs: the prefix for connections,
/// the one for revoked connections, and the one for counters of reserved connection numbers.
pub(super) fn of_epochs(name: &str) -> [String; 3] {
    [CONNECTIONS, REFUSED, NUMBERS].map(|kind| format!("{kind}{name}/"))
}

/// Returns the tag of the epoch in a key. `prefix` is the prefix with which the key begins: see [`of_epochs`].
pub(super) fn tag_of(key: &[u8], prefix: &str) -> Option<Tag> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
    from_hex(rest.split('/').next()?)?.try_into().ok()
}

pub(super) fn device(name: &str) -> String {
    format!("{DEVICES}{name}")
}

pub(super) fn numbers(name: &str, tag: &Tag, purpose: Purpose) -> String {
    format!("{NUMBERS}{name}/{}/{}", to_hex(tag), purpose.word())
}

/// Returns the prefix of the keys of all rows with a connection of one epoch. `tag` names the epoch.
pub(super) fn connections(name: &str, tag: &Tag) -> String {
    let mut prefix = String::with_capacity(USUAL_KEY_LEN);
    prefix.push_str(CONNECTIONS);
    prefix.push_str(name);
    prefix.push('/');
    push_hex(&mut prefix, tag);
    prefix.push('/');
    prefix
}

pub(super) fn connection(name: &str, tag: &Tag, number: u32) -> String {
    let mut key = connections(name, tag);
    let digits = number.to_be_bytes();
    // A number has at most three bytes.
    push_hex(&mut key, digits.strip_prefix(&[0]).unwrap_or(&digits));
    key
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    text.extend(bytes.iter().flat_map(|byte| digits(*byte)).map(char::from));
}

pub(super) fn refused(name: &str, tag: &Tag, number: u32) -> String {
    format!("{REFUSED}{name}/{}/{number:06x}", to_hex(tag))
}

/// Returns the name of the device, the tag of the epoch and the last segment of a key. `kind` is the prefix with which
/// the key begins.
pub(super) fn parts<'k>(key: &'k [u8], kind: &str) -> Option<(&'k str, Tag, &'k str)> {
    let mut words = std::str::from_utf8(key).ok()?.strip_prefix(kind)?.split('/');
    let (name, tag, last) = (words.next()?, words.next()?, words.next()?);
    Some((name, from_hex(tag)?.try_into().ok()?, last))
}

/// Reads the number that is the last segment of a key.
pub(super) fn number(last: &str) -> Option<u32> {
    u32::from_str_radix(last, 16).ok()
}

/// The content of the row of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionRow {
    pub(super) peer: String,
    pub(super) scope: u8,
    /// The time at which peer and server authenticated each other, in seconds since 1970.
    pub(super) since: u32,
    /// The time at which the connection expires, in seconds since 1970.
    pub(super) expires: u32,
    pub(super) carrier: Cow<'static, str>,
    /// The number of the connection of the previous epoch that this connection replaces; `None` for a new connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<u32>,
}

/// The content of the row of a connection that was revoked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusedRow {
    pub(super) by: String,
    /// The time of the revocation, in seconds since 1970.
    pub(super) at: u64,
    /// True if the device has acknowledged the revocation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) told: bool,
}

/// Converts a record to JSON, as the value of a row that is stored without encryption.
pub(super) fn plain(record: &impl Serialize) -> Value {
    let mut text = Vec::with_capacity(USUAL_LEN);
    // These records have neither maps nor other content that JSON cannot have, and a write to memory does not fail.
    let written = serde_json::to_writer(&mut text, record);
    debug_assert!(written.is_ok(), "a write to memory does not fail");
    Value::Plain(text)
}

/// Reads a row that is stored without encryption. Returns the fault as text if the row is not valid.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    let text = value.plain().ok_or("it is not stored in clear")?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
