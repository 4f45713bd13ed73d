//! The default provider, on the RustCrypto crates. It takes constant time on every target, and uses hardware
//! instructions where they exist.

#[cfg(feature = "cbc")]
use super::KEY_LEN;
use super::{Crypto, NotAuthentic, Unsupported};
#[cfg(feature = "curves")]
use super::{MAX_SHARE, MAX_SIGNATURE, NamedGroup, SCALAR_LEN, SignatureScheme, curves, hash::DIGEST_LEN};
use aes::Aes128;
#[cfg(feature = "cbc")]
use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _};
use aes_gcm::Aes128Gcm;
use ccm::Ccm;
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U8, U12, U13, U16};
use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
#[cfg(feature = "chacha20poly1305")]
use chacha20poly1305::ChaCha20Poly1305;

/// A provider with AES and CCM of the crates `aes` and `ccm`, SHA-256 of `sha2`, and random bytes of `chacha20`.
///
/// CCM supports nonces of 12 and 13 bytes and tags of 8 and 16 bytes, which DTLS and OSCORE use.
pub struct RustCrypto {
    generator: ChaCha20Rng,
}

impl RustCrypto {
    /// Makes a provider whose generator starts from `seed`: 32 unpredictable bytes that are used once.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { generator: ChaCha20Rng::from_seed(seed) }
    }
}

impl Crypto for RustCrypto {
    type Aead = Algorithm;
    const AES_128_CCM: Algorithm = Algorithm::Ccm;
    const AES_128_GCM: Option<Algorithm> = Some(Algorithm::Gcm);
    #[cfg(feature = "chacha20poly1305")]
    const CHACHA20_POLY1305: Option<Algorithm> = Some(Algorithm::ChaCha20Poly1305);

    #[inline(always)]
    fn seal(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        seal(aead, key, nonce, aad, body, tag)
    }

    #[inline(always)]
    fn open(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        open(aead, key, nonce, aad, body, tag)
    }

    #[cfg(feature = "cbc")]
    const CBC: bool = true;

    #[cfg(feature = "cbc")]
    fn cbc_encrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        cbc_encrypt(key, iv, body)
    }

    #[cfg(feature = "cbc")]
    fn cbc_decrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        cbc_decrypt(key, iv, body)
    }

    #[cfg(feature = "cbc")]
    const SHA1: bool = true;

    #[cfg(feature = "cbc")]
    fn sha1_compress(state: &mut [u32; 5], blocks: &[[u8; 64]]) {
        sha1_compress(state, blocks);
    }

    #[cfg(feature = "curves")]
    const GROUPS: &'static [NamedGroup] = &[
        #[cfg(feature = "x25519")]
        NamedGroup::X25519,
        NamedGroup::SECP256R1,
    ];

    #[cfg(feature = "curves")]
    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        curves::key_pair(group, |out| self.random(out), private, share)
    }

    #[cfg(feature = "curves")]
    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        curves::agree(group, private, share, secret)
    }

    #[cfg(feature = "curves")]
    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        curves::agree_by_x(private, x, secret)
    }

    #[cfg(feature = "curves")]
    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        curves::verify(scheme, public_key, digest, signature)
    }

    #[cfg(feature = "curves")]
    fn sign(
        &mut self,
        private: &[u8; SCALAR_LEN],
        digest: &[u8; DIGEST_LEN],
        out: &mut [u8; MAX_SIGNATURE],
    ) -> Result<usize, Unsupported> {
        curves::sign(private, digest, out)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        sha2::block_api::compress256(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.generator.fill_bytes(out);
    }
}

/// An AEAD algorithm of [`RustCrypto`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// AES-128-CCM with nonces of 12 or 13 bytes, and tags of 8 or 16 bytes.
    Ccm,
    /// AES-128-GCM.
    Gcm,
    /// ChaCha20-Poly1305, with the feature `chacha20poly1305`.
    ChaCha20Poly1305,
}

/// Implements [`Crypto::seal`].
///
/// # Errors
/// [`Unsupported`] if the provider does not support the algorithm with the lengths of the nonce and of the tag.
#[inline(always)]
fn seal(
    aead: Algorithm,
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Unsupported> {
    match (aead, nonce.len(), tag.len()) {
        (Algorithm::Ccm, 12, 8) => seal_with::<Ccm<Aes128, U8, U12>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 13, 8) => seal_with::<Ccm<Aes128, U8, U13>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 12, 16) => seal_with::<Ccm<Aes128, U16, U12>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 13, 16) => seal_with::<Ccm<Aes128, U16, U13>>(key, nonce, aad, body, tag),
        (Algorithm::Gcm, 12, 16) => seal_with::<Aes128Gcm>(key, nonce, aad, body, tag),
        #[cfg(feature = "chacha20poly1305")]
        (Algorithm::ChaCha20Poly1305, 12, 16) => seal_with::<ChaCha20Poly1305>(key, nonce, aad, body, tag),
        _ => Err(Unsupported),
    }
}

/// Implements [`Crypto::open`].
///
/// # Errors
/// [`NotAuthentic`] if the tag does not match, or the provider does not support the algorithm with the lengths of the
/// nonce and of the tag.
#[inline(always)]
fn open(
    aead: Algorithm,
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &[u8],
) -> Result<(), NotAuthentic> {
    match (aead, nonce.len(), tag.len()) {
        (Algorithm::Ccm, 12, 8) => open_with::<Ccm<Aes128, U8, U12>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 13, 8) => open_with::<Ccm<Aes128, U8, U13>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 12, 16) => open_with::<Ccm<Aes128, U16, U12>>(key, nonce, aad, body, tag),
        (Algorithm::Ccm, 13, 16) => open_with::<Ccm<Aes128, U16, U13>>(key, nonce, aad, body, tag),
        (Algorithm::Gcm, 12, 16) => open_with::<Aes128Gcm>(key, nonce, aad, body, tag),
        #[cfg(feature = "chacha20poly1305")]
        (Algorithm::ChaCha20Poly1305, 12, 16) => open_with::<ChaCha20Poly1305>(key, nonce, aad, body, tag),
        _ => Err(NotAuthentic),
    }
}

/// Implements [`Crypto::cbc_encrypt`].
///
/// # Errors
/// [`Unsupported`] if `body` does not consist of whole blocks.
#[cfg(feature = "cbc")]
fn cbc_encrypt(key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
    let cipher = Aes128::new(key.into());
    let (blocks, []) = body.as_chunks_mut::<16>() else { return Err(Unsupported) };
    let mut before = *iv;
    for block in blocks {
        before.iter_mut().zip(&*block).for_each(|(before, byte)| *before ^= byte);
        cipher.encrypt_block((&mut before).into());
        *block = before;
    }
    Ok(())
}

/// Implements [`Crypto::cbc_decrypt`].
///
/// # Errors
/// [`Unsupported`] if `body` does not consist of whole blocks.
#[cfg(feature = "cbc")]
fn cbc_decrypt(key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
    let cipher = Aes128::new(key.into());
    let (blocks, []) = body.as_chunks_mut::<16>() else { return Err(Unsupported) };
    let mut before = *iv;
    for block in blocks {
        let sealed = *block;
        cipher.decrypt_block(block.into());
        block.iter_mut().zip(before).for_each(|(byte, before)| *byte ^= before);
        before = sealed;
    }
    Ok(())
}

/// Implements [`Crypto::sha1_compress`].
#[cfg(feature = "cbc")]
fn sha1_compress(state: &mut [u32; 5], blocks: &[[u8; 64]]) {
    sha1::block_api::compress(state, blocks);
}

fn seal_with<A: KeyInit + AeadInOut>(
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Unsupported> {
    let cipher = A::new(key.try_into().map_err(|_| Unsupported)?);
    let nonce = nonce.try_into().map_err(|_| Unsupported)?;
    let made = cipher.encrypt_inout_detached(nonce, aad, InOutBuf::from(body)).map_err(|_| Unsupported)?;
    crate::buf::copy(tag, &made).map_err(|_| Unsupported)
}

fn open_with<A: KeyInit + AeadInOut>(
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &[u8],
) -> Result<(), NotAuthentic> {
    let cipher = A::new(key.try_into().map_err(|_| NotAuthentic)?);
    let nonce = nonce.try_into().map_err(|_| NotAuthentic)?;
    let tag = tag.try_into().map_err(|_| NotAuthentic)?;
    cipher.decrypt_inout_detached(nonce, aad, InOutBuf::from(body), tag).map_err(|_| NotAuthentic)
}
