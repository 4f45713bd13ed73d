//! The CA: its key, its certificate, and an index of the certificates that it issued. When the CA issues a certificate,
//! it adds an entry to the index and writes the index to disk. Only then does it return the certificate.

use super::seconds;
use crate::files::{self, Readers};
use crate::output::Failure;
use crate::random;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData, RevokedCertParams,
    RsaKeySize, SanType, SerialNumber, SignatureAlgorithm, SigningKey,
};
use rustls_pki_types::DnsName;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::x509::signer::{SignatureScheme, Signer, SoftwareKey};
use tegmen_host::x509::{CertificateInfo, KeyKind, PublicKey};
use zeroize::Zeroizing;

/// A CA in a directory. Only this process can change it.
pub(crate) struct Authority {
    dir: PathBuf,
    index: Index,
    issuer: Issuer<'static, CertificateKey>,
    certificate: CertificateInfo,
    _lock: File,
}

/// The state of the CA: `index.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    name: String,
    not_before: u64,
    not_after: u64,
    /// The CRL number of the last revocation list that the CA made (RFC 5280, section 5.2.3).
    crl_number: u64,
    issued: Vec<Issued>,
}

/// A certificate that the CA issued. Times are in seconds since 1970.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Issued {
    /// The serial number in hexadecimal.
    pub(crate) serial: String,
    /// The subject, in the notation of RFC 4514.
    pub(crate) subject: String,
    pub(crate) names: Vec<String>,
    pub(crate) usage: Usage,
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    /// SHA-256 of the SubjectPublicKeyInfo of the certificate, in hexadecimal.
    pub(crate) key_digest: String,
    pub(crate) revoked: Option<u64>,
    /// SHA-256 of the certificate, in hexadecimal, if it was issued to a user who logged in; `None` for other
    /// certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Usage {
    pub(crate) client: bool,
    pub(crate) server: bool,
}

/// The content of a certificate that is to be issued.
pub(crate) struct Want {
    pub(crate) name: String,
    pub(crate) dns: Vec<String>,
    pub(crate) ip: Vec<IpAddr>,
    pub(crate) usage: Usage,
    pub(crate) spki: Vec<u8>,
    /// True if the certificate is for a user who logged in. The index then contains the digest of the certificate.
    pub(crate) login: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    P256,
    Rsa2048,
    Rsa3072,
}

/// The validity of a certificate begins this long before its issue, for peers whose clocks are behind.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);

impl Authority {
    /// Makes a CA in a directory that has none.
    pub(crate) fn init(
        dir: &Path,
        name: &str,
        kind: KeyType,
        now: SystemTime,
        valid: Duration,
    ) -> Result<Self, Failure> {
        check_common_name(name)?;
        let shown = dir.display();
        make_private_dir(dir)?;
        let lock = lock(dir)?;
        if dir.join("index.json").exists() {
            return Err(Failure::new(format!("{shown} has a CA already: choose another directory")));
        }
        if dir.join("ca.key").exists() {
            return Err(Failure::new(format!("{shown} has a ca.key, but no CA that was finished: move it away")));
        }
        let (not_before, not_after) = (seconds(now - CLOCK_SLACK), seconds(now + valid));
        let index = Index { name: name.to_owned(), not_before, not_after, crl_number: 0, issued: Vec::new() };
        let private = draw_key(kind)?;
        let key = CertificateKey::from(SoftwareKey::from_pem(private.as_bytes()).map_err(Failure::new)?)?;
        let params = index.params();
        let certificate = params.self_signed(&key).map_err(Failure::new)?;
        files::write(&dir.join("ca.key"), private.as_bytes(), Readers::Owner)?;
        files::write(&dir.join("ca.pem"), certificate.pem().as_bytes(), Readers::All)?;
        let certificate = CertificateInfo::parse(certificate.der()).ok_or_else(|| Failure::new("no certificate"))?;
        let authority = Self { dir: dir.to_owned(), index, issuer: Issuer::new(params, key), certificate, _lock: lock };
        authority.save()?;
        Ok(authority)
    }

    /// Opens the CA of a directory.
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        let shown = dir.display();
        let none = |error| Failure::new(format!("{shown}: {error}: make a CA with `tegmen ca init {shown}`"));
        std::fs::metadata(dir.join("index.json")).map_err(none)?;
        // What another process writes is read only when it has done so.
        let lock = lock(dir)?;
        let index = std::fs::read(dir.join("index.json")).map_err(none)?;
        let index: Index = serde_json::from_slice(&index)
            .map_err(|error| Failure::new(format!("{shown}/index.json: {error}: bring it back from a copy")))?;
        let key = CertificateKey::from(SoftwareKey::from_file(&dir.join("ca.key")).map_err(Failure::new)?)?;
        let certificate = super::read_certificate(&dir.join("ca.pem"))?;
        if certificate.spki != key.key.public_key() {
            return Err(Failure::new(format!("{shown}: ca.pem is not of ca.key: bring both back from one copy")));
        }
        let issuer = Issuer::new(index.params(), key);
        Ok(Self { dir: dir.to_owned(), index, issuer, certificate, _lock: lock })
    }

    pub(crate) fn certificate(&self) -> &CertificateInfo {
        &self.certificate
    }

    pub(crate) fn issued(&self) -> &[Issued] {
        &self.index.issued
    }

    /// Issues a certificate. Returns its entry in the index, and the certificate in PEM.
    pub(crate) fn issue(&mut self, want: Want, now: SystemTime, valid: Duration) -> Result<(Issued, String), Failure> {
        check_common_name(&want.name)?;
        if want.name == self.index.name {
            return Err(Failure::usage("--name: the CA itself has this name: choose another name"));
        }
        let (not_before, not_after) = (seconds(now - CLOCK_SLACK).max(self.index.not_before), seconds(now + valid));
        if not_after > self.index.not_after {
            let end = tegmen_host::x509::date(self.certificate.not_after);
            return Err(Failure::usage(format!("--days: beyond the CA's own end on {end}: fewer days, or a new CA")));
        }
        let Some(key) = Subject::of(&want.spki) else {
            return Err(Failure::new("the key is not used here: ECDSA P-256, or RSA of 2048 to 4096 bits"));
        };
        // 127 random bits: no two are the same, and nobody can predict the next (RFC 5280, section 4.1.2.2).
        let mut serial = random::bytes::<16>()?;
        serial[0] = serial[0] & 0x7f | 0x40;
        if let Some(name) = want.dns.iter().find(|name| !is_dns_name(name)) {
            return Err(Failure::usage(format!(
                "--dns: {name:?} is no DNS name: letters, digits, dots and hyphens, other scripts as xn--; addresses with --ip"
            )));
        }
        let mut params = CertificateParams::new(want.dns).map_err(Failure::new)?;
        params.subject_alt_names.extend(want.ip.into_iter().map(SanType::IpAddress));
        params.distinguished_name = common_name(&want.name);
        params.serial_number = Some(SerialNumber::from(serial.to_vec()));
        (params.not_before, params.not_after) = (moment(not_before), moment(not_after));
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = match key.is_rsa() {
            true => vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment],
            false => vec![KeyUsagePurpose::DigitalSignature],
        };
        let purposes = [
            (want.usage.server, ExtendedKeyUsagePurpose::ServerAuth),
            (want.usage.client, ExtendedKeyUsagePurpose::ClientAuth),
        ];
        params.extended_key_usages =
            purposes.into_iter().filter(|(wanted, _)| *wanted).map(|(_, purpose)| purpose).collect();
        let certificate = params.signed_by(&key, &self.issuer).map_err(Failure::new)?;
        let info = CertificateInfo::parse(certificate.der()).ok_or_else(|| Failure::new("no certificate"))?;
        let issued = Issued {
            serial: to_hex(&info.serial),
            subject: info.subject,
            names: info.names,
            usage: want.usage,
            not_before,
            not_after,
            key_digest: key_digest(&want.spki),
            revoked: None,
            login: want.login.then(|| to_hex(&info.digest)),
        };
        self.index.issued.push(issued.clone());
        self.save()?;
        Ok((issued, certificate.pem()))
    }

    /// Marks a certificate as revoked in the index. Returns its subject.
    pub(crate) fn revoke(&mut self, serial: &str, now: SystemTime) -> Result<String, Failure> {
        let wanted = serial.trim_start_matches('0');
        let found = self.index.issued.iter_mut().find(|issued| issued.serial.trim_start_matches('0') == wanted);
        let issued = found.ok_or_else(|| {
            Failure::new(format!("{serial}: this CA issued no such certificate: `tegmen ca list` has those it did"))
        })?;
        if issued.revoked.is_some() {
            return Err(Failure::new(format!("{serial}: it is already revoked; `tegmen ca crl` writes a new list")));
        }
        issued.revoked = Some(seconds(now));
        let subject = issued.subject.clone();
        self.save()?;
        Ok(subject)
    }

    /// Marks the valid login certificates of a user as revoked in the index. Returns the expiry time, in seconds since
    /// 1970, of each revoked login certificate of the user that has not expired, also of those that were revoked before
    /// this call.
    pub(crate) fn revoke_logins(&mut self, subject: &str, now: SystemTime) -> Result<Vec<u64>, Failure> {
        let mut has_changed = false;
        for issued in self.index.issued.iter_mut().filter(|issued| issued.is_of_login(subject) && issued.is_valid(now))
        {
            issued.revoked = Some(seconds(now));
            has_changed = true;
        }
        if has_changed {
            self.save()?;
        }
        let revoked =
            self.index.issued.iter().filter(|issued| issued.is_of_login(subject) && issued.is_revoked_login(now));
        Ok(revoked.map(|issued| issued.not_after).collect())
    }

    /// Marks the valid certificates with this DNS name as revoked in the index, except login certificates. Returns the
    /// revoked certificates with this name that have not expired, including those that were revoked before this call.
    pub(crate) fn revoke_named(&mut self, name: &str, now: SystemTime) -> Result<Vec<Issued>, Failure> {
        let is_of = |issued: &Issued| {
            issued.login.is_none() && issued.names.iter().any(|other| other.eq_ignore_ascii_case(name))
        };
        let mut has_changed = false;
        for issued in self.index.issued.iter_mut().filter(|issued| is_of(issued) && issued.is_valid(now)) {
            issued.revoked = Some(seconds(now));
            has_changed = true;
        }
        if has_changed {
            self.save()?;
        }
        let is_revoked =
            |issued: &&Issued| is_of(issued) && issued.revoked.is_some() && seconds(now) <= issued.not_after;
        Ok(self.index.issued.iter().filter(is_revoked).cloned().collect())
    }

    /// Removes the expired login certificates that are not revoked from the index in memory. [`Self::write_crl`]
    /// removes the revoked certificates. The file of the index changes when the next certificate is issued or revoked.
    pub(crate) fn forget_ended_logins(&mut self, now: SystemTime) {
        let now = seconds(now);
        self.index
            .issued
            .retain(|issued| issued.login.is_none() || issued.revoked.is_some() || now <= issued.not_after);
    }

    /// Returns the serial numbers of the valid certificates with the subject of `issued` and another public key, without
    /// login certificates.
    pub(crate) fn with_other_keys(&self, issued: &Issued, now: SystemTime) -> Vec<&str> {
        let is_other = |other: &&Issued| {
            let has_other_key = other.subject == issued.subject && other.key_digest != issued.key_digest;
            has_other_key && other.login.is_none() && other.is_valid(now)
        };
        self.index.issued.iter().filter(is_other).map(|other| other.serial.as_str()).collect()
    }

    /// Returns true if a certificate with this public key is revoked. `spki` is the SubjectPublicKeyInfo.
    pub(crate) fn has_revoked_key(&self, spki: &[u8]) -> bool {
        let digest = key_digest(spki);
        self.index.issued.iter().any(|issued| issued.revoked.is_some() && issued.key_digest == digest)
    }

    /// Writes all revoked certificates to `crl.pem`. Then removes from the index the revoked login certificates that
    /// expired before the thisUpdate of this list (RFC 5280, section 3.3). Returns the time at which the list expires.
    pub(crate) fn write_crl(&mut self, now: SystemTime, valid: Duration) -> Result<SystemTime, Failure> {
        let next_update = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(now + valid));
        self.index.crl_number += 1;
        // A number is used once, even if the list is never written.
        self.save()?;
        let revoked = |issued: &Issued| {
            Some(RevokedCertParams {
                serial_number: SerialNumber::from(from_hex(&issued.serial)?),
                revocation_time: moment(issued.revoked?),
                reason_code: None,
                invalidity_date: None,
            })
        };
        let this_update = seconds(now - CLOCK_SLACK);
        let params = CertificateRevocationListParams {
            this_update: moment(this_update),
            next_update: moment(seconds(next_update)),
            crl_number: SerialNumber::from(self.index.crl_number),
            issuing_distribution_point: None,
            revoked_certs: self.index.issued.iter().filter_map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = params.signed_by(&self.issuer).and_then(|crl| crl.pem()).map_err(Failure::new)?;
        files::write(&self.dir.join("crl.pem"), crl.as_bytes(), Readers::All)?;
        let before = self.index.issued.len();
        self.index
            .issued
            .retain(|issued| issued.login.is_none() || issued.revoked.is_none() || this_update <= issued.not_after);
        if self.index.issued.len() < before {
            self.save()?;
        }
        Ok(next_update)
    }

    fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(&self.index).map_err(Failure::new)?;
        files::write(&self.dir.join("index.json"), &text, Readers::Owner)
    }
}

impl Index {
    /// Returns the parameters of the CA's certificate. The parameters are the same at each start, so all issued
    /// certificates have the same issuer name.
    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&self.name);
        (params.not_before, params.not_after) = (moment(self.not_before), moment(self.not_after));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }
}

impl Issued {
    pub(crate) fn not_after(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.not_after)
    }

    /// Returns true if the certificate is valid and expires within 30 days. Returns false for login certificates,
    /// because they are always short-lived.
    pub(crate) fn ends_soon(&self, now: SystemTime) -> bool {
        self.is_valid(now) && self.login.is_none() && self.not_after <= seconds(now) + 30 * 86_400
    }

    /// Returns true if the certificate is valid at this time.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        self.state(now) == "valid"
    }

    /// Returns true if the certificate was issued for a login of the user with this subject.
    pub(crate) fn is_of_login(&self, subject: &str) -> bool {
        self.login.is_some() && self.subject == subject
    }

    /// Returns true if the certificate was issued for a login, was revoked, and has not expired.
    pub(crate) fn is_revoked_login(&self, now: SystemTime) -> bool {
        self.login.is_some() && self.revoked.is_some() && seconds(now) <= self.not_after
    }

    pub(crate) fn state(&self, now: SystemTime) -> &'static str {
        match self.revoked {
            Some(_) => "revoked",
            None if seconds(now) > self.not_after => "expired",
            None => "valid",
        }
    }
}

/// Makes a new private key, as PKCS #8 in PEM.
pub(crate) fn draw_key(kind: KeyType) -> Result<Zeroizing<String>, Failure> {
    let pair = match kind {
        KeyType::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyType::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        KeyType::Rsa3072 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
    };
    pair.map(|pair| Zeroizing::new(pair.serialize_pem())).map_err(Failure::new)
}

/// Makes a certificate request with this common name of 1 to 64 bytes, in PEM (RFC 2986).
pub(crate) fn request<S: Signer>(name: &str, key: &CertificateKey<S>) -> Result<String, Failure> {
    check_common_name(name)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.serialize_request(key).and_then(|request| request.pem()).map_err(Failure::new)
}

/// Returns true if the name has the syntax of a host name. The first label of the name may be a wildcard (RFC 5280,
/// section 4.2.1.6; RFC 9525, section 6.3).
fn is_dns_name(name: &str) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    // `DnsName` also accepts underscores, and a dot at the end.
    name.len() <= 253 && DnsName::try_from(host).is_ok() && !host.contains('_') && !host.ends_with('.')
}

/// Refuses a common name that is empty or too long (RFC 5280, appendix A.1).
fn check_common_name(name: &str) -> Result<(), Failure> {
    match name.len() {
        1..=64 => Ok(()),
        _ => Err(Failure::usage("--name: 1 to 64 bytes (RFC 5280, appendix A.1)")),
    }
}

/// Returns SHA-256 of a SubjectPublicKeyInfo, in hexadecimal.
fn key_digest(spki: &[u8]) -> String {
    to_hex(&tegmen_host::x509::AllowedKey::of(spki, "").digest)
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Converts seconds since 1970 into the type of the library for certificates.
fn moment(seconds: u64) -> time::OffsetDateTime {
    rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
}

fn make_private_dir(dir: &Path) -> Result<(), Failure> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))
}

/// Locks the directory, so that only one process at a time changes the CA.
fn lock(dir: &Path) -> Result<File, Failure> {
    let file = dir.join("lock");
    let wrong = |error| Failure::new(format!("{}: {error}", file.display()));
    let lock = File::options().create(true).truncate(false).write(true).open(&file).map_err(wrong)?;
    lock.lock().map_err(wrong)?;
    Ok(lock)
}

/// A key that signs certificates or certificate requests, in the form that the library for certificates needs.
pub(crate) struct CertificateKey<S = SoftwareKey> {
    key: S,
    subject: Subject,
}

impl<S: Signer> CertificateKey<S> {
    pub(crate) fn from(key: S) -> Result<Self, Failure> {
        let subject = Subject::of(key.public_key()).ok_or_else(|| Failure::new("a key that is not used here"))?;
        Ok(Self { key, subject })
    }
}

impl<S: Signer> PublicKeyData for CertificateKey<S> {
    fn der_bytes(&self) -> &[u8] {
        self.subject.der_bytes()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.subject.algorithm()
    }
}

impl<S: Signer> SigningKey for CertificateKey<S> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let digest = tegmen_host::x509::sha256(message);
        self.key.sign_digest(&digest).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// The public key of the subject of a certificate.
struct Subject {
    scheme: SignatureScheme,
    bytes: Vec<u8>,
}

impl Subject {
    fn of(spki: &[u8]) -> Option<Self> {
        let key = PublicKey::parse(spki)?;
        let scheme = match key.kind {
            KeyKind::P256 => SignatureScheme::ECDSA_SECP256R1_SHA256,
            KeyKind::Rsa { bits: 2048..=4096 } => SignatureScheme::RSA_PKCS1_SHA256,
            KeyKind::Rsa { .. } | KeyKind::Ed25519 | KeyKind::Other => return None,
        };
        Some(Self { scheme, bytes: key.bytes.to_vec() })
    }

    fn is_rsa(&self) -> bool {
        self.scheme == SignatureScheme::RSA_PKCS1_SHA256
    }
}

impl PublicKeyData for Subject {
    fn der_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match self.is_rsa() {
            true => &rcgen::PKCS_RSA_SHA256,
            false => &rcgen::PKCS_ECDSA_P256_SHA256,
        }
    }
}

#[cfg(test)]
mod tests;
