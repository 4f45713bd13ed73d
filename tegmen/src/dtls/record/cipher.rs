//! The ciphers of records: the bytes that they add, their keys and their nonces.

use super::{EXPLICIT_LEN, GCM_TAG_LEN, HAS_LONG_KEYS, HEADER_LEN, MAX_CONTENT, SALT_LEN, TAG_LEN};
use crate::crypto::hash::{DIGEST_LEN, SHA1_LEN};
use crate::crypto::{CHACHA20_KEY_LEN, Crypto, KEY_LEN};

/// The cipher of an association. A stored session contains the number of its cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cipher {
    /// AES_128_CCM_8 (RFC 6655): a tag of 8 bytes.
    Ccm8 = 0,
    /// AES_128_GCM (RFC 5288): a tag of 16 bytes. Nonce and associated data are the same as for CCM_8.
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
    /// True if the crypto provider supports the cipher. With a provider that supports only CCM_8, an image contains
    /// no code for other ciphers.
    pub(crate) const fn is_in<C: Crypto>(self) -> bool {
        match self {
            Self::Ccm8 => true,
            // Without space for long keys, the only other cipher is GCM.
            _ if !HAS_LONG_KEYS => C::AES_128_GCM.is_some(),
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
        C::CHACHA20_POLY1305.is_some() && HAS_LONG_KEYS && matches!(self, Self::ChaCha20Poly1305)
    }

    pub(crate) const fn is_cbc<C: Crypto>(self) -> bool {
        self.mode::<C>().is_some()
    }

    /// Returns the order and the hash of the MAC of a cipher with CBC; `None` for every other cipher.
    pub(super) const fn mode<C: Crypto>(self) -> Option<Mode> {
        if !HAS_LONG_KEYS || !C::CBC {
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

    /// Returns the variant of the cipher with encrypt-then-MAC, if there is one. The variant is used if both
    /// endpoints support it (RFC 7366, section 2).
    pub(crate) const fn with_encrypt_then_mac(self) -> Option<Self> {
        match self {
            Self::CbcSha256 if HAS_LONG_KEYS => Some(Self::CbcSha256EncryptThenMac),
            Self::CbcSha if HAS_LONG_KEYS => Some(Self::CbcShaEncryptThenMac),
            _ => None,
        }
    }

    /// True if client and server agreed on encrypt-then-MAC.
    pub(crate) const fn encrypts_then_macs(self) -> bool {
        HAS_LONG_KEYS && matches!(self, Self::CbcSha256EncryptThenMac | Self::CbcShaEncryptThenMac)
    }

    /// Returns the bytes between the header of a record and its encrypted part.
    #[inline]
    pub(crate) const fn explicit_len<C: Crypto>(self) -> usize {
        match self {
            _ if self.is_chacha20::<C>() => 0,
            _ if self.is_cbc::<C>() => BLOCK_LEN,
            _ => EXPLICIT_LEN,
        }
    }

    /// Returns the bytes after a content of `len` bytes: a tag, or MAC and padding.
    #[inline]
    pub(crate) const fn tail_len<C: Crypto>(self, len: usize) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.tail_len(len),
            None if self.is_gcm::<C>() || self.is_chacha20::<C>() => GCM_TAG_LEN,
            None => TAG_LEN,
        }
    }

    /// Returns the maximum number of bytes after any content.
    #[inline]
    pub(crate) const fn max_tail_len<C: Crypto>(self) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.mac.len().wrapping_add(BLOCK_LEN),
            None => self.tail_len::<C>(0),
        }
    }

    /// Returns the length in the associated data of a record with `content` bytes in a fragment of `len` bytes.
    /// Returns `None` if the content does not fit the fragment exactly, or is too long.
    #[inline]
    pub(super) fn authentic_len<C: Crypto>(self, content: usize, len: usize) -> Option<usize> {
        let around = self.explicit_len::<C>().wrapping_add(self.tail_len::<C>(content));
        let enclosed = len.checked_sub(around).filter(|len| *len <= MAX_CONTENT)?;
        match self.mode::<C>() {
            Some(mode) => (enclosed == content).then_some(mode.authentic_len(content)),
            None => Some(enclosed),
        }
    }

    /// Returns the bytes of the three parts of a key, in the order of the key block (RFC 5246, section 6.3): key of
    /// the MAC, key of the cipher, initialization vector.
    pub(crate) const fn key_parts(self) -> [usize; 3] {
        match self {
            Self::Ccm8 | Self::Gcm => [0, KEY_LEN, SALT_LEN],
            Self::ChaCha20Poly1305 => [0, CHACHA20_KEY_LEN, NONCE_LEN],
            Self::CbcSha256 | Self::CbcSha256EncryptThenMac => [Mac::Sha256.len(), KEY_LEN, 0],
            Self::CbcSha | Self::CbcShaEncryptThenMac => [Mac::Sha1.len(), KEY_LEN, 0],
        }
    }

    /// True if the keys of the cipher are longer than those of AES-128.
    pub(crate) const fn is_long(self) -> bool {
        HAS_LONG_KEYS && !matches!(self, Self::Ccm8 | Self::Gcm)
    }

    /// Returns the cipher that has this number in a stored session.
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Ccm8),
            1 => Some(Self::Gcm),
            2 if HAS_LONG_KEYS => Some(Self::ChaCha20Poly1305),
            3 if HAS_LONG_KEYS => Some(Self::CbcSha256),
            4 if HAS_LONG_KEYS => Some(Self::CbcSha256EncryptThenMac),
            5 if HAS_LONG_KEYS => Some(Self::CbcSha),
            6 if HAS_LONG_KEYS => Some(Self::CbcShaEncryptThenMac),
            _ => None,
        }
    }
}

/// Bytes of a block, and of the initialization vector before the encrypted part of a record.
pub(crate) const BLOCK_LEN: usize = 16;
/// Maximum number of bytes after a content: the MAC, and a block of padding.
pub(crate) const MAX_TAIL_LEN: usize = MAX_MAC_LEN + BLOCK_LEN;
/// Bytes of the longest MAC. The key of a MAC has as many bytes as the MAC.
pub(super) const MAX_MAC_LEN: usize = DIGEST_LEN;

/// The order of encryption and MAC in a record, and the hash of the MAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mode {
    pub(super) order: Order,
    pub(super) mac: Mac,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    MacThenEncrypt,
    EncryptThenMac,
}

/// The hash of the MAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mac {
    Sha1,
    Sha256,
}

impl Mac {
    /// Returns the bytes of the MAC, which are also the bytes of its key.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Sha1 => SHA1_LEN,
            Self::Sha256 => DIGEST_LEN,
        }
    }
}

impl Mode {
    /// Returns the bytes after a content of `len` bytes.
    pub(super) const fn tail_len(self, len: usize) -> usize {
        let encrypted = match self.order {
            Order::MacThenEncrypt => len.wrapping_add(self.mac.len()),
            Order::EncryptThenMac => len,
        };
        self.mac.len().wrapping_add(BLOCK_LEN).wrapping_sub(encrypted % BLOCK_LEN)
    }

    /// Returns the length in the associated data of a record: the length of the content, or of the part that the MAC
    /// covers.
    pub(super) const fn authentic_len(self, content: usize) -> usize {
        match self.order {
            Order::MacThenEncrypt => content,
            Order::EncryptThenMac => {
                BLOCK_LEN.wrapping_add(content).wrapping_add(self.tail_len(content)).wrapping_sub(self.mac.len())
            }
        }
    }

    /// True if a record may have a body of `body` bytes: whole blocks that are long enough for the MAC and the
    /// padding.
    pub(super) const fn fits(self, body: usize) -> bool {
        let encrypted = match self.order {
            Order::MacThenEncrypt => body,
            Order::EncryptThenMac => body.wrapping_sub(self.mac.len()),
        };
        body >= BLOCK_LEN.wrapping_add(self.tail_len(0)) && encrypted.is_multiple_of(BLOCK_LEN)
    }
}

/// Bytes of a nonce.
pub(crate) const NONCE_LEN: usize = SALT_LEN + EXPLICIT_LEN;

/// Returns a nonce: its implicit part from the key block, and its explicit part from the record (RFC 6655, section
/// 3).
#[inline(always)]
pub(crate) fn nonce(salt: [u8; SALT_LEN], number: [u8; EXPLICIT_LEN]) -> [u8; NONCE_LEN] {
    // The nonce is written once, as two integers: a processor waits for a load that spans several recent stores.
    let (salt, number) = (u32::from_ne_bytes(salt), u64::from_ne_bytes(number));
    let mut nonce = [0; NONCE_LEN];
    let [a, b, c, d, place @ ..] = &mut nonce;
    [*a, *b, *c, *d] = salt.to_ne_bytes();
    *place = number.to_ne_bytes();
    nonce
}

/// Returns the associated data (RFC 5246, section 6.2.3.3): number, type and version of the record, and the length of
/// its content.
#[inline]
pub(crate) fn associated_data(header: &[u8; HEADER_LEN], len: u16) -> [u8; HEADER_LEN] {
    let [content_type, major, minor, number @ .., _, _] = header;
    let mut data = [0, 0, 0, 0, 0, 0, 0, 0, *content_type, *major, *minor, 0, 0];
    let [place @ .., _, _, _, high, low] = &mut data;
    *place = *number;
    [*high, *low] = len.to_be_bytes();
    data
}
