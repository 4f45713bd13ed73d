//! SHA-256, HMAC (RFC 2104) and the PRF of TLS 1.2 (RFC 5246, section 5) over a provider's compression function.
//!
//! Hash and HMAC are written once for SHA-256 and SHA-1 (FIPS 180-4). The length of the digest selects the hash. Only
//! the records of one old cipher suite use SHA-1.
//!
//! The crate does not use a library for hash and HMAC, for two reasons. First, a mote keeps a key of HMAC in only 64
//! bytes, as two states of the hash. Second, a provider has to implement only the compression function of a hash.

use super::Crypto;
use crate::buf::{Writer, copy};
use crate::secret::Secret;
use zeroize::optimization_barrier;

/// Length of a SHA-256 digest in bytes.
pub const DIGEST_LEN: usize = 32;

/// Length of a SHA-1 digest in bytes.
pub const SHA1_LEN: usize = 20;

const SHA256_INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
/// The initial state of SHA-1, which uses only the first five of eight words.
const SHA1_INITIAL: [u32; 8] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0, 0, 0, 0];

const fn initial<const LEN: usize>() -> [u32; 8] {
    const { assert!(LEN == DIGEST_LEN || LEN == SHA1_LEN) };
    if LEN == SHA1_LEN { SHA1_INITIAL } else { SHA256_INITIAL }
}

/// Runs the compression function of the hash whose digests have `LEN` bytes.
#[inline(always)]
pub fn compress<C: Crypto, const LEN: usize>(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
    if LEN == DIGEST_LEN {
        C::sha256_compress(state, blocks);
    } else if let Some(state) = state.first_chunk_mut() {
        C::sha1_compress(state, blocks);
    }
}

/// Returns the digest of a message. The parts of the message are concatenated. The hash is SHA-256 if `LEN` is
/// [`DIGEST_LEN`], and SHA-1 if `LEN` is 20.
pub fn digest<C: Crypto, const LEN: usize>(message: &[&[u8]]) -> [u8; LEN] {
    let mut hash = Running::new();
    for part in message {
        hash.update::<C>(part);
    }
    hash.finish::<C>()
}

/// Computes HMAC (RFC 2104). `LEN` selects the hash, as in [`digest`]. The parts of the key and of the message are
/// concatenated.
pub fn hmac<C: Crypto, const LEN: usize>(key: &[&[u8]], message: &[&[u8]]) -> [u8; LEN] {
    Hmac::new::<C>(key).mac::<C>(message)
}

/// A running SHA-256. A clone of it gives an intermediate digest, which the transcript of a handshake needs.
pub type Sha256 = Running<DIGEST_LEN>;

/// A running hash with digests of `LEN` bytes: [`DIGEST_LEN`] or [`SHA1_LEN`].
#[derive(Clone)]
pub struct Running<const LEN: usize> {
    state: [u32; 8],
    block: [u8; 64],
    /// Number of bytes of the input until now. The last bytes wait in `block` until `block` has 64 bytes.
    len: u32,
}

impl<const LEN: usize> Running<LEN> {
    /// Makes the hash of no bytes.
    pub const fn new() -> Self {
        Self { state: const { initial::<LEN>() }, block: [0; 64], len: 0 }
    }

    /// Makes a value without a hash. Call [`Self::restart`] before the first input.
    pub const fn none() -> Self {
        Self { state: [0; 8], block: [0; 64], len: 0 }
    }

    /// Resets the state to the hash of no bytes.
    #[inline(never)]
    pub fn restart(&mut self) {
        self.state = const { initial::<LEN>() };
        self.len = 0;
    }

    /// Adds `data` to the input.
    pub fn update<C: Crypto>(&mut self, mut data: &[u8]) {
        let filled = (self.len % 64) as usize;
        self.len = self.len.wrapping_add(data.len() as u32);
        if filled > 0 {
            let room = self.block.get_mut(filled..).unwrap_or(&mut []);
            let (head, rest) = data.split_at_checked(room.len()).unwrap_or((data, &[]));
            let complete = head.len() == room.len();
            let _ = copy(room, head);
            if !complete {
                return;
            }
            self.compress::<C>();
            data = rest;
        }
        let (blocks, rest) = data.as_chunks::<64>();
        if !blocks.is_empty() {
            compress::<C, LEN>(&mut self.state, blocks);
        }
        let _ = copy(&mut self.block, rest);
    }

    /// Returns the digest of all input until now. More input may follow.
    #[inline(never)]
    pub fn digest_so_far<C: Crypto>(&self) -> [u8; LEN] {
        let mut hash = self.clone();
        hash.complete::<C>();
        hash.digest()
    }

    /// Returns the digest of all input.
    pub fn finish<C: Crypto>(mut self) -> [u8; LEN] {
        self.complete::<C>();
        self.digest()
    }

    /// Fills `out` with the first bytes of the digest, without a copy of the hash. Reset the hash afterwards.
    pub(crate) fn finish_into<C: Crypto>(&mut self, out: &mut [u8]) {
        self.complete::<C>();
        put(out, &self.state);
    }

    /// Pads and compresses the bytes in `block`, so that the state is the digest (FIPS 180-4, section 5.1.1).
    #[inline(never)]
    fn complete<C: Crypto>(&mut self) {
        let filled = (self.len % 64) as usize;
        let (_, tail) = self.block.split_at_mut_checked(filled).unwrap_or((&mut [], &mut []));
        tail.fill(0);
        if let Some(first) = tail.first_mut() {
            *first = 0x80;
        }
        if filled > 55 {
            self.compress::<C>();
            self.block = [0; 64];
        }
        if let Some(end) = self.block.last_chunk_mut::<8>() {
            *end = (u64::from(self.len) << 3).to_be_bytes();
        }
        self.compress::<C>();
    }

    fn compress<C: Crypto>(&mut self) {
        compress::<C, LEN>(&mut self.state, core::slice::from_ref(&self.block));
    }

    /// Returns the state as bytes, after [`Self::complete`].
    fn digest(&self) -> [u8; LEN] {
        let mut digest = [0; LEN];
        put(&mut digest, &self.state);
        digest
    }

    /// Combines the key in `block` with a pad of HMAC by exclusive or, and hashes `block`.
    #[inline(never)]
    fn pad<C: Crypto>(&mut self, pad: u32) {
        for word in self.block.as_chunks_mut::<4>().0 {
            *word = (u32::from_ne_bytes(*word) ^ pad).to_ne_bytes();
        }
        self.state = const { initial::<LEN>() };
        self.compress::<C>();
    }

    #[inline(never)]
    fn wipe(&mut self) {
        *self = Self::none();
        optimization_barrier(self);
    }
}

impl<const LEN: usize> Default for Running<LEN> {
    fn default() -> Self {
        Self::new()
    }
}

/// Fills `out` with the first bytes of a state.
#[inline(never)]
fn put(out: &mut [u8], state: &[u32; 8]) {
    let mut words = state.iter();
    let (whole, rest) = out.as_chunks_mut::<4>();
    for (bytes, word) in whole.iter_mut().zip(&mut words) {
        *bytes = word.to_be_bytes();
    }
    if let Some(word) = words.next() {
        rest.iter_mut().zip(word.to_be_bytes()).for_each(|(to, from)| *to = from);
    }
}

/// A key of HMAC-SHA-256.
pub type HmacKey = Hmac<DIGEST_LEN>;

/// A key of HMAC with a hash of `LEN` bytes. It is stored as the two states of the hash after the inner and the outer
/// pad, which saves two compressions for each message.
pub struct Hmac<const LEN: usize> {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl<const LEN: usize> Hmac<LEN> {
    /// Makes a value without a key. Call [`Self::set`] before the first message.
    pub const fn none() -> Self {
        Self { inner: [0; 8], outer: [0; 8] }
    }

    /// Wipes the key.
    #[inline(never)]
    pub fn wipe(&mut self) {
        (self.inner, self.outer) = ([0; 8], [0; 8]);
        optimization_barrier(self);
    }

    /// Makes a value with the key `key`, whose parts are concatenated. A key above 64 bytes is hashed first (RFC 2104,
    /// section 2).
    pub fn new<C: Crypto>(key: &[&[u8]]) -> Self {
        let mut made = Self::none();
        made.set::<C>(key);
        made
    }

    /// Replaces the key by `key`, whose parts are concatenated. A key above 64 bytes is hashed first (RFC 2104, section
    /// 2).
    #[inline(never)]
    pub fn set<C: Crypto>(&mut self, key: &[&[u8]]) {
        let mut hash = Running::<LEN>::none();
        let mut writer = Writer::new(&mut hash.block);
        if !key.iter().all(|part| writer.put(part).is_ok()) {
            hash.restart();
            for part in key {
                hash.update::<C>(part);
            }
            hash.complete::<C>();
            hash.block = [0; 64];
            put(&mut hash.block, &hash.state);
        }
        hash.pad::<C>(0x3636_3636);
        self.inner = hash.state;
        hash.pad::<C>(0x3636_3636 ^ 0x5c5c_5c5c);
        self.outer = hash.state;
        hash.wipe();
    }

    /// Returns the authentication code of a message, given in parts.
    pub fn mac<C: Crypto>(&self, message: &[&[u8]]) -> [u8; LEN] {
        let mut code = [0; LEN];
        self.mac_into::<C>(message, &mut code);
        code
    }

    /// Fills `out` with the first bytes of the authentication code of a message.
    pub fn mac_into<C: Crypto>(&self, message: &[&[u8]], out: &mut [u8]) {
        let mut hash = Running::<LEN>::none();
        self.run::<C>(&mut hash, &[], message);
        put(out, &hash.state);
        hash.wipe();
    }

    /// Writes the authentication code of `first` and `message` to the state of `hash`. The previous content of `hash`
    /// is lost.
    fn run<C: Crypto>(&self, hash: &mut Running<LEN>, first: &[u8], message: &[&[u8]]) {
        hash.state = self.inner;
        hash.len = 64;
        hash.update::<C>(first);
        for part in message {
            hash.update::<C>(part);
        }
        hash.complete::<C>();
        self.run_outer::<C>(hash);
    }

    /// Replaces the state of the inner hash by the authentication code.
    #[inline(always)]
    fn run_outer<C: Crypto>(&self, hash: &mut Running<LEN>) {
        // The digest is the message of the outer hash.
        put(&mut hash.block, &hash.state);
        hash.state = self.outer;
        hash.len = const { 64 + LEN as u32 };
        hash.complete::<C>();
    }

    /// Returns the state of the inner hash before the first byte of a message. It is for code that must keep the length
    /// of the message secret, and therefore hashes the message without [`Running`].
    pub const fn begun(&self) -> [u32; 8] {
        self.inner
    }

    /// Returns the authentication code of a message. `state` is the state of the inner hash after the last block of the
    /// message, which includes the padding.
    pub fn end<C: Crypto>(&self, state: [u32; 8]) -> [u8; LEN] {
        let mut hash = Running { state, ..Running::none() };
        self.run_outer::<C>(&mut hash);
        let code = hash.digest();
        hash.wipe();
        code
    }
}

impl HmacKey {
    /// Fills `out` with `PRF(key, label, seed)` of TLS 1.2. The argument `seed` has several parts, which are
    /// concatenated: the first part is the label of the PRF, and the other parts are the seed of the PRF.
    #[inline(never)]
    pub fn prf<C: Crypto>(&self, seed: &[&[u8]], out: &mut [u8]) {
        // P_hash of RFC 5246, section 5: A(i) = HMAC(A(i-1)), output HMAC(A(i) + label + seed); A(0) is label + seed.
        let mut hash = Sha256::none();
        let mut a = Secret::<DIGEST_LEN>::zeroed();
        let (mut before, mut behind): (&[u8], _) = (&[], seed);
        for chunk in out.chunks_mut(DIGEST_LEN) {
            self.run::<C>(&mut hash, before, behind);
            put(a.expose_mut(), &hash.state);
            self.run::<C>(&mut hash, a.expose(), seed);
            put(chunk, &hash.state);
            (before, behind) = (a.expose(), &[]);
        }
        hash.wipe();
    }
}

impl<const LEN: usize> Drop for Hmac<LEN> {
    fn drop(&mut self) {
        self.wipe();
    }
}

#[cfg(test)]
mod tests;
