//! `tegmen keys tpm`: private keys that a TPM 2.0 creates and never releases.

use super::scheme_name;
use crate::ca::{CertificateKey, request};
use crate::files::{self, Readers};
use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_host::hex::to_hex;
use tegmen_host::x509::sha256;
use tegmen_host::x509::signer::Signer as _;
use tegmen_host::x509::tpm::{DEFAULT_TPM, Place, TpmKey, TpmKeyKind, sealed};
use tegmen_store::SealingKey;

#[derive(Args)]
pub(crate) struct Tpm {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key in the TPM.
    #[command(after_help = "Examples:\n  tegmen keys tpm create --handle 0x81010001\n  \
        tegmen keys tpm create --file device1.tpm --rsa\n\n\
        A key in a file is wrapped by the TPM: the file is useless on any other machine. A handle needs no file, but \
        a TPM can hold only a few.")]
    Create {
        #[command(flatten)]
        at: At,
        /// Create an RSA key of 2048 bits, which signs and decrypts. The default is an ECDSA key on P-256.
        #[arg(long)]
        rsa: bool,
    },
    /// Show the public key and its digest. Lists of allowed keys contain this digest.
    Show {
        #[command(flatten)]
        at: At,
    },
    /// Create a certificate request (PKCS #10), signed in the TPM.
    #[command(after_help = "Example:\n  tegmen keys tpm csr --handle 0x81010001 --name device1 --out device1.csr\n  \
        tegmen ca issue ca --name device1 --csr device1.csr")]
    Csr {
        #[command(flatten)]
        at: At,
        /// Common name to request.
        #[arg(long)]
        name: String,
        /// File for the request; standard output by default.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Encrypt the sealing key of a database with a key that never leaves the TPM. The written file is useless on any
    /// other machine.
    #[command(after_help = "Example:\n  tegmen keys tpm seal --key sealing.key --file sealing.tpm\n  \
        tegmen serve --sealing-key tpm:sealing.tpm ...\n\n\
        Keep the key itself apart from this machine: if the TPM is lost, the file does not open the database again.")]
    Seal {
        /// The key: a file of 64 hexadecimal digits, readable by its owner only.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// File to write.
        #[arg(long)]
        file: PathBuf,
        /// The TPM, in the syntax of the TPM2 software stack.
        #[arg(long, value_name = "TCTI", default_value = DEFAULT_TPM, env = "TEGMEN_TPM")]
        tpm: String,
    },
    /// Remove a key from the TPM's persistent memory. This cannot be undone.
    Remove {
        /// The handle, such as 0x81010001.
        #[arg(long, value_parser = handle)]
        handle: u32,
        /// The TPM, in the syntax of the TPM2 software stack.
        #[arg(long, value_name = "TCTI", default_value = DEFAULT_TPM, env = "TEGMEN_TPM")]
        tpm: String,
    },
}

#[derive(Args)]
struct At {
    /// Persistent handle of the key, 0x81000000 to 0x817fffff.
    #[arg(long, value_parser = handle, required_unless_present = "file")]
    handle: Option<u32>,
    /// File of the wrapped key.
    #[arg(long, conflicts_with = "handle")]
    file: Option<PathBuf>,
    /// The TPM, in the syntax of the TPM2 software stack: device:/dev/tpmrm0, swtpm:host=127.0.0.1,port=2321.
    #[arg(long, value_name = "TCTI", default_value = DEFAULT_TPM, env = "TEGMEN_TPM")]
    tpm: String,
}

impl At {
    fn place(&self) -> Result<Place, Failure> {
        match (&self.handle, &self.file) {
            (Some(handle), _) => Ok(Place::Persistent(*handle)),
            (None, Some(file)) => Ok(Place::File(file.clone())),
            (None, None) => Err(Failure::usage("--handle or --file: where the key is")),
        }
    }

    fn open(&self) -> Result<TpmKey, Failure> {
        TpmKey::open(&self.tpm, &self.place()?).map_err(Failure::new)
    }

    fn show(&self, key: &TpmKey, out: Output) {
        let place = match (&self.handle, &self.file) {
            (Some(handle), _) => format!("{handle:#x}"),
            (None, file) => file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        };
        let (scheme, digest) = (scheme_name(key.scheme()), to_hex(&sha256(key.public_key())));
        out.line(
            || format!("key in the TPM {place}\nsigns          {scheme}\npublic key     SHA-256 {digest}"),
            || json!({ "place": place, "scheme": scheme, "public_key_digest": digest }),
        );
    }
}

impl Tpm {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Create { at, rsa } => {
                let kind = if rsa { TpmKeyKind::Rsa2048 } else { TpmKeyKind::P256 };
                let key = TpmKey::create(&at.tpm, kind, &at.place()?).map_err(Failure::new)?;
                at.show(&key, out);
            }
            Command::Show { at } => at.show(&at.open()?, out),
            Command::Csr { at, name, out: file } => csr(at.open()?, &name, file, out)?,
            Command::Seal { key, file, tpm } => {
                let key = SealingKey::from_file(&key).map_err(Failure::usage)?;
                sealed::seal(&tpm, &file, key.key()).map_err(Failure::new)?;
                let shown = file.display();
                out.line(|| format!("{shown} is sealed: --sealing-key tpm:{shown}"), || json!({ "sealed": file }));
            }
            Command::Remove { handle, tpm } => {
                TpmKey::remove(&tpm, handle).map_err(Failure::new)?;
                let handle = format!("{handle:#x}");
                out.line(|| format!("{handle} is empty"), || json!({ "removed": handle }));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn csr(key: TpmKey, name: &str, file: Option<PathBuf>, out: Output) -> Result<(), Failure> {
    let pem = request(name, &CertificateKey::from(key)?)?;
    match file {
        Some(file) => {
            files::write(&file, pem.as_bytes(), Readers::All)?;
            let shown = file.display();
            out.line(
                || format!("{shown} is a request for {name}: tegmen ca issue DIR --name {name} --csr {shown}"),
                || json!({ "request": file }),
            );
        }
        None => out.line(|| pem.trim_end().to_owned(), || json!({ "request_pem": pem })),
    }
    Ok(())
}

/// Reads the number of a persistent handle.
pub(crate) fn handle(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|_| "a number, as 0x81010001".to_owned())
}
