//! The crypto provider of hosts: AES-CCM with the AES instructions of the processor, and a cache of key schedules for
//! busy sessions.

mod group;
pub mod public;

use crate::hex::to_hex;
use public::{Group, KeyPairs};
use std::io::{self, Write};
use tegmen::crypto::{
    Algorithm, Crypto, DIGEST_LEN, KEY_LEN, MAX_SHARE, NamedGroup, NotAuthentic, RustCrypto, SCALAR_LEN,
    SignatureScheme, Unsupported,
};
use tegmen::secret::{Secret, wipe};
use tegmen_accel::KeySchedule;

/// A provider with AES-CCM of `tegmen-accel`, ChaCha20-Poly1305 of `aws-lc-rs`, SHA-256 of `sha2`, random bytes of
/// `chacha20`, and an optional key log.
///
/// A session stores only its raw keys. This provider has a cache of fixed size with the expanded key schedules. A key
/// that is not in the cache is expanded again, which takes about half as long as the encryption of a record.
pub struct HostCrypto {
    schedules: Schedules,
    /// The provider of the random bytes, and of the algorithms for which this crate has no faster implementation.
    software: RustCrypto,
    key_logs: Vec<Box<dyn Write + Send>>,
    key_pairs: KeyPairs,
    /// A buffer that holds a copy of the ciphertext while it is decrypted.
    sealed: Vec<u8>,
    signing: group::Signing,
}

impl HostCrypto {
    /// Number of key schedules in the cache of [`Self::from_os`]. This is enough for 512 sessions, and takes 176 KiB.
    pub const DEFAULT_CACHE_ENTRIES: usize = 1024;

    /// Makes a provider whose random generator is seeded by the operating system.
    ///
    /// # Errors
    /// The error of the system if it gives no randomness.
    pub fn from_os() -> io::Result<Self> {
        let mut seed = Secret::<32>::zeroed();
        getrandom::fill(seed.expose_mut()).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self::new(*seed.expose(), Self::DEFAULT_CACHE_ENTRIES))
    }

    /// Makes a provider whose generator starts from `seed`, 32 unpredictable bytes. Its cache has `cache_entries` key
    /// schedules, rounded up to a power of two, and at least one.
    pub fn new(mut seed: [u8; 32], cache_entries: usize) -> Self {
        let software = RustCrypto::new(seed);
        wipe(&mut seed);
        Self {
            schedules: Schedules::new(cache_entries),
            software,
            key_logs: Vec::new(),
            key_pairs: KeyPairs::new(KEY_PAIRS),
            sealed: Vec::new(),
            signing: group::Signing::default(),
        }
    }

    /// Appends the master secrets of later handshakes to the key log `file` (RFC 9850). Makes the file readable for its
    /// owner only.
    ///
    /// # Errors
    /// The error of the system if the file cannot be written.
    pub fn log_keys_to(&mut self, file: &std::path::Path) -> io::Result<()> {
        let log = crate::private::open(std::fs::File::options().create(true).append(true), file)?;
        self.add_key_log(Box::new(log));
        Ok(())
    }

    /// Writes the master secrets of later handshakes to `log`, in the format of a key log (RFC 9850). Writes each line
    /// with one call. Anyone who can read the log can decrypt the traffic.
    pub fn add_key_log(&mut self, log: Box<dyn Write + Send>) {
        self.key_logs.push(log);
    }

    /// Returns the size of the cache of key schedules in bytes.
    pub fn cache_bytes(&self) -> usize {
        size_of_val::<[KeySchedule]>(&self.schedules.slots)
    }
}

impl Crypto for HostCrypto {
    type Aead = Algorithm;
    const AES_128_CCM: Algorithm = Algorithm::Ccm;
    const AES_128_GCM: Option<Algorithm> = Some(Algorithm::Gcm);
    const CHACHA20_POLY1305: Option<Algorithm> = Some(Algorithm::ChaCha20Poly1305);

    #[inline]
    fn seal(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        match aead {
            Algorithm::Ccm => {
                let key = key.try_into().map_err(|_| Unsupported)?;
                tegmen_accel::seal(self.schedules.find(key, nonce, 0), nonce, aad, body, tag)
            }
            Algorithm::ChaCha20Poly1305 => public::chacha20_poly1305_seal(key, nonce, aad, body, tag),
            Algorithm::Gcm => self.software.seal(aead, key, nonce, aad, body, tag),
        }
    }

    #[inline]
    fn open(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        match aead {
            Algorithm::Ccm => {
                let key = key.try_into().map_err(|_| NotAuthentic)?;
                // In OSCORE a response has the nonce of its request, and another key.
                let other = if nonce.len() == OSCORE_NONCE_LEN { 1 } else { 0 };
                tegmen_accel::open(self.schedules.find(key, nonce, other), nonce, aad, body, tag)
            }
            Algorithm::ChaCha20Poly1305 => {
                // The library opens in place only where the tag is behind the text.
                self.sealed.clear();
                self.sealed.extend_from_slice(body);
                public::chacha20_poly1305_open(key, nonce, aad, (&self.sealed, tag), body)
            }
            Algorithm::Gcm => self.software.open(aead, key, nonce, aad, body, tag),
        }
    }

    const CBC: bool = true;

    fn cbc_encrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        self.software.cbc_encrypt(key, iv, body)
    }

    fn cbc_decrypt(&mut self, key: &[u8; KEY_LEN], iv: &[u8; 16], body: &mut [u8]) -> Result<(), Unsupported> {
        self.software.cbc_decrypt(key, iv, body)
    }

    const SHA1: bool = true;

    fn sha1_compress(state: &mut [u32; 5], blocks: &[[u8; 64]]) {
        RustCrypto::sha1_compress(state, blocks);
    }

    /// The groups for key agreement, the preferred group first. x25519 is preferred, because its key agreement takes
    /// half the time of secp256r1.
    const GROUPS: &'static [NamedGroup] = &[NamedGroup::X25519, NamedGroup::SECP256R1];

    fn key_pair(
        &mut self,
        group: NamedGroup,
        private: &mut [u8; SCALAR_LEN],
        share: &mut [u8; MAX_SHARE],
    ) -> Result<usize, Unsupported> {
        let group = Group::of(group).ok_or(Unsupported)?;
        *private = *self.key_pairs.generate(group, share).map_err(|_| Unsupported)?.expose();
        Ok(group.public_len())
    }

    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; SCALAR_LEN],
        share: &[u8],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        let group = Group::of(group).ok_or(NotAuthentic)?;
        let agreed = self.key_pairs.agree(group, &Secret::new(*private), share).map_err(|_| NotAuthentic)?;
        *secret = *agreed.expose();
        Ok(())
    }

    fn agree_by_x(
        &mut self,
        private: &[u8; SCALAR_LEN],
        x: &[u8; SCALAR_LEN],
        secret: &mut [u8; SCALAR_LEN],
    ) -> Result<(), NotAuthentic> {
        let agreed = self.key_pairs.agree_by_x(&Secret::new(*private), x).map_err(|_| NotAuthentic)?;
        *secret = *agreed.expose();
        Ok(())
    }

    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; DIGEST_LEN],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        public::verify_digest(scheme, public_key, digest, signature)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        sha2::block_api::compress256(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.software.random(out);
    }

    fn key_log(&mut self, client_random: &[u8; 32], master_secret: &[u8; 48]) {
        if self.key_logs.is_empty() {
            return;
        }
        let line = format!("CLIENT_RANDOM {} {}\n", to_hex(client_random), to_hex(master_secret));
        for log in &mut self.key_logs {
            // Lost lines of a debugging aid must not stop a server.
            let _ = log.write_all(line.as_bytes());
        }
    }
}

/// Maximum number of key pairs in the cache for handshakes in progress. It is enough for 512 handshakes at the same time,
/// and then takes 512 KiB.
const KEY_PAIRS: usize = 1024;
/// Length of a nonce of OSCORE in bytes. The provider recognizes OSCORE by this length, because a nonce of DTLS has 12
/// bytes.
const OSCORE_NONCE_LEN: usize = 13;

/// A cache of key schedules in slots. The constant part of the nonces of a key selects the only slot in which the
/// schedule of this key can be.
struct Schedules {
    slots: Box<[KeySchedule]>,
}

impl Schedules {
    fn new(entries: usize) -> Self {
        // Every slot starts with a valid schedule, that of the zero key, and so none is ever without one.
        let zero = KeySchedule::expand(&[0; KEY_LEN]);
        Self { slots: vec![zero; entries.max(1).next_power_of_two()].into() }
    }

    /// Returns the key schedule of `key` from the slot that `nonce` and `other` select. If the slot has the schedule of
    /// another key, first replaces it by the schedule of `key`. `other` is 0 or 1: two keys that use the same nonces
    /// get different slots if `other` differs.
    #[inline]
    fn find(&mut self, key: &[u8; KEY_LEN], nonce: &[u8], other: u32) -> &KeySchedule {
        let salt = nonce.first_chunk().map_or(0, |salt| u32::from_le_bytes(*salt)) ^ other;
        // The golden ratio spreads over the upper bits; the shift is 64 for a single slot.
        let mixed = u64::from(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = mixed.checked_shr(64 - self.slots.len().trailing_zeros()).unwrap_or(0) as usize;
        let slot = &mut self.slots[index];
        if !equal(slot.key(), key) {
            slot.renew(key);
        }
        slot
    }
}

/// Compares keys in constant time: compares all bytes, and decides once at the end.
#[inline]
fn equal(a: &[u8; KEY_LEN], b: &[u8; KEY_LEN]) -> bool {
    std::hint::black_box(u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)) == 0
}

#[cfg(test)]
mod tests;
