//! `tegmen edhoc`: keys with which two endpoints agree on an OSCORE context.

use crate::output::{Failure, Output};
use crate::random;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tegmen_host::edhoc::{Credential, EdhocKeys, Transfer, create_key, parse_credential, read_key};
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::provider::HostCrypto;
use zeroize::Zeroizing;

#[derive(Args)]
pub(crate) struct Edhoc {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key and its credential. The file is a secret. Give the credential to the other endpoints.
    #[command(after_help = "Examples:\n  tegmen edhoc new meter.edhoc --name meter-7\n  \
        tegmen edhoc new gateway.edhoc --name gateway.example --by-value")]
    New(New),
    /// Show the credential of a key, in the form that the other endpoints need.
    Show {
        /// File of the key.
        file: PathBuf,
    },
}

#[derive(Args)]
struct New {
    /// File to create.
    file: PathBuf,
    /// Name of the owner, the subject of the credential.
    #[arg(long)]
    name: String,
    /// Short name that identifies the key in messages, 1 to 16 bytes in hexadecimal. Default: two random bytes.
    #[arg(long, value_name = "HEX")]
    kid: Option<String>,
    /// Send the whole credential instead of its short name. The other endpoint must have the credential in both cases.
    #[arg(long)]
    by_value: bool,
}

impl Edhoc {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::New(new) => new.run(out),
            Command::Show { file } => {
                let identity = read_key(&file).map_err(Failure::usage)?;
                show(identity.credential(), out);
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl New {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let kid = match &self.kid {
            None => random::bytes::<2>()?.to_vec(),
            Some(text) => from_hex(text)
                .filter(|kid| (1..=16).contains(&kid.len()))
                .ok_or_else(|| Failure::usage("--kid: 1 to 16 bytes, in hexadecimal digits"))?,
        };
        let mut crypto = HostCrypto::from_os().map_err(Failure::io)?;
        let transfer = if self.by_value { Transfer::ByValue } else { Transfer::ByReference };
        let created = create_key(&mut crypto, &self.file, &self.name, &kid, transfer);
        show(&created.map_err(Failure::usage)?, out);
        Ok(ExitCode::SUCCESS)
    }
}

fn show(credential: &Credential, out: Output) {
    let (digits, kid) = (to_hex(credential.as_bytes()), credential.kid().map(to_hex));
    out.line(|| format!("credential = \"{digits}\""), || json!({ "credential": digits, "kid": kid }));
}

/// The options of requests that agree on an OSCORE context by EDHOC.
#[derive(Args)]
pub(crate) struct Agreeing {
    /// Agree on an OSCORE context with the server by EDHOC (RFC 9528), with the key in this file (made with `tegmen
    /// edhoc new`). This context protects all requests, over coap and coaps.
    #[arg(long, value_name = "FILE", env = "TEGMEN_EDHOC", requires = "edhoc_server",
          conflicts_with_all = ["oscore", "credentials_map"])]
    edhoc: Option<PathBuf>,
    /// Credential of a server to trust: hexadecimal digits, or a file with them; may be repeated.
    #[arg(long, value_name = "CREDENTIAL", env = "TEGMEN_EDHOC_SERVER", requires = "edhoc")]
    edhoc_server: Vec<String>,
    /// Send message_3 in a separate request, for servers that do not accept it in the first protected request (RFC
    /// 9668).
    #[arg(long, requires = "edhoc")]
    edhoc_separate: bool,
}

impl Agreeing {
    /// Returns the file of the key for EDHOC; `None` if the requests do not agree on an OSCORE context by EDHOC.
    pub(crate) const fn file(&self) -> Option<&PathBuf> {
        self.edhoc.as_ref()
    }

    /// Returns the keys for EDHOC; `None` if the option --edhoc is not given.
    pub(crate) fn keys(&self) -> Result<Option<Arc<EdhocKeys>>, Failure> {
        let Some(file) = &self.edhoc else { return Ok(None) };
        let identity = read_key(file).map_err(Failure::usage)?;
        let trusted = self.edhoc_server.iter().map(|text| credential(text)).collect::<Result<_, _>>()?;
        Ok(Some(Arc::new(EdhocKeys { identity, trusted, combined: !self.edhoc_separate })))
    }
}

/// Reads a credential from hexadecimal digits, or from a file. The file contains such digits, or the line that `tegmen
/// edhoc show` prints.
fn credential(text: &str) -> Result<Credential, Failure> {
    let path = Path::new(text);
    let found = match path.is_file() {
        false => parse_credential(text),
        true => {
            let content = std::fs::read_to_string(path).map(Zeroizing::new);
            let content = content.map_err(|error| Failure::usage(format!("{text}: {error}")))?;
            if content.lines().any(|line| line.trim().starts_with("private_key")) {
                eprintln!(
                    "--edhoc-server {text}: this file has a private key, and only its owner must have it: `tegmen edhoc show {text}` \
                     prints the credential alone"
                );
            }
            let line = content.lines().find_map(|line| line.trim().strip_prefix("credential = "));
            parse_credential(line.unwrap_or(&content).trim().trim_matches('"'))
        }
    };
    let place = if path.is_file() { "" } else { "there is no such file, and " };
    found.map_err(|error| Failure::usage(format!("--edhoc-server {text}: {place}a credential is {error}")))
}
