//! Path validation (RFC 5280, section 6), on `rustls-webpki`. This module adds the checks that the library leaves out:
//! key usage, weak keys, the validity of trust anchors, and lists of revoked certificates.

use super::cache::{Cache, CacheCounters, Span};
use super::certificate::{Certificate, DIGITAL_SIGNATURE, KEY_CERT_SIGN, KEY_ENCIPHERMENT, name_text};
use super::clients::Clients;
use super::issued::{Remembering, Signatures};
use super::public_key::KeyKind;
use super::refusal::moment;
use super::trust::{Files, LoadError, Trust};
use super::{PeerVerifier, Purpose, Refusal, Verified};
use crate::credentials::{MAX_IDENTITY, digest_name};
use crate::digest::{Digest, sha256_of};
use crate::reading::{Reading, Stamp};
use rustls_pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen::dtls::CertificateType;
use tegmen_x509::der;
use webpki::aws_lc_rs as algorithms;
use webpki::{
    EndEntityCert, Error, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

/// The settings of a [`Verifier`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum number of certificates that a peer may send, 1 to 8. This number includes the certificate of the end
    /// entity.
    pub max_certificates: usize,
    /// Maximum number of verified paths in the cache, of about 100 bytes each. With 0 or 1 the cache stores no path. A
    /// second cache has the verified signatures of CA certificates and CRLs, which many paths share. It stores at most
    /// the same number, and at most 256.
    pub cache_entries: usize,
    /// True if the verifier, which has CRLs of some CAs, also accepts a path with a CA of which it has no CRL. If the
    /// verifier has no CRL at all, it checks only the lists in [`Files::revoked`].
    pub missing_crl_allowed: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_certificates: 5, cache_entries: 1024, missing_crl_allowed: false }
    }
}

/// The [`Stamp`] of each file from which trust is read, or `None` for a file that does not exist. A stamp changes when
/// its file changes.
type Stamps = Vec<Option<Stamp>>;

/// A verifier that accepts certificates whose path leads to its trust anchors.
pub struct Verifier {
    trust: RwLock<Arc<Generation>>,
    files: Mutex<Option<(Files, Reading<Stamps>)>>,
    settings: Settings,
    cache: Cache,
    signatures: Signatures,
    clients: Mutex<Clients>,
}

/// The trust settings in force, and a number that changes each time the settings are replaced. A verdict in the cache
/// is valid only while the number is the same.
struct Generation {
    number: u64,
    trust: Trust,
}

impl Verifier {
    /// Creates a verifier from trust in memory.
    pub fn new(trust: Trust, settings: Settings) -> Self {
        Self {
            trust: RwLock::new(Arc::new(Generation { number: 0, trust })),
            files: Mutex::new(None),
            settings: Settings { max_certificates: settings.max_certificates.clamp(1, 8), ..settings },
            cache: Cache::new(settings.cache_entries),
            signatures: Signatures::new(settings.cache_entries),
            clients: Mutex::new(Clients::new(settings.cache_entries)),
        }
    }

    /// Creates a verifier from files. [`Self::reload_if_changed`] reads the files again.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn from_files(files: Files, settings: Settings) -> Result<Self, LoadError> {
        let stamps = files.stamps();
        let verifier = Self::new(Trust::from_files(&files)?, settings);
        *verifier.files.lock().unwrap_or_else(PoisonError::into_inner) = Some((files, Reading::of(stamps)));
        Ok(verifier)
    }

    /// Replaces the trust in force, and removes every verdict from the cache.
    pub fn replace(&self, trust: Trust) {
        let mut current = self.trust.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(Generation { number: current.number + 1, trust });
        drop(current);
        self.cache.clear();
    }

    /// Reads the files again if one of them changed, or if the last attempt failed. Returns true if it replaced the
    /// trust. After an error the previous trust stays in force. Call this function each second.
    ///
    /// # Errors
    /// [`LoadError`]. While the error stays the same, it is returned only once.
    pub fn reload_if_changed(&self) -> Result<bool, LoadError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((files, reading)) = files.as_mut() else { return Ok(false) };
        let stamps = files.stamps();
        if reading.is_current(&stamps) {
            return Ok(false);
        }
        match Trust::from_files(files) {
            Ok(trust) => {
                self.replace(trust);
                reading.succeeded(stamps);
                Ok(true)
            }
            Err(error) => reading.failed(error).map(|()| false),
        }
    }

    /// Returns the counts of the cache of verified paths.
    pub fn cache_counters(&self) -> CacheCounters {
        self.cache.counters()
    }

    /// Keeps the certificates of accepted clients in this file, so that the clients can resume their sessions after a
    /// restart. A kept certificate is verified again at each resumption. Creates the file if it does not exist.
    ///
    /// # Errors
    /// The error of the system if the file cannot be read or written.
    pub fn keep_clients_in(&self, file: &Path) -> std::io::Result<()> {
        self.clients().keep_in(file)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies the certificate_list of a Certificate message: see [`PeerVerifier::verify`].
    ///
    /// The certificates after the first certificate may be in any order, and there may be more certificates than the
    /// path needs. Each certificate must be well formed and have a strong key, even if the path does not need it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn verify<'c>(
        &self,
        chain: &'c [u8],
        purpose: Purpose,
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<Verified<'c>, Refusal> {
        let certificates = certificate_list(chain, self.settings.max_certificates)?;
        let (end_entity, others) =
            certificates.split_first().ok_or(Refusal::Malformed("the list of certificates is empty"))?;
        let generation = Arc::clone(&self.trust.read().unwrap_or_else(PoisonError::into_inner));
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let key = cache_key(generation.number, chain, purpose, name);
        let span = match self.cache.find(&key, now) {
            Some(span) => span,
            None => {
                let Self { settings, signatures, .. } = self;
                let check = Check { trust: &generation.trust, settings, signatures, purpose, name, now };
                let span = check.path(end_entity, others)?;
                self.cache.insert(key, span);
                span
            }
        };
        let (digest, called) = (sha256_of(&[end_entity.der]), name_text(end_entity.subject).unwrap_or_default());
        // Rights belong to a name. An empty subject is no name, and neither is one that is too long to be written.
        let nameless = purpose == Purpose::Client && !(1..=MAX_IDENTITY).contains(&called.len());
        let called = if nameless { digest_name(&digest) } else { called };
        if purpose == Purpose::Client {
            self.clients().insert(digest, chain);
        }
        Ok(Verified {
            spki: end_entity.spki,
            name: called,
            names: end_entity.names(),
            digest,
            not_after: Some(moment(end_entity.not_after)),
            until: Some(moment(span.until)),
        })
    }
}

impl PeerVerifier for Verifier {
    fn takes_certificates(&self) -> bool {
        true
    }

    fn verify<'c>(
        &self,
        chain: &'c [u8],
        purpose: Purpose,
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<Verified<'c>, Refusal> {
        Self::verify(self, chain, purpose, name, now)
    }

    fn reload_if_changed(&self) -> Result<bool, LoadError> {
        Self::reload_if_changed(self)
    }

    fn due(&self) -> Option<SystemTime> {
        let generation = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        generation.trust.revocations.due().map(moment)
    }

    fn trust(&self) -> Option<Digest> {
        let generation = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        let Settings { max_certificates, missing_crl_allowed, cache_entries: _ } = self.settings;
        Some(sha256_of(&[&generation.trust.digest, &[max_certificates as u8, u8::from(missing_crl_allowed)]]))
    }

    fn recall(&self, kind: CertificateType, digest: &[u8], now: SystemTime) -> Option<(String, Digest)> {
        let digest = Digest::try_from(digest).ok().filter(|_| kind == CertificateType::X509)?;
        let chain = self.clients().get(&digest)?;
        // The trust in force decides, whatever the verdict was when the session began.
        let verified = Self::verify(self, &chain, Purpose::Client, None, now).ok()?;
        (verified.digest == digest).then_some((verified.name, digest))
    }
}

/// Parses the certificates of a list (RFC 5246, section 7.4.2). Refuses more than `max` certificates, and weak keys.
fn certificate_list(chain: &[u8], max: usize) -> Result<Vec<Certificate<'_>>, Refusal> {
    let (mut certificates, mut rest) = (Vec::new(), chain);
    while let Some((len, behind)) = rest.split_first_chunk::<3>() {
        if certificates.len() == max {
            return Err(Refusal::TooLong { max });
        }
        let len = usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]);
        let (der, behind) =
            behind.split_at_checked(len).ok_or(Refusal::Malformed("a certificate is longer than its list"))?;
        let certificate = Certificate::parse(der).ok_or(Refusal::Malformed("a certificate that does not parse"))?;
        if certificate.is_weak() {
            return Err(Refusal::WeakKey);
        }
        certificates.push(certificate);
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(certificates),
        false => Err(Refusal::Malformed("bytes behind the list of certificates")),
    }
}

fn cache_key(generation: u64, chain: &[u8], purpose: Purpose, name: Option<&str>) -> Digest {
    let name_len = name.map_or(u64::MAX, |name| name.len() as u64);
    let name = name.unwrap_or("").as_bytes();
    sha256_of(&[&generation.to_be_bytes(), &[purpose as u8], &name_len.to_be_bytes(), name, chain])
}

/// One verification whose result was not in the cache.
struct Check<'a> {
    trust: &'a Trust,
    settings: &'a Settings,
    signatures: &'a Signatures,
    purpose: Purpose,
    name: Option<&'a str>,
    now: u64,
}

impl Check<'_> {
    /// Finds a path to an anchor. Returns the period in which the path stays valid: until a certificate expires, or a
    /// CRL has to be replaced.
    fn path(&self, end_entity: &Certificate<'_>, others: &[Certificate<'_>]) -> Result<Span, Refusal> {
        match end_entity.key().ok_or(Refusal::Malformed("a public key that does not parse"))?.kind {
            KeyKind::Ed25519 | KeyKind::Other => return Err(Refusal::UnsupportedAlgorithm),
            KeyKind::P256 | KeyKind::Rsa { .. } => {}
        }
        let (bit, missing) = match self.purpose {
            Purpose::EncryptedServer => {
                (KEY_ENCIPHERMENT, "the key usage of its end entity is without keyEncipherment")
            }
            Purpose::Server | Purpose::Client => {
                (DIGITAL_SIGNATURE, "the key usage of its end entity is without digitalSignature")
            }
        };
        require(end_entity, bit, missing)?;
        let der = CertificateDer::from(end_entity.der);
        let parsed = EndEntityCert::try_from(&der).map_err(|error| self.refusal(error, end_entity, others))?;
        let intermediates: Vec<_> = others.iter().map(|other| CertificateDer::from(other.der)).collect();
        let crls = self.trust.revocations.crls();
        let status = match self.settings.missing_crl_allowed {
            true => UnknownStatusPolicy::Allow,
            false => UnknownStatusPolicy::Deny,
        };
        let revocation = RevocationOptionsBuilder::new(&crls).ok().map(|options| {
            options.with_status_policy(status).with_expiration_policy(ExpirationPolicy::Enforce).build()
        });
        let usage = match self.purpose {
            Purpose::Server | Purpose::EncryptedServer => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        // The verdict of our own rules on the last path. After a refusal `rustls-webpki` tries the next path.
        let verdict = RefCell::new(None);
        let judge = |path: &VerifiedPath<'_>| {
            let judged = self.judge(path, end_entity, others);
            let accepted = judged.is_ok();
            verdict.replace(Some(judged));
            if accepted { Ok(()) } else { Err(Error::UnknownIssuer) }
        };
        let time = UnixTime::since_unix_epoch(Duration::from_secs(self.now));
        let Self { signatures, .. } = *self;
        let algorithms = ALGORITHMS.map(|algorithm| Remembering { algorithm, signatures, end_entity: end_entity.tbs });
        let found = parsed.verify_for_usage(
            &algorithms.each_ref().map(|algorithm| algorithm as &dyn SignatureVerificationAlgorithm),
            &self.trust.anchors,
            &intermediates,
            time,
            usage,
            revocation,
            Some(&judge),
        );
        let span = match (found, verdict.take()) {
            (Ok(_), Some(Ok(span))) => span,
            (Err(_), Some(Err(refusal))) => return Err(refusal),
            (Err(error), _) => return Err(self.refusal(error, end_entity, others)),
            (Ok(_), _) => return Err(Refusal::Malformed("a path that was not judged")),
        };
        if let Some(name) = self.name {
            let wrong = || Refusal::WrongName { asked: name.to_owned(), presented: presented(end_entity) };
            let asked = ServerName::try_from(name).map_err(|_| wrong())?;
            parsed.verify_is_valid_for_subject_name(&asked).map_err(|_| wrong())?;
        }
        Ok(span)
    }

    /// Checks the rules that `rustls-webpki` does not check, for a path whose signatures are valid. `others` are the
    /// certificates from which the path was built. Returns the period in which all certificates of the path and of its
    /// anchor are valid, and all current CRLs are in force.
    fn judge(
        &self,
        path: &VerifiedPath<'_>,
        end_entity: &Certificate<'_>,
        others: &[Certificate<'_>],
    ) -> Result<Span, Refusal> {
        let listed = |certificate: &Certificate<'_>| self.trust.revocations.lists(certificate);
        if listed(end_entity) {
            return Err(Refusal::Revoked);
        }
        let mut span = Span::ALWAYS.and(end_entity.not_before, end_entity.not_after);
        for issuer in path.intermediate_certificates() {
            let der = issuer.der();
            let parsed = others.iter().find(|other| other.der == der.as_ref());
            let issuer = parsed.ok_or(Refusal::Malformed("a path with a certificate that the peer did not send"))?;
            require(issuer, KEY_CERT_SIGN, "the key usage of one of its CAs is without keyCertSign")?;
            if listed(issuer) {
                return Err(Refusal::Revoked);
            }
            span = span.and(issuer.not_before, issuer.not_after);
        }
        let at = self.trust.anchors.iter().position(|anchor| anchor == path.anchor());
        let anchor = at.and_then(|at| Some((self.trust.spans.get(at)?, self.trust.certificates.get(at)?)));
        if let Some((valid, der)) = anchor {
            if self.now > valid.until {
                return Err(Refusal::Expired { not_after: moment(valid.until) });
            }
            if self.now < valid.from {
                return Err(Refusal::NotYetValid { not_before: moment(valid.from) });
            }
            if self.trust.revocations.has_lists() && Certificate::parse(der).is_some_and(|anchor| listed(&anchor)) {
                return Err(Refusal::Revoked);
            }
            span = span.and(valid.from, valid.until);
        }
        // A CRL is in force before the moment of its nextUpdate.
        Ok(span.and(0, self.trust.revocations.next_update(self.now) - 1))
    }

    fn refusal(&self, error: Error, end_entity: &Certificate<'_>, others: &[Certificate<'_>]) -> Refusal {
        let seconds = |time: UnixTime| moment(time.as_secs());
        match error {
            Error::CertExpired { not_after, .. } => Refusal::Expired { not_after: seconds(not_after) },
            Error::CertNotValidYet { not_before, .. } => Refusal::NotYetValid { not_before: seconds(not_before) },
            Error::CertRevoked | Error::CertDistrusted => Refusal::Revoked,
            Error::NameConstraintViolation => Refusal::NameConstraint,
            Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => {
                Refusal::WrongUsage(match self.purpose {
                    Purpose::Server | Purpose::EncryptedServer => "its extended key usage is without serverAuth",
                    Purpose::Client => "its extended key usage is without clientAuth",
                })
            }
            Error::CaUsedAsEndEntity => Refusal::WrongUsage("its end entity is a CA"),
            Error::EndEntityUsedAsCa => Refusal::WrongUsage("an issuer in it is no CA"),
            Error::PathLenConstraintViolated => Refusal::WrongUsage("it is longer than one of its CAs allows"),
            Error::InvalidSignatureForPublicKey => Refusal::BadSignature,
            Error::UnknownIssuer => {
                let last = others.last().unwrap_or(end_entity);
                Refusal::UnknownIssuer { issuer: name_text(last.issuer).unwrap_or_default() }
            }
            Error::MaximumPathDepthExceeded
            | Error::MaximumSignatureChecksExceeded
            | Error::MaximumPathBuildCallsExceeded
            | Error::MaximumNameConstraintComparisonsExceeded => {
                Refusal::TooLong { max: self.settings.max_certificates }
            }
            Error::UnsupportedCriticalExtension => Refusal::UnsupportedExtension,
            Error::UnsupportedSignatureAlgorithmContext(_)
            | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => Refusal::UnsupportedAlgorithm,
            Error::UnknownRevocationStatus => Refusal::RevocationUnknown("a CA of it has no CRL here".to_owned()),
            Error::CrlExpired { next_update, .. } => Refusal::RevocationUnknown(format!(
                "a CRL was to be replaced by {}",
                super::date(moment(next_update.as_secs()))
            )),
            Error::InvalidCrlSignatureForPublicKey
            | Error::IssuerNotCrlSigner
            | Error::UnsupportedCrlSignatureAlgorithmContext(_)
            | Error::UnsupportedCrlSignatureAlgorithmForPublicKeyContext(_) => {
                Refusal::RevocationUnknown("a CRL is not signed by the CA whose name it has".to_owned())
            }
            _ => Refusal::Malformed("a certificate that breaks the rules of RFC 5280"),
        }
    }
}

/// Refuses a certificate whose KeyUsage is not valid DER or does not have this bit. If the bit is missing, `missing` is
/// the reason for the refusal.
fn require(certificate: &Certificate<'_>, bit: u8, missing: &'static str) -> Result<(), Refusal> {
    match certificate.may(bit) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::WrongUsage(missing)),
        Err(der::Malformed) => Err(Refusal::Malformed("a key usage that is not valid DER")),
    }
}

/// Returns the names of a certificate, for the text of a refusal.
fn presented(certificate: &Certificate<'_>) -> String {
    match certificate.names() {
        names if names.is_empty() => "no name at all".to_owned(),
        names => names.join(", "),
    }
}

/// The algorithms with which certificates and CRLs may be signed. SHA-1 and MD5 are not among them.
const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 11] = [
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];
