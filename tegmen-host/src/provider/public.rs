//! Public-key arithmetic of hosts, on `aws-lc-rs`: signatures of peers, key agreement, ChaCha20-Poly1305.

use crate::x509::signer::SignatureScheme;
use crate::x509::{KeyKind, MAX_RSA_BITS, MIN_RSA_BITS, PublicKey};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{ECDH_P256, PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::signature::{self, VerificationAlgorithm};
use tegmen::crypto::NotAuthentic;
use tegmen::secret::Secret;

/// Verifies a peer's signature over a SHA-256 digest with its SubjectPublicKeyInfo in DER.
///
/// The key must be of the scheme's kind: a point of secp256r1 in its uncompressed form, or RSA of 2048 to 4096 bits. An
/// ECDSA signature must be in strict DER with both numbers within 1 to the order of the group less one, an RSA signature
/// as long as the modulus and with the one padding of RFC 8017, section 9.2. Both `s` and its negative are signatures in
/// ECDSA; nothing here takes a signature for an identity.
///
/// # Errors
/// [`NotAuthentic`], whatever is wrong.
pub fn verify_digest(
    scheme: SignatureScheme,
    spki: &[u8],
    digest: &[u8; 32],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let key = PublicKey::parse(spki).ok_or(NotAuthentic)?;
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

/// A group for key agreement (RFC 8422, section 5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// secp256r1; a public key is a point in its uncompressed form.
    Secp256r1,
    /// x25519 (RFC 7748).
    X25519,
}

/// Bytes of the longest public key of a [`Group`].
pub const MAX_PUBLIC_LEN: usize = 65;

impl Group {
    /// Bytes of a public key.
    pub const fn public_len(self) -> usize {
        match self {
            Self::Secp256r1 => 65,
            Self::X25519 => 32,
        }
    }

    /// Makes a key pair. `random` fills in unpredictable bytes, each time others; the public key goes into the first
    /// [`Self::public_len`] bytes of `public`.
    pub fn generate(self, mut random: impl FnMut(&mut [u8; 32]), public: &mut [u8; MAX_PUBLIC_LEN]) -> Secret<32> {
        let mut private = Secret::zeroed();
        loop {
            random(private.expose_mut());
            // One in 2^32 numbers is not below the order of secp256r1.
            if self.public_key(&private, public).is_ok() {
                return private;
            }
        }
    }

    /// The public key of a private key, into the first [`Self::public_len`] bytes of `public`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the number is zero or not below the order of secp256r1.
    pub fn public_key(self, private: &Secret<32>, public: &mut [u8; MAX_PUBLIC_LEN]) -> Result<(), InvalidKey> {
        let key = self.private_key(private)?.compute_public_key().map_err(|_| InvalidKey)?;
        public.get_mut(..self.public_len()).ok_or(InvalidKey)?.copy_from_slice(key.as_ref());
        Ok(())
    }

    /// The shared secret with a peer (RFC 8422, section 5.10): the x coordinate on secp256r1, the output of x25519.
    ///
    /// # Errors
    /// [`InvalidKey`] if the peer's public key has another length, another form, is no point of the curve, or leads to
    /// the point at infinity or the all-zero secret (RFC 8422, section 5.11).
    pub fn agree(self, private: &Secret<32>, peer: &[u8]) -> Result<Secret<32>, InvalidKey> {
        // The length tells the uncompressed form from all others that the library knows.
        if peer.len() != self.public_len() || (self == Self::Secp256r1 && peer.first() != Some(&4)) {
            return Err(InvalidKey);
        }
        let key = self.private_key(private)?;
        let mut shared = Secret::zeroed();
        agree(&key, UnparsedPublicKey::new(key.algorithm(), peer), InvalidKey, |secret| {
            shared.expose_mut().copy_from_slice(secret.get(..32).ok_or(InvalidKey)?);
            Ok(())
        })?;
        Ok(shared)
    }

    fn private_key(self, private: &Secret<32>) -> Result<PrivateKey, InvalidKey> {
        let algorithm = match self {
            Self::Secp256r1 => &ECDH_P256,
            Self::X25519 => &X25519,
        };
        PrivateKey::from_private_key(algorithm, private.expose()).map_err(|_| InvalidKey)
    }
}

/// A key that no agreement can be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidKey;

/// Encrypts `body` in place with ChaCha20-Poly1305 (RFC 8439) and gives the tag.
///
/// # Errors
/// [`NotAuthentic`] if `body` is longer than the cipher allows (256 GiB).
pub fn chacha20_poly1305_seal(
    key: &[u8; 32],
    nonce: &[u8; 12],
    aad: &[u8],
    body: &mut [u8],
) -> Result<[u8; 16], NotAuthentic> {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let tag = chacha20_poly1305(key)?.seal_in_place_separate_tag(nonce, Aad::from(aad), body);
    tag.map_err(|_| NotAuthentic)?.as_ref().try_into().map_err(|_| NotAuthentic)
}

/// Decrypts `body` in place and checks `tag` in constant time; the inverse of [`chacha20_poly1305_seal`].
///
/// # Errors
/// [`NotAuthentic`] if the tag does not match; `body` then holds nothing that may be used.
pub fn chacha20_poly1305_open(
    key: &[u8; 32],
    nonce: &[u8; 12],
    aad: &[u8],
    body: &mut [u8],
    tag: &[u8; 16],
) -> Result<(), NotAuthentic> {
    let nonce = Nonce::assume_unique_for_key(*nonce);
    // The library opens in place only where the tag is behind the text.
    let sealed = body.to_vec();
    chacha20_poly1305(key)?.open_separate_gather(nonce, Aad::from(aad), &sealed, tag, body).map_err(|_| NotAuthentic)
}

fn chacha20_poly1305(key: &[u8; 32]) -> Result<LessSafeKey, NotAuthentic> {
    UnboundKey::new(&CHACHA20_POLY1305, key).map(LessSafeKey::new).map_err(|_| NotAuthentic)
}
