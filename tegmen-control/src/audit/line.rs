//! One line of the log.

use serde::{Deserialize, Serialize};
use tegmen_base::hex::to_hex;
use tegmen_trust::digest::{Digest, sha256};

/// Longest message of a record in bytes; a longer one is cut.
pub const MAX_MESSAGE: usize = 1024;
/// Longest line that is read.
pub(super) const MAX_LINE: usize = 65_536;

/// The kind of event that a line records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A key or a right was given.
    Grant,
    /// A key or a right was refused.
    Refusal,
    /// A token was revoked.
    Revocation,
    /// A policy was applied.
    Policy,
    /// A device was added or changed.
    Device,
    /// A group was created, changed or deleted.
    Group,
    /// A key of the interface for administrators was created or deleted.
    Key,
    /// The server or its log started, or the log could not be written for some time.
    Server,
}

/// An event to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The kind.
    pub kind: Kind,
    /// The device or the operator that asked.
    pub who: String,
    /// A word that stays the same in later versions.
    pub code: &'static str,
    /// The event in words, without any secret.
    pub message: String,
}

impl Record {
    /// Writes the line with the number `n` behind a line with the hash `before`, without the line feed.
    pub(super) fn line(&self, n: u64, before: &Digest, at: u64) -> Vec<u8> {
        let Self { kind, who, code, message } = self;
        let line = Line { n, prev: to_hex(before), at, kind: *kind, who: cut(who), code, message: cut(message) };
        // The line has neither maps nor other content that JSON cannot have.
        serde_json::to_vec(&line).unwrap_or_default()
    }
}

/// The first bytes of a text, to a whole character.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or(text)
}

#[derive(Serialize)]
struct Line<'a> {
    n: u64,
    prev: String,
    at: u64,
    kind: Kind,
    who: &'a str,
    code: &'a str,
    message: &'a str,
}

/// The part of a line that belongs to the chain.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) n: u64,
    pub(super) prev: String,
}

impl Link {
    /// Reads a line without its line feed; `None` if it is none.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// The hash of a line, without its line feed.
pub(super) fn hash(line: &[u8]) -> Digest {
    sha256(line)
}

/// The hash before the first line.
pub(super) const GENESIS: Digest = [0; 32];
