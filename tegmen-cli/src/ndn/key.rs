//! `tegmen ndn key`: makes and manages key pairs and certificates in a folder.

use super::name_of;
use super::pem::{self, Pair, contents, crypto, date, encode, place};
use crate::files::{self, Readers};
use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen_ndn::certificate::{Certificate, PublicKey, Validity};
use tegmen_ndn::{Component, Name};
use tegmen_ndn_host::keys::{Key as PrivateKey, KeyKind, Subject};
use tegmen_ndn_host::trust::now;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn key new keys/house /house\n  \
    tegmen ndn key new keys/temp /house/temp\n  \
    tegmen ndn key certify keys/house keys/temp.cert --output keys/temp.cert\n  \
    tegmen ndn key list keys\n\n\
    A key pair is FOLDER/NAME.key, which only its owner can read, and FOLDER/NAME.cert. `ndnd sec` reads and writes the same files.")]
pub(super) struct Key {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a key pair, and a certificate that is signed with the same key.
    New(New),
    /// Sign a certificate for the key of another certificate.
    Certify(Certify),
    /// List the keys of a folder with their certificates.
    List {
        /// The folder with the key pairs.
        folder: PathBuf,
    },
    /// Import a key, its certificates, or both from a file that `tegmen ndn key export` or `ndnd sec` wrote.
    Import {
        /// The path of the new key pair, without an extension.
        #[arg(value_name = "FOLDER/NAME")]
        at: PathBuf,
        /// The file to import: PEM, or one packet.
        file: PathBuf,
    },
    /// Print the certificates of a key, or write its private key to a file.
    Export(Export),
}

/// The kind of a key.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    P256,
    Ed25519,
}

#[derive(Args)]
struct New {
    /// The path of the new key pair, without an extension.
    #[arg(value_name = "FOLDER/NAME")]
    at: PathBuf,
    /// The name of the owner, such as /house/temp.
    identity: String,
    /// The kind of the key.
    #[arg(long, value_enum, default_value_t = Kind::P256)]
    kind: Kind,
    /// Days until the certificate expires.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
}

#[derive(Args)]
struct Certify {
    /// The path of the key pair of the issuer, without an extension.
    #[arg(value_name = "FOLDER/NAME")]
    issuer: PathBuf,
    /// A certificate of the key that you certify. Usually the key itself has signed this certificate.
    certificate: PathBuf,
    /// The name component that identifies the issuer in the name of the new certificate.
    #[arg(long, value_name = "TEXT", default_value = "NA")]
    issuer_id: String,
    /// Days until the new certificate expires.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
    /// Write the new certificate to this file instead of the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct Export {
    /// The path of the key pair, without an extension.
    #[arg(value_name = "FOLDER/NAME")]
    at: PathBuf,
    /// Write the private key to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Print the certificate in use as a binary packet instead of PEM.
    #[arg(long, conflicts_with = "secret")]
    packet: bool,
}

impl Key {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::New(new) => new.run(out)?,
            Command::Certify(certify) => certify.run(out)?,
            Command::List { folder } => list(&folder, out)?,
            Command::Import { at, file } => import(&at, &file, out)?,
            Command::Export(export) => export.run(out)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a validity period of this number of days from now on.
fn validity(days: u64) -> Validity {
    let not_before = now();
    Validity { not_before, not_after: not_before + days * 86_400 }
}

/// Returns the version of a new certificate: the current time in milliseconds.
fn version() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Makes a certificate of a key, and signs the certificate with the same key.
fn self_signed(key: &PrivateKey, days: u64) -> Result<Vec<u8>, Failure> {
    let subject = Subject {
        key_name: key.name(),
        public_key: key.public_key(),
        issuer: Component::generic(b"self"),
        version: version(),
    };
    key.certify(&mut crypto()?, key.name(), &subject, validity(days)).map_err(Failure::new)
}

impl New {
    fn run(self, out: Output) -> Result<(), Failure> {
        let file = place(&self.at, "key");
        refuse_existing(&file)?;
        let identity = name_of(&self.identity)?;
        let kind = match self.kind {
            Kind::P256 => KeyKind::P256,
            Kind::Ed25519 => KeyKind::Ed25519,
        };
        let key = PrivateKey::generate(&mut crypto()?, &Name::of_checked(&identity), kind);
        let key = key.map_err(|_| Failure::new("the cryptography has no such key"))?;
        let certificates = vec![self_signed(&key, self.days)?];
        let pair = Pair { key, certificates };
        pair.write(&self.at)?;
        let name = pair.key.name().to_string();
        out.line(
            || {
                format!(
                    "{name} is in {} (mode 600), and its certificate is {}",
                    file.display(),
                    place(&self.at, "cert").display()
                )
            },
            || json!({ "key": name, "file": file.display().to_string(), "certificate": pair.locator().to_string() }),
        );
        Ok(())
    }
}

fn refuse_existing(file: &Path) -> Result<(), Failure> {
    match file.exists() {
        false => Ok(()),
        true => Err(Failure::usage(format!("{} exists: remove it first, or choose another name", file.display()))),
    }
}

impl Certify {
    fn run(self, out: Output) -> Result<(), Failure> {
        let issuer = Pair::read(&self.issuer)?;
        let wire = pem::certificate(&self.certificate)?;
        let subject = Certificate::parse(&wire).map_err(Failure::usage)?;
        // A certificate of a key that did not sign it has another issuer, whose signature is not known here.
        if subject.is_self_signed() {
            subject.verify(&mut crypto()?, &subject.received, subject.validity.not_before).map_err(|reason| {
                Failure::usage(format!("{}: {reason}: ask its owner for another one", self.certificate.display()))
            })?;
        }
        let subject = Subject {
            key_name: subject.key_name(),
            public_key: subject.received.data.content.unwrap_or(&[]),
            issuer: Component::generic(self.issuer_id.as_bytes()),
            version: version(),
        };
        let certified = issuer.key.certify(&mut crypto()?, issuer.locator(), &subject, validity(self.days));
        let certified = certified.map_err(Failure::new)?;
        let text = encode(&certified)?;
        let name = Certificate::parse(&certified).map_err(Failure::new)?.name().to_string();
        let Some(output) = self.output else { return print(text.as_bytes()) };
        files::write(&output, text.as_bytes(), Readers::All)?;
        out.line(
            || format!("{name} is in {}", output.display()),
            || json!({ "certificate": name, "file": output.display().to_string() }),
        );
        Ok(())
    }
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    std::io::stdout().write_all(bytes).map_err(Failure::io)
}

fn list(folder: &Path, out: Output) -> Result<(), Failure> {
    let wrong = |error| Failure::usage(format!("{} cannot be read: {error}; correct the path", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(wrong)?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "cert"));
    files.sort();
    for file in files {
        let name = file.display().to_string();
        for wire in contents(&name, &pem::read(&file)?)?.certificates {
            let certificate = Certificate::parse(&wire).map_err(Failure::usage)?;
            describe(&file, &certificate, out);
        }
    }
    Ok(())
}

fn describe(file: &Path, certificate: &Certificate<'_>, out: Output) {
    let kind = match certificate.public_key {
        PublicKey::P256(_) => "p256",
        PublicKey::Ed25519(_) => "ed25519",
    };
    let state = match certificate.validity {
        validity if validity.contains(now()) => "valid",
        validity if validity.not_after < now() => "expired",
        _ => "not valid yet",
    };
    let stem = file.with_extension("");
    let (name, until) = (certificate.name().to_string(), date(certificate.validity.not_after));
    let (has_key, is_self_signed) = (place(&stem, "key").exists(), certificate.is_self_signed());
    out.line(
        || {
            let signed = if is_self_signed { ", signed by itself" } else { "" };
            let without = if has_key { "" } else { ", without its private key" };
            printable(&format!("{}  {name}  {kind}, {state} until {until}{signed}{without}", stem.display()))
        },
        || {
            json!({ "file": stem.display().to_string(), "certificate": name, "key": certificate.key_name().to_string(),
                "kind": kind, "state": state, "until": until, "self_signed": is_self_signed, "private_key": has_key })
        },
    );
}

fn import(at: &Path, file: &Path, out: Output) -> Result<(), Failure> {
    let name = file.display().to_string();
    let bytes = zeroize::Zeroizing::new(pem::read(file)?);
    let mut read = contents(&name, &bytes)?;
    let is_known = place(at, "key").exists();
    let key = match (read.keys.pop(), is_known) {
        (Some(_), _) if !read.keys.is_empty() => {
            return Err(Failure::usage(format!("{name} has several private keys: import a file with one")));
        }
        (Some(key), false) => key,
        (Some(_), true) => {
            refuse_existing(&place(at, "key"))?;
            return Ok(());
        }
        (None, true) => Pair::read(at)?.key,
        (None, false) => {
            return Err(Failure::usage(format!(
                "{name} has no private key: import the key first, or a file with both"
            )));
        }
    };
    let mut certificates = read.certificates;
    if certificates.is_empty() {
        certificates.push(self_signed(&key, 365)?);
    }
    let pair = Pair { key, certificates };
    pair.check(&name)?;
    pair.write(at)?;
    out.line(
        || format!("{} is in {} (mode 600)", pair.key.name(), place(at, "key").display()),
        || json!({ "key": pair.key.name().to_string(), "certificate": pair.locator().to_string() }),
    );
    Ok(())
}

impl Export {
    fn run(self, out: Output) -> Result<(), Failure> {
        let pair = Pair::read(&self.at)?;
        if let Some(file) = self.secret {
            refuse_existing(&file)?;
            let text = encode(&pair.key.to_packet(&mut crypto()?).map_err(Failure::new)?)?;
            files::write(&file, text.as_bytes(), Readers::Owner)?;
            out.line(
                || format!("The private key {} is in {} (mode 600)", pair.key.name(), file.display()),
                || json!({ "key": pair.key.name().to_string(), "file": file.display().to_string() }),
            );
            return Ok(());
        }
        if self.packet {
            return print(pair.certificates.first().map_or(&[], Vec::as_slice));
        }
        pair.certificates.iter().try_for_each(|certificate| print(encode(certificate)?.as_bytes()))
    }
}
