//! Remembers verified signatures of CA certificates and of CRLs. Many peers send the same CA certificates. While a
//! signature is in this cache, the verifier does not verify it again.

use super::cache::{Cache, Span};
use crate::digest::sha256_of;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ParsedPublicKey};
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of signatures in the cache, of about 100 bytes each.
const SIGNATURES: usize = 256;

/// Signatures that were verified. An entry is a digest of the algorithms, of the public key, of the signed bytes and of
/// the signature. A valid signature stays valid, so the entries depend neither on the time nor on the trust in a key.
pub(super) struct Signatures {
    verified: Cache,
    /// The key on secp256r1 that last verified the certificate of an end entity. Many peers have certificates of the same
    /// CA, and a key takes time to parse.
    issuer: Mutex<Option<Arc<ParsedPublicKey>>>,
}

/// The first byte of an uncompressed point (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

impl Signatures {
    /// Makes a cache of at most `capacity` signatures, and at most [`SIGNATURES`].
    pub(super) fn new(capacity: usize) -> Self {
        Self { verified: Cache::new(capacity.min(SIGNATURES)), issuer: Mutex::default() }
    }

    /// Returns the parsed form of the key of a CA. Returns `None` for a key that this function does not parse, because
    /// it is not an uncompressed point of secp256r1, or because `algorithm` is not ECDSA with SHA-256.
    fn issuer(
        &self,
        algorithm: &dyn SignatureVerificationAlgorithm,
        public_key: &[u8],
    ) -> Option<Arc<ParsedPublicKey>> {
        let algorithms = (algorithm.public_key_alg_id(), algorithm.signature_alg_id());
        if algorithms != (alg_id::ECDSA_P256, alg_id::ECDSA_SHA256) || public_key.first() != Some(&UNCOMPRESSED) {
            return None;
        }
        let mut last = self.issuer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = last.as_ref().filter(|key| key.as_ref().as_ref() == public_key) {
            return Some(Arc::clone(key));
        }
        let key = Arc::new(ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public_key).ok()?);
        *last = Some(Arc::clone(&key));
        Some(key)
    }
}

/// A signature algorithm that remembers the signatures that it accepted.
pub(super) struct Remembering<'a> {
    pub(super) algorithm: &'a dyn SignatureVerificationAlgorithm,
    pub(super) signatures: &'a Signatures,
    /// The signed bytes of the end entity's certificate. The signature of these bytes is not remembered, because the
    /// cache of verified paths has the certificate of a peer that connects again.
    pub(super) end_entity: &'a [u8],
}

impl SignatureVerificationAlgorithm for Remembering<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let verify = || self.algorithm.verify_signature(public_key, message, signature);
        if message == self.end_entity {
            return match self.signatures.issuer(self.algorithm, public_key) {
                Some(key) => key.verify_sig(message, signature).map_err(|_| InvalidSignature),
                None => verify(),
            };
        }
        let (of_key, of_signature) = (self.public_key_alg_id(), self.signature_alg_id());
        let parts = [&of_key, &of_signature, public_key, message, signature];
        let lengths = parts.map(|part| (part.len() as u64).to_be_bytes());
        let [a, b, c, d, e] = parts;
        let key = sha256_of(&[lengths.as_flattened(), a, b, c, d, e]);
        if self.signatures.verified.find(&key, 0).is_none() {
            verify()?;
            self.signatures.verified.insert(key, Span::ALWAYS);
        }
        Ok(())
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

impl fmt::Debug for Remembering<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.algorithm.fmt(f)
    }
}

#[cfg(test)]
mod tests;
