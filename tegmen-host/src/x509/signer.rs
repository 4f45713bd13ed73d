//! Keys of our own: a [`Signer`] proves to a peer who this end is.

use super::{MAX_RSA_BITS, MIN_RSA_BITS};
use crate::private;
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
pub use tegmen::crypto::SignatureScheme;
use tegmen::secret::Secret;
use zeroize::Zeroizing;

/// A private key, wherever it lies: in memory, in a TPM.
pub trait Signer: Send + Sync {
    /// How it signs.
    fn scheme(&self) -> SignatureScheme;

    /// Its SubjectPublicKeyInfo in DER.
    fn public_key(&self) -> &[u8];

    /// Signs a SHA-256 digest: ECDSA-Sig-Value in DER (at most 72 bytes), or as many bytes as the RSA modulus has.
    ///
    /// # Errors
    /// [`SignError`] if what holds the key cannot do it now.
    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError>;
}

/// An RSA private key that opens what a client sends where RSA is the key exchange (RFC 5246, section 7.4.7.1).
pub trait PremasterDecrypter: Send + Sync {
    /// Decrypts an EncryptedPreMasterSecret. `version` is what the ClientHello offered.
    ///
    /// Whatever is wrong, with the padding, the length or the version, the result is `random`, 48 bytes that the caller
    /// drew before: then the Finished messages do not agree, and nobody learns why (Bleichenbacher's attack).
    fn premaster_secret(&self, encrypted: &[u8], version: [u8; 2], random: &Secret<48>) -> Secret<48>;
}

/// The premaster secret of a decrypted block with its padding (RFC 8017, section 7.2.2, for a message of 48 bytes), or
/// `random`; which of them is not decided by a branch. `modulus_len` is that of the ciphertext, in bytes.
#[cfg_attr(not(any(test, feature = "tpm")), expect(dead_code, reason = "only keys in a TPM decrypt"))]
pub(crate) fn premaster_secret(block: &[u8], modulus_len: usize, version: [u8; 2], random: &Secret<48>) -> Secret<48> {
    let mut out = Secret::new(*random.expose());
    // 00 02, bytes that are not zero, 00, the secret. The length is that of the key and no secret.
    let Some((padding, secret)) = block.split_last_chunk::<48>().filter(|_| block.len() == modulus_len) else {
        return out;
    };
    let Some(([zero, two], [filler @ .., end])) = padding.split_first_chunk::<2>() else { return out };
    if filler.len() < 8 {
        return out;
    }
    let mut wrong = zero | (two ^ 2) | end | (secret[0] ^ version[0]) | (secret[1] ^ version[1]);
    for byte in filler {
        // Ones only if the byte is zero: then one less of it wraps around.
        wrong |= (u16::from(*byte).wrapping_sub(1) >> 8) as u8;
    }
    let keep = std::hint::black_box((u16::from(wrong).wrapping_sub(1) >> 8) as u8);
    for (byte, right) in out.expose_mut().iter_mut().zip(secret) {
        *byte = (right & keep) | (*byte & !keep);
    }
    out
}

/// What holds the key did not sign.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the private key did not sign: {0}")]
pub struct SignError(pub String);

/// Why a file has no usable private key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not there, or not readable.
    #[error("{file}: {source}: give a private key in PEM; `tegmen ca issue` makes one")]
    Unreadable {
        /// Which file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others on this machine can read the key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a private key: chmod 600 {file}")]
    Exposed {
        /// Which file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds no key, or one that is not used here.
    #[error(
        "{file}: {message}: give an unencrypted ECDSA P-256 key, or RSA of 2048 to 4096 bits, as PKCS#8, SEC1 or PKCS#1 in PEM"
    )]
    Unusable {
        /// Which file.
        file: String,
        /// What is wrong.
        message: &'static str,
    },
}

/// A private key in memory.
pub struct SoftwareKey {
    pair: Pair,
    spki: Vec<u8>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(rsa::KeyPair),
}

impl SoftwareKey {
    /// Reads a PEM file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let file = path.display().to_string();
        let unreadable = |source| KeyError::Unreadable { file: file.clone(), source };
        let mut handle = File::open(path).map_err(unreadable)?;
        if let Some(mode) = private::exposed(&handle).map_err(unreadable)? {
            return Err(KeyError::Exposed { file, mode });
        }
        let mut pem = Zeroizing::new(Vec::new());
        handle.read_to_end(&mut pem).map_err(unreadable)?;
        Self::from_pem(&pem).map_err(|message| KeyError::Unusable { file, message })
    }

    /// Takes the first private key of a PEM text: PKCS#8 (RFC 5958), SEC1 (RFC 5915) or PKCS#1 (RFC 8017).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "no private key in PEM in it")?;
        let ecdsa = |pair| Ok(Pair::Ecdsa(pair));
        let pair = match &key {
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der)
                    .and_then(ecdsa)
                    .or_else(|_| rsa::KeyPair::from_pkcs8(der).map(Pair::Rsa))
            }
            PrivateKeyDer::Sec1(der) => {
                EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_sec1_der())
                    .and_then(ecdsa)
            }
            PrivateKeyDer::Pkcs1(der) => rsa::KeyPair::from_der(der.secret_pkcs1_der()).map(Pair::Rsa),
            _ => return Err("a private key of an unknown form"),
        };
        let pair = pair.map_err(|_| "a private key that is not used here")?;
        let spki: Result<PublicKeyX509Der<'_>, _> = match &pair {
            Pair::Ecdsa(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair) if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&(pair.public_modulus_len() * 8)) => {
                return Err("an RSA key of a size that is not used here");
            }
            Pair::Rsa(pair) => pair.public_key().as_der(),
        };
        let spki = spki.map_err(|_| "a private key without a public one")?.as_ref().to_vec();
        Ok(Self { pair, spki })
    }
}

impl Signer for SoftwareKey {
    fn scheme(&self) -> SignatureScheme {
        match self.pair {
            Pair::Ecdsa(_) => SignatureScheme::ECDSA_SECP256R1_SHA256,
            Pair::Rsa(_) => SignatureScheme::RSA_PKCS1_SHA256,
        }
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        let failed = |_| SignError("the library failed".to_owned());
        let digest = Digest::import_less_safe(digest, &SHA256).map_err(failed)?;
        match &self.pair {
            Pair::Ecdsa(pair) => Ok(pair.sign_digest(&digest).map_err(failed)?.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(&RSA_PKCS1_SHA256, &digest, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

impl std::fmt::Debug for SoftwareKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SoftwareKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FAULTS 33: whatever is wrong with the block, the result is the random secret.
    #[test]
    fn a_wrong_block_gives_the_random_secret() {
        let version = [0xfe, 0xfd];
        let random = Secret::new([0xaa; 48]);
        let open = |block: &[u8]| *premaster_secret(block, 256, version, &random).expose();
        let mut right = vec![1; 256];
        right[..2].copy_from_slice(&[0, 2]);
        right[256 - 49] = 0;
        right[256 - 48..256 - 46].copy_from_slice(&version);
        assert_eq!(open(&right), right[256 - 48..]);
        for at in 0..256 - 46 {
            for bit in 0..8 {
                let mut wrong = right.clone();
                wrong[at] ^= 1 << bit;
                let filler = (2..256 - 49).contains(&at);
                // A byte of the filler is 1: only with its lowest bit away it is zero.
                assert_eq!(open(&wrong) == *random.expose(), !filler || bit == 0, "byte {at}, bit {bit}");
            }
        }
        for len in [0, 1, 48, 49, 58, 255] {
            assert_eq!(open(&right[256 - len..]), *random.expose());
        }
        assert_eq!(*premaster_secret(&right[..255], 255, version, &random).expose(), *random.expose());
    }
}
