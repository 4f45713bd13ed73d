//! RSA decryption without padding, on the C library behind `aws-lc-rs`.
//!
//! The crate `aws-lc-rs` decrypts only with padding, and reports wrong padding at once. An attacker who measures the
//! time of this report can decrypt recorded secrets with enough queries (Bleichenbacher's attack). The C library has
//! an operation without padding, which is blinded and takes the same time for all ciphertexts. The library recommends
//! this operation for key exchange in TLS.
#![expect(unsafe_code, reason = "aws-lc-rs has no RSA decryption without padding")]

use aws_lc_sys::{RSA, RSA_NO_PADDING, RSA_decrypt, RSA_free, RSA_private_key_from_bytes};
use std::ptr::NonNull;
use tegmen::buf::Reader;
use tegmen_x509::der::{self, INTEGER, SEQUENCE};
use zeroize::Zeroizing;

/// An RSA private key that decrypts.
pub(super) struct BareRsa {
    key: NonNull<RSA>,
    modulus: Vec<u8>,
}

// SAFETY: a key of AWS-LC may be used and freed by another thread than the thread that made it.
unsafe impl Send for BareRsa {}
// SAFETY: a shared key is only passed to RSA_decrypt, which AWS-LC documents as non-mutating (openssl/rsa.h). A lock in
// the key protects its data for blinding.
unsafe impl Sync for BareRsa {}

impl BareRsa {
    /// Parses an RSAPrivateKey in DER (RFC 8017, appendix A.1.2). Returns `None` if `der` is not such a key.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let mut parts = der::inside(&mut Reader::new(der), SEQUENCE).ok()?;
        let _version = der::value(&mut parts, INTEGER).ok()?;
        let modulus = der::positive(&mut parts).ok()?.to_vec();
        // SAFETY: pointer and length are those of a slice, which AWS-LC only reads.
        let key = unsafe { RSA_private_key_from_bytes(der.as_ptr(), der.len()) };
        Some(Self { key: NonNull::new(key)?, modulus })
    }

    /// Returns the length of the modulus in bytes, which is also the length of a ciphertext and of a block.
    pub(super) const fn modulus_len(&self) -> usize {
        self.modulus.len()
    }

    /// Decrypts a block. The result includes the padding, and has the length of the modulus. Returns `None` if
    /// `encrypted` is not a ciphertext: it has another length, is not below the modulus, or is 0, 1 or the modulus less
    /// one. The time of this check depends only on `encrypted`, which an attacker knows anyway.
    pub(super) fn decrypt(&self, encrypted: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if encrypted.len() != self.modulus.len() || encrypted >= self.modulus.as_slice() {
            return None;
        }
        let mut block = Zeroizing::new(vec![0; self.modulus.len()]);
        let mut len = 0;
        // SAFETY: the key is valid until it is dropped. AWS-LC writes at most `block.len()` bytes to `block`, and writes
        // their number to `len`. It reads `encrypted.len()` bytes of `encrypted`. The three do not overlap.
        let done = unsafe {
            RSA_decrypt(
                self.key.as_ptr(),
                &raw mut len,
                block.as_mut_ptr(),
                block.len(),
                encrypted.as_ptr(),
                encrypted.len(),
                RSA_NO_PADDING,
            )
        };
        (done == 1 && len == block.len()).then_some(block)
    }
}

impl Drop for BareRsa {
    fn drop(&mut self) {
        // SAFETY: AWS-LC made the key. The key is freed once, and not used after that. AWS-LC wipes the freed memory.
        unsafe { RSA_free(self.key.as_ptr()) }
    }
}

#[cfg(test)]
mod tests;
