//! Public-key arithmetic of hosts, on `aws-lc-rs`: signatures of peers, key agreement, ChaCha20-Poly1305.

pub use crate::x509::verify_digest;

use crate::digest::sha256;
use crate::halves::Halves;
use crate::x509::{KeyKind, MAX_RSA_BITS, MIN_RSA_BITS, PublicKey};
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{Algorithm, ECDH_P256, PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::encoding::{AsBigEndian as _, Curve25519SeedBin, EcPrivateKeyBin};
use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};
use tegmen::crypto::{Crypto, NamedGroup, NotAuthentic, Unsupported};
use tegmen::dtls::PREMASTER_LEN;
use tegmen::secret::Secret;

/// Draws a premaster secret that begins with `version`, and encrypts it to the key of a SubjectPublicKeyInfo (RFC
/// 5246, section 7.4.7.1). Returns `None` unless the key is RSA of 2048 to 4096 bits.
pub fn draw_premaster(
    crypto: &mut impl Crypto,
    spki: &[u8],
    version: [u8; 2],
) -> Option<(Secret<PREMASTER_LEN>, Vec<u8>)> {
    let key = encrypts(spki).then(|| PublicEncryptingKey::from_der(spki))?.ok()?;
    let key = Pkcs1PublicEncryptingKey::new(key).ok()?;
    let mut premaster = Secret::<PREMASTER_LEN>::zeroed();
    crypto.random(premaster.expose_mut());
    let [major, minor, ..] = premaster.expose_mut();
    [*major, *minor] = version;
    let mut encrypted = vec![0; key.ciphertext_size()];
    key.encrypt(premaster.expose(), &mut encrypted).ok()?;
    Some((premaster, encrypted))
}

/// Returns true if [`draw_premaster`] accepts the key.
pub(crate) fn encrypts(spki: &[u8]) -> bool {
    matches!(PublicKey::parse(spki).map(|key| key.kind), Some(KeyKind::Rsa { bits: MIN_RSA_BITS..=MAX_RSA_BITS }))
}

/// A group for key agreement (RFC 8422, section 5.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Group {
    /// secp256r1. A public key is an uncompressed point.
    Secp256r1,
    /// x25519 (RFC 7748).
    X25519,
}

/// Length of the longest public key of a [`Group`] in bytes.
pub const MAX_PUBLIC_LEN: usize = 65;

impl Group {
    /// Returns the group with this number, or `None` if this provider does not have the group.
    pub const fn of(number: NamedGroup) -> Option<Self> {
        match number {
            NamedGroup::SECP256R1 => Some(Self::Secp256r1),
            NamedGroup::X25519 => Some(Self::X25519),
            _ => None,
        }
    }

    /// Returns the length of a public key in bytes.
    pub const fn public_len(self) -> usize {
        match self {
            Self::Secp256r1 => 65,
            Self::X25519 => 32,
        }
    }

    /// Computes the public key of a private key. Writes it to the first [`Self::public_len`] bytes of `public`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the private key on secp256r1 is zero, or is not below the order of the curve.
    pub fn public_key(self, private: &Secret<32>, public: &mut [u8; MAX_PUBLIC_LEN]) -> Result<(), InvalidKey> {
        let key = self.private_key(private)?.compute_public_key().map_err(|_| InvalidKey)?;
        public.get_mut(..self.public_len()).ok_or(InvalidKey)?.copy_from_slice(key.as_ref());
        Ok(())
    }

    /// Computes the shared secret with a peer (RFC 8422, section 5.10): the x coordinate on secp256r1, or the output
    /// of x25519.
    ///
    /// # Errors
    /// [`InvalidKey`] if the peer's public key has a wrong length or form, or is not a point of the curve, or leads
    /// to the point at infinity or to a secret of zeros (RFC 8422, section 5.11).
    pub fn agree(self, private: &Secret<32>, peer: &[u8]) -> Result<Secret<32>, InvalidKey> {
        self.check_form(peer)?;
        shared_secret(&self.private_key(private)?, peer)
    }

    /// Checks the length of a public key, and that a point of secp256r1 is uncompressed, because `aws-lc-rs` also
    /// accepts other forms.
    fn check_form(self, peer: &[u8]) -> Result<(), InvalidKey> {
        let right = peer.len() == self.public_len() && (self == Self::X25519 || peer.first() == Some(&4));
        right.then_some(()).ok_or(InvalidKey)
    }

    const fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Secp256r1 => &ECDH_P256,
            Self::X25519 => &X25519,
        }
    }

    fn private_key(self, private: &Secret<32>) -> Result<PrivateKey, InvalidKey> {
        PrivateKey::from_private_key(self.algorithm(), private.expose()).map_err(|_| InvalidKey)
    }
}

fn shared_secret(key: &PrivateKey, peer: &[u8]) -> Result<Secret<32>, InvalidKey> {
    let mut shared = Secret::zeroed();
    agree(key, UnparsedPublicKey::new(key.algorithm(), peer), InvalidKey, |secret| {
        shared.expose_mut().copy_from_slice(secret.get(..32).ok_or(InvalidKey)?);
        Ok(())
    })?;
    Ok(shared)
}

/// A cache of key pairs, each for one key agreement.
///
/// The state of a handshake contains the private key as raw bytes. `aws-lc-rs` needs the key as a `PrivateKey`, which
/// is costly to create, so this cache keeps it for the key agreement, under the digest of the raw bytes. If newer keys
/// have displaced the key, the `PrivateKey` is created again.
pub struct KeyPairs(Halves<PrivateKey>);

impl KeyPairs {
    /// Makes a cache of at most `entries` keys, of about 500 bytes each. Set `entries` to twice the maximum number of
    /// handshakes that are in progress at the same time: the cache may drop a key when half as many newer keys are in
    /// it. An empty cache takes no heap.
    pub fn new(entries: usize) -> Self {
        Self(Halves::new(entries))
    }

    /// Makes a key pair with the random generator of `aws-lc-rs`, which the system seeds. The public key goes into the
    /// first [`Group::public_len`] bytes of `public`.
    ///
    /// # Errors
    /// [`InvalidKey`] if the system gives no randomness.
    pub fn generate(&mut self, group: Group, public: &mut [u8; MAX_PUBLIC_LEN]) -> Result<Secret<32>, InvalidKey> {
        let key = PrivateKey::generate(group.algorithm()).map_err(|_| InvalidKey)?;
        let point = key.compute_public_key().map_err(|_| InvalidKey)?;
        public.get_mut(..group.public_len()).ok_or(InvalidKey)?.copy_from_slice(point.as_ref());
        let mut private = Secret::zeroed();
        match group {
            Group::Secp256r1 => {
                let bytes: EcPrivateKeyBin<'_> = key.as_be_bytes().map_err(|_| InvalidKey)?;
                copy(bytes.as_ref(), &mut private)?;
            }
            Group::X25519 => {
                let bytes: Curve25519SeedBin<'_> = key.as_be_bytes().map_err(|_| InvalidKey)?;
                copy(bytes.as_ref(), &mut private)?;
            }
        }
        self.0.insert(sha256(private.expose()), key);
        Ok(private)
    }

    /// Does the same as [`Group::agree`], and removes the private key `private` from this cache.
    ///
    /// # Errors
    /// The same as for [`Group::agree`].
    pub fn agree(&mut self, group: Group, private: &Secret<32>, peer: &[u8]) -> Result<Secret<32>, InvalidKey> {
        group.check_form(peer)?;
        self.agree_with(group, private, peer)
    }

    /// Agrees on a secret with a peer of which only the x-coordinate of the public key on secp256r1 is known. Two
    /// points have this x-coordinate, and both give the same secret.
    ///
    /// # Errors
    /// [`InvalidKey`] if there is no such point, or the private key is not valid.
    pub fn agree_by_x(&mut self, private: &Secret<32>, x: &[u8; 32]) -> Result<Secret<32>, InvalidKey> {
        // The compressed form of one of the two points (SEC 1, section 2.3.4).
        let mut point = [2; 33];
        let [_, place @ ..] = &mut point;
        *place = *x;
        self.agree_with(Group::Secp256r1, private, &point)
    }

    fn agree_with(&mut self, group: Group, private: &Secret<32>, peer: &[u8]) -> Result<Secret<32>, InvalidKey> {
        let found = self.0.take(&sha256(private.expose()));
        match found.filter(|key| key.algorithm() == group.algorithm()) {
            Some(key) => shared_secret(&key, peer),
            None => shared_secret(&group.private_key(private)?, peer),
        }
    }
}

fn copy(bytes: &[u8], private: &mut Secret<32>) -> Result<(), InvalidKey> {
    *private.expose_mut() = bytes.try_into().map_err(|_| InvalidKey)?;
    Ok(())
}

/// A key with which no agreement is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidKey;

/// Encrypts `body` in place with ChaCha20-Poly1305 (RFC 8439) and writes the tag. The library `aws-lc-rs` allocates and
/// frees a small part of the heap for each call. The library is five times as fast as the RustCrypto crate, which needs
/// no heap.
///
/// # Errors
/// [`Unsupported`] if a length is wrong, or `body` is longer than the cipher allows (256 GiB).
pub(super) fn chacha20_poly1305_seal(
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Unsupported> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Unsupported)?;
    let tag: &mut [u8; 16] = tag.try_into().map_err(|_| Unsupported)?;
    let made = chacha20_poly1305(key).ok_or(Unsupported)?.seal_in_place_separate_tag(nonce, Aad::from(aad), body);
    *tag = made.ok().and_then(|made| made.as_ref().try_into().ok()).ok_or(Unsupported)?;
    Ok(())
}

/// Decrypts `sealed` to `body`, which has the same length, and checks `tag` in constant time.
///
/// # Errors
/// [`NotAuthentic`] if the tag does not match, or a length is wrong.
pub(super) fn chacha20_poly1305_open(
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    (sealed, tag): (&[u8], &[u8]),
    body: &mut [u8],
) -> Result<(), NotAuthentic> {
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotAuthentic)?;
    let key = chacha20_poly1305(key).ok_or(NotAuthentic)?;
    key.open_separate_gather(nonce, Aad::from(aad), sealed, tag, body).map_err(|_| NotAuthentic)
}

fn chacha20_poly1305(key: &[u8]) -> Option<LessSafeKey> {
    UnboundKey::new(&CHACHA20_POLY1305, key).map(LessSafeKey::new).ok()
}

#[cfg(test)]
mod tests;
