//! A map by peer. Its keys come from the peer table, so an attacker cannot choose them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tegmen::identity::PeerId;

/// A map from peers to values. It has entries for some of the peers.
pub(super) type PerPeer<T> = HashMap<PeerId, T, BuildHasherDefault<PeerHasher>>;

/// A hash function that multiplies, and moves the high bits of the product to the low bits.
#[derive(Default)]
pub(super) struct PeerHasher(u64);

impl Hasher for PeerHasher {
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
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
