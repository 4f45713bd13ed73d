//! The ciphers of records: their overhead, keys and nonces.

use super::cbc::{self, Mac, Mode, Order};
use super::{EXPLICIT_LEN, GCM_TAG_LEN, HEADER_LEN, LongKeys, MAX_CONTENT, SALT_LEN, TAG_LEN};
use crate::crypto::{CHACHA20_KEY_LEN, Crypto, KEY_LEN};

/// The cipher of an association. The numbers are those of sessions that were kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cipher {
    /// AES_128_CCM_8 (RFC 6655): a tag of 8 bytes.
    Ccm8 = 0,
    /// AES_128_GCM (RFC 5288): a tag of 16 bytes; nonce and associated data are those of CCM_8.
    Gcm,
    /// CHACHA20_POLY1305 (RFC 7905): a tag of 16 bytes, and no part of the nonce in the record.
    ChaCha20Poly1305,
    /// AES_128_CBC_SHA256 (RFC 5246): MAC-then-encrypt.
    CbcSha256,
    /// AES-128-CBC with HMAC-SHA-256 and encrypt-then-MAC (RFC 7366).
    CbcSha256EncryptThenMac,
    /// AES_128_CBC_SHA (RFC 5246), with HMAC-SHA-1: MAC-then-encrypt.
    CbcSha,
    /// AES-128-CBC with HMAC-SHA-1 and encrypt-then-MAC.
    CbcShaEncryptThenMac,
}

impl Cipher {
    /// True if the provider has it. Of a provider that has CCM_8 alone, nothing of others is linked.
    pub(crate) const fn is_in<C: Crypto>(self) -> bool {
        match self {
            Self::Ccm8 => true,
            // Where their keys do not fit, no suite has another one.
            _ if !LongKeys::FIT => C::AES_128_GCM.is_some(),
            Self::Gcm => C::AES_128_GCM.is_some(),
            Self::ChaCha20Poly1305 => C::CHACHA20_POLY1305.is_some(),
            Self::CbcSha256 | Self::CbcSha256EncryptThenMac => C::CBC,
            Self::CbcSha | Self::CbcShaEncryptThenMac => C::CBC && C::SHA1,
        }
    }

    pub(super) const fn is_gcm<C: Crypto>(self) -> bool {
        C::AES_128_GCM.is_some() && matches!(self, Self::Gcm)
    }

    pub(super) const fn is_chacha20<C: Crypto>(self) -> bool {
        C::CHACHA20_POLY1305.is_some() && LongKeys::FIT && matches!(self, Self::ChaCha20Poly1305)
    }

    /// The algorithm of a provider that has it; for CBC it is not asked.
    #[inline]
    pub(super) const fn aead<C: Crypto>(self) -> C::Aead {
        match (C::AES_128_GCM, C::CHACHA20_POLY1305) {
            (Some(gcm), _) if self.is_gcm::<C>() => gcm,
            (_, Some(chacha20)) if self.is_chacha20::<C>() => chacha20,
            _ => C::AES_128_CCM,
        }
    }

    pub(crate) const fn is_cbc<C: Crypto>(self) -> bool {
        self.mode::<C>().is_some()
    }

    /// How its records are made, if it is with CBC.
    pub(super) const fn mode<C: Crypto>(self) -> Option<Mode> {
        if !LongKeys::FIT || !C::CBC {
            return None;
        }
        let (order, mac) = match self {
            Self::CbcSha256 => (Order::MacThenEncrypt, Mac::Sha256),
            Self::CbcSha256EncryptThenMac => (Order::EncryptThenMac, Mac::Sha256),
            Self::CbcSha if C::SHA1 => (Order::MacThenEncrypt, Mac::Sha1),
            Self::CbcShaEncryptThenMac if C::SHA1 => (Order::EncryptThenMac, Mac::Sha1),
            _ => return None,
        };
        Some(Mode { order, mac })
    }

    /// Returns the variant of the cipher with encrypt-then-MAC, if there is one. It applies if both ends support it
    /// (RFC 7366, section 2).
    pub(crate) const fn with_encrypt_then_mac(self) -> Option<Self> {
        match self {
            Self::CbcSha256 if LongKeys::FIT => Some(Self::CbcSha256EncryptThenMac),
            Self::CbcSha if LongKeys::FIT => Some(Self::CbcShaEncryptThenMac),
            _ => None,
        }
    }

    /// True if encrypt-then-MAC was agreed on.
    pub(crate) const fn encrypts_then_macs(self) -> bool {
        LongKeys::FIT && matches!(self, Self::CbcSha256EncryptThenMac | Self::CbcShaEncryptThenMac)
    }

    /// Bytes between the header of a record and what is encrypted.
    #[inline]
    pub(crate) const fn explicit_len<C: Crypto>(self) -> usize {
        match self {
            _ if self.is_chacha20::<C>() => 0,
            _ if self.is_cbc::<C>() => cbc::BLOCK_LEN,
            _ => EXPLICIT_LEN,
        }
    }

    /// Bytes behind a content of `len` bytes: a tag, or code and padding.
    #[inline]
    pub(crate) const fn tail_len<C: Crypto>(self, len: usize) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.tail_len(len),
            None if self.is_gcm::<C>() || self.is_chacha20::<C>() => GCM_TAG_LEN,
            None => TAG_LEN,
        }
    }

    /// Most bytes behind any content.
    #[inline]
    pub(crate) const fn max_tail_len<C: Crypto>(self) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.mac.len().wrapping_add(cbc::BLOCK_LEN),
            None => self.tail_len::<C>(0),
        }
    }

    /// The length in the associated data of a record with `content` bytes in a fragment of `len`. `None` if they do not fit,
    /// or the content is too long.
    #[inline]
    pub(super) fn authentic_len<C: Crypto>(self, content: usize, len: usize) -> Option<usize> {
        let around = self.explicit_len::<C>().wrapping_add(self.tail_len::<C>(content));
        let enclosed = len.checked_sub(around).filter(|len| *len <= MAX_CONTENT)?;
        match self.mode::<C>() {
            Some(mode) => (enclosed == content).then_some(mode.authentic_len(content)),
            None => Some(enclosed),
        }
    }

    /// Bytes of the parts of a key in the order of the key block (RFC 5246, section 6.3): key of the code, key,
    /// initialization vector.
    pub(crate) const fn key_parts(self) -> [usize; 3] {
        match self {
            Self::Ccm8 | Self::Gcm => [0, KEY_LEN, SALT_LEN],
            Self::ChaCha20Poly1305 => [0, CHACHA20_KEY_LEN, NONCE_LEN],
            Self::CbcSha256 | Self::CbcSha256EncryptThenMac => [Mac::Sha256.len(), KEY_LEN, 0],
            Self::CbcSha | Self::CbcShaEncryptThenMac => [Mac::Sha1.len(), KEY_LEN, 0],
        }
    }

    /// True if its keys do not fit where those of AES-128 do.
    pub(crate) const fn is_long(self) -> bool {
        LongKeys::FIT && !matches!(self, Self::Ccm8 | Self::Gcm)
    }

    /// The cipher that a session was kept with.
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Ccm8),
            1 => Some(Self::Gcm),
            2 if LongKeys::FIT => Some(Self::ChaCha20Poly1305),
            3 if LongKeys::FIT => Some(Self::CbcSha256),
            4 if LongKeys::FIT => Some(Self::CbcSha256EncryptThenMac),
            5 if LongKeys::FIT => Some(Self::CbcSha),
            6 if LongKeys::FIT => Some(Self::CbcShaEncryptThenMac),
            _ => None,
        }
    }
}

/// Bytes of a nonce.
pub(super) const NONCE_LEN: usize = SALT_LEN + EXPLICIT_LEN;

/// A nonce: its part of the key, and that of the record (RFC 6655, section 3).
#[inline(always)]
pub(super) fn nonce(salt: [u8; SALT_LEN], number: [u8; EXPLICIT_LEN]) -> [u8; NONCE_LEN] {
    // It is written once, as two integers: a processor waits for a load that spans several young stores.
    let (salt, number) = (u32::from_ne_bytes(salt), u64::from_ne_bytes(number));
    let mut nonce = [0; NONCE_LEN];
    let [a, b, c, d, place @ ..] = &mut nonce;
    [*a, *b, *c, *d] = salt.to_ne_bytes();
    *place = number.to_ne_bytes();
    nonce
}

/// The associated data (RFC 5246, section 6.2.3.3): number, type and version of the record, length of its content.
#[inline]
pub(super) fn associated_data(header: &[u8; HEADER_LEN], len: u16) -> [u8; HEADER_LEN] {
    let [content_type, major, minor, number @ .., _, _] = header;
    let mut data = [0, 0, 0, 0, 0, 0, 0, 0, *content_type, *major, *minor, 0, 0];
    let [place @ .., _, _, _, high, low] = &mut data;
    *place = *number;
    [*high, *low] = len.to_be_bytes();
    data
}
