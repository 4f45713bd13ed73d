//! The names and the contents of the rows.
//!
//! ```text
//! access/device/NAME          a device: its tags and its credential, sealed if it has a secret
//! access/digest/HEX           the name of the device with this certificate or raw public key
//! access/policy               the policy in force: its file, who applied it, and its number of parts
//! access/policy/part/NN       a part of its text
//! access/session/IDENTITY     a session identity that was accepted: for whom, until when, with which token
//! access/revoked/HEX          a revoked token, by its hash: until when, whom it concerns
//! access/enrolment/NAME       a device that may enrol: its one-time key as hash and derived key, sealed
//! access/beat                 nothing; servers that share the store write it so that each knows the age of its view
//! ```

use super::device::Known;
use crate::access::ace::trl::TokenHash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_store::Value;
use tegmen_store::store::Entry;

/// The beginning of all keys.
pub(super) const ALL: &str = "access/";
/// The beginning of the keys of devices.
pub(super) const DEVICES: &str = "access/device/";
const DIGESTS: &str = "access/digest/";
pub(super) const POLICY: &str = "access/policy";
const PARTS: &str = "access/policy/part/";
const SESSIONS: &str = "access/session/";
const REVOKED: &str = "access/revoked/";
const ENROLMENTS: &str = "access/enrolment/";
pub(super) const BEAT: &str = "access/beat";

/// A row by its key.
pub(super) enum Row<'k> {
    Device(&'k str),
    Digest([u8; DIGEST_LEN]),
    Policy,
    Part(u8),
    Session(&'k str),
    Revoked(TokenHash),
    Enrolment(&'k str),
}

impl<'k> Row<'k> {
    /// `None` for a key that this version does not know.
    pub(super) fn of(key: &'k [u8]) -> Option<Self> {
        let key = std::str::from_utf8(key).ok()?;
        if key == POLICY {
            return Some(Self::Policy);
        }
        let device = || key.strip_prefix(DEVICES).map(Self::Device);
        let digest = || Some(Self::Digest(from_hex(key.strip_prefix(DIGESTS)?)?.try_into().ok()?));
        let part = || Some(Self::Part(key.strip_prefix(PARTS)?.parse().ok()?));
        let session = || key.strip_prefix(SESSIONS).map(Self::Session);
        let revoked = || Some(Self::Revoked(from_hex(key.strip_prefix(REVOKED)?)?));
        let enrolment = || key.strip_prefix(ENROLMENTS).map(Self::Enrolment);
        device().or_else(digest).or_else(part).or_else(session).or_else(revoked).or_else(enrolment)
    }
}

pub(super) fn device(name: &str) -> String {
    format!("{DEVICES}{name}")
}

pub(super) fn digest(digest: &[u8; DIGEST_LEN]) -> String {
    format!("{DIGESTS}{}", to_hex(digest))
}

pub(super) fn part(number: u8) -> String {
    format!("{PARTS}{number:02}")
}

pub(super) fn session(identity: &str) -> String {
    format!("{SESSIONS}{identity}")
}

pub(super) fn revoked(hash: &[u8]) -> String {
    format!("{REVOKED}{}", to_hex(hash))
}

pub(super) fn enrolment(name: &str) -> String {
    format!("{ENROLMENTS}{name}")
}

/// The policy in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyHead {
    /// The name of its file, for messages.
    pub(super) file: String,
    pub(super) parts: u8,
    /// The operator that applied it.
    pub(super) by: String,
    /// Seconds since 1970.
    pub(super) at: u64,
}

/// A session identity that was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub(super) subscriber: String,
    /// Seconds since 1970.
    pub(super) until: u64,
    /// The hash of the access token of the session in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
}

/// A revoked token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocation {
    /// Seconds since 1970 from which on the token is not valid anyway.
    pub(super) expires: u64,
    pub(super) concerned: Vec<String>,
}

/// Writes a row of JSON.
pub(super) fn json(record: &impl Serialize) -> Value {
    // These records have neither maps nor other content that JSON cannot have.
    Value::Plain(serde_json::to_vec(record).unwrap_or_default())
}

/// Reads a row of JSON; the fault if it is none.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    let text = value.plain().ok_or("it is not stored in clear")?;
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

/// Reads a row of a device; the fault if it is none.
pub(super) fn read_device(name: &str, entry: &Entry) -> Result<Known, String> {
    Known::read(name, entry)
}
