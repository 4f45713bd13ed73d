//! The log of a server: one line for each event.

use clap::ValueEnum;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::SystemTime;

/// The severity of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Level {
    /// The operator has to act.
    Error,
    /// A request failed because of the server, or a client was refused.
    Warn,
    /// Sessions and requests.
    Info,
    /// Each block of a block-wise transfer.
    Debug,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// The time, the level, and a sentence.
    Text,
    /// One JSON object.
    Json,
}

/// Writes events as text or as JSON.
#[derive(Clone)]
pub(crate) struct Log {
    level: Level,
    format: Format,
}

impl Log {
    /// Writes to standard output. Events of less severe levels than `level` are left out.
    pub(crate) const fn new(level: Level, format: Format) -> Self {
        Self { level, format }
    }

    /// Writes an event whatever the level: how the server started and ended.
    pub(crate) fn always(&self, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        self.write(Level::Info, text, object);
    }

    /// Writes an event: `text` for people, `object` for machines.
    pub(crate) fn event(&self, level: Level, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        if level <= self.level {
            self.write(level, text, object);
        }
    }

    fn write(&self, level: Level, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        let time = rfc3339(SystemTime::now());
        let line = match self.format {
            Format::Text => format!("{time} {:5} {}", level.name(), text()),
            Format::Json => {
                let mut object = object();
                object["time"] = json!(time);
                object["level"] = json!(level.name());
                object.to_string()
            }
        };
        // Nobody reads any more: the server continues.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// A moment in UTC, to the millisecond (RFC 3339).
fn rfc3339(moment: SystemTime) -> String {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = time::OffsetDateTime::from_unix_timestamp(since.as_secs() as i64);
    let at = at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day, millis) = (at.year(), u8::from(at.month()), at.day(), since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z", at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests;
