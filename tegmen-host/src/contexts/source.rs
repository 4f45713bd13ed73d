//! The text of a file `context.toml`. This module reads the file, and finds the line of each mistake in the file.

use super::{ContextError, file_error};
use crate::hex::from_hex;
use crate::private;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::Spanned;
use toml::value::Datetime;
use zeroize::{Zeroize as _, Zeroizing};

/// The name of the file of a context in the directory of the context.
pub(super) const CONTEXT: &str = "context.toml";

/// The text of a file, and the path of the file.
pub(super) struct Source {
    file: String,
    text: Zeroizing<String>,
}

impl Source {
    /// Reads `context.toml` in a directory.
    ///
    /// # Errors
    /// [`ContextError::File`], and [`ContextError::Exposed`] if other users can read the file.
    pub(super) fn read(dir: &Path) -> Result<Self, ContextError> {
        let path = dir.join(CONTEXT);
        let file = path.display().to_string();
        let handle = File::open(&path).map_err(file_error(&path))?;
        if let Some(mode) = private::exposed(&handle).map_err(file_error(&path))? {
            return Err(ContextError::Exposed { file, mode });
        }
        let text = Zeroizing::new(io::read_to_string(handle).map_err(file_error(&path))?);
        Ok(Self { file, text })
    }

    /// Returns a source whose text will be written to the path `file`.
    pub(super) fn of(file: &str, text: &str) -> Self {
        Self { file: file.to_owned(), text: Zeroizing::new(text.to_owned()) }
    }

    /// The path of the file.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// True if the text has the TOML key `group_id`, and so describes the context of a group member. The rest of the
    /// text may be invalid.
    pub(super) fn is_of_member(&self) -> bool {
        let key = |line: &str| line.split_once('=').is_some_and(|(key, _)| key.trim() == "group_id");
        self.text.lines().any(key)
    }

    /// Parses the whole text. `known` names the permitted TOML keys, for the error message.
    ///
    /// # Errors
    /// [`ContextError::Syntax`], which each of the following methods also returns.
    pub(super) fn parse<T: DeserializeOwned>(&self, known: &str) -> Result<T, ContextError> {
        toml::from_str(&self.text).map_err(|error| {
            self.wrong(error.span().map_or(0, |span| span.start), format!("{}: {known}", error.message()))
        })
    }

    /// Returns the error for a mistake at the byte `at` of the text.
    pub(super) fn wrong(&self, at: usize, message: String) -> ContextError {
        ContextError::Syntax { file: self.file.clone(), line: self.line(at), message }
    }

    /// Returns the line number of this byte of the text, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    /// Decodes a value that is written in hexadecimal digits. Returns the byte offset of the value in the text, and the
    /// decoded bytes.
    pub(super) fn hex(&self, key: &str, value: Spanned<String>) -> Result<(usize, Vec<u8>), ContextError> {
        let at = value.span().start;
        let bytes = from_hex(value.get_ref());
        value.into_inner().zeroize();
        let bytes = bytes.ok_or_else(|| self.wrong(at, format!("{key}: an even number of hexadecimal digits")))?;
        Ok((at, bytes))
    }

    /// Checks a time value. Returns the time in seconds since 1970, and its text in the file.
    pub(super) fn time(&self, key: &str, at: &Spanned<Datetime>) -> Result<(u64, String), ContextError> {
        let example = || self.wrong(at.span().start, format!("{key}: {NO_TIME}"));
        Ok((unix_seconds(at.get_ref()).ok_or_else(example)?, at.get_ref().to_string()))
    }

    /// Checks the rights of another endpoint or member, and returns them.
    pub(super) fn rules(&self, rules: Vec<Spanned<String>>) -> Result<Vec<String>, ContextError> {
        let rule = |rule: Spanned<String>| match crate::credentials::is_rule(rule.get_ref()) {
            true => Ok(rule.into_inner()),
            false => Err(self.wrong(rule.span().start, format!("allow: {}", tegmen::coap::Rule::EXPECTED))),
        };
        rules.into_iter().map(rule).collect()
    }
}

/// True if a file can contain this text as a time.
pub(super) fn is_time(text: &str) -> bool {
    text.parse().is_ok_and(|at| unix_seconds(&at).is_some())
}

/// The description of a valid time, for error messages.
pub(super) const NO_TIME: &str = "a time with its zone, as 2027-12-31T00:00:00Z";

/// The time of creation that is assumed for a context whose file has no such time: the beginning of 2026, in seconds
/// since 1970.
pub(super) const EARLIEST: u64 = 1_767_225_600;

/// Returns a time in the form that files use.
pub(super) fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| "9999-12-31T23:59:59Z".to_owned())
}

/// Returns the seconds since 1970 of a time with its zone. A date without a time counts as its beginning in UTC.
fn unix_seconds(at: &Datetime) -> Option<u64> {
    let midnight = if at.time.is_none() { "T00:00:00Z" } else { "" };
    let time = OffsetDateTime::parse(&format!("{at}{midnight}"), &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests;
