//! A crypto provider that counts the encryptions that repeat a nonce under the same key.

use std::collections::HashSet;
use tegmen::crypto::{Crypto, NotAuthentic, RustCrypto, Unsupported};

pub(crate) struct Recorder {
    crypto: RustCrypto,
    /// All pairs of a key and a nonce with which the provider has encrypted.
    used: HashSet<(Vec<u8>, Vec<u8>)>,
    pub(crate) repeated: u64,
}

impl Recorder {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        Self { crypto: RustCrypto::new(bytes), used: HashSet::new(), repeated: 0 }
    }

    pub(crate) fn nonces(&self) -> u64 {
        self.used.len() as u64
    }
}

impl Crypto for Recorder {
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
        self.repeated += u64::from(!self.used.insert((key.to_vec(), nonce.to_vec())));
        self.crypto.seal(aead, key, nonce, aad, body, tag)
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
        self.crypto.open(aead, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
