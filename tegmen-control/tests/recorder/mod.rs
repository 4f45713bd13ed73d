//! A cryptographic provider that records each key and nonce with which a message is sealed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tegmen::crypto::{Crypto, NotAuthentic, SignatureScheme, Unsupported};
use tegmen_trust::provider::HostCrypto;

/// The messages that all recording providers of a test have sealed.
#[derive(Default)]
pub(crate) struct Sealed {
    /// The last content that was sealed under each key and nonce. The content is the additional data and the plaintext.
    contents: HashMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
    /// The number of times that a key and a nonce were used again for another content. It must be 0 at the end of a
    /// test.
    pub(crate) repeated: usize,
}

pub(crate) type Seals = Arc<Mutex<Sealed>>;

/// A provider that counts how often a key and a nonce are used for different contents. The same content again is a
/// retransmission, and is not counted.
pub(crate) struct Recording {
    crypto: HostCrypto,
    seals: Seals,
}

impl Recording {
    pub(crate) fn new(seals: &Seals, crypto: HostCrypto) -> Self {
        Self { crypto, seals: Arc::clone(seals) }
    }
}

impl Crypto for Recording {
    type Aead = <HostCrypto as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = HostCrypto::AES_128_CCM;
    const AES_128_GCM: Option<Self::Aead> = HostCrypto::AES_128_GCM;

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        let content = [aad, body].concat();
        let seals = &mut *self.seals.lock().unwrap();
        let before = seals.contents.insert((key.to_vec(), nonce.to_vec()), content.clone());
        seals.repeated += usize::from(before.is_some_and(|before| before != content));
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

    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; 32],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.verify(scheme, public_key, digest, signature)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        HostCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
