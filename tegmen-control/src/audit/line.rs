//! Lines of an audit log.

use serde::Deserialize;
use tegmen_base::hex::digits;
use tegmen_trust::digest::{Digest, sha256};

/// Maximum number of bytes of the message of a record; a longer message is cut.
pub const MAX_MESSAGE: usize = 1024;
/// The number of bytes for which [`Record::write`] reserves memory, in addition to the name and the message.
const AROUND: usize = 128;
/// Maximum number of decimal digits of a `u64`.
const DIGITS: usize = 20;
/// Maximum number of bytes of a line that can be read.
pub(super) const MAX_LINE: usize = 65_536;

/// The kind of event that a line records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A key or a right was given.
    Grant,
    /// A request for a key or a right was refused.
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

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Refusal => "refusal",
            Self::Revocation => "revocation",
            Self::Policy => "policy",
            Self::Device => "device",
            Self::Group => "group",
            Self::Key => "key",
            Self::User => "user",
            Self::Server => "server",
        }
    }
}

/// An event to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// The kind of the event.
    pub kind: Kind,
    /// The name of the device or the operator who made the request.
    pub who: String,
    /// The code of the event, for programs that read the log. The code stays the same in later versions.
    pub code: &'static str,
    /// A description of the event, without any secret.
    pub message: String,
}

impl Record {
    /// Returns a record of a refused request. `who` made the request, `code` is the code of the refusal, and `request`
    /// describes the request.
    pub(crate) fn refused(who: &str, code: &'static str, request: &str) -> Self {
        Self { kind: Kind::Refusal, who: who.to_owned(), code, message: format!("{request}: refused ({code})") }
    }

    /// Appends the event as JSON, for [`write_line`]. `at` is in seconds since 1970.
    pub(super) fn write(&self, at: u64, out: &mut Vec<u8>) {
        let Self { kind, who, code, message } = self;
        let (who, message) = (cut(who), cut(message));
        out.reserve(AROUND.saturating_add(who.len()).saturating_add(message.len()));
        out.extend_from_slice(b"{\"at\":");
        write_number(at, out);
        out.extend_from_slice(b",\"kind\":\"");
        out.extend_from_slice(kind.name().as_bytes());
        out.extend_from_slice(b"\",\"who\":");
        write_text(who, out);
        out.extend_from_slice(b",\"code\":");
        write_text(code, out);
        out.extend_from_slice(b",\"message\":");
        write_text(message, out);
        out.push(b'}');
    }
}

/// Appends a number in decimal digits. This takes less time than a format with arguments.
fn write_number(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; DIGITS];
    let mut first = DIGITS;
    while first == DIGITS || number > 0 {
        first = first.saturating_sub(1);
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0'.wrapping_add((number % 10) as u8);
        }
        number /= 10;
    }
    out.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Appends a text as a string of JSON.
fn write_text(text: &str, out: &mut Vec<u8>) {
    // Most texts need no escape, and a search for characters that need one is fast.
    if text.bytes().fold(true, |is_plain, byte| is_plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\')) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // A text has no content that JSON cannot have, and a write to memory does not fail.
        let written = serde_json::to_writer(out, text);
        debug_assert!(written.is_ok(), "a write to memory does not fail");
    }
}

/// Appends the line number `n` with an event, and a line feed. `before` is the hash of the previous line. Returns the
/// hash of the new line.
pub(super) fn write_line(out: &mut Vec<u8>, n: u64, before: &Digest, event: &[u8]) -> Digest {
    let start = out.len();
    out.extend_from_slice(b"{\"n\":");
    write_number(n, out);
    out.extend_from_slice(b",\"prev\":\"");
    let mut hex = [0; 2 * size_of::<Digest>()];
    hex.as_chunks_mut().0.iter_mut().zip(before).for_each(|(pair, byte)| *pair = digits(*byte));
    out.extend_from_slice(&hex);
    out.extend_from_slice(b"\",");
    out.extend_from_slice(event.strip_prefix(b"{").unwrap_or(event));
    let hash = hash(out.get(start..).unwrap_or_default());
    out.push(b'\n');
    hash
}

/// Returns the first [`MAX_MESSAGE`] bytes of a text, without a partial character at the end.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or(text)
}

/// The fields of a line that link it to the previous line: the number of the line, and the hash of the previous line.
#[derive(Deserialize)]
pub(super) struct Link {
    pub(super) n: u64,
    pub(super) prev: String,
}

impl Link {
    /// Reads a line without its line feed; returns `None` if it is not valid.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// Returns the hash of a line without its line feed.
pub(super) fn hash(line: &[u8]) -> Digest {
    sha256(line)
}

/// The bytes that the first line contains as the hash of its previous line, because there is no previous line.
pub(super) const GENESIS: Digest = [0; 32];
