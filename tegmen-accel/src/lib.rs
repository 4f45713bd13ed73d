//! AES-128-CCM (RFC 3610) on the processor's own AES instructions.
//!
//! The crates `aes` and `ccm` compute MAC and key stream one after the other. The MAC is a chain in which each block
//! waits for the previous one, so here the key stream is computed beside it, in the time that the chain waits. On a
//! processor without these instructions [`seal`] and [`open`] do the same with the block cipher of the crate `aes`,
//! which is constant in time everywhere.
//!
//! This crate has `unsafe` code: loads of vectors, and calls of functions after a check of the processor. Of the other
//! libraries of the workspace only `tegmen-trust` has some, in one file. This crate is removed if another one reaches
//! its speed.

mod block;
pub mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use tegmen_base::crypto::{KEY_LEN, NotAuthentic, Unsupported};

/// The round keys of one AES-128 key (FIPS 197, section 5.2): 176 bytes, wiped on drop.
///
/// The first of them is the key itself, and without AES instructions the only one that is filled in.
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

    /// A schedule for [`portable`], which expands at each use.
    pub fn unexpanded(key: &[u8; KEY_LEN]) -> Self {
        let mut keys = [[0; KEY_LEN]; 11];
        keys[0] = *key;
        Self(keys)
    }

    /// The key.
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

/// True if this processor has the instructions. Without them everything here works, but slower.
pub fn is_accelerated() -> bool {
    #[cfg(target_arch = "x86_64")]
    return x86::Aes::detect().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Asks the processor to load all of `place` into its cache, and does not wait for it. Does nothing on processors other
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
/// The nonce has 7 to 13 bytes, the tag an even number of 4 to 16, the associated data less than 65,280.
///
/// # Errors
/// [`Unsupported`] for other lengths, or if `body` is longer than the nonce allows; `body` is then unchanged.
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

/// Decrypts `body` in place and compares the tag in constant time; lengths as for [`seal`].
///
/// # Errors
/// [`NotAuthentic`] if the tag does not match, `body` is then all zeros; or if the lengths are not supported.
#[inline]
pub fn open(schedule: &KeySchedule, nonce: &[u8], aad: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), NotAuthentic> {
    #[cfg(target_arch = "x86_64")]
    if let Some(cpu) = x86::Aes::detect() {
        return cpu.open(&schedule.0, nonce, aad, body, tag);
    }
    portable::open(schedule, nonce, aad, body, tag)
}

/// The AES rounds of one record of 64 bytes with one block of associated data, and nothing else: the least that
/// [`seal`] and [`open`] could take. `None` without the instructions. For benchmarks.
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

/// As [`bare_record`] together with the expansion of the key, which stays on the stack: not for real keys.
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
