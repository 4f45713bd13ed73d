//! The trait through which the protocols use ciphers, hashes and randomness.
//!
//! A provider is a type parameter, never `dyn`. So the compiler leaves out the code of algorithms that an image does
//! not use: an image with only pre-shared keys contains no code for public keys. There are three providers:
//! [`RustCrypto`] (constant time, the default), [`Compact`] (small, for motes whose memory has no cache) and
//! `HostCrypto` of the crate `tegmen-trust` (hardware instructions). The running hash, HMAC, HKDF and the PRF of TLS
//! 1.2 need only the compression function of a hash. So they are written once for all providers: see [`digest`] and
//! [`hmac`].

mod compact;
#[cfg(feature = "curves")]
pub mod curves;
pub mod ecdsa;
#[cfg(feature = "ed25519")]
pub mod ed25519;
pub mod group;
pub mod hash;
pub mod hkdf;
#[cfg(feature = "p256")]
pub mod p256;
#[cfg(feature = "rustcrypto")]
mod rustcrypto;

pub use compact::Compact;
pub use group::{Curve, GroupCrypto, MemberKey};
pub use hash::{DIGEST_LEN, digest, hmac};
#[cfg(feature = "rustcrypto")]
pub use rustcrypto::{Algorithm, RustCrypto};

/// Length of an AES-128 key in bytes.
pub const KEY_LEN: usize = 16;
/// Length of a key of ChaCha20-Poly1305 in bytes.
pub const CHACHA20_KEY_LEN: usize = 32;
/// Length of a private key, and of a shared secret, in bytes. The lengths are the same for secp256r1 and x25519.
pub const SCALAR_LEN: usize = 32;
/// Length of the longest public key share in bytes: an uncompressed point of secp256r1.
pub const MAX_SHARE: usize = 65;
/// Length of the longest signature of ECDSA on secp256r1 in bytes.
pub const MAX_SIGNATURE: usize = 72;

/// The bytes before the point in the SubjectPublicKeyInfo of a key on secp256r1 (RFC 5480, section 2). They are the
/// same for each key, because DER allows only one encoding.
pub const P256_PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// A group for key agreement (IANA TLS Supported Groups registry).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedGroup(pub u16);

impl NamedGroup {
    /// NIST P-256 with uncompressed points (RFC 8422, section 5.1.1).
    pub const SECP256R1: Self = Self(23);
    /// Curve25519 (RFC 7748).
    pub const X25519: Self = Self(29);
}

/// A signature scheme (IANA TLS SignatureScheme registry). Only schemes with SHA-256 are supported, so that one
/// running hash serves the whole handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SignatureScheme(pub u16);

impl SignatureScheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    pub const RSA_PKCS1_SHA256: Self = Self(0x0401);
    /// ECDSA with SHA-256. In TLS 1.2 the key determines the curve, and this crate supports only secp256r1.
    pub const ECDSA_SECP256R1_SHA256: Self = Self(0x0403);
    /// Ed25519 (RFC 8032). The signed message is a SHA-256 digest. No handshake uses this scheme.
    pub const ED25519: Self = Self(0x0807);
}

/// AES-128-CCM, for a provider that has no other AEAD algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ccm;

/// The primitives that every provider has.
///
/// Each call takes the raw key, so a session stores only this key (16 bytes for AES-128). A provider that is faster
/// with expanded keys has its own cache of key schedules, with a limited size. A session does not store its key
/// schedule, because a schedule has 176 bytes, more than a whole session may use.
pub trait Crypto {
    /// An AEAD algorithm of the provider (RFC 5116). A provider with only one algorithm uses [`Ccm`], which has size
    /// zero.
    type Aead: Copy;

    /// AES-128-CCM (RFC 3610): a nonce of 7 to 13 bytes, and a tag of an even number of bytes from 4 to 16.
    const AES_128_CCM: Self::Aead;

    /// AES-128-GCM (NIST SP 800-38D): a nonce of 12 bytes, a tag of 16 bytes. `None` if the provider does not have it.
    /// This value is a constant, so that an image of a provider without AES-128-GCM contains no code that uses it.
    const AES_128_GCM: Option<Self::Aead> = None;

    /// ChaCha20-Poly1305 (RFC 8439, section 2.8): a nonce of 12 bytes, a tag of 16 bytes. `None` if the provider does
    /// not have it. DTLS records use it only with the feature `alloc`. Without `alloc`, the keys of a session have
    /// space only for AES-128 keys, and the keys of ChaCha20 are longer.
    const CHACHA20_POLY1305: Option<Self::Aead> = None;

    /// Encrypts `body` in place and writes the authentication tag.
    ///
    /// The key must have the length that the algorithm requires: [`KEY_LEN`], or 32 bytes for ChaCha20-Poly1305. For
    /// CCM, the length of the nonce sets the size of the length field, and the length of `tag` sets the size of the
    /// tag. In every protocol of this workspace, the first four bytes of the nonce are constant for a key of CCM. A
    /// provider may use them to find a cached key schedule.
    ///
    /// # Errors
    /// [`Unsupported`] if the provider does not support the algorithm with the lengths of `key`, `nonce`, `body` and
    /// `tag`; `body` is then unchanged.
    fn seal(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported>;

    /// Decrypts `body` in place and checks `tag` in constant time. This is the inverse operation of [`Self::seal`].
    ///
    /// # Errors
    /// [`NotAuthentic`] if the tag does not match or the lengths are not supported. The content of `body` must then
    /// not be used.
    fn open(
        &mut self,
        aead: Self::Aead,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic>;

    /// True if the provider has AES-128-CBC. Cipher suites of DTLS that need AES-128-CBC are off by default. This value
    /// is a constant for the same reason as [`Self::AES_128_GCM`].
    const CBC: bool = false;

    /// Encrypts `body`, which consists of blocks of 16 bytes, in place with AES-128-CBC (NIST SP 800-38A). This does
    /// not authenticate `body`.
    ///
    /// # Errors
    /// [`Unsupported`] if the provider does not have AES-128-CBC, or `body` does not consist of whole blocks. `body`
    /// is then unchanged.
    fn cbc_encrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        let _ = (key, iv, body);
        Err(Unsupported)
    }

    /// Decrypts `body` in place, in a time that depends only on its length. This is the inverse operation of
    /// [`Self::cbc_encrypt`].
    ///
    /// # Errors
    /// The same as for [`Self::cbc_encrypt`].
    fn cbc_decrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        let _ = (key, iv, body);
        Err(Unsupported)
    }

    /// True if the provider has SHA-1. Only one cipher suite of DTLS needs SHA-1, and this cipher suite is off by
    /// default. This value is a constant for the same reason as [`Self::AES_128_GCM`].
    const SHA1: bool = false;

    /// Applies the compression function of SHA-1 (FIPS 180-4, section 6.1.2) to `blocks` in order. The time depends
    /// only on the number of blocks. This function is not called if [`Self::SHA1`] is false.
    fn sha1_compress(state: &mut [u32; 5], blocks: &[[u8; 64]]) {
        let _ = (state, blocks);
    }

    /// The groups of the provider, in order of preference. This value is a constant, so that an image without groups
    /// contains no code for groups.
    const GROUPS: &'static [NamedGroup] = &[];

    /// Draws a key pair for one key agreement. Writes the private key to `private`, and the share for the peer to
    /// `share`. Returns the length of the share: 65 bytes for secp256r1, 32 bytes for x25519.
    ///
    /// # Errors
    /// [`Unsupported`] if the provider does not have the group.
    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        let _ = (group, private, share);
        Err(Unsupported)
    }

    /// Agrees on a secret with the owner of `share`, in constant time.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the share is not a point of the curve, or is a point of small order (RFC 8422, section
    /// 5.11).
    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        let _ = (group, private, share, secret);
        Err(NotAuthentic)
    }

    /// Agrees on a secret with the owner of a point on secp256r1 whose x-coordinate is `x`. The time does not depend
    /// on the private key. Both points with this x-coordinate give the same secret (RFC 9528, section 3.7).
    ///
    /// # Errors
    /// [`NotAuthentic`] if there is no such point, or the provider does not have the operation.
    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        let _ = (private, x, secret);
        Err(NotAuthentic)
    }

    /// Checks a signature over a SHA-256 `digest`. `public_key` is a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the signature is wrong, or the key does not fit the scheme.
    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; hash::DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        let _ = (scheme, public_key, digest, signature);
        Err(NotAuthentic)
    }

    /// Signs a SHA-256 `digest` with a private key on secp256r1, by deterministic ECDSA (RFC 6979), in constant time.
    /// Returns the length of the signature, which is in DER.
    ///
    /// # Errors
    /// [`Unsupported`] if the provider cannot sign, or if `private` is 0 or is not below the order of the curve.
    fn sign(
        &mut self,
        private: &[u8; SCALAR_LEN],
        digest: &[u8; hash::DIGEST_LEN],
        out: &mut [u8; MAX_SIGNATURE],
    ) -> Result<usize, Unsupported> {
        let _ = (private, digest, out);
        Err(Unsupported)
    }

    /// Applies the compression function of SHA-256 (FIPS 180-4, section 6.2.2) to `blocks` in order.
    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]);

    /// Fills `out` with unpredictable bytes from the provider's seeded generator.
    fn random(&mut self, out: &mut [u8]);

    /// Writes the master secret of a new session to a key log (RFC 9850). Does nothing if the provider has no key log.
    ///
    /// Anyone who can read the log can decrypt the traffic. Use it only for debugging.
    fn key_log(&mut self, client_random: &[u8; 32], master_secret: &[u8; 48]) {
        let _ = (client_random, master_secret);
    }
}

/// The error of a provider that does not have an algorithm, or that cannot use the algorithm with the given key or with
/// data of the given length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsupported;

/// The error for a tag or a signature that does not match. It has no details, so that nobody learns the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAuthentic;
