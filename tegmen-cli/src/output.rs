//! Output of the commands: text by default, JSON with `--json`. Errors name the cause and the next step.

use serde_json::{Value, json};
use std::io::Write as _;
use tegmen_host::client::ClientError;
pub(crate) use tegmen_host::printable::printable;

/// The format of the output: text or JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

/// The error of a command: a text for the user, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: u8,
}

impl Failure {
    /// Makes the error of a command that failed after it began its work: exit code 1.
    pub(crate) fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 1 }
    }

    /// Makes the error of a command that could not begin its work: the arguments are wrong, or they name a file, a key
    /// or a port that cannot be used. The exit code is 2, as for errors of clap.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { message: message.to_string(), code: 2 }
    }

    /// Makes the error for a request that got no response. The exit code is 2 if the arguments prevented the request
    /// from being sent, and 1 otherwise.
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

    /// Prints text that programs do not need. Prints nothing with `--json`.
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

/// Starts a runtime for the commands that wait for the network.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::io)
}

/// Does the same as the function [`printable`], but keeps line breaks and tabs.
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
