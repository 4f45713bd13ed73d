//! Ed25519 (RFC 8032) with the crate `ed25519-dalek`, and the conversion of Ed25519 keys to the coordinates of x25519
//! (RFC 7748, section 4.1). All operations take constant time and need no heap.

use super::ecdsa::SIGNATURE_LEN;
use super::{NotAuthentic, SCALAR_LEN};
use crate::secret::Secret;
use ed25519_dalek::ed25519::signature::{MultipartSigner as _, MultipartVerifier as _};
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

/// Signs a message, given in parts.
pub fn sign(private: &[u8; SCALAR_LEN], message: &[&[u8]]) -> [u8; SIGNATURE_LEN] {
    SigningKey::from_bytes(private).multipart_sign(message).to_bytes()
}

/// Verifies the signature of a message, given in parts.
///
/// # Errors
/// [`NotAuthentic`] if the signature is wrong, or the key is not a point of the curve, or is a point of small order.
pub fn verify(public: &[u8; 32], message: &[&[u8]], signature: &[u8; SIGNATURE_LEN]) -> Result<(), NotAuthentic> {
    point(public)?.multipart_verify(message, &Signature::from_bytes(signature)).map_err(|_| NotAuthentic)
}

/// Returns the public key of a private key.
pub fn public_key_of(private: &[u8; SCALAR_LEN]) -> [u8; 32] {
    SigningKey::from_bytes(private).verifying_key().to_bytes()
}

/// Returns the private key of x25519 that belongs to a private key of Ed25519: the first half of the SHA-512 digest of
/// the Ed25519 key (RFC 8032, section 5.1.5). x25519 clamps this key in the same way as Ed25519.
pub fn private_to_x25519(private: &[u8; SCALAR_LEN]) -> Secret<SCALAR_LEN> {
    Secret::new(SigningKey::from_bytes(private).to_scalar_bytes())
}

/// Returns the public key of x25519 that belongs to a public key of Ed25519: u = (1 + y) / (1 - y).
///
/// # Errors
/// [`NotAuthentic`] if the key is not a point of the curve, or is a point of small order. Keys with y = 1 and y = -1
/// are such points (RFC 10021, section 2.5.2.1).
pub fn public_to_x25519(public: &[u8; 32]) -> Result<[u8; 32], NotAuthentic> {
    Ok(point(public)?.to_montgomery().to_bytes())
}

fn point(public: &[u8; 32]) -> Result<VerifyingKey, NotAuthentic> {
    VerifyingKey::from_bytes(public).ok().filter(|key| !key.is_weak()).ok_or(NotAuthentic)
}

#[cfg(test)]
mod tests;
