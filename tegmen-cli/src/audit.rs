//! `tegmen audit`: verifies the audit log of an access control server. No server is needed.

use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand};
use serde_json::json;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_control::audit::{Broken, Head, verify};
use tegmen_host::hex::{from_hex, to_hex};

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check that a log is unchanged since the server wrote it, and name the first line that was changed.
    #[command(after_help = "Example:\n  tegmen audit verify audit.log --head copy-of-audit.log.head --key 5f3c...\n\n\
        Take the head from another machine: a person who can change the log can also change the head beside it.\n\n\
        Exit codes: 0 if the log is whole, 1 if a line was changed, moved or removed, 2 if a file cannot be read.")]
    Verify(Verify),
}

#[derive(Args)]
struct Verify {
    /// The log.
    file: PathBuf,
    /// A signed head of the log. Without a head, the command does not find that lines are missing at the end.
    #[arg(long)]
    head: Option<PathBuf>,
    /// SHA-256 of the public key that must have signed the head, 64 hexadecimal digits (`tegmen keys show`).
    #[arg(long, value_name = "DIGEST", requires = "head")]
    key: Option<String>,
}

impl Audit {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Command::Verify(Verify { file, head, key }) = self.command;
        let head = head.map(|head| read_head(&head, key.as_deref())).transpose()?;
        let log = File::open(&file).map_err(|error| unreadable(&file, &error))?;
        let name = file.display().to_string();
        let signer = head.as_ref().map(|head| to_hex(&head.key()));
        match verify(BufReader::new(log), head.as_ref()) {
            Ok(verified) => {
                let signed = match &signer {
                    Some(signer) => format!(", {} of them signed by the key {signer}", verified.signed),
                    None => ", none of them compared with a signed head".to_owned(),
                };
                out.line(
                    || printable(&format!("{name}: {} lines, all as they were written{signed}", verified.lines)),
                    || json!({ "file": name, "lines": verified.lines, "signed": verified.signed, "key": signer }),
                );
                Ok(ExitCode::SUCCESS)
            }
            Err(Broken::Line { line, why }) => {
                out.line(
                    || printable(&format!("{name}: line {line} {why}")),
                    || json!({ "file": name, "broken": { "line": line, "why": why }, "key": signer }),
                );
                Ok(ExitCode::from(1))
            }
            Err(Broken::Unreadable(error)) => Err(unreadable(&file, &error)),
        }
    }
}

fn read_head(file: &Path, key: Option<&str>) -> Result<Head, Failure> {
    let text = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
    let head = Head::parse(&text).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    if let Some(key) = key {
        let expected = from_hex(key).filter(|digest| digest.len() == head.key().len());
        let expected = expected.ok_or_else(|| Failure::usage(format!("--key: 64 hexadecimal digits, not {key}")))?;
        if expected != head.key() {
            let signer = to_hex(&head.key());
            let message = format!("{}: signed by the key {signer}, not by that of --key", file.display());
            return Err(Failure::usage(format!("{message}: take a copy of the head from another machine")));
        }
    }
    Ok(head)
}

fn unreadable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}: correct the path, or the permissions there", file.display()))
}
