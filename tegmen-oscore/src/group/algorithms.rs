//! The algorithms of a group (RFC 10021, sections 2.1.1, 2.1.7, 2.1.8 and 2.1.10).

use crate::cose::{Aead, Cbor};
use tegmen_base::crypto::Curve;

/// The algorithms of a group. HKDF always uses SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Algorithms {
    /// The AEAD Algorithm of the pairwise mode.
    pub aead: Option<Aead>,
    /// The Group Encryption Algorithm of the group mode.
    pub group_encryption: Option<Aead>,
    /// The Signature Algorithm of the group mode, given by the curve of the members' keys: ES256 for P-256, EdDSA for
    /// Ed25519.
    pub signature: Option<Curve>,
    /// The Pairwise Key Agreement Algorithm of the pairwise mode, given by the curve of the members' keys. It is
    /// ECDH-SS + HKDF-256 for each curve.
    pub key_agreement: Option<Curve>,
}

/// Maximum number of bytes of the array `algorithms` (RFC 10021, section 3.4): its head, and at most two bytes for each
/// algorithm.
pub(super) const MAX_LEN: usize = 9;

impl Algorithms {
    /// Returns the algorithms for both modes with AES-CCM-16-64-128, and for keys on this curve.
    pub const fn both(curve: Curve) -> Self {
        let aead = Some(Aead::AesCcm16_64_128);
        Self { aead, group_encryption: aead, signature: Some(curve), key_agreement: Some(curve) }
    }

    /// Returns the algorithms of the group mode, if the group uses it.
    pub(super) fn of_group_mode(&self) -> Option<(Aead, Curve)> {
        self.group_encryption.zip(self.signature)
    }

    /// Returns the algorithm of the pairwise mode, if the group uses it.
    pub(super) fn of_pairwise_mode(&self) -> Option<Aead> {
        self.aead.filter(|_| self.key_agreement.is_some())
    }

    /// Returns the algorithm for which Sender and Recipient Keys and the common IV are derived (RFC 10021, section
    /// 2.3).
    pub(super) fn of_derivation(&self) -> Option<Aead> {
        self.group_encryption.or(self.aead)
    }

    /// Returns the number of bytes of the common IV: the nonce length of the algorithm with the longest nonce (RFC
    /// 10021, section 2.1.4).
    pub(super) fn common_iv_len(&self) -> usize {
        self.nonce_lens().max().unwrap_or(0)
    }

    /// Returns the maximum number of bytes of a member's ID: the nonce length of the algorithm with the shortest nonce,
    /// minus 6 (RFC 10021, section 2.2).
    pub(super) fn max_id(&self) -> usize {
        self.nonce_lens().min().unwrap_or(0).saturating_sub(6)
    }

    fn nonce_lens(&self) -> impl Iterator<Item = usize> {
        self.aead.into_iter().chain(self.group_encryption).map(Aead::nonce_len)
    }

    /// Returns the curve of the members' keys. Returns `None` if the group uses no mode, or if both modes need keys
    /// on different curves.
    pub(super) fn curve(&self) -> Option<Curve> {
        let is_whole = self.aead.is_some() == self.key_agreement.is_some()
            && self.group_encryption.is_some() == self.signature.is_some();
        match (self.signature, self.key_agreement) {
            _ if !is_whole => None,
            (Some(Curve::X25519), _) => None,
            (Some(signature), Some(agreement)) if signature != agreement => None,
            (signature, agreement) => signature.or(agreement),
        }
    }

    /// Appends the array `algorithms` of the external additional authenticated data (RFC 10021, section 3.4).
    pub(super) fn write<const N: usize>(&self, cbor: &mut Cbor<N>) {
        cbor.put(&[0x84]);
        for aead in [self.aead, self.group_encryption] {
            match aead {
                Some(aead) => cbor.uint(aead.cose_id()),
                None => cbor.put(NULL),
            }
        }
        cbor.put(match self.signature {
            // ES256 is -7, EdDSA is -8 (RFC 9053, section 2).
            Some(Curve::P256) => &[0x26],
            Some(Curve::Ed25519) => &[0x27],
            Some(Curve::X25519) | None => NULL,
        });
        cbor.put(match self.key_agreement {
            // ECDH-SS + HKDF-256 is -27 (RFC 9053, section 6.3.1).
            Some(_) => &[0x38, 0x1a],
            None => NULL,
        });
    }
}

const NULL: &[u8] = &[0xf6];
