//! SHA-256, HMAC (RFC 2104) and the PRF of TLS 1.2 (RFC 5246, section 5) over a provider's compression function.
//!
//! They stand here and not in a library because a mote keeps pad states of 32 bytes each, and because every provider
//! has to give no more than its compression function.

use super::Crypto;
use crate::buf::copy;
use crate::secret::Secret;
use zeroize::Zeroize;

/// Length of a SHA-256 digest in bytes.
pub const DIGEST_LEN: usize = 32;

const INITIAL: [u32; 8] =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// A running SHA-256. Cloning it takes an intermediate digest, as a handshake transcript needs.
#[derive(Clone)]
pub struct Sha256 {
    state: [u32; 8],
    block: [u8; 64],
    /// Bytes hashed so far; what is not a multiple of 64 waits in `block`.
    len: u32,
}

impl Sha256 {
    /// The empty hash.
    pub const fn new() -> Self {
        Self::after_block(INITIAL)
    }

    const fn after_block(state: [u32; 8]) -> Self {
        Self { state, block: [0; 64], len: 0 }
    }

    /// Adds `data`.
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
            C::sha256_compress(&mut self.state, core::slice::from_ref(&self.block));
            data = rest;
        }
        let (blocks, rest) = data.as_chunks::<64>();
        if !blocks.is_empty() {
            C::sha256_compress(&mut self.state, blocks);
        }
        let _ = copy(&mut self.block, rest);
    }

    /// The digest of everything added.
    pub fn finish<C: Crypto>(self) -> [u8; DIGEST_LEN] {
        self.finish_after::<C>(0)
    }

    /// As [`Self::finish`], where `before` bytes were hashed into the state already (a multiple of 64).
    fn finish_after<C: Crypto>(mut self, before: u32) -> [u8; DIGEST_LEN] {
        let filled = (self.len % 64) as usize;
        let (_, tail) = self.block.split_at_mut_checked(filled).unwrap_or((&mut [], &mut []));
        tail.fill(0);
        if let Some(first) = tail.first_mut() {
            *first = 0x80;
        }
        if filled > 55 {
            C::sha256_compress(&mut self.state, core::slice::from_ref(&self.block));
            self.block = [0; 64];
        }
        let bits = u64::from(before.wrapping_add(self.len)) << 3;
        if let Some(end) = self.block.last_chunk_mut::<8>() {
            *end = bits.to_be_bytes();
        }
        C::sha256_compress(&mut self.state, core::slice::from_ref(&self.block));
        let mut digest = [0; DIGEST_LEN];
        for (out, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(self.state) {
            *out = word.to_be_bytes();
        }
        digest
    }
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

/// A key of HMAC-SHA-256, as the states after its two pads: each message saves two compressions.
pub struct HmacKey {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl HmacKey {
    /// A place for a key that is not known yet.
    pub(crate) const fn none() -> Self {
        Self { inner: INITIAL, outer: INITIAL }
    }

    /// Prepares `key`, given in parts that are concatenated; a key above 64 bytes is hashed first (RFC 2104, section 2).
    pub fn new<C: Crypto>(key: &[&[u8]]) -> Self {
        let mut block = Secret::<64>::zeroed();
        let mut rest: &mut [u8] = block.expose_mut();
        let mut fits = true;
        for part in key {
            match core::mem::take(&mut rest).split_at_mut_checked(part.len()) {
                Some((head, tail)) => {
                    let _ = copy(head, part);
                    rest = tail;
                }
                None => fits = false,
            }
        }
        if !fits {
            let mut hash = Sha256::new();
            for part in key {
                hash.update::<C>(part);
            }
            *block.expose_mut() = [0; 64];
            let _ = copy(block.expose_mut(), &hash.finish::<C>());
        }
        let mut pad = |with: u8| {
            block.expose_mut().iter_mut().for_each(|byte| *byte ^= with);
            let mut state = INITIAL;
            C::sha256_compress(&mut state, core::slice::from_ref(block.expose()));
            state
        };
        let inner = pad(0x36);
        let outer = pad(0x36 ^ 0x5c);
        Self { inner, outer }
    }

    /// The code of a message given in parts.
    pub fn mac<C: Crypto>(&self, message: &[&[u8]]) -> [u8; DIGEST_LEN] {
        let mut inner = Sha256::after_block(self.inner);
        for part in message {
            inner.update::<C>(part);
        }
        let mut digest = inner.finish_after::<C>(64);
        let mut outer = Sha256::after_block(self.outer);
        outer.update::<C>(&digest);
        digest.zeroize();
        outer.finish_after::<C>(64)
    }

    /// Fills `out` with `PRF(key, label, seed)` of TLS 1.2; `seed` is given in two parts.
    pub fn prf<C: Crypto>(&self, label: &[u8], seed: [&[u8]; 2], out: &mut [u8]) {
        // P_hash of RFC 5246, section 5: A(i) = HMAC(A(i-1)), output HMAC(A(i) + label + seed).
        let [first, second] = seed;
        let mut a = self.mac::<C>(&[label, first, second]);
        let mut chunks = out.chunks_mut(DIGEST_LEN).peekable();
        while let Some(chunk) = chunks.next() {
            let mut block = self.mac::<C>(&[&a, label, first, second]);
            for (to, from) in chunk.iter_mut().zip(block) {
                *to = from;
            }
            block.zeroize();
            if chunks.peek().is_some() {
                a = self.mac::<C>(&[&a]);
            }
        }
        a.zeroize();
    }
}

impl Drop for HmacKey {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}
