//! `tegmen keys`: fresh pre-shared keys, in a credentials file that only its owner can read.

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_host::credentials::{Credentials, MAX_IDENTITY, to_hex};

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Draw a new key and add it to a credentials file, which is made if need be.
    #[command(after_help = "Examples:\n  tegmen keys new --identity sensor-17\n  \
        tegmen keys new --identity gateway --file /etc/tegmen/keys.toml --allow 'GET /*'")]
    New(New),
}

#[derive(Args)]
struct New {
    /// The PSK identity that goes with the key.
    #[arg(long)]
    identity: String,
    /// The credentials file.
    #[arg(long, default_value = "credentials.toml")]
    file: PathBuf,
    /// Bytes of the key.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(16..=64))]
    bytes: u8,
    /// What the owner may do, as "METHOD /path"; several times. Without it: everything.
    #[arg(long)]
    allow: Vec<String>,
}

impl Keys {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Command::New(new) = self.command;
        let New { identity, file, bytes, allow } = new;
        if identity.is_empty() || identity.len() > MAX_IDENTITY {
            return Err(Failure::usage(format!("--identity: 1 to {MAX_IDENTITY} bytes")));
        }
        let name = file.display();
        let existed = file.exists();
        let old = match existed {
            false => String::new(),
            true => {
                let known = Credentials::from_file(&file).map_err(Failure::new)?;
                if known.key_of(identity.as_bytes()).is_some() {
                    return Err(Failure::new(format!(
                        "{name} has a key for {identity} already: remove that entry first, or choose another identity"
                    )));
                }
                std::fs::read_to_string(&file).map_err(Failure::io)?
            }
        };
        let mut key = zeroize::Zeroizing::new(vec![0; bytes.into()]);
        getrandom::fill(&mut key).map_err(|error| Failure::new(format!("the system gives no randomness: {error}")))?;
        let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut entry = format!("[[psk]]\nidentity = {}\nkey = \"{}\"\n", quote(&identity), to_hex(&key));
        if !allow.is_empty() {
            let rules: Vec<_> = allow.iter().map(|rule| quote(rule)).collect();
            entry += &format!("allow = [{}]\n", rules.join(", "));
        }
        let separator = if old.is_empty() || old.ends_with("\n\n") { "" } else { "\n" };
        write_private(&file, &format!("{old}{separator}{entry}"))?;
        // What was written must be what a server reads.
        if let Err(error) = Credentials::from_file(&file) {
            match existed {
                true => write_private(&file, &old)?,
                false => std::fs::remove_file(&file).map_err(Failure::io)?,
            }
            return Err(Failure::usage(error));
        }
        out.line(
            || format!("{name} has a new key for {identity}. Nobody else can read the file; keep it so."),
            || json!({ "file": name.to_string(), "identity": identity, "bytes": bytes }),
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a file that only its owner can read, all of it or nothing.
fn write_private(file: &Path, text: &str) -> Result<(), Failure> {
    let wrong = |error| Failure::new(format!("{}: {error}", file.display()));
    let draft = file.with_extension("toml.new");
    let _ = std::fs::remove_file(&draft);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut handle = options.open(&draft).map_err(wrong)?;
    handle.write_all(text.as_bytes()).and_then(|()| handle.sync_all()).map_err(wrong)?;
    std::fs::rename(&draft, file).map_err(wrong)
}
