//! Trust in certificates (RFC 5280) and raw public keys (RFC 7250) of peers, and the keys of this endpoint.
//!
//! * A [`Verifier`] accepts a certificate if its path leads to a trust anchor, and no certificate of the path is
//!   revoked.
//! * [`RawKeys`] accepts the keys on its list.
//! * [`PeerVerifier`] is the trait that [`Verifier`] and [`RawKeys`] implement. Implement it for your own rule.
//! * A [`Signer`](signer::Signer) proves the identity of this endpoint. [`signer::SoftwareKey`] is a signer with a key
//!   from a file.
//!
//! ```no_run
//! use std::time::SystemTime;
//! use tegmen_trust::x509::{Files, Purpose, Settings, Verifier};
//!
//! let files = Files { anchors: vec!["ca.pem".into()], crls: vec!["crl.pem".into()], ..Files::default() };
//! let verifier = Verifier::from_files(files, Settings::default())?;
//! # let certificate_list: &[u8] = &[];
//! match verifier.verify(certificate_list, Purpose::Server, Some("gateway.example"), SystemTime::now()) {
//!     Ok(verified) => println!("{} may speak until {:?}", verified.name, verified.until),
//!     Err(refusal) => eprintln!("{refusal}; the peer receives alert {}", refusal.alert().0),
//! }
//! # Ok::<(), tegmen_trust::x509::LoadError>(())
//! ```

mod cache;
mod certificate;
mod clients;
mod issued;
mod public_key;
mod raw;
mod refusal;
mod request;
mod revocation;
mod rsa;
mod signature;
pub mod signer;
#[cfg(feature = "tpm")]
pub mod tpm;
mod trust;
mod verifier;

pub use crate::digest::{Digest, sha256};
pub use cache::CacheCounters;
pub use certificate::CertificateInfo;
pub use public_key::{KeyKind, PublicKey};
pub use raw::{AllowedKey, RawKeys, recall_raw, verify_raw};
pub use refusal::Refusal;
pub use request::Request;
pub use signature::verify_digest;
pub use trust::{Files, LoadError, Trust};
pub use verifier::{Settings, Verifier};

use std::time::{SystemTime, UNIX_EPOCH};
use tegmen::dtls::CertificateType;
use time::OffsetDateTime;

/// Minimum number of bits of an RSA key. A path with a smaller key is refused.
pub const MIN_RSA_BITS: usize = 2048;

/// Maximum number of bits of an RSA key that signs a handshake. The key of a CA may have up to 8192 bits.
pub const MAX_RSA_BITS: usize = 4096;

/// The purpose that a peer's certificate must allow (RFC 5280, section 4.2.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// The peer is a server: id-kp-serverAuth.
    Server,
    /// The peer is a client: id-kp-clientAuth.
    Client,
    /// The peer is a server in an RSA key exchange: the client encrypts a secret to the key of the server's
    /// certificate, which must be an RSA key. The rules of [`Self::Server`] apply, but the KeyUsage must contain
    /// keyEncipherment in place of digitalSignature.
    EncryptedServer,
}

/// A peer that a verifier accepts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified<'c> {
    /// The SubjectPublicKeyInfo in DER, of a kind that [`verify_digest`] accepts. The handshake must prove that the
    /// peer has the private key.
    pub spki: &'c [u8],
    /// The subject of the peer's certificate (RFC 4514: `CN=device1,O=Works`). For a raw public key, the name that the
    /// allow list has for this key.
    pub name: String,
    /// The DNS names, addresses and URIs in the peer's certificate (subjectAltName).
    pub names: Vec<String>,
    /// SHA-256 of the peer's certificate in DER, or of its SubjectPublicKeyInfo if it has no certificate.
    pub digest: Digest,
    /// The last moment at which the peer's certificate is valid, or `None` for a raw public key.
    pub not_after: Option<SystemTime>,
    /// The last moment at which this acceptance of the peer is valid. Until then no certificate of the path expires,
    /// and no CRL reaches its nextUpdate. `None` if the acceptance has no end.
    pub until: Option<SystemTime>,
}

/// Decides whether to accept the identity of a peer.
///
/// Each method has a default that refuses. So a verifier implements only the methods for the proofs that it accepts.
pub trait PeerVerifier: Send + Sync {
    /// Returns true if [`Self::verify`] can accept a peer. The endpoint then offers X.509 as certificate type.
    fn takes_certificates(&self) -> bool {
        false
    }

    /// Returns true if [`Self::verify_raw`] can accept a peer. The endpoint then offers RawPublicKey as certificate
    /// type.
    fn takes_raw_keys(&self) -> bool {
        false
    }

    /// Verifies `chain`: the certificate_list of a Certificate message (RFC 5246, section 7.4.2), without the length
    /// field in front of the list. In the list, a length field of three bytes precedes the DER of each certificate. The
    /// certificate of the end entity is first.
    ///
    /// `name` is the DNS name or address that the peer must have. With `None` the peer may have any name: a server
    /// passes `None` for its clients.
    ///
    /// # Errors
    /// [`Refusal`].
    fn verify<'c>(
        &self,
        chain: &'c [u8],
        purpose: Purpose,
        name: Option<&str>,
        now: SystemTime,
    ) -> Result<Verified<'c>, Refusal> {
        let _ = (chain, purpose, name, now);
        Err(Refusal::NotTaken("certificates"))
    }

    /// Verifies a raw public key: a SubjectPublicKeyInfo in DER (RFC 7250, section 3).
    ///
    /// # Errors
    /// [`Refusal`].
    fn verify_raw<'c>(&self, spki: &'c [u8]) -> Result<Verified<'c>, Refusal> {
        let _ = spki;
        Err(Refusal::NotTaken("raw public keys"))
    }

    /// Reads the trust settings of the verifier again if their source changed. Returns true if it read them. A server
    /// calls this function each second.
    ///
    /// # Errors
    /// [`LoadError`]. While the error stays the same, it is returned only once. The previous trust stays in force.
    fn reload_if_changed(&self) -> Result<bool, LoadError> {
        Ok(false)
    }

    /// Returns the earliest time at which a CRL of the verifier must be replaced, or `None` if the verifier has no
    /// CRLs. From this time on, the verifier refuses the certificates of the CA that issued this CRL.
    fn due(&self) -> Option<SystemTime> {
        None
    }

    /// Returns a digest of everything that the verdicts depend on: anchors, keys, lists of revoked certificates, and
    /// the settings of the verifier. A client resumes a session only if the digest is the same as at the beginning of
    /// the session.
    ///
    /// A client whose verifier does not implement this method stores no session.
    fn trust(&self) -> Option<Digest> {
        None
    }

    /// Looks up a client that resumes a session, and that this verifier accepted earlier. `digest` is the digest of the
    /// client's certificate, or at least the first 16 bytes of the digest of the client's raw public key. Returns the
    /// name of the client and its complete digest ([`Verified::digest`]). Returns `None` if the verifier does not
    /// accept the client any more.
    ///
    /// A verifier that does not implement this method lets no client resume a session.
    fn recall(&self, kind: CertificateType, digest: &[u8], now: SystemTime) -> Option<(String, Digest)> {
        let _ = (kind, digest, now);
        None
    }
}

/// Formats a time as readable text: `2027-01-31 12:00:00 UTC`.
pub fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Some(at) = i64::try_from(seconds).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok()) else {
        return "a time after the year 9999".to_owned();
    };
    format!("{} {:02}:{:02}:{:02} UTC", at.date(), at.hour(), at.minute(), at.second())
}
