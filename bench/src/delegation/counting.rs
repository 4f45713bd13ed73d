//! The cryptographic provider of peers. It counts public-key operations.

use tegmen::crypto::{
    Crypto, DIGEST_LEN, MAX_SHARE, NamedGroup, NotAuthentic, SCALAR_LEN, SignatureScheme, Unsupported,
};
use tegmen_host::provider::HostCrypto;

/// A provider that supports only the group secp256r1.
pub(super) struct Counting {
    pub(super) crypto: HostCrypto,
    /// The number of generated key pairs, key agreements and verified signatures.
    pub(super) operations: u64,
}

impl Crypto for Counting {
    type Aead = <HostCrypto as Crypto>::Aead;
    const AES_128_CCM: Self::Aead = HostCrypto::AES_128_CCM;
    const AES_128_GCM: Option<Self::Aead> = HostCrypto::AES_128_GCM;
    const GROUPS: &'static [NamedGroup] = &[NamedGroup::SECP256R1];

    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
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

    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        self.operations += 1;
        self.crypto.key_pair(group, private, share)
    }

    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        self.operations += 1;
        self.crypto.agree(group, private, share, secret)
    }

    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.operations += 1;
        self.crypto.verify(scheme, public_key, digest, signature)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        HostCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}
