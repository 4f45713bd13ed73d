//! The protection of records by a cipher, with the key of one direction.

use super::cbc;
use super::cipher::{BLOCK_LEN, Cipher, Mac, NONCE_LEN, nonce};
use super::keys::{Keys, LongKey, TrafficKey};
use super::{EXPLICIT_LEN, GCM_TAG_LEN, HAS_LONG_KEYS, TAG_LEN};
use crate::buf::Full;
use crate::counters::Discard;
use crate::crypto::hash::{DIGEST_LEN, SHA1_LEN};
use crate::crypto::{Crypto, NotAuthentic};

/// A cipher and the key of one direction.
///
/// This type has no record numbers and no header. For each record, the caller supplies the associated data, and the
/// part of the nonce that changes. The caller must never seal with the same nonce twice under one key. In this module,
/// a fragment is the part of a record after the header. It contains the content and then the tag. With some ciphers,
/// the explicit part of the nonce precedes the content.
pub(crate) struct Protection<'k> {
    cipher: Cipher,
    key: &'k TrafficKey,
    /// The key of a cipher whose keys are longer than those of AES-128. It replaces `key`. `None` for all other
    /// ciphers.
    long: Option<&'k LongKey>,
}

impl<'k> Protection<'k> {
    /// Returns the protection of the records that we send.
    #[inline(always)]
    pub(super) fn writing(keys: &'k Keys, cipher: Cipher) -> Self {
        Self { cipher, key: &keys.write, long: keys.long.write() }
    }

    /// Returns the protection of the records that we receive.
    #[inline(always)]
    pub(super) fn reading(keys: &'k Keys, cipher: Cipher) -> Self {
        Self { cipher, key: &keys.read, long: keys.long.read() }
    }

    /// Encrypts the content in `fragment` in place. The content has `content` bytes. Also writes the bytes that the
    /// cipher adds before and after the content.
    ///
    /// # Errors
    /// [`Full`] if the fragment is too short, or if the crypto provider does not support the cipher.
    #[inline(always)]
    pub(crate) fn seal<C: Crypto>(
        &self,
        crypto: &mut C,
        number: &[u8; EXPLICIT_LEN],
        aad: &[u8],
        content: usize,
        fragment: &mut [u8],
    ) -> Result<(), Full> {
        if let Some(mode) = self.cipher.mode::<C>() {
            let key = self.long.ok_or(Full)?;
            let (iv, body) = fragment.split_first_chunk_mut().ok_or(Full)?;
            crypto.random(iv);
            let sealed = match mode.mac {
                Mac::Sha1 => cbc::seal::<C, SHA1_LEN>(mode.order, crypto, key, aad, iv, content, body),
                Mac::Sha256 => cbc::seal::<C, DIGEST_LEN>(mode.order, crypto, key, aad, iv, content, body),
            };
            return sealed.ok_or(Full);
        }
        match (self.cipher, C::AES_128_GCM, C::CHACHA20_POLY1305) {
            (Cipher::ChaCha20Poly1305, _, Some(chacha20)) if HAS_LONG_KEYS => {
                let (key, iv) = self.long.and_then(LongKey::chacha20).ok_or(Full)?;
                let nonce = &added(iv, number);
                seal_aead(crypto, (chacha20, GCM_TAG_LEN), key, nonce, aad, fragment)
            }
            (cipher, gcm, _) => {
                let (explicit, body) = fragment.split_first_chunk_mut().ok_or(Full)?;
                *explicit = *number;
                let (key, nonce) = (self.key.key.expose(), &nonce(self.key.salt, *number));
                // The algorithm and the lengths are constants, so that an image contains only combinations that
                // records have.
                match (cipher, gcm) {
                    (Cipher::Gcm, Some(gcm)) => seal_aead(crypto, (gcm, GCM_TAG_LEN), key, nonce, aad, body),
                    _ => seal_aead(crypto, (C::AES_128_CCM, TAG_LEN), key, nonce, aad, body),
                }
            }
        }
    }

    /// Decrypts `fragment` in place, and returns the content. If the cipher limits the number of failures under one
    /// key, `failed` counts the fragments that did not decrypt. This function calls `associated_data` with the length
    /// that the associated data must contain. A content of more than `limit` bytes causes the error
    /// [`Discard::Malformed`]. With CBC this function does not check the limit, because the length of the content is
    /// secret until the MAC is checked. The caller then compares this length with `limit`.
    ///
    /// # Errors
    /// [`Discard::NotAuthentic`] or [`Discard::Malformed`].
    #[inline(always)]
    pub(crate) fn open<'r, C: Crypto, A: AsRef<[u8]>>(
        &self,
        crypto: &mut C,
        number: &[u8; EXPLICIT_LEN],
        failed: &mut u16,
        limit: usize,
        associated_data: impl FnOnce(u16) -> A,
        fragment: &'r mut [u8],
    ) -> Result<&'r mut [u8], Discard> {
        if let Some(mode) = self.cipher.mode::<C>() {
            if !mode.fits(fragment.len()) {
                return Err(Discard::Malformed);
            }
            let key = self.long.ok_or(Discard::NotAuthentic)?;
            let opened = match mode.mac {
                Mac::Sha1 => cbc::open::<C, A, SHA1_LEN>(mode.order, crypto, key, associated_data, fragment),
                Mac::Sha256 => cbc::open::<C, A, DIGEST_LEN>(mode.order, crypto, key, associated_data, fragment),
            };
            let len = opened.ok_or(Discard::NotAuthentic)?;
            return fragment.get_mut(BLOCK_LEN..).and_then(|text| text.get_mut(..len)).ok_or(Discard::Malformed);
        }
        match (self.cipher, C::AES_128_GCM, C::CHACHA20_POLY1305) {
            (Cipher::ChaCha20Poly1305, _, Some(chacha20)) if HAS_LONG_KEYS => {
                let (key, iv) = self.long.and_then(LongKey::chacha20).ok_or(Discard::NotAuthentic)?;
                let with = (key.as_slice(), &added(iv, number));
                open_aead(crypto, (Some(chacha20), GCM_TAG_LEN), with, failed, limit, associated_data, fragment)
            }
            (cipher, gcm, _) => {
                let (explicit, body) = fragment.split_first_chunk_mut().ok_or(Discard::Malformed)?;
                let with = (self.key.key.expose().as_slice(), &nonce(self.key.salt, *explicit));
                // A single call where code must be short, and a call for each algorithm where code must be fast.
                let (aead, tag_len) = match (cipher, gcm) {
                    (Cipher::Ccm8, _) if FAST => {
                        let aead = (Some(C::AES_128_CCM), TAG_LEN);
                        return open_aead(crypto, aead, with, failed, limit, associated_data, body);
                    }
                    (Cipher::Gcm, Some(gcm)) if FAST => {
                        let aead = (Some(gcm), GCM_TAG_LEN);
                        return open_aead(crypto, aead, with, failed, limit, associated_data, body);
                    }
                    (Cipher::Gcm, Some(_)) => (None, GCM_TAG_LEN),
                    (_, Some(_)) => (None, TAG_LEN),
                    (_, None) => (Some(C::AES_128_CCM), TAG_LEN),
                };
                open_aead(crypto, (aead, tag_len), with, failed, limit, associated_data, body)
            }
        }
    }
}

/// True on a 64-bit processor, where separate code for each algorithm makes records faster.
const FAST: bool = cfg!(target_pointer_width = "64");

/// Encrypts `body` in place, except its last `tag_len` bytes. Writes the tag into these bytes.
// With constants as lengths, a provider does not check them for each record.
#[inline(always)]
pub(crate) fn seal_aead<C: Crypto>(
    crypto: &mut C,
    (aead, tag_len): (C::Aead, usize),
    key: &[u8],
    nonce: &[u8; NONCE_LEN],
    aad: &[u8],
    body: &mut [u8],
) -> Result<(), Full> {
    let at = body.len().checked_sub(tag_len).ok_or(Full)?;
    let (body, tag) = body.split_at_mut_checked(at).ok_or(Full)?;
    crypto.seal(aead, key, nonce, aad, body, tag).map_err(|_| Full)
}

/// Decrypts `body` in place, and returns the content. The last `tag_len` bytes of `body` are the tag. If `aead` is
/// `None`, the length of the tag selects the algorithm of AES-128. [`Protection::open`] describes the other parameters.
#[inline(always)]
pub(crate) fn open_aead<'r, C: Crypto, A: AsRef<[u8]>>(
    crypto: &mut C,
    (aead, tag_len): (Option<C::Aead>, usize),
    (key, nonce): (&[u8], &[u8; NONCE_LEN]),
    failed: &mut u16,
    limit: usize,
    associated_data: impl FnOnce(u16) -> A,
    body: &'r mut [u8],
) -> Result<&'r mut [u8], Discard> {
    let at = body.len().checked_sub(tag_len).ok_or(Discard::Malformed)?;
    let (content, tag) = body.split_at_mut_checked(at).ok_or(Discard::Malformed)?;
    if content.len() > limit {
        return Err(Discard::Malformed);
    }
    let aad = associated_data(content.len() as u16);
    let aad = aad.as_ref();
    // The algorithm and the lengths are constants, so that an image contains only combinations that records have.
    let opened = match (aead, C::AES_128_GCM, tag.first_chunk::<GCM_TAG_LEN>(), tag.first_chunk::<TAG_LEN>()) {
        (Some(aead), ..) => crypto.open(aead, key, nonce, aad, content, tag),
        (None, Some(gcm), Some(tag), _) => crypto.open(gcm, key, nonce, aad, content, tag),
        (None, _, _, Some(tag)) => crypto.open(C::AES_128_CCM, key, nonce, aad, content, tag),
        _ => Err(NotAuthentic),
    };
    if opened.is_err() {
        // If the tag is short, the number of records that fail to open is limited (`MAX_FAILED`).
        if tag_len == TAG_LEN {
            *failed = failed.saturating_add(1);
        }
        return Err(Discard::NotAuthentic);
    }
    Ok(content)
}

/// Returns the nonce of ChaCha20-Poly1305: the initialization vector combined with the record number by XOR (RFC 7905,
/// section 2).
#[inline(always)]
fn added(iv: &[u8; NONCE_LEN], number: &[u8; EXPLICIT_LEN]) -> [u8; NONCE_LEN] {
    let ([salt @ .., _, _, _, _, _, _, _, _], [_, _, _, _, end @ ..]) = (iv, iv);
    let end = u64::from_be_bytes(*end) ^ u64::from_be_bytes(*number);
    nonce(*salt, end.to_be_bytes())
}
