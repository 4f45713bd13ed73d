//! The record of the sequence numbers that one context or session may have used, and the file that stores this record.

use crate::clock::{is_in_future, now};
use crate::files::{beside, identity, rename};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::private;

/// The count of sequence numbers in one lease. A lease is a range of sequence numbers that a process has reserved and
/// may use. After a power cut, at most this count of unused numbers is skipped.
pub const LEASE: u64 = 1024;

/// The record of the sequence numbers of one OSCORE context, group membership or session. A file or a row of a database
/// stores this record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The next sequence number: every lower sequence number may have been used.
    pub next: u64,
    /// The replay window of the sequence numbers that the other endpoint has used; `None` if it is not known. The
    /// window is stored only when the program closes the context. After a crash or a power cut it is not known.
    pub window: Option<[u64; 2]>,
    /// The time at which the record was written to the file, in seconds since 1970; 0 before the first use.
    pub written: u64,
    /// The identity of this file. A copy of the file has another identity. `None` before the first use of the context,
    /// so that the file of a new context can be moved to another machine.
    pub place: Option<String>,
    /// The identity of the file that was written for an unused context; `None` for a used context. If the file is a
    /// copy, [`Self::read`] also returns `None` here, because the original may have been used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<String>,
    /// For a session: its encrypted state, in hexadecimal. For a member of a group: the replay windows of the other
    /// members. These windows are stored only when the program closes the group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sealed: String,
    /// For a session: the identity of its peer. For a context: the ID Context with which its keys were derived again,
    /// in hexadecimal (RFC 8613, appendix B.2). A `?` precedes the ID Context until a message under these keys has
    /// arrived.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub with: String,
    /// True if the record moved into a [`Database`](crate::Database), so that the sequence numbers in this file are no
    /// longer valid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_database: bool,
    /// The checksum of all other fields. The checksum detects a file that was cut short.
    pub check: String,
}

impl Numbers {
    /// Returns the record of an unused context.
    pub fn fresh() -> Self {
        Self { window: Some([0, 0]), ..Self::default() }
    }

    /// Returns the record of a used context. `next` is the first unused number. `window` is the replay window of the
    /// numbers of the other endpoint; `None` if it is lost.
    pub fn from(next: u64, window: Option<[u64; 2]>) -> Self {
        Self { next, window, ..Self::default() }
    }

    fn digest(&self) -> String {
        let mut text = format!("{} {:?} {} {:?}", self.next, self.window, self.written, self.place);
        if let Some(made) = &self.made {
            text.push_str(&format!(" made {made}"));
        }
        if self.in_database {
            text.push_str(" in a database");
        }
        if !self.sealed.is_empty() || !self.with.is_empty() {
            text.push_str(&format!(" {} {}", self.sealed, self.with));
        }
        to_hex(Sha256::digest(text).get(..8).unwrap_or(&[]))
    }

    /// Reads the record from a file.
    ///
    /// # Errors
    /// The fault of the file, as a text for people.
    pub fn read(file: &Path) -> Result<Self, String> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(format!("{name} is missing")),
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        let mut numbers: Self = toml::from_str(&text).map_err(|_| format!("{name} is damaged or cut short"))?;
        if numbers.check != numbers.digest() {
            return Err(format!("{name} is damaged or was edited"));
        }
        let here = std::fs::metadata(file).map(|meta| identity(&meta)).map_err(|error| format!("{name}: {error}"))?;
        if numbers.place.as_ref().is_some_and(|place| *place != here) {
            return Err(format!("{name} is a copy, or was restored from a backup"));
        }
        numbers.made = numbers.made.filter(|made| *made == here);
        if is_in_future(numbers.written) {
            return Err(format!("{name} was written in the future: the clock went back, or is not set"));
        }
        Ok(numbers)
    }

    /// Reads only the ID Context, as [`Self::id_context`] returns it, from a file whose other content cannot be
    /// trusted.
    pub fn id_context_in(file: &Path) -> Option<Vec<u8>> {
        let numbers: Self = toml::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
        numbers.id_context().map(|(id_context, _)| id_context)
    }

    /// Returns the ID Context with which keys were derived again, and true if a message under these keys has arrived.
    pub fn id_context(&self) -> Option<(Vec<u8>, bool)> {
        let settled = self.with.trim_start_matches('?');
        if settled.is_empty() { None } else { Some((from_hex(settled)?, settled == self.with)) }
    }

    /// Sets the ID Context with which keys were derived again. `settled` is true if a message under these keys has
    /// arrived.
    #[must_use]
    pub fn under(self, id_context: &[u8], settled: bool) -> Self {
        let mark = if settled { "" } else { "?" };
        Self { with: format!("{mark}{}", to_hex(id_context)), ..self }
    }

    /// Writes the complete file or nothing. After this function returns, the file survives a power cut. If `in_use` is
    /// true, the file is written for a used context: then [`Self::read`] refuses a copy of the file. Returns the
    /// identity of the file.
    ///
    /// # Errors
    /// The error of the system; the file is then unchanged.
    pub fn keep(&self, file: &Path, in_use: bool) -> io::Result<String> {
        let draft = beside(file, "new");
        let _ = std::fs::remove_file(&draft);
        let mut handle = private::open(File::options().write(true).create_new(true), &draft)?;
        let mut kept = Self { written: if in_use { now() } else { 0 }, ..self.clone() };
        let here = identity(&handle.metadata()?);
        (kept.place, kept.made) = if in_use { (Some(here.clone()), None) } else { (None, Some(here.clone())) };
        kept.check = kept.digest();
        let text = toml::to_string(&kept).map_err(io::Error::other)?;
        handle.write_all(b"# Numbers that may have been used. Written by tegmen; do not edit or copy.\n")?;
        handle.write_all(text.as_bytes())?;
        handle.sync_all()?;
        rename(&draft, file)?;
        Ok(here)
    }
}
