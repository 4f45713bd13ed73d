//! Maps by numbers that the server itself assigns, so an attacker cannot choose them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tegmen::identity::PeerId;

/// A map from peers to values. It has entries for some of the peers.
pub(super) type PerPeer<T> = HashMap<PeerId, T, BuildHasherDefault<NumberHasher>>;
/// A map from the numbers of responders and authorizations to values.
pub(super) type PerNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// A hash function that multiplies, and moves the high bits of the product to the low bits.
#[derive(Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
