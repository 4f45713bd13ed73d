//! The options for public keys, such as `--cert` and `--ca`. The request commands and `serve` have these options.

use crate::output::Failure;
use clap::Args;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::dtls::{CertificateType, CipherSuite, ClientAuthentication, Suites};
use tegmen_host::hex::from_hex;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_host::x509::{
    self, AllowedKey, Digest, Files, LoadError, PeerVerifier, Purpose, RawKeys, Refusal, Settings, Verified, Verifier,
};

/// The certificate and private key that prove the identity of this client or server.
#[derive(Args)]
pub(crate) struct Own {
    /// Own certificate in PEM, followed by the certificates that issued it, up to a certificate that the peer trusts.
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// Private key of --cert in PEM, readable by its owner only; or a key in a TPM: tpm:0x81010001, or the file of a
    /// wrapped key (TEGMEN_TPM names the TPM). Without --cert the public key of this private key is sent as a raw
    /// public key (RFC 7250).
    #[arg(long, value_name = "FILE", env = "TEGMEN_CERT_KEY")]
    cert_key: Option<PathBuf>,
}

/// Options that name the servers to trust.
#[derive(Args)]
pub(crate) struct Servers {
    /// Certificates of authorities in PEM. Servers with a certificate that one of these authorities issued are
    /// accepted.
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// Revocation list of one of the authorities in --ca, PEM or DER.
    #[arg(long, value_name = "FILE", requires = "ca")]
    crl: Vec<PathBuf>,
    /// Plain list of revoked certificates: lines of SHA-256 digests, or of `serial HEX issuer NAME`.
    #[arg(long, value_name = "FILE", requires = "ca")]
    revoked: Vec<PathBuf>,
    /// Accept the server with this raw public key: SHA-256 of its SubjectPublicKeyInfo, as `tegmen keys show` prints
    /// it.
    #[arg(long, value_name = "DIGEST")]
    server_key: Vec<String>,
    /// Name expected in the server's certificate, if it differs from the name in the URI.
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    #[command(flatten)]
    own: Own,
}

/// Options that name the clients to trust.
#[derive(Args)]
pub(crate) struct Clients {
    #[command(flatten)]
    own: Own,
    /// Accept clients with a certificate that one of these authorities (PEM) issued, and identify each client by the
    /// subject of its certificate.
    #[arg(long, value_name = "FILE")]
    client_ca: Vec<PathBuf>,
    /// Revocation list of one of the authorities in --client-ca, PEM or DER; reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    client_crl: Vec<PathBuf>,
    /// Plain list of revoked certificates: lines of SHA-256 digests, or of `serial HEX issuer NAME`.
    #[arg(long, value_name = "FILE")]
    client_revoked: Vec<PathBuf>,
    /// Accept the client with this raw public key, and give it this name. DIGEST is the SHA-256 of its
    /// SubjectPublicKeyInfo.
    #[arg(long, value_name = "DIGEST=NAME")]
    client_key: Vec<String>,
    /// Also accept clients with neither a certificate nor a raw public key. These clients have no identity.
    #[arg(long)]
    client_may_be_nobody: bool,
}

/// Returns true if the command line gives this value of an option. The environment variable of the option may also give
/// a value, for all commands.
pub(crate) fn is_on_command_line(value: Option<impl AsRef<OsStr>>, variable: &str) -> bool {
    value.is_some_and(|value| std::env::var_os(variable).is_none_or(|other| other != value.as_ref()))
}

impl Servers {
    /// Returns true if the command line names a server to trust, or a private key of this client.
    pub(crate) fn is_on_command_line(&self) -> bool {
        let has_key = is_on_command_line(self.own.cert_key.as_ref(), "TEGMEN_CERT_KEY");
        has_key || !self.ca.is_empty() || !self.server_key.is_empty()
    }

    /// Returns the public keys that the options name; `None` if the options name no public keys.
    pub(crate) fn keys(&self, suites: Option<Suites>) -> Result<Option<PublicKeys>, Failure> {
        if self.ca.is_empty() && self.server_key.is_empty() {
            return match self.own.cert_key {
                None => Ok(None),
                Some(_) => Err(Failure::usage("--cert-key: name the trusted server with --ca or --server-key")),
            };
        }
        let raw = self.server_key.iter().map(|text| allowed(text, "the server")).collect::<Result<_, _>>()?;
        let files = Files { anchors: self.ca.clone(), crls: self.crl.clone(), revoked: self.revoked.clone() };
        let keys =
            self.own.add_to(PublicKeys::new(suites.unwrap_or(SUITES)))?.believing(Believed::new(files, raw, None)?);
        Ok(Some(match &self.server_name {
            Some(name) => keys.expecting(name),
            None => keys,
        }))
    }
}

impl Clients {
    /// Returns true if the options give the server a private key.
    pub(crate) const fn is_given(&self) -> bool {
        self.own.cert_key.is_some()
    }

    /// Returns the public keys that the options name, or `None` if the options give the server no private key. The
    /// server keeps the certificates of its clients in the file `kept`. `devices` is a verifier that accepts the raw
    /// public keys of devices. `revoked` is the file of a plain list of revoked certificates, in addition to the lists
    /// in the options.
    pub(crate) fn keys(
        &self,
        suites: Option<Suites>,
        kept: Option<&Path>,
        devices: Option<Arc<dyn PeerVerifier>>,
        revoked: Option<PathBuf>,
    ) -> Result<Option<PublicKeys>, Failure> {
        if self.own.cert_key.is_none() {
            return Ok(None);
        }
        let keys = self.own.add_to(PublicKeys::new(suites.unwrap_or(SUITES)))?;
        if self.client_ca.is_empty() && self.client_key.is_empty() && devices.is_none() {
            return Ok(Some(keys));
        }
        let raw = self.client_key.iter().map(|text| named(text)).collect::<Result<_, _>>()?;
        let mut files = self.files();
        files.revoked.extend(revoked);
        let how = match self.client_may_be_nobody {
            true => ClientAuthentication::Asked,
            false => ClientAuthentication::Required,
        };
        let believed = Believed::new(files, raw, devices)?;
        if let (Some(verifier), Some(kept)) = (&believed.certificates, kept) {
            let failed =
                |error| Failure::new(format!("{}: {error}: certificates of clients are kept there", kept.display()));
            verifier.keep_clients_in(kept).map_err(failed)?;
        }
        Ok(Some(keys.believing(believed).asking(how)))
    }
}

impl Clients {
    fn files(&self) -> Files {
        Files { anchors: self.client_ca.clone(), crls: self.client_crl.clone(), revoked: self.client_revoked.clone() }
    }

    /// Returns the mistakes in these options. Each has the name of the wrong option, and the reason.
    pub(crate) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        let mut need = |is_given: bool, option, is_there: bool, needed: &str| {
            if is_given && !is_there {
                mistakes.push((option, format!("it needs --{needed}")));
            }
        };
        need(!self.client_ca.is_empty(), "client-ca", self.is_given(), "cert-key");
        need(!self.client_key.is_empty(), "client-key", self.is_given(), "cert-key");
        need(self.client_may_be_nobody, "client-may-be-nobody", self.is_given(), "cert-key");
        need(!self.client_crl.is_empty(), "client-crl", !self.client_ca.is_empty(), "client-ca");
        need(!self.client_revoked.is_empty(), "client-revoked", !self.client_ca.is_empty(), "client-ca");
        let mut check = |option, result: Result<(), Failure>| {
            mistakes.extend(result.err().map(|failure| (option, failure.message)));
        };
        check("cert-key", self.own.add_to(PublicKeys::new(SUITES)).map(drop));
        self.client_key.iter().for_each(|text| check("client-key", named(text).map(drop)));
        if !self.client_ca.is_empty() {
            check("client-ca", Believed::new(self.files(), Vec::new(), None).map(drop));
        }
        mistakes
    }

    /// Reads the server's own certificate and private key from their files again. Returns `keys` with this certificate
    /// and this key in place of the previous certificate and key.
    pub(crate) fn renewed(&self, keys: &PublicKeys) -> Result<PublicKeys, Failure> {
        self.own.add_to(keys.clone().without_own())
    }
}

/// Returns a verifier of servers. It accepts a certificate that one of the authorities in `anchors` issued, unless one
/// of the lists in `crls` revokes it. Without an authority, it accepts no server.
pub(crate) fn servers_of(anchors: &[PathBuf], crls: &[PathBuf]) -> Result<Arc<dyn PeerVerifier>, Failure> {
    let files = Files { anchors: anchors.to_vec(), crls: crls.to_vec(), revoked: Vec::new() };
    Ok(Believed::new(files, Vec::new(), None)?)
}

/// Returns an error if one of the cipher suites in `named`, the value of --suites, cannot be used with the key of the
/// server.
pub(crate) fn check_suites(keys: &PublicKeys, named: Suites) -> Result<(), Failure> {
    let unusable = named.0.iter().find(|suite| suite.encrypts_to_server() && !keys.can_serve(**suite));
    match unusable {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "rsa-cbc: clients encrypt to the key of the server, and so it has to be an RSA key that decrypts: give one \
             with --cert and --cert-key (`tegmen ca issue --rsa` makes both), or name ecdhe-ecdsa-gcm in its place",
        )),
    }
}

impl Own {
    fn add_to(&self, keys: PublicKeys) -> Result<PublicKeys, Failure> {
        let Some(file) = &self.cert_key else { return Ok(keys) };
        let signer = signer(file)?;
        let Some(file) = &self.cert else { return Ok(keys.with_raw_key(signer)) };
        let name = file.display();
        keys.with_chain(&certificates(file)?, signer).map_err(|error| Failure::usage(format!("{name}: {error}")))
    }
}

/// Returns a signer with the key at `place`: a PEM file, or a TPM.
pub(crate) fn signer(place: &Path) -> Result<Arc<dyn Signer>, Failure> {
    let handle = place.to_str().and_then(|text| text.strip_prefix("tpm:"));
    let wrapped = || std::fs::read_to_string(place).is_ok_and(|text| text.contains("BEGIN TSS2 PRIVATE KEY"));
    match handle.is_some() || wrapped() {
        true => in_tpm(place, handle),
        false => Ok(Arc::new(SoftwareKey::from_file(place).map_err(Failure::usage)?)),
    }
}

#[cfg(feature = "tpm")]
fn in_tpm(file: &Path, handle: Option<&str>) -> Result<Arc<dyn Signer>, Failure> {
    use tegmen_host::x509::tpm::{DEFAULT_TPM, Place, TpmKey};
    let place = match handle {
        Some(handle) => Place::Persistent(crate::keys::tpm::handle(handle).map_err(Failure::usage)?),
        None => Place::File(file.to_owned()),
    };
    let tpm = std::env::var("TEGMEN_TPM").unwrap_or_else(|_| DEFAULT_TPM.to_owned());
    Ok(Arc::new(TpmKey::open(&tpm, &place).map_err(Failure::usage)?))
}

#[cfg(not(feature = "tpm"))]
fn in_tpm(file: &Path, _: Option<&str>) -> Result<Arc<dyn Signer>, Failure> {
    let file = file.display();
    Err(Failure::usage(format!(
        "{file}: the key is in a TPM, which this build does not know: build it with --features tpm"
    )))
}

pub(crate) fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let unreadable = |error| failed(&format!("{error}; correct the path, or the permissions there"));
    let pem = std::fs::read(file).map_err(unreadable)?;
    let certificates = CertificateDer::pem_slice_iter(&pem).map(|each| each.map(|der| der.to_vec()));
    certificates.collect::<Result<_, _>>().map_err(|_| failed(&"a certificate in PEM is expected"))
}

/// Reads DIGEST=NAME: the digest of a client's raw public key, and the name of the client.
fn named(text: &str) -> Result<AllowedKey, Failure> {
    match text.split_once('=') {
        Some((digest, name)) if !name.is_empty() => allowed(digest, name),
        _ => Err(Failure::usage(format!("{text}: write it as DIGEST=NAME"))),
    }
}

fn allowed(digest: &str, name: &str) -> Result<AllowedKey, Failure> {
    let digest = from_hex(digest).and_then(|bytes| bytes.try_into().ok());
    let digest =
        digest.ok_or_else(|| Failure::usage("a digest is 64 hexadecimal digits: `tegmen keys show` prints it"))?;
    Ok(AllowedKey { digest, name: name.to_owned() })
}

/// A verifier that accepts certificates of authorities, raw public keys of a list, and raw public keys of devices.
struct Believed {
    certificates: Option<Verifier>,
    raw: RawKeys,
    devices: Option<Arc<dyn PeerVerifier>>,
}

impl Believed {
    fn new(files: Files, raw: Vec<AllowedKey>, devices: Option<Arc<dyn PeerVerifier>>) -> Result<Arc<Self>, Failure> {
        let certificates = match files.anchors.is_empty() {
            true => None,
            false => Some(Verifier::from_files(files, Settings::default()).map_err(Failure::usage)?),
        };
        Ok(Arc::new(Self { certificates, raw: RawKeys(raw), devices }))
    }
}

impl PeerVerifier for Believed {
    fn takes_certificates(&self) -> bool {
        self.certificates.is_some()
    }

    fn takes_raw_keys(&self) -> bool {
        !self.raw.0.is_empty() || self.devices.is_some()
    }

    fn verify<'c>(
        &self,
        chain: &'c [u8],
        purpose: Purpose,
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<Verified<'c>, Refusal> {
        let verifier = self.certificates.as_ref().ok_or(Refusal::NotTaken("certificates"))?;
        if purpose != Purpose::Client {
            // A server reads its files each second, a client when it needs them; on an error the old ones stay in force.
            let _ = verifier.reload_if_changed();
        }
        verifier.verify(chain, purpose, name, now)
    }

    fn verify_raw<'c>(&self, spki: &'c [u8]) -> Result<Verified<'c>, Refusal> {
        match (x509::verify_raw(spki, &self.raw.0), &self.devices) {
            (Err(Refusal::UnknownKey { .. }), Some(devices)) => devices.verify_raw(spki),
            (verified, _) => verified,
        }
    }

    fn reload_if_changed(&self) -> Result<bool, LoadError> {
        self.certificates.as_ref().map_or(Ok(false), Verifier::reload_if_changed)
    }

    fn due(&self) -> Option<SystemTime> {
        self.certificates.as_ref()?.due()
    }

    fn trust(&self) -> Option<Digest> {
        let certificates = match &self.certificates {
            Some(verifier) => verifier.trust()?,
            None => Digest::default(),
        };
        Some(x509::sha256(&[certificates, self.raw.trust()?].concat()))
    }

    fn recall(&self, kind: CertificateType, digest: &[u8], now: SystemTime) -> Option<(String, Digest)> {
        if kind == CertificateType::RAW_PUBLIC_KEY {
            return x509::recall_raw(digest, &self.raw.0);
        }
        self.certificates.as_ref()?.recall(kind, digest, now)
    }
}

/// Reads the value of `--suites`, for clients and for servers.
pub(crate) fn suites(text: &str) -> Result<Suites, String> {
    let named = |word: &str| {
        Ok(match word {
            "ccm8" => CipherSuite::PSK_WITH_AES_128_CCM_8,
            "gcm" => CipherSuite::PSK_WITH_AES_128_GCM_SHA256,
            "psk-cbc" => CipherSuite::PSK_WITH_AES_128_CBC_SHA256,
            "rsa-cbc" => CipherSuite::RSA_WITH_AES_128_CBC_SHA,
            "ecdhe-psk-ccm8" => CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
            "ecdhe-psk-chacha20" => CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
            "ecdhe-ecdsa-ccm8" => CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
            "ecdhe-ecdsa-gcm" => CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            "ecdhe-rsa-gcm" => CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            _ => {
                return Err(format!(
                    "{word} is none of ccm8, gcm, psk-cbc (all with a pre-shared key), ecdhe-psk-ccm8, ecdhe-psk-chacha20, \
                     ecdhe-ecdsa-ccm8, ecdhe-ecdsa-gcm, ecdhe-rsa-gcm, rsa-cbc"
                ));
            }
        })
    };
    let list = text.split(',').map(|word| named(word.trim())).collect::<Result<Vec<_>, _>>()?;
    // Once in the life of the program.
    Ok(Suites(Vec::leak(list)))
}
