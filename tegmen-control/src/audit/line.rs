//! One line of the log.

use serde::{Deserialize, Serialize};
use std::io::Write as _;
use tegmen_base::hex::digits;
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
    /// A user was added, changed or removed.
    User,
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
    /// The refusal of a request of `who`.
    pub(crate) fn refused(who: &str, code: &'static str, request: &str) -> Self {
        Self { kind: Kind::Refusal, who: who.to_owned(), code, message: format!("{request}: refused ({code})") }
    }

    /// Appends the event as JSON, of which [`write_line`] makes a line. `at` is in seconds since 1970.
    pub(super) fn write(&self, at: u64, out: &mut Vec<u8>) {
        let Self { kind, who, code, message } = self;
        let event = Happened { at, kind: *kind, who: cut(who), code, message: cut(message) };
        // The event has neither maps nor other content that JSON cannot have, and memory takes all bytes.
        let written = serde_json::to_writer(out, &event);
        debug_assert!(written.is_ok(), "memory takes all bytes");
    }
}

/// Appends the line of an event with the number `n` behind a line with the hash `before`, and a line feed. Returns the hash.
pub(super) fn write_line(out: &mut Vec<u8>, n: u64, before: &Digest, event: &[u8]) -> Digest {
    let start = out.len();
    // Memory takes all bytes.
    let _ = write!(out, "{{\"n\":{n},\"prev\":\"");
    before.iter().for_each(|byte| out.extend_from_slice(&digits(*byte)));
    out.extend_from_slice(b"\",");
    out.extend_from_slice(event.strip_prefix(b"{").unwrap_or(event));
    let hash = hash(out.get(start..).unwrap_or_default());
    out.push(b'\n');
    hash
}

/// The first bytes of a text, to a whole character.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or(text)
}

/// The part of a line that does not belong to the chain.
#[derive(Serialize)]
struct Happened<'a> {
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
