//! `tegmen device`: manages the devices of an access control server, over the HTTPS interface of this server.

use crate::admin::{Admin, after, done, pages, rfc3339_of, save_once, secret, segment, shown_once};
use crate::ca::read_certificate;
use crate::delegation::Imprint;
use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_host::hex::to_hex;
use tegmen_host::x509::sha256;

#[derive(Args)]
pub(crate) struct Devices {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a device.
    #[command(after_help = "Examples:\n  (umask 077; openssl rand -hex 32 >oven.protokey)\n  \
        tegmen device add oven --tag kitchen --kind protokey --secret-file oven.protokey\n  \
        tegmen device add display --kind certificate --certificate display.pem")]
    Add(Add),
    /// List all devices.
    List {
        #[command(flatten)]
        admin: Admin,
    },
    /// Show a device. Its secret is never shown.
    Show(Named),
    /// Create a one-time key, with which a device registers itself (`tegmen enrol`), and write the key to a file that
    /// only you can read. The server cannot show the key again. The new key replaces an earlier one-time key for this
    /// name.
    #[command(after_help = "Example:\n  tegmen device expect oven --tag kitchen --kind protokey --output oven.enrol")]
    Expect(Expect),
    /// List the devices that have a one-time key.
    Expected {
        #[command(flatten)]
        admin: Admin,
    },
    /// Take back the one-time key of a device.
    Withdraw(Named),
    /// Imprint a device for delegated sessions: the server draws a device key, and this command writes the key to a
    /// file that only you can read. The server cannot show the key again. Bring the file to the device.
    #[command(after_help = "Examples:\n  \
        tegmen device imprint lamp.example --address '[fd00::17]:5684' --scope 'GET /temp' --output lamp.key\n  \
        tegmen device imprint lamp.example --again --output lamp.key")]
    Imprint(Imprint),
    /// Disable a device: it has no rights, and the keys of its sessions are revoked.
    Disable(Named),
    /// Enable a device again.
    Enable(Named),
    /// Remove a device, and revoke the keys of its sessions.
    Remove(Named),
}

#[derive(Args)]
struct Named {
    /// Name of the device.
    name: String,
    #[command(flatten)]
    admin: Admin,
}

/// The kind of credential by which the server knows a device.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// An X.509 certificate, identified by its SHA-256.
    Certificate,
    /// A raw public key, identified by its SHA-256.
    PublicKey,
    /// A pre-shared key that the device and the server have.
    SharedKey,
    /// A secret from which the device derives the keys of its sessions.
    Protokey,
    /// A protokey for an old publisher. Session keys are derived as in the paper on two-way authentication, and are
    /// not bound to one subscriber.
    ProtokeyPaper,
    /// A key of 32 bytes under which the server seals tokens of the OSCORE profile for the device.
    Oscore,
    /// A key of 32 bytes under which the server seals tokens of the profile of EDHOC and OSCORE for the device.
    Edhoc,
}

#[derive(Args)]
struct Add {
    #[command(flatten)]
    named: Named,
    /// The kind of credential by which the server knows the device.
    #[arg(long)]
    kind: Kind,
    /// A tag of the device, by which rules of the policy can name the device; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// SHA-256 of the certificate or the public key, 64 hexadecimal digits (`tegmen keys show`).
    #[arg(long, value_name = "DIGEST", conflicts_with_all = ["certificate", "secret_file"])]
    sha256: Option<String>,
    /// The certificate (PEM or DER). With --kind public-key, a certificate that contains the public key.
    #[arg(long, value_name = "FILE", conflicts_with = "secret_file")]
    certificate: Option<PathBuf>,
    /// Read the shared key or protokey from this file, in hexadecimal. The key has 16 to 64 bytes, and exactly 32 bytes
    /// with --kind oscore or edhoc. Only the owner of the file may be able to read the file.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The address and port at which a publisher with a protokey takes tokens from the server.
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,
}

#[derive(Args)]
struct Expect {
    #[command(flatten)]
    named: Named,
    /// The kind of credential that the device registers.
    #[arg(long)]
    kind: Kind,
    /// A tag of the device, by which rules of the policy can name the device; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The lifetime of the one-time key in hours, 1 to 720.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(1..=720))]
    hours: u64,
    /// Write the one-time key to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// The body of a request that adds a device.
#[derive(Serialize)]
struct NewDevice<'a> {
    name: &'a str,
    tags: &'a [String],
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
}

impl Devices {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Add(add) => add.run(out)?,
            Command::List { admin } => {
                pages(&admin, "devices", |device| out.line(|| describe(device), || device.clone()))?
            }
            Command::Show(named) => {
                let device = named.send(Method::GET)?;
                out.line(|| describe(&device), || device.clone());
            }
            Command::Expect(expect) => expect.run(out)?,
            Command::Expected { admin } => {
                pages(&admin, "enrolments", |enrolment| {
                    let until = rfc3339_of(&enrolment["expires"]);
                    out.line(|| format!("{}, until {until}", describe(enrolment)), || enrolment.clone());
                })?;
            }
            Command::Withdraw(named) => {
                named.admin.send(Method::DELETE, &format!("/v1/enrolments/{}", segment(&named.name)))?;
                let text = format!("The one-time key of the device {} is withdrawn.", named.name);
                out.line(|| printable(&text), || done("withdrawn", &named.name));
            }
            Command::Imprint(imprint) => imprint.run(out)?,
            Command::Disable(named) => named.set_disabled(true, out)?,
            Command::Enable(named) => named.set_disabled(false, out)?,
            Command::Remove(named) => {
                named.send(Method::DELETE)?;
                named.report("removed", out);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Named {
    fn path(&self) -> String {
        format!("/v1/devices/{}", segment(&self.name))
    }

    fn send(&self, method: Method) -> Result<Value, Failure> {
        self.admin.send(method, &self.path())
    }

    fn set_disabled(&self, disabled: bool, out: Output) -> Result<(), Failure> {
        self.admin.send_body(Method::PATCH, &self.path(), &json!({ "disabled": disabled }))?;
        self.report(if disabled { "disabled" } else { "enabled" }, out);
        Ok(())
    }

    fn report(&self, event: &str, out: Output) {
        out.line(|| printable(&format!("The device {} is {event}.", self.name)), || done(event, &self.name));
    }
}

impl Add {
    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { named, kind, tags, sha256: digest, certificate, secret_file, address } = self;
        let digest = match (digest, certificate) {
            (Some(digest), _) => Some(digest),
            (None, Some(file)) => {
                let certificate = read_certificate(&file)?;
                let is_key = kind == Kind::PublicKey;
                Some(to_hex(&if is_key { sha256(&certificate.spki) } else { certificate.digest }))
            }
            (None, None) => None,
        };
        let secret = secret_file.map(|file| secret(&file, "--secret-file")).transpose()?;
        let has_digest = matches!(kind, Kind::Certificate | Kind::PublicKey);
        if has_digest && digest.is_none() {
            return Err(Failure::usage("a certificate or public key needs --sha256 or --certificate"));
        }
        if !has_digest && secret.is_none() {
            return Err(Failure::usage("a shared key, a protokey or a key for tokens needs --secret-file"));
        }
        let (sha256, secret) = (digest.as_deref(), secret.as_ref().map(|secret| secret.as_str()));
        if address.is_some() && kind != Kind::Protokey {
            return Err(Failure::usage("only a publisher with --kind protokey takes tokens: leave out --address"));
        }
        let device = NewDevice { name: &named.name, tags: &tags, kind, sha256, secret, address };
        let added = named.admin.send_body(Method::POST, "/v1/devices", &device)?;
        out.line(|| format!("Added {}", describe(&added)), || added.clone());
        Ok(())
    }
}

impl Expect {
    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { named, kind, tags, hours, output } = self;
        let body =
            json!({ "name": named.name, "tags": tags, "kind": kind, "expires": after(hours.saturating_mul(3600)) });
        let create = || shown_once(named.admin.send_body(Method::POST, "/v1/enrolments", &body)?, "name");
        let name = save_once(std::slice::from_ref(&output), create, |name| {
            format!("create another by tegmen device expect {name}")
        })?;
        let file = output.display();
        out.line(
            || printable(&format!("Created a one-time key for {name}, and wrote it to {file} (mode 600).")),
            || json!({ "event": "expected", "name": name, "file": file.to_string() }),
        );
        Ok(())
    }
}

/// Describes a device in one line.
pub(crate) fn describe(device: &Value) -> String {
    let text = |field: &str| device[field].as_str().unwrap_or_default().to_owned();
    let tags = device["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let tags: String = tags.map(|tag| format!(" tag:{tag}")).collect();
    let digest = device["sha256"].as_str().map_or_else(String::new, |digest| format!(" {digest}"));
    let disabled = if device["disabled"] == true { ", disabled" } else { "" };
    let address = device["address"].as_str().map_or_else(String::new, |address| format!(" at {address}"));
    printable(&format!("{}{tags}: {}{digest}{address}{disabled}", text("name"), text("kind")))
}
