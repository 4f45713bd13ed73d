//! The names and the contents of the rows.
//!
//! ```text
//! delegation/device/NAME                    a device: its configuration and the keys of its epochs, sealed
//! delegation/number/NAME/TAG/new            the numbers of an epoch that are reserved for new connections
//! delegation/number/NAME/TAG/again          the numbers that are reserved for connections of the epoch before
//! delegation/connection/NAME/TAG/NUMBER     a connection: its peer, its scope and its end
//! delegation/refused/NAME/TAG/NUMBER        a connection that was revoked
//! ```
//!
//! TAG is the check of the epoch ([`Epoch::check`](tegmen_delegation::Epoch::check)) in hexadecimal digits. It is of one epoch of
//! one device key alone, so rows of an earlier imprinting never count for a later one.

use super::numbers::Purpose;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_delegation::CHECK_LEN;
use tegmen_store::Value;

/// The beginning of the keys of devices.
pub(super) const DEVICES: &str = "delegation/device/";
/// The beginning of the keys of numbers.
pub(super) const NUMBERS: &str = "delegation/number/";
const CONNECTIONS: &str = "delegation/connection/";
/// The beginning of the keys of revoked connections.
pub(super) const REFUSED: &str = "delegation/refused/";

/// The check of an epoch.
pub(super) type Tag = [u8; CHECK_LEN];

/// The beginnings of the keys that belong to epochs of a device. Those of the numbers come last.
pub(super) fn of_epochs(name: &str) -> [String; 3] {
    [CONNECTIONS, REFUSED, NUMBERS].map(|kind| format!("{kind}{name}/"))
}

/// The epoch of a key after one of [`of_epochs`].
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

/// The beginning of the keys of the connections of an epoch.
pub(super) fn connections(name: &str, tag: &Tag) -> String {
    format!("{CONNECTIONS}{name}/{}/", to_hex(tag))
}

pub(super) fn connection(name: &str, tag: &Tag, number: u32) -> String {
    format!("{}{number:06x}", connections(name, tag))
}

pub(super) fn refused(name: &str, tag: &Tag, number: u32) -> String {
    format!("{REFUSED}{name}/{}/{number:06x}", to_hex(tag))
}

/// The name, the epoch and the last segment of a key behind `kind`.
pub(super) fn parts<'k>(key: &'k [u8], kind: &str) -> Option<(&'k str, Tag, &'k str)> {
    let mut words = std::str::from_utf8(key).ok()?.strip_prefix(kind)?.split('/');
    let (name, tag, last) = (words.next()?, words.next()?, words.next()?);
    Some((name, from_hex(tag)?.try_into().ok()?, last))
}

/// The number at the end of a key.
pub(super) fn number(last: &str) -> Option<u32> {
    u32::from_str_radix(last, 16).ok()
}

/// A connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionRow {
    pub(super) peer: String,
    pub(super) scope: u8,
    /// Seconds since 1970.
    pub(super) since: u32,
    /// Seconds since 1970.
    pub(super) expires: u32,
    pub(super) carrier: String,
    /// The number of the connection in the previous epoch, if this one takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<u32>,
}

/// A connection that was revoked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusedRow {
    pub(super) by: String,
    /// Seconds since 1970.
    pub(super) at: u64,
    /// True if the device acknowledged it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) told: bool,
}

/// Writes a row in clear.
pub(super) fn plain(record: &impl Serialize) -> Value {
    // These records have neither maps nor other content that JSON cannot have.
    Value::Plain(serde_json::to_vec(record).unwrap_or_default())
}

/// Reads a row that is stored in clear; the fault if it is none.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    let text = value.plain().ok_or("it is not stored in clear")?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
