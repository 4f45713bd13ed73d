//! Raw public keys (RFC 7250): a list of trusted keys, each with a name.

use super::public_key::{KeyKind, PublicKey};
use super::{MIN_RSA_BITS, PeerVerifier, Refusal, Verified};
use crate::digest::{Digest, sha256_of};
use std::time::SystemTime;
use tegmen::dtls::CertificateType;

/// A key on an allow list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedKey {
    /// SHA-256 of the SubjectPublicKeyInfo in DER.
    pub digest: Digest,
    /// The local name of the owner.
    pub name: String,
}

impl AllowedKey {
    /// Makes an entry for a key that is given as its SubjectPublicKeyInfo in DER.
    pub fn of(spki: &[u8], name: &str) -> Self {
        Self { digest: sha256_of(&[spki]), name: name.to_owned() }
    }
}

/// Verifies a raw public key: it must be well formed, strong enough, and on the list. A raw public key contains neither
/// a name nor an expiry time. To end the trust in a key, remove it from the list.
///
/// # Errors
/// [`Refusal::Malformed`], [`Refusal::UnsupportedAlgorithm`], [`Refusal::WeakKey`], [`Refusal::UnknownKey`].
pub fn verify_raw<'c>(spki: &'c [u8], allowed: &[AllowedKey]) -> Result<Verified<'c>, Refusal> {
    match PublicKey::parse(spki).ok_or(Refusal::Malformed("a SubjectPublicKeyInfo that does not parse"))?.kind {
        KeyKind::Ed25519 | KeyKind::Other => return Err(Refusal::UnsupportedAlgorithm),
        KeyKind::Rsa { bits } if bits < MIN_RSA_BITS => return Err(Refusal::WeakKey),
        KeyKind::Rsa { .. } | KeyKind::P256 => {}
    }
    let digest = sha256_of(&[spki]);
    let key = allowed
        .iter()
        .find(|key| key.digest == digest)
        .ok_or_else(|| Refusal::UnknownKey { digest: crate::hex::to_hex(&digest) })?;
    Ok(Verified { spki, name: key.name.clone(), names: Vec::new(), digest, not_after: None, until: None })
}

/// Returns the name and the whole digest of the listed key whose digest begins with `digest`: see
/// [`PeerVerifier::recall`].
pub fn recall_raw(digest: &[u8], allowed: &[AllowedKey]) -> Option<(String, Digest)> {
    let key = allowed.iter().find(|key| digest.len() >= 16 && key.digest.starts_with(digest))?;
    Some((key.name.clone(), key.digest))
}

/// A [`PeerVerifier`] that accepts the keys of a list, and no certificate.
#[derive(Clone, Default, Debug)]
pub struct RawKeys(pub Vec<AllowedKey>);

impl PeerVerifier for RawKeys {
    fn takes_raw_keys(&self) -> bool {
        true
    }

    fn verify_raw<'c>(&self, spki: &'c [u8]) -> Result<Verified<'c>, Refusal> {
        verify_raw(spki, &self.0)
    }

    fn trust(&self) -> Option<Digest> {
        let keys: Vec<&[u8]> = self.0.iter().map(|key| key.digest.as_slice()).collect();
        Some(sha256_of(&keys))
    }

    fn recall(&self, kind: CertificateType, digest: &[u8], _: SystemTime) -> Option<(String, Digest)> {
        recall_raw(digest, &self.0).filter(|_| kind == CertificateType::RAW_PUBLIC_KEY)
    }
}
