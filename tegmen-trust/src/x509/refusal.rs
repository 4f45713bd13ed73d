//! The reasons for which a certificate or a key is not trusted.

use super::date;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen::dtls::AlertDescription;

/// The reason why the certificates or the key of a peer are refused. The text is for the operator of this endpoint, and
/// usually proposes a remedy. The peer receives the same alert for every reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The notAfter of a certificate of the path has passed.
    #[error("a certificate of the peer's path expired on {}: renew it, or set this machine's clock", date(*.not_after))]
    Expired {
        /// The last moment at which the certificate was valid.
        not_after: SystemTime,
    },
    /// The notBefore of a certificate of the path has not come yet.
    #[error("a certificate of the peer's path is valid only from {}: wait, or set this machine's clock", date(*.not_before))]
    NotYetValid {
        /// The first moment at which the certificate is valid.
        not_before: SystemTime,
    },
    /// The end entity's certificate does not contain the expected name (RFC 9525).
    #[error(
        "the peer's certificate is not for {asked}, it is for {presented}: connect to a name it has in subjectAltName, or issue one with --dns or --ip"
    )]
    WrongName {
        /// The expected name.
        asked: String,
        /// The names in the certificate.
        presented: String,
    },
    /// A CA of the path issued a certificate for names that the CA's name constraints do not permit (RFC 5280, section
    /// 4.2.1.10).
    #[error(
        "a CA of the peer's path issued a certificate beyond its name constraints: ask that CA for one within them"
    )]
    NameConstraint,
    /// A certificate is used for a purpose that it does not allow (key usage, extended key usage, basic constraints).
    #[error("a certificate of the peer's path has the wrong usage ({0}): issue one with the right usage")]
    WrongUsage(&'static str),
    /// No path leads to a trust anchor.
    #[error(
        "no trust anchor issued the peer's certificate (issuer {issuer}): add that CA to the trust anchors, or have the peer send the certificates between"
    )]
    UnknownIssuer {
        /// The issuer of the last certificate in the list.
        issuer: String,
    },
    /// A raw public key is not on the allow list.
    #[error("the peer's public key (SHA-256 {digest}) is not on the allow list: add it, if it is the peer's")]
    UnknownKey {
        /// The digest of the SubjectPublicKeyInfo, in hexadecimal.
        digest: String,
    },
    /// A certificate of the path is on a revocation list.
    #[error("a certificate of the peer's path is revoked: issue a new one for a new key")]
    Revoked,
    /// The revocation status of a certificate is unknown: there is no CRL of its CA, or the CRL is too old.
    #[error("whether the peer's path is revoked is not known ({0}): fetch the newest CRL of each CA of the path")]
    RevocationUnknown(String),
    /// The peer sent more certificates than the verifier accepts, or the search for a path became too long.
    #[error(
        "the peer's path has too many certificates (at most {max} are followed): raise the limit, or issue from a CA nearer to the anchor"
    )]
    TooLong {
        /// The limit in force.
        max: usize,
    },
    /// An RSA key has fewer than 2048 bits.
    #[error("a certificate of the peer's path has a weak key (RSA below {} bits): make a new key", super::MIN_RSA_BITS)]
    WeakKey,
    /// A signature in the path was not made with the key of the issuer.
    #[error(
        "a signature in the peer's path does not verify: the certificate was changed, or another CA of the same name issued it"
    )]
    BadSignature,
    /// The bytes are not a list of certificates, not a certificate, or not a key.
    #[error("the peer's certificate or key is not well formed ({0}): issue its certificate again")]
    Malformed(&'static str),
    /// An algorithm is not supported: the key of the end entity is neither ECDSA P-256 nor RSA, or a signature in the
    /// path is of an unknown kind.
    #[error("the peer's path uses an unsupported algorithm: use ECDSA P-256 or RSA of 2048 to 4096 bits, with SHA-256")]
    UnsupportedAlgorithm,
    /// An extension is marked critical and is not understood.
    #[error("a certificate of the peer's path has a critical extension that is not understood: issue one without it")]
    UnsupportedExtension,
    /// The peer sent certificates or a raw public key, and this verifier accepts no proof of this kind.
    #[error("this end takes no {0}: set up a verifier for them, or have the peer present something else")]
    NotTaken(&'static str),
    /// A [`PeerVerifier`](super::PeerVerifier) of the user's own program refuses the peer. The text is the reason.
    #[error("a rule of this end refuses the peer: {0}")]
    Rule(String),
}

impl Refusal {
    /// Returns the alert that the peer receives, the same for every reason: certificate_unknown (RFC 5246, section
    /// 7.2.2).
    pub const fn alert(&self) -> AlertDescription {
        AlertDescription(46)
    }
}

pub(crate) fn moment(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}
