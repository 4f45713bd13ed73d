//! Signatures over SHA-256 digests, verified with the public key of a peer or of a certificate request.

use super::public_key::{KeyKind, PublicKey};
use super::signer::SignatureScheme;
use super::{MAX_RSA_BITS, MIN_RSA_BITS};
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::signature::{self, VerificationAlgorithm};
use tegmen::crypto::NotAuthentic;

/// Verifies a peer's signature over a SHA-256 digest. `spki` is the SubjectPublicKeyInfo of the peer in DER.
///
/// The key must be of the scheme's kind: an uncompressed point of secp256r1, RSA of 2048 to 4096 bits, or Ed25519. With
/// Ed25519 the digest is the signed message. An ECDSA signature must be in strict DER, with both numbers from 1 to the
/// order of the group less one. An RSA signature must be as long as the modulus, and have the only valid padding (RFC
/// 8017, section 9.2). In ECDSA, both `s` and its negative give valid signatures, so a signature must not be used as an
/// identifier.
///
/// # Errors
/// [`NotAuthentic`] for every fault.
pub fn verify_digest(
    scheme: SignatureScheme,
    spki: &[u8],
    digest: &[u8; 32],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let key = PublicKey::parse(spki).ok_or(NotAuthentic)?;
    if let (SignatureScheme::ED25519, KeyKind::Ed25519) = (scheme, key.kind) {
        return signature::ED25519.verify_sig(key.bytes, digest, signature).map_err(|_| NotAuthentic);
    }
    let algorithm: &dyn VerificationAlgorithm = match (scheme, key.kind) {
        (SignatureScheme::ECDSA_SECP256R1_SHA256, KeyKind::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        (SignatureScheme::RSA_PKCS1_SHA256, KeyKind::Rsa { bits: MIN_RSA_BITS..=MAX_RSA_BITS }) => {
            &signature::RSA_PKCS1_2048_8192_SHA256
        }
        _ => return Err(NotAuthentic),
    };
    let digest = Digest::import_less_safe(digest, &SHA256).map_err(|_| NotAuthentic)?;
    algorithm.verify_digest_sig(key.bytes, &digest, signature).map_err(|_| NotAuthentic)
}
