//! What OSCORE takes from COSE: algorithms, nonce and additional authenticated data (RFC 8613, sections 5.2 to 5.4).

use super::option::PartialIv;
use super::{Id, MAX_ID};
use crate::buf::{Full, Writer};
use crate::crypto::{Crypto, KEY_LEN, NotAuthentic, Unsupported};

/// Longest nonce, and length of every common IV here.
pub(super) const MAX_NONCE: usize = 13;
/// Longest tag.
pub(super) const MAX_TAG: usize = 16;

/// An AEAD algorithm of COSE (RFC 9053, section 4), all with keys of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aead {
    /// AES-CCM-16-64-128, mandatory for OSCORE: nonce of 13 bytes, tag of 8.
    #[default]
    AesCcm16_64_128,
    /// AES-CCM-16-128-128: nonce of 13 bytes, tag of 16.
    AesCcm16_128_128,
    /// AES-CCM-64-64-128: nonce of 7 bytes, tag of 8; IDs take at most one byte.
    AesCcm64_64_128,
    /// AES-CCM-64-128-128: nonce of 7 bytes, tag of 16; IDs take at most one byte.
    AesCcm64_128_128,
    /// A128GCM: nonce of 12 bytes, tag of 16. Not every provider has it.
    A128Gcm,
}

impl Aead {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::AesCcm16_64_128, Self::AesCcm16_128_128, Self::AesCcm64_64_128, Self::AesCcm64_128_128, Self::A128Gcm];

    /// The number in the registry of COSE.
    pub const fn cose_id(self) -> u8 {
        match self {
            Self::AesCcm16_64_128 => 10,
            Self::AesCcm16_128_128 => 30,
            Self::AesCcm64_64_128 => 12,
            Self::AesCcm64_128_128 => 32,
            Self::A128Gcm => 1,
        }
    }

    /// Bytes of the nonce.
    pub const fn nonce_len(self) -> usize {
        match self {
            Self::AesCcm16_64_128 | Self::AesCcm16_128_128 => 13,
            Self::AesCcm64_64_128 | Self::AesCcm64_128_128 => 7,
            Self::A128Gcm => 12,
        }
    }

    /// Bytes of the tag.
    pub const fn tag_len(self) -> usize {
        match self {
            Self::AesCcm16_64_128 | Self::AesCcm64_64_128 => 8,
            Self::AesCcm16_128_128 | Self::AesCcm64_128_128 | Self::A128Gcm => 16,
        }
    }

    /// Most bytes that a Sender ID or Recipient ID may take: nonce length - 6 (RFC 8613, section 3.3).
    pub const fn max_id(self) -> usize {
        self.nonce_len().saturating_sub(6)
    }

    /// The nonce for number `partial_iv` of the endpoint `id` (RFC 8613, section 5.2).
    pub(super) fn nonce(self, common_iv: &[u8; MAX_NONCE], id: &Id, partial_iv: &PartialIv) -> [u8; MAX_NONCE] {
        let mut nonce = *common_iv;
        let used = nonce.get_mut(..self.nonce_len()).unwrap_or(&mut []);
        // From the end: five bytes of number, the ID in front of them, and the length of the ID in the very first.
        let number = partial_iv.padded().iter().rev();
        let padded_id = id.as_bytes().iter().rev();
        let (front, behind) = used.split_at_mut_checked(self.max_id().wrapping_add(1)).unwrap_or((&mut [], &mut []));
        behind.iter_mut().rev().zip(number).for_each(|(byte, part)| *byte ^= part);
        front.iter_mut().rev().zip(padded_id).for_each(|(byte, part)| *byte ^= part);
        if let Some(first) = front.first_mut() {
            *first ^= id.len();
        }
        nonce
    }

    /// Encrypts `body` in place; the tag goes to the first bytes of `tag`.
    pub(super) fn seal<C: Crypto>(
        self,
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        nonce: &[u8; MAX_NONCE],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        if self == Self::A128Gcm {
            let (Some(nonce), Ok(tag)) = (nonce.first_chunk(), tag.try_into()) else { return Err(Unsupported) };
            return if C::GCM { crypto.gcm_seal(key, nonce, aad, body, tag) } else { Err(Unsupported) };
        }
        let nonce = nonce.get(..self.nonce_len()).ok_or(Unsupported)?;
        crypto.ccm_seal(key, nonce, aad, body, tag)
    }

    /// Decrypts `body` in place if `tag` is right.
    pub(super) fn open<C: Crypto>(
        self,
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        nonce: &[u8; MAX_NONCE],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        if self == Self::A128Gcm {
            let (Some(nonce), Ok(tag)) = (nonce.first_chunk(), tag.try_into()) else { return Err(NotAuthentic) };
            return if C::GCM { crypto.gcm_open(key, nonce, aad, body, tag) } else { Err(NotAuthentic) };
        }
        let nonce = nonce.get(..self.nonce_len()).ok_or(NotAuthentic)?;
        crypto.ccm_open(key, nonce, aad, body, tag)
    }
}

/// Additional authenticated data, the Enc_structure of COSE.
pub(super) struct Aad {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl Aad {
    /// `["Encrypt0", h'', external_aad]` without what follows its length.
    const ENCRYPT0: [u8; 11] = *b"\x83\x68Encrypt0\x40";
    /// Longest external_aad: version, a list of one algorithm, kid, Partial IV, no options.
    const MAX_EXTERNAL: usize = 1 + 1 + 1 + 2 + 1 + MAX_ID + 1 + 5 + 1;
    const MAX_LEN: usize = Self::ENCRYPT0.len() + 1 + Self::MAX_EXTERNAL;

    /// The data for a request with this kid and number, and for its responses (RFC 8613, section 5.4).
    pub(super) fn new(aead: Aead, request_kid: &Id, request_piv: &PartialIv) -> Self {
        let mut aad = Self { bytes: [0; Self::MAX_LEN], len: 0 };
        let mut writer = Writer::new(&mut aad.bytes);
        let (kid, piv) = (request_kid.as_bytes(), request_piv.as_bytes());
        // Neither the algorithm's number nor the lengths can be so large that they would not fit.
        let alg_len = if aead.cose_id() < 24 { 1 } else { 2 };
        let external_len = 6usize.wrapping_add(alg_len).wrapping_add(kid.len()).wrapping_add(piv.len());
        let _ = writer
            .put(&Self::ENCRYPT0)
            .and_then(|()| writer.u8(cbor_bytes_head(external_len)))
            .and_then(|()| writer.put(&[0x85, 0x01, 0x81]))
            .and_then(|()| cbor_uint(&mut writer, aead.cose_id()))
            .and_then(|()| cbor_bytes(&mut writer, kid))
            .and_then(|()| cbor_bytes(&mut writer, piv))
            .and_then(|()| cbor_bytes(&mut writer, &[]));
        aad.len = writer.len();
        aad
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// A number below 256 in CBOR (RFC 8949, section 3.1, major type 0).
pub(super) fn cbor_uint(writer: &mut Writer<'_>, value: u8) -> Result<(), Full> {
    if value >= 24 {
        writer.u8(0x18)?;
    }
    writer.u8(value)
}

/// A byte string of less than 24 bytes in CBOR (major type 2).
pub(super) fn cbor_bytes(writer: &mut Writer<'_>, value: &[u8]) -> Result<(), Full> {
    writer.u8(cbor_bytes_head(value.len()))?;
    writer.put(value)
}

const fn cbor_bytes_head(len: usize) -> u8 {
    0x40 | len as u8 & 0x1f
}
