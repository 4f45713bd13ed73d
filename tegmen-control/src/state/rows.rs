//! The rows of the state in the store: the key and the value of each row.
//!
//! ```text
//! access/device/NAME          a device: its tags and its credential, sealed if it has a secret
//! access/digest/HEX           the name of the device with this certificate or raw public key
//! access/policy               the policy in force: its file, who applied it, and its number of parts
//! access/policy/part/NN       a part of the text of the policy
//! access/policy/configured    the SHA-256 of the last policy that was applied from the configuration of a server
//! access/session/IDENTITY     a session identity that was accepted: for whom, until when, with which token
//! access/session/+HEX         many session identities (CBOR), in a store of one server; HEX is the number of the row
//! access/revoked/HEX          a revoked token, by its hash: until when, whom it concerns
//! access/enrolment/NAME       a device that may enrol: its one-time key as hash and derived key, sealed
//! access/beat                 empty; servers of one store write it to check that their rows in memory are current
//! ```

use super::device::Known;
use crate::access::ace::trl::TokenHash;
use crate::access::protokey::SessionIdentity;
use minicbor::{Decoder, Encoder};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::time::Instant;
use tegmen_store::Value;
use tegmen_store::store::Entry;

/// Prefix of the keys of all rows of the state.
pub(super) const ALL: &str = "access/";
/// Prefix of the keys of all rows with a device.
pub(super) const DEVICES: &str = "access/device/";
const DIGESTS: &str = "access/digest/";
pub(super) const POLICY: &str = "access/policy";
const PARTS: &str = "access/policy/part/";
pub(super) const CONFIGURED: &str = "access/policy/configured";
const SESSIONS: &str = "access/session/";
/// In the key of a row with many session identities, this character and a number replace the identity. No identity
/// begins with this character. A version of the program that does not know such rows refuses to start if the store
/// contains one of them.
const MANY: char = '+';
const REVOKED: &str = "access/revoked/";
const ENROLMENTS: &str = "access/enrolment/";
pub(super) const BEAT: &str = "access/beat";

/// A row, identified by its key.
pub(super) enum Row<'k> {
    Device(&'k str),
    Digest([u8; DIGEST_LEN]),
    Policy,
    Part(u8),
    Session(&'k str),
    Sessions(u64),
    Revoked(TokenHash),
    Enrolment(&'k str),
}

impl<'k> Row<'k> {
    /// Returns the row with this key; `None` for a key that this version of the program does not know.
    pub(super) fn of(key: &'k [u8]) -> Option<Self> {
        let key = std::str::from_utf8(key).ok()?;
        if key == POLICY {
            return Some(Self::Policy);
        }
        let device = || key.strip_prefix(DEVICES).map(Self::Device);
        let digest = || Some(Self::Digest(from_hex(key.strip_prefix(DIGESTS)?)?.try_into().ok()?));
        let part = || Some(Self::Part(key.strip_prefix(PARTS)?.parse().ok()?));
        let session = || {
            let name = key.strip_prefix(SESSIONS)?;
            let number = name.strip_prefix(MANY).map(|number| u64::from_str_radix(number, 16).map(Self::Sessions));
            number.unwrap_or(Ok(Self::Session(name))).ok()
        };
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

pub(super) fn sessions(number: u64) -> String {
    format!("{SESSIONS}{MANY}{number:016x}")
}

pub(super) fn revoked(hash: &[u8]) -> String {
    format!("{REVOKED}{}", to_hex(hash))
}

pub(super) fn enrolment(name: &str) -> String {
    format!("{ENROLMENTS}{name}")
}

/// The content of the main row of the policy in force. Other rows contain the parts of the policy's text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyHead {
    /// The name of the policy's file, for messages.
    pub(super) file: String,
    pub(super) parts: u8,
    /// The operator who applied the policy.
    pub(super) by: String,
    /// The time at which the policy was applied, in seconds since 1970.
    pub(super) at: u64,
}

/// A session identity that was accepted. It is the PSK identity of a session between a subscriber and a publisher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedSession {
    /// The session identity.
    pub identity: String,
    /// The subscriber that received the key.
    pub subscriber: String,
    /// The time until which the identity is remembered, in seconds since 1970.
    pub until: u64,
    /// The [hash](crate::access::revocation::token_hash) of the access token of the session, if it has one.
    pub token: Option<TokenHash>,
}

impl AcceptedSession {
    /// Returns the time until which the server remembers this accepted session identity.
    pub(super) fn end(&self) -> Instant {
        Instant::from_micros(self.until.saturating_mul(1_000_000))
    }

    /// Returns the name of the publisher in the identity.
    pub fn publisher(&self) -> &str {
        SessionIdentity::parse(self.identity.as_bytes()).map_or("", |identity| identity.publisher())
    }
}

/// The content of a row that contains one session identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub(super) subscriber: String,
    /// The time until which the identity is remembered, in seconds since 1970.
    pub(super) until: u64,
    /// The hash of the access token of the session in hexadecimal digits, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
}

/// A revoked token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocation {
    /// The time at which the token expires, in seconds since 1970.
    pub(super) expires: u64,
    pub(super) concerned: Vec<String>,
}

impl Revocation {
    /// Returns `earlier` with the devices of this revocation, and with the later of both expiries.
    pub(super) fn merged_into(self, mut earlier: Self) -> Self {
        for name in self.concerned {
            if !earlier.concerned.contains(&name) {
                earlier.concerned.push(name);
            }
        }
        earlier.expires = earlier.expires.max(self.expires);
        earlier
    }
}

/// Maximum number of bytes that [`add_session`] adds.
pub(super) const LONGEST_SESSION: usize = 512;

/// Appends a session identity to the content of a row with many identities. The entry is an array of the identity, the
/// subscriber, the time until which the identity is remembered (in seconds since 1970), and the hash of the access
/// token if there is one.
pub(super) fn add_session(row: &mut Vec<u8>, session: &AcceptedSession) {
    let AcceptedSession { identity, subscriber, until, token } = session;
    let mut encoder = Encoder::new(row);
    let written = encoder.array(3_u64.saturating_add(u64::from(token.is_some())));
    let written = written.and_then(|encoder| encoder.str(identity)?.str(subscriber)?.u64(*until));
    let written = written.and_then(|encoder| token.as_deref().map_or(Ok(()), |token| encoder.bytes(token).map(drop)));
    debug_assert!(written.is_ok(), "a write to memory does not fail");
}

/// Reads a row with many session identities. Returns the fault as text if the row is not valid.
pub(super) fn read_sessions(bytes: &[u8]) -> Result<Vec<AcceptedSession>, String> {
    let (mut decoder, mut sessions) = (Decoder::new(bytes), Vec::new());
    while decoder.position() < bytes.len() {
        let session = read_one(&mut decoder).map_err(|error| error.to_string())?;
        sessions.push(session.ok_or("it has something else than session identities")?);
    }
    Ok(sessions)
}

fn read_one(decoder: &mut Decoder<'_>) -> Result<Option<AcceptedSession>, minicbor::decode::Error> {
    let len = decoder.array()?;
    let (identity, subscriber, until) = (decoder.str()?.to_owned(), decoder.str()?.to_owned(), decoder.u64()?);
    let token = if len == Some(4) { Some(decoder.bytes()?.to_owned()) } else { None };
    let session = AcceptedSession { identity, subscriber, until, token };
    Ok(matches!(len, Some(3 | 4)).then_some(session))
}

/// Reads a row with one session identity. Returns the fault as text if the row is not valid.
pub(super) fn read_session(identity: &str, value: &Value) -> Result<AcceptedSession, String> {
    let Session { subscriber, until, token } = read(value)?;
    let token = token.as_deref().and_then(from_hex);
    Ok(AcceptedSession { identity: identity.to_owned(), subscriber, until, token })
}

/// Converts a record to JSON, as the value of a row that is stored without encryption.
pub(super) fn json(record: &impl Serialize) -> Value {
    // These records have neither maps nor other content that JSON cannot have.
    Value::Plain(serde_json::to_vec(record).unwrap_or_default())
}

/// Returns the content of a row that is stored without encryption. For a row of another kind, returns the fault as
/// text.
pub(super) fn plain(value: &Value) -> Result<&[u8], String> {
    value.plain().ok_or_else(|| "it is not stored in clear".to_owned())
}

/// Reads a row that contains JSON. Returns the fault as text if the row is not valid.
pub(super) fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_slice(plain(value)?).map_err(|error| error.to_string())
}

/// Reads the row of a device. Returns the fault as text if the row is not valid.
pub(super) fn read_device(name: &str, entry: &Entry) -> Result<Known, String> {
    Known::read(name, entry)
}
