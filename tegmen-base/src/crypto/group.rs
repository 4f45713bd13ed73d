//! Signatures and static key agreement with the keys of group members, for Group OSCORE (RFC 10021).

#[cfg(feature = "rustcrypto")]
use super::RustCrypto;
use super::ecdsa::{SIGNATURE_LEN, from_der, to_der};
#[cfg(feature = "ed25519")]
use super::ed25519;
use super::hash::digest;
use super::{
    Compact, Crypto, DIGEST_LEN, MAX_SHARE, MAX_SIGNATURE, NamedGroup, NotAuthentic, P256_PREFIX, SCALAR_LEN,
    SignatureScheme, Unsupported,
};
use crate::buf::Writer;
use crate::secret::Secret;

/// The curve of the keys of group members (IANA COSE Elliptic Curves registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Curve {
    /// P-256: ECDSA signatures with SHA-256, and key agreement with the same keys.
    P256,
    /// Ed25519: EdDSA signatures, and key agreement by X25519 with the keys in Montgomery coordinates (RFC 10021,
    /// section 2.5.2.1).
    Ed25519,
    /// X25519: only key agreement.
    X25519,
}

/// The public key of a group member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberKey {
    /// An uncompressed point of P-256.
    P256([u8; MAX_SHARE]),
    /// A point of Ed25519 (RFC 8032, section 5.1.2).
    Ed25519([u8; 32]),
    /// A u-coordinate of X25519 (RFC 7748, section 5).
    X25519([u8; 32]),
}

impl MemberKey {
    /// Returns the curve of the key.
    pub const fn curve(&self) -> Curve {
        match self {
            Self::P256(_) => Curve::P256,
            Self::Ed25519(_) => Curve::Ed25519,
            Self::X25519(_) => Curve::X25519,
        }
    }
}

/// A provider for groups: it signs whole messages, and agrees on a secret with static keys.
///
/// The default methods support P-256 and X25519, if the provider's [`Crypto`] supports them.
pub trait GroupCrypto: Crypto + Sized {
    /// Signs a message, given in parts, with a private key. The signature has 64 bytes. For ECDSA it consists of two
    /// numbers of 32 bytes (RFC 9053, section 2.1).
    ///
    /// # Errors
    /// [`Unsupported`] if the provider does not have the curve, or `private` is not a valid private key of the curve.
    fn sign_message(
        &mut self,
        curve: Curve,
        private: &[u8; SCALAR_LEN],
        message: &[&[u8]],
    ) -> Result<[u8; SIGNATURE_LEN], Unsupported> {
        match curve {
            Curve::P256 => sign_p256(self, private, message),
            Curve::Ed25519 | Curve::X25519 => Err(Unsupported),
        }
    }

    /// Verifies the signature of a message, given in parts, with a key that is [valid](Self::validate).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the signature is wrong.
    fn verify_message(
        &mut self,
        key: &MemberKey,
        message: &[&[u8]],
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), NotAuthentic> {
        match key {
            MemberKey::P256(point) => verify_p256(self, point, message, signature),
            MemberKey::Ed25519(_) | MemberKey::X25519(_) => Err(NotAuthentic),
        }
    }

    /// Validates a public key. Call this before any other use of the key (RFC 10021, section 14.16).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the key is not a point of the curve, or is a point of small order, or the provider does
    /// not have the curve.
    fn validate(&mut self, key: &MemberKey) -> Result<(), NotAuthentic> {
        // A key agreement with any private key refuses each public key that is not valid. So the private key can be a
        // constant.
        self.agree_static(&[1; SCALAR_LEN], key, Secret::zeroed().expose_mut())
    }

    /// Agrees on a secret with the owner of `key`, in constant time. Keys of Ed25519 are not used directly as keys of
    /// X25519: both keys are first converted to Montgomery coordinates (RFC 7748, section 4.1; RFC 8032, section
    /// 5.1.5).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the key is not a point of the curve, or is a point of small order.
    fn agree_static(
        &mut self,
        private: &[u8; SCALAR_LEN],
        key: &MemberKey,
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        match key {
            MemberKey::P256(point) => self.agree(NamedGroup::SECP256R1, private, point, secret),
            MemberKey::X25519(u) => self.agree(NamedGroup::X25519, private, u, secret),
            MemberKey::Ed25519(_) => Err(NotAuthentic),
        }
    }
}

/// Signs with P-256 through [`Crypto::sign`], as [`GroupCrypto::sign_message`] requires.
fn sign_p256<C: Crypto>(
    crypto: &mut C,
    private: &[u8; SCALAR_LEN],
    message: &[&[u8]],
) -> Result<[u8; SIGNATURE_LEN], Unsupported> {
    let mut der = [0; MAX_SIGNATURE];
    let len = crypto.sign(private, &digest::<C, DIGEST_LEN>(message), &mut der)?;
    from_der(der.get(..len).ok_or(Unsupported)?).map_err(|_| Unsupported)
}

/// Verifies with P-256 through [`Crypto::verify`], as [`GroupCrypto::verify_message`] requires.
fn verify_p256<C: Crypto>(
    crypto: &mut C,
    point: &[u8; MAX_SHARE],
    message: &[&[u8]],
    signature: &[u8; SIGNATURE_LEN],
) -> Result<(), NotAuthentic> {
    let mut der = [0; MAX_SIGNATURE];
    let mut der = Writer::new(&mut der);
    to_der(signature, &mut der).map_err(|_| NotAuthentic)?;
    let mut spki = [0; P256_PREFIX.len() + MAX_SHARE];
    let mut writer = Writer::new(&mut spki);
    writer.put(&P256_PREFIX).and_then(|()| writer.put(point)).map_err(|_| NotAuthentic)?;
    let digest = digest::<C, DIGEST_LEN>(message);
    crypto.verify(SignatureScheme::ECDSA_SECP256R1_SHA256, writer.written(), &digest, der.written())
}

impl GroupCrypto for Compact {}

#[cfg(all(feature = "rustcrypto", not(feature = "ed25519")))]
impl GroupCrypto for RustCrypto {}

#[cfg(feature = "ed25519")]
impl GroupCrypto for RustCrypto {
    fn sign_message(
        &mut self,
        curve: Curve,
        private: &[u8; SCALAR_LEN],
        message: &[&[u8]],
    ) -> Result<[u8; SIGNATURE_LEN], Unsupported> {
        match curve {
            Curve::P256 => sign_p256(self, private, message),
            Curve::Ed25519 => Ok(ed25519::sign(private, message)),
            Curve::X25519 => Err(Unsupported),
        }
    }

    fn verify_message(
        &mut self,
        key: &MemberKey,
        message: &[&[u8]],
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), NotAuthentic> {
        match key {
            MemberKey::P256(point) => verify_p256(self, point, message, signature),
            MemberKey::Ed25519(public) => ed25519::verify(public, message, signature),
            MemberKey::X25519(_) => Err(NotAuthentic),
        }
    }

    fn agree_static(
        &mut self,
        private: &[u8; SCALAR_LEN],
        key: &MemberKey,
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        match key {
            MemberKey::P256(point) => self.agree(NamedGroup::SECP256R1, private, point, secret),
            MemberKey::X25519(u) => self.agree(NamedGroup::X25519, private, u, secret),
            MemberKey::Ed25519(public) => {
                let private = ed25519::private_to_x25519(private);
                self.agree(NamedGroup::X25519, private.expose(), &ed25519::public_to_x25519(public)?, secret)
            }
        }
    }
}
