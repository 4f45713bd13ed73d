//! Signatures and key agreement of groups (RFC 10021), on `aws-lc-rs`.

use super::HostCrypto;
use super::public::{Group, MAX_PUBLIC_LEN};
use crate::digest::{Digest, sha256};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, UnparsedPublicKey,
};
use tegmen::crypto::ecdsa::SIGNATURE_LEN;
use tegmen::crypto::{Curve, GroupCrypto, MemberKey, NotAuthentic, SCALAR_LEN, Unsupported, ed25519};
use tegmen::secret::Secret;

/// The private key of the last signature, and a buffer for a message that is given in parts. The key is kept as an
/// object of `aws-lc-rs`, because this object is costly to create.
#[derive(Default)]
pub(super) struct Signing {
    /// The key of the last signature, identified by the digest of the private key and by the curve; `None` before the
    /// first signature.
    key: Option<(Digest, Curve, KeyPair)>,
    message: Vec<u8>,
}

enum KeyPair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

impl KeyPair {
    fn of(curve: Curve, private: &[u8; SCALAR_LEN]) -> Option<Self> {
        match curve {
            Curve::Ed25519 => Ed25519KeyPair::from_seed_unchecked(private).ok().map(Self::Ed25519),
            Curve::P256 => {
                let mut public = [0; MAX_PUBLIC_LEN];
                Group::Secp256r1.public_key(&Secret::new(*private), &mut public).ok()?;
                let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
                EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, &public).ok().map(Self::P256)
            }
            Curve::X25519 => None,
        }
    }

    fn sign(&self, message: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
        let signature = match self {
            Self::Ed25519(key) => key.sign(message),
            Self::P256(key) => key.sign(&SystemRandom::new(), message).ok()?,
        };
        signature.as_ref().try_into().ok()
    }
}

impl Signing {
    fn together(&mut self, message: &[&[u8]]) {
        self.message.clear();
        message.iter().for_each(|part| self.message.extend_from_slice(part));
    }
}

impl GroupCrypto for HostCrypto {
    fn sign_message(
        &mut self,
        curve: Curve,
        private: &[u8; SCALAR_LEN],
        message: &[&[u8]],
    ) -> Result<[u8; SIGNATURE_LEN], Unsupported> {
        let digest = sha256(private);
        self.signing.together(message);
        let Signing { key, message } = &mut self.signing;
        let kept = key.take().filter(|(of, on, _)| *of == digest && *on == curve).map(|(_, _, pair)| pair);
        let pair = kept.or_else(|| KeyPair::of(curve, private)).ok_or(Unsupported)?;
        let signature = pair.sign(message).ok_or(Unsupported);
        *key = Some((digest, curve, pair));
        signature
    }

    fn verify_message(
        &mut self,
        key: &MemberKey,
        message: &[&[u8]],
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), NotAuthentic> {
        self.signing.together(message);
        let message = &self.signing.message;
        let verified = match key {
            MemberKey::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            MemberKey::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            MemberKey::X25519(_) => return Err(NotAuthentic),
        };
        verified.map_err(|_| NotAuthentic)
    }

    fn agree_static(
        &mut self,
        private: &[u8; SCALAR_LEN],
        key: &MemberKey,
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        let agreed = match key {
            MemberKey::P256(point) => Group::Secp256r1.agree(&Secret::new(*private), point),
            MemberKey::X25519(u) => Group::X25519.agree(&Secret::new(*private), u),
            MemberKey::Ed25519(public) => {
                Group::X25519.agree(&ed25519::private_to_x25519(private), &ed25519::public_to_x25519(public)?)
            }
        };
        *secret = *agreed.map_err(|_| NotAuthentic)?.expose();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
