//! The ciphers of records: the number of bytes that they add, their keys and their nonces.

use super::{EXPLICIT_LEN, GCM_TAG_LEN, HAS_LONG_KEYS, HEADER_LEN, MAX_CONTENT, SALT_LEN, TAG_LEN};
use crate::crypto::hash::{DIGEST_LEN, SHA1_LEN};
use crate::crypto::{CHACHA20_KEY_LEN, Crypto, KEY_LEN};

/// The cipher of an association. A stored session contains the number of its cipher: see [`Self::from_byte`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cipher {
    /// AES_128_CCM_8 (RFC 6655): a tag of 8 bytes.
    Ccm8 = 0,
    /// AES_128_GCM (RFC 5288): a tag of 16 bytes. The nonce and the associated data are the same as for CCM_8.
    Gcm,
    /// CHACHA20_POLY1305 (RFC 7905): a tag of 16 bytes. The record contains no part of the nonce.
    ChaCha20Poly1305,
    /// AES_128_CBC_SHA256 (RFC 5246): the MAC is computed before the encryption (MAC-then-encrypt).
    CbcSha256,
    /// AES-128-CBC with HMAC-SHA-256: the MAC is computed after the encryption (encrypt-then-MAC, RFC 7366).
    CbcSha256EncryptThenMac,
    /// AES_128_CBC_SHA (RFC 5246): HMAC-SHA-1, with MAC-then-encrypt.
    CbcSha,
    /// AES-128-CBC with HMAC-SHA-1 and encrypt-then-MAC.
    CbcShaEncryptThenMac,
}

impl Cipher {
    /// True if the crypto provider supports the cipher. If the provider supports only CCM_8, the compiler omits the
    /// code of all other ciphers.
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

    /// Returns the order of encryption and MAC, and the hash of the MAC, for a cipher with CBC; `None` for every other
    /// cipher.
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

    /// Returns the cipher with the same algorithms and encrypt-then-MAC; `None` if there is no such cipher. This cipher
    /// is used if both endpoints support it (RFC 7366, section 2).
    pub(crate) const fn with_encrypt_then_mac(self) -> Option<Self> {
        match self {
            Self::CbcSha256 if HAS_LONG_KEYS => Some(Self::CbcSha256EncryptThenMac),
            Self::CbcSha if HAS_LONG_KEYS => Some(Self::CbcShaEncryptThenMac),
            _ => None,
        }
    }

    /// True if the cipher uses encrypt-then-MAC, because client and server agreed on it.
    pub(crate) const fn encrypts_then_macs(self) -> bool {
        HAS_LONG_KEYS && matches!(self, Self::CbcSha256EncryptThenMac | Self::CbcShaEncryptThenMac)
    }

    /// Returns the number of bytes between the header of a record and its encrypted part.
    #[inline]
    pub(crate) const fn explicit_len<C: Crypto>(self) -> usize {
        match self {
            _ if self.is_chacha20::<C>() => 0,
            _ if self.is_cbc::<C>() => BLOCK_LEN,
            _ => EXPLICIT_LEN,
        }
    }

    /// Returns the number of bytes after a content of `len` bytes. They are a tag, or a MAC and padding.
    #[inline]
    pub(crate) const fn tail_len<C: Crypto>(self, len: usize) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.tail_len(len),
            None if self.is_gcm::<C>() || self.is_chacha20::<C>() => GCM_TAG_LEN,
            None => TAG_LEN,
        }
    }

    /// Returns the maximum number of bytes that can follow a content.
    #[inline]
    pub(crate) const fn max_tail_len<C: Crypto>(self) -> usize {
        match self.mode::<C>() {
            Some(mode) => mode.mac.len().wrapping_add(BLOCK_LEN),
            None => self.tail_len::<C>(0),
        }
    }

    /// Returns the length that the associated data of a record contains. `content` is the number of bytes of the
    /// content, and `len` is the number of bytes after the record header. Returns `None` if the content is too long.
    /// With CBC, also returns `None` if a content of this length, together with its MAC and padding, has not exactly
    /// `len` bytes.
    #[inline]
    pub(super) fn authentic_len<C: Crypto>(self, content: usize, len: usize) -> Option<usize> {
        let around = self.explicit_len::<C>().wrapping_add(self.tail_len::<C>(content));
        let enclosed = len.checked_sub(around).filter(|len| *len <= MAX_CONTENT)?;
        match self.mode::<C>() {
            Some(mode) => (enclosed == content).then_some(mode.authentic_len(content)),
            None => Some(enclosed),
        }
    }

    /// Returns the number of bytes of the three parts of a key. The order is that of the key block (RFC 5246, section
    /// 6.3): the key of the MAC, the key of the cipher, the initialization vector.
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

    /// Returns the cipher with this number in a stored session; `None` if no supported cipher has this number.
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

/// Number of bytes of a block of AES. The initialization vector before the encrypted part of a record has the same
/// length.
pub(crate) const BLOCK_LEN: usize = 16;
/// Maximum number of bytes that can follow a content: the longest MAC, and a block of padding.
pub(crate) const MAX_TAIL_LEN: usize = MAX_MAC_LEN + BLOCK_LEN;
/// Number of bytes of the longest MAC. The key of a MAC has the same length as the MAC.
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
    /// Returns the number of bytes of the MAC. The key of the MAC has the same length.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Sha1 => SHA1_LEN,
            Self::Sha256 => DIGEST_LEN,
        }
    }
}

impl Mode {
    /// Returns the number of bytes of MAC and padding after a content of `len` bytes.
    pub(super) const fn tail_len(self, len: usize) -> usize {
        let encrypted = match self.order {
            Order::MacThenEncrypt => len.wrapping_add(self.mac.len()),
            Order::EncryptThenMac => len,
        };
        self.mac.len().wrapping_add(BLOCK_LEN).wrapping_sub(encrypted % BLOCK_LEN)
    }

    /// Returns the length that the associated data of a record contains. With MAC-then-encrypt, this is the length of
    /// the content. With encrypt-then-MAC, it is the length of the part that the MAC covers.
    pub(super) const fn authentic_len(self, content: usize) -> usize {
        match self.order {
            Order::MacThenEncrypt => content,
            Order::EncryptThenMac => {
                BLOCK_LEN.wrapping_add(content).wrapping_add(self.tail_len(content)).wrapping_sub(self.mac.len())
            }
        }
    }

    /// True if a record may have `body` bytes after its header: its encrypted part must have whole blocks, and the body
    /// must have enough bytes for the MAC and the padding.
    pub(super) const fn fits(self, body: usize) -> bool {
        let encrypted = match self.order {
            Order::MacThenEncrypt => body,
            Order::EncryptThenMac => body.wrapping_sub(self.mac.len()),
        };
        body >= BLOCK_LEN.wrapping_add(self.tail_len(0)) && encrypted.is_multiple_of(BLOCK_LEN)
    }
}

/// Number of bytes of a nonce.
pub(crate) const NONCE_LEN: usize = SALT_LEN + EXPLICIT_LEN;

/// Returns a nonce. It begins with the implicit part from the key block, and the explicit part from the record follows
/// (RFC 6655, section 3).
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

/// Returns the associated data of a record (RFC 5246, section 6.2.3.3): the number, the type and the version of the
/// record, and then the length `len` of its content.
#[inline]
pub(crate) fn associated_data(header: &[u8; HEADER_LEN], len: u16) -> [u8; HEADER_LEN] {
    let [content_type, major, minor, number @ .., _, _] = header;
    let mut data = [0, 0, 0, 0, 0, 0, 0, 0, *content_type, *major, *minor, 0, 0];
    let [place @ .., _, _, _, high, low] = &mut data;
    *place = *number;
    [*high, *low] = len.to_be_bytes();
    data
}
