//! The cryptography of EDHOC, which comes from a `Crypto` provider.

use lakers::{
    AES_CCM_TAG_LEN, BufferCiphertext3, BufferPlaintext3, BytesCcmIvLen, BytesCcmKeyLen, BytesHashLen, BytesMaxBuffer,
    BytesMaxInfoBuffer, BytesP256ElemLen, EDHOCError, MAX_BUFFER_LEN, MAX_MESSAGE_SIZE_LEN, P256_ELEM_LEN,
};
use tegmen_base::buf::Reader;
use tegmen_base::cbor;
use tegmen_base::crypto::hash::{HmacKey, digest, hmac};
use tegmen_base::crypto::{Crypto, MAX_SHARE, NamedGroup};

/// A crypto provider in the form that `lakers` needs. Some operations can fail, but `lakers` expects no failure. The
/// output of a failed operation is random, so that no message authenticates, and [`Self::has_failed`] returns true.
///
/// `lakers` parses decrypted bytes before they are authenticated. Version 0.8.0 of `lakers` counts the items of a CBOR
/// value in 8 bits, and panics on some nested arrays. So the provider checks each decrypted plaintext before `lakers`
/// parses it: the plaintext must begin with complete CBOR values.
pub(crate) struct Provider<'c, C> {
    crypto: &'c mut C,
    has_failed: bool,
    /// The ciphertext of message_2, until its keystream is derived.
    ciphertext_2: Option<&'c [u8]>,
}

impl<'c, C: Crypto> Provider<'c, C> {
    pub(crate) const fn new(crypto: &'c mut C) -> Self {
        Self { crypto, has_failed: false, ciphertext_2: None }
    }

    /// Creates a provider for a session that reads message_2.
    pub(crate) fn reading_message_2(crypto: &'c mut C, message_2: &'c [u8]) -> Self {
        let mut reader = Reader::new(message_2);
        let content = cbor::read_bytes(&mut reader).unwrap_or(&[]);
        Self { ciphertext_2: content.get(P256_ELEM_LEN..), ..Self::new(crypto) }
    }

    /// True if a public key was not a point on the curve, or if the provider does not support the curve.
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn fail(&mut self) -> BytesP256ElemLen {
        self.has_failed = true;
        let mut random = [0; 32];
        self.crypto.random(&mut random);
        random
    }
}

impl<C> core::fmt::Debug for Provider<'_, C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Provider")
    }
}

impl<C: Crypto> lakers::CryptoTrait for Provider<'_, C> {
    fn sha256_digest(&mut self, message: &BytesMaxBuffer, message_len: usize) -> BytesHashLen {
        digest::<C, 32>(&[message.get(..message_len).unwrap_or(message)])
    }

    fn hkdf_expand(
        &mut self,
        prk: &BytesHashLen,
        info: &BytesMaxInfoBuffer,
        info_len: usize,
        length: usize,
    ) -> BytesMaxBuffer {
        let info = info.get(..info_len).unwrap_or(info);
        let key = HmacKey::new::<C>(&[prk]);
        let mut out = [0; MAX_BUFFER_LEN];
        let (mut block, mut number) = ([0; 32], 0u8);
        for part in out.get_mut(..length).unwrap_or(&mut []).chunks_mut(32) {
            // T(0) is empty (RFC 5869, section 2.3).
            let before: &[u8] = if number == 0 { &[] } else { &block };
            number = number.wrapping_add(1);
            block = key.mac::<C>(&[before, info, &[number]]);
            part.iter_mut().zip(block).for_each(|(to, from)| *to = from);
        }
        // While message_2 is read, label 0 derives KEYSTREAM_2 (RFC 9528, section 4.1.2).
        if let Some(ciphertext) = self.ciphertext_2.take_if(|_| info.first() == Some(&0)) {
            let mut plaintext = [0; MAX_MESSAGE_SIZE_LEN];
            let bytes = ciphertext.iter().zip(&out).map(|(byte, key)| byte ^ key);
            plaintext.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
            if !plaintext.get(..ciphertext.len()).is_some_and(|plaintext| starts_with_items(plaintext, 2)) {
                // With this keystream the plaintext is all zeros, which is not a valid message.
                out.iter_mut().zip(ciphertext).for_each(|(to, byte)| *to = *byte);
            }
        }
        out
    }

    fn hkdf_extract(&mut self, salt: &BytesHashLen, ikm: &BytesP256ElemLen) -> BytesHashLen {
        hmac::<C, 32>(&[salt], &[ikm])
    }

    fn aes_ccm_encrypt_tag_8(
        &mut self,
        key: &BytesCcmKeyLen,
        iv: &BytesCcmIvLen,
        ad: &[u8],
        plaintext: &BufferPlaintext3,
    ) -> BufferCiphertext3 {
        let mut sealed = *plaintext;
        sealed.len = plaintext.len.wrapping_add(AES_CCM_TAG_LEN);
        let done = sealed
            .content
            .get_mut(..sealed.len)
            .and_then(|all| all.split_at_mut_checked(plaintext.len))
            .is_some_and(|(text, tag)| self.crypto.seal(C::AES_128_CCM, key, iv, ad, text, tag).is_ok());
        if !done {
            // On failure, no plaintext is sent.
            sealed = BufferCiphertext3::new();
            self.has_failed = true;
        }
        sealed
    }

    fn aes_ccm_decrypt_tag_8(
        &mut self,
        key: &BytesCcmKeyLen,
        iv: &BytesCcmIvLen,
        ad: &[u8],
        ciphertext: &BufferCiphertext3,
    ) -> Result<BufferPlaintext3, EDHOCError> {
        let mut opened = *ciphertext;
        opened.len = ciphertext.len.checked_sub(AES_CCM_TAG_LEN).ok_or(EDHOCError::ParsingError)?;
        let all = opened.content.get_mut(..ciphertext.len).ok_or(EDHOCError::ParsingError)?;
        let (text, tag) = all.split_at_mut_checked(opened.len).ok_or(EDHOCError::ParsingError)?;
        let done = self.crypto.open(C::AES_128_CCM, key, iv, ad, text, tag);
        done.map_err(|_| EDHOCError::MacVerificationFailed)?;
        // message_4 contains only external authorization data, which is checked later.
        if opened.len > 0 && !starts_with_items(text, 1) {
            return Err(EDHOCError::ParsingError);
        }
        Ok(opened)
    }

    fn p256_ecdh(&mut self, private_key: &BytesP256ElemLen, public_key: &BytesP256ElemLen) -> BytesP256ElemLen {
        let mut secret = [0; 32];
        match self.crypto.agree_by_x(private_key, public_key, &mut secret) {
            Ok(()) => secret,
            Err(_) => self.fail(),
        }
    }

    fn get_random_byte(&mut self) -> u8 {
        let mut byte = [0];
        self.crypto.random(&mut byte);
        let [byte] = byte;
        byte
    }

    fn p256_generate_key_pair(&mut self) -> (BytesP256ElemLen, BytesP256ElemLen) {
        let (mut private, mut share) = ([0; 32], [0; MAX_SHARE]);
        let made = self.crypto.key_pair(NamedGroup::SECP256R1, &mut private, &mut share);
        let x = share.get(1..33).and_then(|x| <[u8; 32]>::try_from(x).ok());
        match (made, x) {
            (Ok(_), Some(x)) => (private, x),
            _ => (self.fail(), [0; 32]),
        }
    }
}

/// True if a plaintext begins with at least `items` whole CBOR values.
fn starts_with_items(plaintext: &[u8], items: usize) -> bool {
    let mut reader = Reader::new(plaintext);
    (0..items).try_for_each(|_| cbor::skip(&mut reader, MAX_DEPTH)).is_some()
}

/// Maximum nesting depth of a CBOR value. A credential has the depth four.
const MAX_DEPTH: u8 = 8;
