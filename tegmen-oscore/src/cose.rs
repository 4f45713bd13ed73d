//! The parts of COSE that OSCORE uses: algorithms, nonce and additional authenticated data (RFC 8613, sections 5.2 to
//! 5.4).

use super::error::ProtectError;
use super::id::{Id, Padded};
use super::option::PartialIv;
use tegmen_base::crypto::Crypto;

/// Length of the longest nonce, and of the array for each common IV, in bytes.
pub(super) const MAX_NONCE: usize = 13;
/// Length of the longest tag in bytes.
pub(super) const MAX_TAG: usize = 16;

/// An AEAD algorithm of COSE (RFC 9053, section 4). All have keys of 128 bits.
///
/// The value of a variant is the number of the algorithm in the registry of COSE, with two higher bits. These two bits
/// give the lengths of the nonce and of the tag, so a mote needs no tables of the lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Aead {
    /// AES-CCM-16-64-128, which is mandatory for OSCORE: nonce of 13 bytes, tag of 8 bytes.
    #[default]
    AesCcm16_64_128 = 10,
    /// AES-CCM-16-128-128: nonce of 13 bytes, tag of 16 bytes.
    AesCcm16_128_128 = 30 | TAG_16,
    /// AES-CCM-64-64-128: nonce of 7 bytes, tag of 8 bytes. IDs have at most one byte.
    AesCcm64_64_128 = 12 | NONCE_7,
    /// AES-CCM-64-128-128: nonce of 7 bytes, tag of 16 bytes. IDs have at most one byte.
    AesCcm64_128_128 = 32 | NONCE_7 | TAG_16,
    /// A128GCM: nonce of 12 bytes, tag of 16 bytes. Not every provider has it.
    A128Gcm = 1 | TAG_16,
}

const TAG_16: u8 = 0x40;
const NONCE_7: u8 = 0x80;

/// Maximum number of messages that a key of AES-GCM encrypts (RFC 9053, section 4.1.1). A context has too few sequence
/// numbers to exceed the limits of the other algorithms.
pub(super) const GCM_LIMIT: u64 = 1 << 32;

impl Aead {
    /// All algorithms.
    pub const ALL: [Self; 5] =
        [Self::AesCcm16_64_128, Self::AesCcm16_128_128, Self::AesCcm64_64_128, Self::AesCcm64_128_128, Self::A128Gcm];

    /// Returns the number of the algorithm in the registry of COSE.
    pub const fn cose_id(self) -> u8 {
        self as u8 & !(TAG_16 | NONCE_7)
    }

    /// Returns the length of the nonce in bytes.
    pub(crate) const fn nonce_len(self) -> usize {
        MAX_NONCE.wrapping_sub(self.nonce_at())
    }

    /// Returns the length of the tag in bytes.
    pub(crate) const fn tag_len(self) -> usize {
        if self as u8 & TAG_16 == 0 { 8 } else { 16 }
    }

    /// Returns the maximum number of bytes of a Sender ID or Recipient ID: nonce length - 6 (RFC 8613, section 3.3).
    pub const fn max_id(self) -> usize {
        self.nonce_len().saturating_sub(6)
    }

    /// Returns the number of bytes in front of a nonce that is at the end of an array of [`MAX_NONCE`] bytes.
    pub(super) const fn nonce_at(self) -> usize {
        match self {
            Self::A128Gcm => 1,
            _ if self as u8 & NONCE_7 == 0 => 0,
            _ => 6,
        }
    }

    /// Checks the sequence number of the nonce under which a key encrypts a message. With AES-GCM, the number must be
    /// below `limit`. A provider without AES-GCM needs no code for this check.
    ///
    /// # Errors
    /// [`ProtectError::Exhausted`].
    #[inline]
    pub(super) const fn check<C: Crypto>(self, number: &PartialIv, limit: u64) -> Result<(), ProtectError> {
        match C::AES_128_GCM.is_some() && matches!(self, Self::A128Gcm) && number.number() >= limit {
            true => Err(ProtectError::Exhausted),
            false => Ok(()),
        }
    }

    /// Returns this algorithm in the form that the crypto provider `C` takes. The provider must have the algorithm.
    pub(super) const fn of<C: Crypto>(self) -> C::Aead {
        match C::AES_128_GCM {
            Some(gcm) if matches!(self, Self::A128Gcm) => gcm,
            _ => C::AES_128_CCM,
        }
    }
}

/// The nonce of a message (RFC 8613, section 5.2).
pub(super) struct Nonce {
    /// The nonce. A shorter nonce is at the end of the array.
    bytes: [u8; MAX_NONCE],
    at: usize,
}

impl Nonce {
    /// Makes the nonce for a message with the sequence number `number` of the endpoint `id`. A common IV that is
    /// shorter than the array is at the end of `common_iv`.
    #[inline]
    pub(super) fn new(aead: Aead, common_iv: &[u8; MAX_NONCE], (Id(id), number): (&Id, &PartialIv)) -> Self {
        let mut nonce = Self { bytes: *common_iv, at: aead.nonce_at() };
        // The first byte of the nonce contains the length of the ID. Then the ID follows. The last five bytes contain
        // the sequence number.
        let Self { bytes, at } = &mut nonce;
        if let (Some(end), Some(with)) = (bytes.last_chunk_mut(), common_iv.last_chunk()) {
            *end = (u64::from_be_bytes(*with) ^ number.number()).to_be_bytes();
        }
        if let (Some(start), Some(with)) = (bytes.first_chunk_mut(), common_iv.first_chunk()) {
            *start = (u64::from_be_bytes(*with) ^ id.number()).to_be_bytes();
        }
        if let Some(first) = bytes.get_mut(*at) {
            *first ^= id.len() as u8;
        }
        nonce
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // `at` is at most six. The mask proves to the compiler that it is at most seven.
        self.bytes.get(self.at & 7..).unwrap_or(&[])
    }
}

/// The inputs to the encryption and authentication of a message, in addition to the key.
pub(super) struct Inputs {
    nonce: Nonce,
    aad: Cbor<AAD_LEN>,
}

/// Maximum length of the additional authenticated data, and a few bytes more, because [`Cbor::padded`] writes whole
/// words.
const AAD_LEN: usize = 36;

impl Inputs {
    /// The constant beginning of the additional authenticated data, which is the Enc_structure of COSE (RFC 8613,
    /// section 5.4): `["Encrypt0", h'', external_aad]`. The constant contains the bytes before external_aad, and the
    /// beginning of external_aad: version 1, and the head of an array of one algorithm. The length of external_aad is
    /// written later.
    const AAD: Cbor<AAD_LEN> = Cbor::beginning_with(*b"\x83\x68Encrypt0\x40\x40\x85\x01\x81");
    const EXTERNAL_AT: usize = 12;

    /// Makes the inputs for a request or for a response. The nonce is made from `of`: the ID of an endpoint, and a
    /// sequence number of this endpoint. The last argument contains the kid and the sequence number of a request. If
    /// the message is a response, it is the request that the response answers. Otherwise it is the message itself.
    pub(super) fn new(
        aead: Aead,
        common_iv: &[u8; MAX_NONCE],
        of: (&Id, &PartialIv),
        (Id(request_kid), PartialIv(request_number)): (&Id, &PartialIv),
    ) -> Self {
        let mut inputs = Self { nonce: Nonce::new(aead, common_iv, of), aad: Self::AAD };
        let aad = &mut inputs.aad;
        aad.uint(aead.cose_id());
        aad.padded(request_kid);
        aad.padded(request_number);
        aad.string(&[]);
        let external_len = aad.len.wrapping_sub(Self::EXTERNAL_AT);
        if let Some(head) = aad.bytes.get_mut(const { Self::EXTERNAL_AT - 1 }) {
            *head = Cbor::<AAD_LEN>::string_head(external_len);
        }
        inputs
    }

    pub(super) fn nonce(&self) -> &[u8] {
        self.nonce.as_bytes()
    }

    pub(super) fn aad(&self) -> &[u8] {
        self.aad.as_bytes()
    }
}

/// A few items of CBOR (RFC 8949), one after the other. The caller makes sure that all items together have at most
/// `MAX_LEN` bytes.
pub(super) struct Cbor<const MAX_LEN: usize> {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl<const MAX_LEN: usize> Cbor<MAX_LEN> {
    #[expect(clippy::indexing_slicing, reason = "the compiler computes it, and refuses an index that is too large")]
    pub(super) const fn beginning_with<const N: usize>(start: [u8; N]) -> Self {
        let mut cbor = Self { bytes: [0; MAX_LEN], len: 0 };
        while cbor.len < N {
            cbor.bytes[cbor.len] = start[cbor.len];
            cbor.len = cbor.len.wrapping_add(1);
        }
        cbor
    }

    /// Appends one byte unchanged.
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Appends a number below 256 (RFC 8949, section 3.1, major type 0).
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn uint(&mut self, value: u8) {
        if value >= 24 {
            self.push(0x18);
        }
        self.push(value);
    }

    /// Appends a byte string (major type 2) of less than 256 bytes, or of less than 24 bytes if `MAX_LEN` is at most
    /// [`AAD_LEN`].
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn string(&mut self, value: &[u8]) {
        if MAX_LEN > AAD_LEN && value.len() >= 24 {
            self.push(0x58);
            self.push(value.len() as u8);
        } else {
            self.push(Self::string_head(value.len()));
        }
        self.put(value);
    }

    /// Does the same as [`Self::string`], for up to seven bytes. A host writes the head and the bytes as one word of 64
    /// bits.
    #[inline]
    pub(super) fn padded(&mut self, value: &Padded) {
        if cfg!(not(target_pointer_width = "64")) {
            return self.string(value.as_bytes());
        }
        let (head, len) = (u64::from(Self::string_head(value.len())), value.len() & 7);
        let word = head << 56 | value.number() << (56 & 56usize.wrapping_sub(len.wrapping_mul(8)));
        if let Some(place) = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            *place = word.to_be_bytes();
            self.len = self.len.wrapping_add(1).wrapping_add(len);
        }
    }

    /// Appends bytes unchanged.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.push(*byte));
    }

    const fn string_head(len: usize) -> u8 {
        0x40 | len as u8 & 0x1f
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}
