//! Output: for people by default, `--json` for machines; errors name the cause and the next step.

use serde_json::{Value, json};
use std::io::Write as _;
use tegmen_host::client::ClientError;
pub(crate) use tegmen_host::printable::printable;

/// The format of the output: text or JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

/// Why a command failed, in words for people, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// A failure of the work itself, which began: exit code 1.
    pub(crate) fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// The command cannot do its work as it was called, and did not begin: wrong arguments, or a file, a key or a port that
    /// they name and that cannot be used. Exit code 2, as clap's.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// A request that got no response: 2 if nothing was sent because of how the command was called, 1 otherwise.
    pub(crate) fn request(error: ClientError) -> Self {
        match error {
            ClientError::State(error) => Self::usage(format!("--session: {error}")),
            ClientError::NoKey
            | ClientError::Resume { .. }
            | ClientError::Context(_)
            | ClientError::Interface { .. }
            | ClientError::TooLong { .. }
            | ClientError::TooManyBlocks { .. } => Self::usage(error),
            _ => Self::new(error),
        }
    }

    pub(crate) fn io(error: std::io::Error) -> Self {
        // A reader that closed its end, as `head` does, is not a failure worth words.
        let code = if error.kind() == std::io::ErrorKind::BrokenPipe { 0 } else { 1 };
        Self { message: error.to_string(), code }
    }
}

impl Output {
    /// Prints one line of text, or one JSON object.
    pub(crate) fn line(self, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        let line = if self.json { object().to_string() } else { text() };
        // Nobody reads any more: the work continues.
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// Text that machines have no use for.
    pub(crate) fn text(self, text: impl AsRef<str>) {
        if !self.json {
            let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
        }
    }

    pub(crate) fn failure(self, failure: &Failure) {
        if failure.code == 0 {
            return;
        }
        let line = match self.json {
            true => json!({ "error": failure.message }).to_string(),
            false => format!("tegmen: {}", printable_lines(&failure.message)),
        };
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// A runtime for the commands that wait for the network.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::io)
}

/// Does the same as [`printable`], and keeps line breaks and tabs.
pub(crate) fn printable_lines(text: &str) -> String {
    let parts: Vec<String> = text
        .split_inclusive(['\n', '\t'])
        .map(|part| {
            let end = if part.ends_with(['\n', '\t']) { part.len() - 1 } else { part.len() };
            format!("{}{}", printable(&part[..end]), &part[end..])
        })
        .collect();
    parts.concat()
}

#[cfg(test)]
mod tests;
