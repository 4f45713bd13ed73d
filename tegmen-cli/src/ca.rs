//! `tegmen ca`: a certification authority in a directory, for users who have no other authority.

mod authority;
mod logins;

use crate::files::{self, Readers};
use crate::output::{Failure, Output};
use authority::{Authority, Issued, Usage, Want};
pub(crate) use authority::{CertificateKey, KeyType, draw_key, request};
use clap::{Args, Subcommand};
pub(crate) use logins::{Logins, revoked_logins};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tegmen_control::delegation::ReplacedCertificate;
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};
use tegmen_host::x509::{CertificateInfo, Request, date};

#[derive(Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a CA: its key, its certificate, and an empty revocation list.
    #[command(
        after_help = "Examples:\n  tegmen ca init ca\n  tegmen ca init /etc/tegmen/ca --name 'Works CA' --rsa\n\n\
        Copy ca.pem to every peer as trust anchor, together with crl.pem. Never copy ca.key out of the directory."
    )]
    Init(Init),
    /// Issue a certificate for a new or an existing key.
    #[command(after_help = "Examples:\n  tegmen ca issue ca --name gateway --dns gateway.example --ip 192.0.2.7\n  \
        tegmen ca issue ca --name device1 --client --days 90\n  \
        tegmen ca issue ca --name device2 --csr device2.csr\n\n\
        Subject and names come from these options; only the key is taken from a request. A certificate with a DNS name or \
        address is for a server and a client, one without is for a client; --server and --client override this.")]
    Issue(Issue),
    /// Revoke a certificate and write the revocation list.
    #[command(after_help = "Examples:\n  tegmen ca revoke ca ca/device1.pem\n  tegmen ca revoke ca 1f0a77c2")]
    Revoke {
        /// Directory of the CA.
        dir: PathBuf,
        /// The file of the certificate, or its serial number in hexadecimal.
        which: String,
        /// Days until the revocation list expires.
        #[arg(long, default_value_t = CRL_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        crl_days: u32,
    },
    /// Write a new revocation list before the present list expires. With an expired list, peers refuse every
    /// certificate of the CA.
    #[command(after_help = "Example:\n  tegmen ca crl ca --crl-days 7")]
    Crl {
        /// Directory of the CA.
        dir: PathBuf,
        /// Days until the revocation list expires.
        #[arg(long, default_value_t = CRL_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        crl_days: u32,
    },
    /// List the issued certificates.
    List {
        /// Directory of the CA.
        dir: PathBuf,
    },
}

const CRL_DAYS: u32 = 30;

#[derive(Args)]
struct Init {
    /// Directory to create.
    dir: PathBuf,
    /// Common name of the CA's certificate. Default: `Tegmen CA` and a unique number, because peers that trust two CAs
    /// distinguish them by name.
    #[arg(long)]
    name: Option<String>,
    /// Create an ECDSA P-256 key (the default).
    #[arg(long, conflicts_with = "rsa")]
    ec: bool,
    /// Create an RSA key of 3072 bits.
    #[arg(long)]
    rsa: bool,
    /// Days for which the CA's certificate is valid.
    #[arg(long, default_value_t = 7300, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
}

#[derive(Args)]
struct Issue {
    /// Directory of the CA.
    dir: PathBuf,
    /// Common name of the subject; NAME.pem and NAME.key are written.
    #[arg(long)]
    name: String,
    /// A DNS name at which peers reach the subject; may be repeated.
    #[arg(long)]
    dns: Vec<String>,
    /// An address at which peers reach the subject; may be repeated.
    #[arg(long)]
    ip: Vec<IpAddr>,
    /// Issue the certificate for a client.
    #[arg(long)]
    client: bool,
    /// Issue the certificate for a server.
    #[arg(long)]
    server: bool,
    /// Days for which the certificate is valid.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Existing private key in PEM; by default a new one is created.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["csr", "rsa"])]
    key: Option<PathBuf>,
    /// Certificate request (PKCS #10), PEM or DER.
    #[arg(long, value_name = "FILE", conflicts_with = "rsa")]
    csr: Option<PathBuf>,
    /// Create an RSA key of 2048 bits instead of ECDSA P-256.
    #[arg(long)]
    rsa: bool,
    /// Directory for the certificate and the key. Default: the directory of the CA.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Ca {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Init(init) => init.run(out),
            Command::Issue(issue) => issue.run(out),
            Command::Revoke { dir, which, crl_days } => revoke(&dir, &which, crl_days, out),
            Command::Crl { dir, crl_days } => {
                let until = Authority::open(&dir)?.write_crl(SystemTime::now(), days(crl_days))?;
                say_crl(out, &dir, until);
                Ok(ExitCode::SUCCESS)
            }
            Command::List { dir } => list(&dir, out),
        }
    }
}

impl Init {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let kind = if self.rsa { KeyType::Rsa3072 } else { KeyType::P256 };
        let now = SystemTime::now();
        let name = match self.name {
            Some(name) => name,
            None => {
                let number = getrandom::u32().map_err(|error| Failure::new(format!("no randomness: {error}")))?;
                format!("Tegmen CA {number:08x}")
            }
        };
        let mut authority = Authority::init(&self.dir, &name, kind, now, days(self.days))?;
        let until = authority.write_crl(now, days(CRL_DAYS))?;
        let (dir, certificate) = (self.dir.display(), authority.certificate());
        out.line(
            || {
                format!(
                    "{dir} has a CA, {}, valid until {}.\n{dir}/ca.pem and {dir}/crl.pem go to every peer; \
                     {dir}/ca.key stays. Write a new crl.pem before {}: tegmen ca crl {dir}",
                    certificate.subject,
                    date(certificate.not_after),
                    date(until)
                )
            },
            || {
                json!({ "certificate": self.dir.join("ca.pem"), "crl": self.dir.join("crl.pem"),
                    "subject": certificate.subject, "digest": to_hex(&certificate.digest),
                    "not_after": seconds(certificate.not_after), "crl_next_update": seconds(until) })
            },
        );
        Ok(ExitCode::SUCCESS)
    }
}

impl Issue {
    fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let Self { dir, name, dns, ip, client, server, days: valid, key, csr, rsa, out: target } = self;
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) || name.chars().any(char::is_control)
        {
            return Err(Failure::usage("--name: a name that can be a file's, without / and not beginning with a dot"));
        }
        let named = !dns.is_empty() || !ip.is_empty();
        if server && !named {
            return Err(Failure::usage("--server: clients compare names, so give --dns NAME or --ip ADDRESS"));
        }
        let usage = match (client, server) {
            (false, false) => Usage { client: true, server: named },
            (client, server) => Usage { client, server },
        };
        let mut authority = Authority::open(&dir)?;
        let target = target.unwrap_or_else(|| dir.clone());
        let (certificate_file, key_file) = (target.join(format!("{name}.pem")), target.join(format!("{name}.key")));
        for file in [&certificate_file, &key_file] {
            if file.exists() && Some(file) != key.as_ref() {
                let file = file.display();
                return Err(Failure::new(format!("{file} exists: move it away, or choose another --name or --out")));
            }
        }
        // The private part of a new key, in PEM.
        let (spki, drawn) = match (&key, &csr) {
            (Some(file), _) => (SoftwareKey::from_file(file).map_err(Failure::new)?.public_key().to_vec(), None),
            (None, Some(file)) => (read_request(file)?.spki, None),
            (None, None) => {
                let pem = draw_key(if rsa { KeyType::Rsa2048 } else { KeyType::P256 })?;
                let key = SoftwareKey::from_pem(pem.as_bytes()).map_err(Failure::new)?;
                (key.public_key().to_vec(), Some(pem))
            }
        };
        let want = Want { name: name.clone(), dns, ip, usage, spki, login: false };
        let now = SystemTime::now();
        let (issued, pem) = authority.issue(want, now, days(valid))?;
        std::fs::create_dir_all(&target).map_err(|error| Failure::new(format!("{}: {error}", target.display())))?;
        if let Some(private) = &drawn {
            files::write(&key_file, private.as_bytes(), Readers::Owner)?;
        }
        files::write(&certificate_file, pem.as_bytes(), Readers::All)?;
        let key_file = drawn.is_some().then_some(key_file).or(key);
        let others = authority.with_other_keys(&issued, now);
        out.line(
            || {
                let key = match &key_file {
                    Some(file) => format!("{}, which nobody else can read; keep it so", file.display()),
                    None => "where the request was made".to_owned(),
                };
                format!(
                    "{} is a certificate of {}, serial number {}, valid until {}. Its key is {key}.",
                    certificate_file.display(),
                    issued.subject,
                    issued.serial,
                    date(issued.not_after())
                )
            },
            || {
                let mut object = issued.to_json();
                object["certificate"] = json!(certificate_file);
                object["key"] = json!(key_file);
                object["other_keys"] = json!(others);
                object
            },
        );
        for serial in &others {
            out.text(format!(
                "{} also has a valid certificate with another key, serial number {serial}. If the new one replaces it: \
                 tegmen ca revoke {} {serial}",
                issued.subject,
                dir.display()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a CA in a directory that has none.
pub(crate) fn init(dir: &Path, name: &str, valid: Duration) -> Result<(), Failure> {
    Authority::init(dir, name, KeyType::P256, SystemTime::now(), valid).map(drop)
}

/// Returns the paths of the certificate and of the key of a delegated device. Both are in a subdirectory of the
/// directory of a CA.
pub(crate) fn device_files(dir: &Path, device: &str) -> (PathBuf, PathBuf) {
    let dir = dir.join("delegated");
    (dir.join(format!("{device}.pem")), dir.join(format!("{device}.key")))
}

/// Removes the certificate of a delegated device and its private key. If the process is killed between the two, the next
/// call of [`issue_for_device`] makes a new key.
pub(crate) fn remove_device_files(dir: &Path, device: &str) -> Result<(), Failure> {
    let (certificate_file, key_file) = device_files(dir, device);
    files::remove(&key_file)?;
    files::remove(&certificate_file)
}

/// Issues a certificate for a delegated device. Writes the certificate and its key to the paths that [`device_files`]
/// returns. Uses the key of the previous certificate. Makes a new key if there is none, or if a certificate with this
/// key is revoked. The certificate expires at the latest when the certificate of the CA expires.
pub(crate) fn issue_for_device(dir: &Path, device: &str, valid: Duration) -> Result<(), Failure> {
    let (certificate_file, key_file) = device_files(dir, device);
    let now = SystemTime::now();
    let mut authority = Authority::open(dir)?;
    if let Some(target) = key_file.parent() {
        std::fs::create_dir_all(target).map_err(|error| Failure::new(format!("{}: {error}", target.display())))?;
    }
    let spki = || Ok(SoftwareKey::from_file(&key_file).map_err(Failure::new)?.public_key().to_vec());
    let kept = key_file.exists().then(&spki).transpose()?;
    let spki = match kept.filter(|spki| !authority.has_revoked_key(spki)) {
        Some(spki) => spki,
        None => {
            // The key file and the certificate file of a device must never belong to different keys.
            remove_device_files(dir, device)?;
            files::write(&key_file, draw_key(KeyType::P256)?.as_bytes(), Readers::Owner)?;
            spki()?
        }
    };
    let usage = Usage { client: true, server: true };
    let (name, dns) = (device.to_owned(), vec![device.to_owned()]);
    let want = Want { name, dns, ip: Vec::new(), usage, spki, login: false };
    let left = authority.certificate().not_after.duration_since(now).unwrap_or_default();
    let (_, pem) = authority.issue(want, now, valid.min(left))?;
    files::write(&certificate_file, pem.as_bytes(), Readers::All)
}

/// Removes the certificate of a delegated device and its private key, even if the CA then fails. Revokes the
/// certificates of the device, and writes the revocation list. Then makes a new private key for the device, and issues a
/// certificate for this key as [`issue_for_device`] does. Returns the revoked certificates that have not expired,
/// including those that were revoked before this call.
pub(crate) fn replace_for_device(
    dir: &Path,
    device: &str,
    valid: Duration,
) -> Result<Vec<ReplacedCertificate>, Failure> {
    let now = SystemTime::now();
    remove_device_files(dir, device)?;
    let mut authority = Authority::open(dir)?;
    let issuer = authority.certificate().subject.clone();
    let revoked = authority.revoke_named(device, now)?;
    authority.write_crl(now, days(CRL_DAYS))?;
    drop(authority);
    issue_for_device(dir, device, valid)?;
    let replaced = |issued: Issued| ReplacedCertificate {
        serial: issued.serial,
        issuer: issuer.clone(),
        expires: issued.not_after,
        revoked: true,
    };
    Ok(revoked.into_iter().map(replaced).collect())
}

fn revoke(dir: &Path, which: &str, crl_days: u32, out: Output) -> Result<ExitCode, Failure> {
    let mut authority = Authority::open(dir)?;
    let serial = match Path::new(which).is_file() {
        true => to_hex(&read_certificate(Path::new(which))?.serial),
        false => {
            let hex = which.replace(':', "").to_lowercase();
            from_hex(&hex)
                .map(|bytes| to_hex(&bytes))
                .ok_or_else(|| Failure::usage(format!("{which}: neither a file nor a serial number in hexadecimal")))?
        }
    };
    let now = SystemTime::now();
    let subject = authority.revoke(&serial, now)?;
    let until = authority.write_crl(now, days(crl_days))?;
    out.line(
        || format!("{subject} (serial number {serial}) is revoked."),
        || json!({ "serial": serial, "subject": subject, "crl": dir.join("crl.pem"), "crl_next_update": seconds(until) }),
    );
    if !out.json {
        say_crl(out, dir, until);
    }
    Ok(ExitCode::SUCCESS)
}

fn say_crl(out: Output, dir: &Path, until: SystemTime) {
    let file = dir.join("crl.pem");
    out.line(
        || format!("{} goes to every peer; the next one is due before {}.", file.display(), date(until)),
        || json!({ "crl": file, "crl_next_update": seconds(until) }),
    );
}

fn list(dir: &Path, out: Output) -> Result<ExitCode, Failure> {
    let authority = Authority::open(dir)?;
    let now = SystemTime::now();
    for issued in authority.issued() {
        let state = issued.state(now);
        out.line(
            || {
                let Issued { serial, subject, names, .. } = issued;
                let names = if names.is_empty() { String::new() } else { format!("  ({})", names.join(", ")) };
                let soon = if issued.ends_soon(now) { "  ends within 30 days" } else { "" };
                format!("{serial}  {state:<8}  until {}  {subject}{names}{soon}", date(issued.not_after()))
            },
            || issued.to_json(),
        );
    }
    if authority.issued().is_empty() {
        out.text("nothing was issued yet: tegmen ca issue DIR --name NAME");
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a certificate from a file, PEM or DER.
pub(crate) fn read_certificate(file: &Path) -> Result<CertificateInfo, Failure> {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|error| {
        Failure::usage(format!("{name} cannot be read: {error}; correct the path, or the permissions there"))
    })?;
    let der = match bytes.first() {
        Some(0x30) => CertificateDer::from(bytes),
        _ => CertificateDer::from_pem_slice(&bytes)
            .map_err(|_| Failure::new(format!("{name}: no certificate in it: give one in PEM or DER")))?,
    };
    CertificateInfo::parse(&der).ok_or_else(|| Failure::new(format!("{name}: a certificate that does not parse")))
}

fn read_request(file: &Path) -> Result<Request, Failure> {
    use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject as _};
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|error| {
        Failure::usage(format!("{name} cannot be read: {error}; correct the path, or the permissions there"))
    })?;
    let der = match bytes.first() {
        Some(0x30) => CertificateSigningRequestDer::from(bytes),
        _ => CertificateSigningRequestDer::from_pem_slice(&bytes)
            .map_err(|_| Failure::new(format!("{name}: no certificate request in it: give one in PEM or DER")))?,
    };
    Request::verify(&der).map_err(|error| Failure::new(format!("{name}: {error}: make a new one with the same key")))
}

fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Issued {
    fn to_json(&self) -> Value {
        let mut object = json!(self);
        let now = SystemTime::now();
        object["state"] = json!(self.state(now));
        object["ends_soon"] = json!(self.ends_soon(now));
        object
    }
}
