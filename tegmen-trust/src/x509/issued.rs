//! Remembers verified signatures of CA certificates and of CRLs. Many peers send the same CA certificates. While a
//! signature is in this cache, the verifier does not verify it again.

use super::cache::{Cache, Span};
use crate::digest::sha256_of;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};
use std::fmt;

/// Maximum number of signatures in the cache, of about 100 bytes each.
const SIGNATURES: usize = 256;

/// Signatures that were verified. An entry is a digest of the algorithms, of the public key, of the signed bytes and of
/// the signature. A valid signature stays valid, so the entries depend neither on the time nor on the trust in a key.
pub(super) struct Signatures(Cache);

impl Signatures {
    /// Makes a cache of at most `capacity` signatures, and at most [`SIGNATURES`].
    pub(super) fn new(capacity: usize) -> Self {
        Self(Cache::new(capacity.min(SIGNATURES)))
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
            return verify();
        }
        let (of_key, of_signature) = (self.public_key_alg_id(), self.signature_alg_id());
        let parts = [&of_key, &of_signature, public_key, message, signature];
        let lengths = parts.map(|part| (part.len() as u64).to_be_bytes());
        let [a, b, c, d, e] = parts;
        let key = sha256_of(&[lengths.as_flattened(), a, b, c, d, e]);
        if self.signatures.0.find(&key, 0).is_none() {
            verify()?;
            self.signatures.0.insert(key, Span::ALWAYS);
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
