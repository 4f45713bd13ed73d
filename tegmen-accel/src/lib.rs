//! AES-128-CCM (RFC 3610) with the AES instructions of the processor.
//!
//! The crates `aes` and `ccm` compute MAC and key stream one after the other. The MAC is a chain in which each block
//! waits for the previous block. This crate computes the key stream during these waits. On a processor without AES
//! instructions, [`seal`] and [`open`] use the block cipher of the crate `aes`, which takes constant time on every
//! processor.
//!
//! This crate has `unsafe` code: it loads vectors, and calls functions that need AES instructions after it has checked
//! that the processor has them. Of the other libraries of the workspace, only `tegmen-trust` has `unsafe` code, in one
//! file. This crate will be removed if another crate reaches its speed.

mod block;
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use tegmen_base::crypto::{KEY_LEN, NotAuthentic, Unsupported};

/// The round keys of one AES-128 key (FIPS 197, section 5.2): 176 bytes, wiped on drop.
///
/// The first round key is the key itself. Without AES instructions, only this round key is filled in.
#[derive(Clone)]
#[repr(C, align(16))]
pub struct KeySchedule([[u8; KEY_LEN]; 11]);

impl KeySchedule {
    /// Expands `key`.
    #[inline]
    pub fn expand(key: &[u8; KEY_LEN]) -> Self {
        let mut schedule = Self([[0; KEY_LEN]; 11]);
        schedule.renew(key);
        schedule
    }

    /// Expands `key`, and overwrites the previous schedule completely.
    #[inline]
    pub fn renew(&mut self, key: &[u8; KEY_LEN]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(cpu) = x86::Aes::detect() {
            return cpu.expand(key, &mut self.0);
        }
        *self = Self::unexpanded(key);
    }

    /// Makes a schedule for [`portable`], which expands the key at each use.
    pub fn unexpanded(key: &[u8; KEY_LEN]) -> Self {
        let mut keys = [[0; KEY_LEN]; 11];
        keys[0] = *key;
        Self(keys)
    }

    /// Returns the key.
    #[inline]
    pub fn key(&self) -> &[u8; KEY_LEN] {
        &self.0[0]
    }
}

impl Drop for KeySchedule {
    #[inline]
    fn drop(&mut self) {
        self.0 = [[0; KEY_LEN]; 11];
        zeroize::optimization_barrier(self);
    }
}

/// Returns true if this processor has AES instructions. Without them all functions of this crate work, but slower.
pub fn is_accelerated() -> bool {
    #[cfg(target_arch = "x86_64")]
    return x86::Aes::detect().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Asks the processor to load all of `place` into its cache, without waiting for it. Does nothing on processors other
/// than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(64) {
        x86::prefetch(core::ptr::from_ref(place).cast::<i8>().wrapping_add(line));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Encrypts `body` in place and writes the tag (RFC 3610, section 2).
///
/// The nonce has 7 to 13 bytes. The tag has an even number of bytes from 4 to 16. The associated data has less than
/// 65,280 bytes.
///
/// # Errors
/// [`Unsupported`] for other lengths, or if `body` is longer than the nonce allows. `body` is then unchanged.
#[inline]
pub fn seal(
    schedule: &KeySchedule,
    nonce: &[u8],
    aad: &[u8],
    body: &mut [u8],
    tag: &mut [u8],
) -> Result<(), Unsupported> {
    #[cfg(target_arch = "x86_64")]
    if let Some(cpu) = x86::Aes::detect() {
        return cpu.seal(&schedule.0, nonce, aad, body, tag);
    }
    portable::seal(schedule, nonce, aad, body, tag)
}

/// Decrypts `body` in place and compares the tag in constant time. The lengths are the same as for [`seal`].
///
/// # Errors
/// [`NotAuthentic`] if the tag does not match, or if the lengths are not supported. After a wrong tag, `body`
/// contains only zeros.
#[inline]
pub fn open(schedule: &KeySchedule, nonce: &[u8], aad: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), NotAuthentic> {
    #[cfg(target_arch = "x86_64")]
    if let Some(cpu) = x86::Aes::detect() {
        return cpu.open(&schedule.0, nonce, aad, body, tag);
    }
    portable::open(schedule, nonce, aad, body, tag)
}

/// Computes only the AES rounds for one record of 64 bytes with one block of associated data, for benchmarks. [`seal`]
/// and [`open`] cannot be faster than this function. Returns `None` without AES instructions.
#[inline]
pub fn bare_record(schedule: &KeySchedule, block: [u8; 16]) -> Option<[u8; 16]> {
    #[cfg(target_arch = "x86_64")]
    return x86::Aes::detect().map(|cpu| cpu.bare_record(&schedule.0, block));
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (schedule, block);
        None
    }
}

/// Does the same as [`bare_record`], and also expands the key. Do not use it for real keys, because the expanded key
/// remains on the stack.
#[inline]
pub fn bare_record_expanding(key: &[u8; KEY_LEN], block: [u8; 16]) -> Option<[u8; 16]> {
    #[cfg(target_arch = "x86_64")]
    return x86::Aes::detect().map(|cpu| {
        let mut keys = [[0; KEY_LEN]; 11];
        cpu.expand(key, &mut keys);
        cpu.bare_record(&keys, block)
    });
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (key, block);
        None
    }
}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
