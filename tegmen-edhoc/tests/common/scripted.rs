//! A crypto provider for which a test sets the next key pair.

#![allow(dead_code, reason = "each test uses a part of it")]

use tegmen_base::crypto::{Crypto, MAX_SHARE, NamedGroup, NotAuthentic, RustCrypto, SCALAR_LEN, Unsupported};

pub(crate) struct Scripted {
    software: RustCrypto,
    next: Option<([u8; 32], [u8; 32])>,
}

impl Scripted {
    pub(crate) fn new() -> Self {
        Self::seeded(7)
    }

    pub(crate) fn seeded(seed: u8) -> Self {
        Self { software: RustCrypto::new([seed; 32]), next: None }
    }

    /// Makes a provider whose next private key is `private`. The public key of this private key has the x-coordinate
    /// `x`.
    pub(crate) fn with_key(private: [u8; 32], x: [u8; 32]) -> Self {
        Self { next: Some((private, x)), ..Self::new() }
    }
}

impl Crypto for Scripted {
    type Aead = <RustCrypto as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = RustCrypto::AES_128_CCM;

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.software.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.software.open(aead, key, nonce, aad, body, tag)
    }

    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        let Some((key, x)) = self.next.take() else { return self.software.key_pair(group, private, share) };
        *private = key;
        share[0] = 4;
        share[1..33].copy_from_slice(&x);
        Ok(MAX_SHARE)
    }

    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        self.software.agree_by_x(private, x, secret)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.software.random(out);
    }
}
