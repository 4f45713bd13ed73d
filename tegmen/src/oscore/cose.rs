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

    /// The nonce for number `partial_iv` of the endpoint `id` (RFC 8613, section 5.2), at the end of an array like the
    /// common IV.
    pub(super) fn nonce(self, common_iv: &[u8; MAX_NONCE], id: &Id, partial_iv: &PartialIv) -> [u8; MAX_NONCE] {
        // From the end: five bytes of number, the ID in front of them, and the length of the ID in the very first.
        let mut nonce = [0; MAX_NONCE];
        let [_, padded_id @ .., a, b, c, d, e] = &mut nonce;
        *padded_id = *id.padded();
        [*a, *b, *c, *d, *e] = *partial_iv.padded();
        if let Some(first) = nonce.get_mut(self.nonce_at()) {
            *first = id.len();
        }
        nonce.iter_mut().zip(common_iv).for_each(|(byte, with)| *byte ^= with);
        nonce
    }

    /// Where the nonce begins in an array that it ends with.
    pub(super) const fn nonce_at(self) -> usize {
        MAX_NONCE.saturating_sub(self.nonce_len())
    }

    /// Encrypts `body` in place; the tag goes to the first bytes of `tag`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn seal<C: Crypto>(
        self,
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        inputs: &Inputs,
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        if self == Self::A128Gcm {
            let (Some(nonce), Ok(tag)) = (inputs.nonce.last_chunk(), tag.try_into()) else { return Err(Unsupported) };
            return if C::GCM {
                crypto.gcm_seal(key, nonce, inputs.aad.as_bytes(), body, tag)
            } else {
                Err(Unsupported)
            };
        }
        let nonce = inputs.nonce.get(self.nonce_at()..).ok_or(Unsupported)?;
        crypto.ccm_seal(key, nonce, inputs.aad.as_bytes(), body, tag)
    }

    /// Decrypts `body` in place if `tag` is right.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn open<C: Crypto>(
        self,
        crypto: &mut C,
        key: &[u8; KEY_LEN],
        inputs: &Inputs,
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        if self == Self::A128Gcm {
            let (Some(nonce), Ok(tag)) = (inputs.nonce.last_chunk(), tag.try_into()) else { return Err(NotAuthentic) };
            return if C::GCM {
                crypto.gcm_open(key, nonce, inputs.aad.as_bytes(), body, tag)
            } else {
                Err(NotAuthentic)
            };
        }
        let nonce = inputs.nonce.get(self.nonce_at()..).ok_or(NotAuthentic)?;
        crypto.ccm_open(key, nonce, inputs.aad.as_bytes(), body, tag)
    }
}

/// What a message is encrypted and authenticated with, besides the key.
pub(super) struct Inputs {
    pub(super) nonce: [u8; MAX_NONCE],
    pub(super) aad: Aad,
}

/// Additional authenticated data, the Enc_structure of COSE.
pub(super) struct Aad {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl Aad {
    /// `["Encrypt0", h'', external_aad]`: what comes before external_aad, whose length is not known, and the beginning of
    /// that up to the algorithm: version 1 and a list of one.
    const HEAD: [u8; 15] = *b"\x83\x68Encrypt0\x40\x40\x85\x01\x81";
    /// How much of external_aad is in there.
    const BEGUN: usize = 3;
    /// The algorithm, kid, Partial IV, no options.
    const MAX_LEN: usize = Self::HEAD.len() + 2 + (1 + MAX_ID) + (1 + 5) + 1;

    /// The data for a request with this kid and number, and for its responses (RFC 8613, section 5.4).
    pub(super) fn new(aead: Aead, request_kid: &Id, request_piv: &PartialIv) -> Self {
        let mut aad = Self { bytes: [0; Self::MAX_LEN], len: 0 };
        let Some((head, behind)) = aad.bytes.split_first_chunk_mut() else { return aad };
        *head = Self::HEAD;
        let mut writer = Writer::new(behind);
        // Neither the algorithm's number nor the lengths can be so large that they would not fit.
        let _ = cbor_uint(&mut writer, aead.cose_id())
            .and_then(|()| cbor_bytes(&mut writer, request_kid.as_bytes()))
            .and_then(|()| cbor_bytes(&mut writer, request_piv.as_bytes()))
            .and_then(|()| cbor_bytes(&mut writer, &[]));
        let [.., external_len, _, _, _] = head;
        *external_len = cbor_bytes_head(writer.len().wrapping_add(Self::BEGUN));
        aad.len = writer.len().wrapping_add(Self::HEAD.len());
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
