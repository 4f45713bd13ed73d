//! A crypto provider that records every nonce.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;
use tegmen::crypto::{
    Crypto, DIGEST_LEN, KEY_LEN, MAX_SHARE, NamedGroup, NotAuthentic, RustCrypto, SCALAR_LEN, SignatureScheme,
    Unsupported, hmac,
};

/// Every key and nonce that was used to seal something in a world.
pub type Spent = Rc<RefCell<HashSet<(Vec<u8>, Vec<u8>)>>>;

thread_local! {
    /// Number of blocks that the compression function of SHA-256 processed on this thread.
    pub static COMPRESSED: Cell<usize> = const { Cell::new(0) };
}

/// A crypto provider that fails the test when a nonce is used twice with one key.
pub struct Recorder {
    inner: RustCrypto,
    spent: Spent,
}

impl Recorder {
    pub fn new(seed: [u8; 32], spent: Spent) -> Self {
        Self { inner: RustCrypto::new(seed), spent }
    }

    fn spend(&self, key: &[u8], nonce: &[u8]) {
        let first = self.spent.borrow_mut().insert((key.to_vec(), nonce.to_vec()));
        assert!(first, "nonce {nonce:02x?} twice under one key");
    }
}

/// Returns a signature that needs almost no computation, and replaces Ed25519 in a world. The public key is the private
/// key.
pub fn stand_in(key: &[u8], digest: &[u8; DIGEST_LEN]) -> [u8; 64] {
    let code = hmac::<RustCrypto, DIGEST_LEN>(&[key], &[digest]);
    let mut signature = [0; 64];
    signature[..DIGEST_LEN].copy_from_slice(&code);
    signature[DIGEST_LEN..].copy_from_slice(&code);
    signature
}

impl Crypto for Recorder {
    type Aead = <RustCrypto as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = RustCrypto::AES_128_CCM;
    const AES_128_GCM: Option<Self::Aead> = RustCrypto::AES_128_GCM;
    const CHACHA20_POLY1305: Option<Self::Aead> = RustCrypto::CHACHA20_POLY1305;

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.spend(key, nonce);
        self.inner.seal(aead, key, nonce, aad, body, tag)
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
        self.inner.open(aead, key, nonce, aad, body, tag)
    }

    const CBC: bool = true;

    fn cbc_encrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        self.spend(key, iv);
        self.inner.cbc_encrypt(key, iv, body)
    }

    fn cbc_decrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        self.inner.cbc_decrypt(key, iv, body)
    }

    const SHA1: bool = true;

    fn sha1_compress(state: &mut [u32; 5], blocks: &[[u8; 64]]) {
        RustCrypto::sha1_compress(state, blocks);
    }

    const GROUPS: &'static [NamedGroup] = RustCrypto::GROUPS;

    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        self.inner.key_pair(group, private, share)
    }

    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        self.inner.agree(group, private, share, secret)
    }

    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        if scheme == SignatureScheme::ED25519 {
            return if signature == stand_in(public_key, digest) { Ok(()) } else { Err(NotAuthentic) };
        }
        self.inner.verify(scheme, public_key, digest, signature)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        COMPRESSED.set(COMPRESSED.get() + blocks.len());
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.inner.random(out);
    }
}
