//! `tegmen keys`: generates pre-shared keys, in a credentials file that only its owner can read, and shows public
//! keys.

#[cfg(feature = "tpm")]
pub(crate) mod tpm;

use crate::ca::seconds;
use crate::files::{self, Readers};
use crate::output::{Failure, Output};
use crate::random;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen_host::credentials::{Credentials, MAX_IDENTITY};
use tegmen_host::hex::to_hex;
use tegmen_host::x509::signer::{SignatureScheme, Signer as _, SoftwareKey};
use tegmen_host::x509::{date, sha256};

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key and add it to a credentials file, which is created if it does not exist.
    #[command(after_help = "Examples:\n  tegmen keys new --identity sensor-17\n  \
        tegmen keys new --identity gateway --file /etc/tegmen/keys.toml --allow 'GET /*'")]
    New(New),
    /// Show a certificate or a private key, with the digests that are used in lists of allowed keys and of revoked
    /// certificates.
    #[command(after_help = "Examples:\n  tegmen keys show device1.pem\n  tegmen keys show device1.key --json")]
    Show {
        /// A certificate (PEM or DER) or a private key (PEM).
        file: PathBuf,
    },
    /// Manage keys that a TPM 2.0 creates, and that never leave the TPM.
    #[cfg(feature = "tpm")]
    Tpm(tpm::Tpm),
    /// Manage keys that a TPM 2.0 creates, and that never leave the TPM (this build has no TPM support).
    #[cfg(not(feature = "tpm"))]
    Tpm {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
}

#[derive(Args)]
struct New {
    /// The PSK identity of the key.
    #[arg(long)]
    identity: String,
    /// The credentials file.
    #[arg(long, default_value = "credentials.toml")]
    file: PathBuf,
    /// Length of the key in bytes.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(16..=64))]
    bytes: u8,
    /// Right of the owner of the key, as "METHOD /path"; may be repeated. Default: all rights.
    #[arg(long)]
    allow: Vec<String>,
}

impl Keys {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::New(new) => new.run(out),
            Command::Show { file } => show(&file, out),
            #[cfg(feature = "tpm")]
            Command::Tpm(tpm) => tpm.run(out),
            #[cfg(not(feature = "tpm"))]
            Command::Tpm { rest: _ } => Err(Failure::usage(
                "this tegmen was built without support for TPMs: install the packages libtss2-dev and pkg-config, and \
                 build it with `cargo build --release -p tegmen-cli --features tpm`",
            )),
        }
    }
}

impl New {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { identity, file, bytes, allow } = self;
        if identity.is_empty() || identity.len() > MAX_IDENTITY {
            return Err(Failure::usage(format!("--identity: 1 to {MAX_IDENTITY} bytes")));
        }
        let name = file.display();
        let existed = file.exists();
        let old = match existed {
            false => String::new(),
            true => {
                let known = Credentials::from_file(&file).map_err(Failure::new)?;
                if known.keys_of(identity.as_bytes()).is_some() {
                    return Err(Failure::new(format!(
                        "{name} has a key for {identity} already: remove that entry first, or choose another identity"
                    )));
                }
                std::fs::read_to_string(&file).map_err(Failure::io)?
            }
        };
        let mut key = zeroize::Zeroizing::new(vec![0; bytes.into()]);
        random::fill(&mut key)?;
        let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut entry = format!("[[psk]]\nidentity = {}\nkey = \"{}\"\n", quote(&identity), to_hex(&key));
        if !allow.is_empty() {
            let rules: Vec<_> = allow.iter().map(|rule| quote(rule)).collect();
            entry += &format!("allow = [{}]\n", rules.join(", "));
        }
        let separator = if old.is_empty() || old.ends_with("\n\n") { "" } else { "\n" };
        files::write(&file, format!("{old}{separator}{entry}").as_bytes(), Readers::Owner)?;
        // What was written must be what a server reads.
        if let Err(error) = Credentials::from_file(&file) {
            match existed {
                true => files::write(&file, old.as_bytes(), Readers::Owner)?,
                false => std::fs::remove_file(&file).map_err(Failure::io)?,
            }
            return Err(Failure::usage(error));
        }
        out.line(
            || format!("Added a key for {identity} to {name} (mode 600)."),
            || json!({ "file": name.to_string(), "identity": identity, "bytes": bytes }),
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn show(file: &Path, out: Output) -> Result<ExitCode, Failure> {
    let no_key = match SoftwareKey::from_file(file) {
        Ok(key) => {
            let (scheme, digest) = (scheme_name(key.scheme()), to_hex(&sha256(key.public_key())));
            out.line(
                || format!("private key    {scheme}\npublic key     SHA-256 {digest}"),
                || json!({ "scheme": scheme, "public_key_digest": digest }),
            );
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => error,
    };
    // What is neither is called what it looks like.
    let certificate = crate::ca::read_certificate(file)
        .map_err(|no_certificate| if is_key(file) { Failure::new(no_key) } else { no_certificate })?;
    let (digest, key_digest) = (to_hex(&certificate.digest), to_hex(&sha256(&certificate.spki)));
    let serial = to_hex(&certificate.serial);
    out.line(
        || {
            format!(
                "certificate    SHA-256 {digest}\nsubject        {}\nnames          {}\nissuer         {}\n\
                 serial number  {serial}\nvalid          {} to {}\npublic key     SHA-256 {key_digest}",
                certificate.subject,
                if certificate.names.is_empty() { "none".to_owned() } else { certificate.names.join(", ") },
                certificate.issuer,
                date(certificate.not_before),
                date(certificate.not_after),
            )
        },
        || {
            json!({ "digest": digest, "subject": certificate.subject, "names": certificate.names,
                "issuer": certificate.issuer, "serial": serial, "not_before": seconds(certificate.not_before),
                "not_after": seconds(certificate.not_after), "public_key_digest": key_digest })
        },
    );
    Ok(ExitCode::SUCCESS)
}

fn is_key(file: &Path) -> bool {
    std::fs::read(file).is_ok_and(|bytes| bytes.windows(12).any(|part| part == b"PRIVATE KEY-"))
}

fn scheme_name(scheme: SignatureScheme) -> &'static str {
    match scheme {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => "ecdsa_secp256r1_sha256",
        SignatureScheme::RSA_PKCS1_SHA256 => "rsa_pkcs1_sha256",
        _ => "unknown",
    }
}
