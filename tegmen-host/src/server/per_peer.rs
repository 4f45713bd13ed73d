//! A map by peer. The keys come from the table of peers, so nobody outside chooses them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use tegmen::identity::PeerId;

/// A value for each of some peers.
pub(super) type PerPeer<T> = HashMap<PeerId, T, BuildHasherDefault<PeerHasher>>;

/// Multiplies, and puts the high bits of the product to the low ones.
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
