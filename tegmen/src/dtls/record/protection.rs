//! The protection of records: a cipher with the key of one direction.

use super::cbc::{BLOCK_LEN, Mac};
use super::cipher::{NONCE_LEN, nonce};
use super::{Cipher, EXPLICIT_LEN, LongKey, TrafficKey};
use crate::buf::Full;
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::crypto::hash::{DIGEST_LEN, SHA1_LEN};

/// A cipher with the key of one direction.
///
/// It has no record numbers and no header. The caller gives the part of the nonce that a record has for itself, never the
/// same twice to seal under one key, and the associated data. A fragment is what follows the header of a record: the
/// explicit part of the nonce if the cipher has one, the content, and the tag.
pub(crate) struct Protection<'k> {
    pub(super) cipher: Cipher,
    pub(super) key: &'k TrafficKey,
    /// In place of `key`, where the cipher has longer ones.
    pub(super) long: Option<&'k LongKey>,
}

impl Protection<'_> {
    /// Encrypts a content of `content` bytes where it lies in `fragment`, and writes what is before and behind it.
    ///
    /// # Errors
    /// [`Full`] if the fragment is too short, or the provider does not have the cipher.
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
                Mac::Sha1 => mode.order.seal::<C, SHA1_LEN>(crypto, key, aad, iv, content, body),
                Mac::Sha256 => mode.order.seal::<C, DIGEST_LEN>(crypto, key, aad, iv, content, body),
            };
            return sealed.ok_or(Full);
        }
        let body = match self.cipher.is_chacha20::<C>() {
            true => fragment,
            false => {
                let (explicit, body) = fragment.split_first_chunk_mut().ok_or(Full)?;
                *explicit = *number;
                body
            }
        };
        let (key, nonce) = self.key_and_nonce::<C>(number).ok_or(Full)?;
        let len = body.len().checked_sub(self.cipher.tail_len::<C>(content)).ok_or(Full)?;
        let (body, tag) = body.split_at_mut_checked(len).ok_or(Full)?;
        crypto.seal(self.cipher.aead::<C>(), key, &nonce, aad, body, tag).map_err(|_| Full)
    }

    /// Decrypts `fragment` in place, and returns the content. `failed` counts the fragments that failed to open under the
    /// key, where their number is limited. `associated_data` gets the length that stands in them. A
    /// content above `limit` bytes is [`Discard::Malformed`]; with CBC its length is secret until the code is checked, and
    /// the caller compares it afterwards.
    ///
    /// # Errors
    /// [`Discard::NotAuthentic`], [`Discard::Malformed`].
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
                Mac::Sha1 => mode.order.open::<C, A, SHA1_LEN>(crypto, key, associated_data, fragment),
                Mac::Sha256 => mode.order.open::<C, A, DIGEST_LEN>(crypto, key, associated_data, fragment),
            };
            let len = opened.ok_or(Discard::NotAuthentic)?;
            return fragment.get_mut(BLOCK_LEN..).and_then(|text| text.get_mut(..len)).ok_or(Discard::Malformed);
        }
        let (number, body) = match self.cipher.is_chacha20::<C>() {
            true => (number, fragment),
            false => {
                let (explicit, body) = fragment.split_first_chunk_mut().ok_or(Discard::Malformed)?;
                (&*explicit, body)
            }
        };
        let at = body.len().checked_sub(self.cipher.tail_len::<C>(0)).ok_or(Discard::Malformed)?;
        let (content, tag) = body.split_at_mut_checked(at).ok_or(Discard::Malformed)?;
        if content.len() > limit {
            return Err(Discard::Malformed);
        }
        let aad = associated_data(content.len() as u16);
        let (key, nonce) = self.key_and_nonce::<C>(number).ok_or(Discard::NotAuthentic)?;
        if crypto.open(self.cipher.aead::<C>(), key, &nonce, aad.as_ref(), content, tag).is_err() {
            if self.cipher.limits_failures::<C>() {
                *failed = failed.saturating_add(1);
            }
            return Err(Discard::NotAuthentic);
        }
        Ok(content)
    }

    /// Returns the key, and the nonce of an AEAD algorithm: that of CCM_8 and GCM has the number behind the salt (RFC 6655,
    /// section 3), that of ChaCha20-Poly1305 is the initialization vector with the number added (RFC 7905, section 2).
    #[inline(always)]
    fn key_and_nonce<C: Crypto>(&self, number: &[u8; EXPLICIT_LEN]) -> Option<(&[u8], [u8; NONCE_LEN])> {
        let number = u64::from_be_bytes(*number);
        // The nonce is written once, as a salt and a number: a processor waits for a load that spans several young stores.
        let (key, salt, number) = match self.cipher.is_chacha20::<C>() {
            true => {
                let (key, iv) = self.long.and_then(LongKey::chacha20)?;
                let ([salt @ .., _, _, _, _, _, _, _, _], [_, _, _, _, end @ ..]) = (iv, iv);
                (key.as_slice(), u32::from_ne_bytes(*salt), u64::from_be_bytes(*end) ^ number)
            }
            false => (self.key.key.expose().as_slice(), u32::from_ne_bytes(self.key.salt), number),
        };
        Some((key, nonce(salt.to_ne_bytes(), number.to_be_bytes())))
    }
}
