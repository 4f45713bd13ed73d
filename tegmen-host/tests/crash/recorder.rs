//! A crypto provider that remembers every nonce with which it encrypted.

use std::collections::HashSet;
use tegmen::crypto::{Ccm, Crypto, NotAuthentic, Unsupported};
use tegmen_host::provider::HostCrypto;

pub(crate) struct Recorder {
    crypto: HostCrypto,
    seen: HashSet<(Vec<u8>, Vec<u8>)>,
    pub(crate) repeated: u64,
}

impl Recorder {
    pub(crate) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        Self { crypto: HostCrypto::new(bytes, 16), seen: HashSet::new(), repeated: 0 }
    }

    pub(crate) fn nonces(&self) -> u64 {
        self.seen.len() as u64
    }
}

impl Crypto for Recorder {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        if !self.seen.insert((key.to_vec(), nonce.to_vec())) {
            self.repeated += 1;
        }
        self.crypto.seal(HostCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.open(HostCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        HostCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
