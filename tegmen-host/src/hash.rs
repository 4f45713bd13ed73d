//! Hashes under secret keys. Without the keys, nobody can predict which values collide. For short values they take
//! a few multiplications, and a fraction of the time of the hash of the standard library.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The secret keys of hashes. Each value made by [`Self::default`] has other keys. A `Keys` is also the
/// [`BuildHasher`] of a map.
#[derive(Clone)]
pub struct Keys([u64; 4]);

impl Default for Keys {
    fn default() -> Self {
        let random = RandomState::new();
        Self(std::array::from_fn(|index| random.hash_one(index)))
    }
}

impl Keys {
    /// Returns the hash of a sequence of bytes.
    pub fn of_bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }

    /// Returns the hash of two words.
    #[inline]
    pub(crate) const fn of_words(&self, a: u64, b: u64) -> u64 {
        let [k0, k1, k2, _] = self.0;
        // The second product spreads words that differ by small numbers.
        fold(fold(a ^ k0, b ^ k1), k2)
    }
}

impl BuildHasher for Keys {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        let [.., k2, _] = self.0;
        KeyedHasher { keys: self.0, state: k2 }
    }
}

/// A hash of the bytes and words that were written until now.
pub struct KeyedHasher {
    keys: [u64; 4],
    state: u64,
}

impl Hasher for KeyedHasher {
    /// Adds bytes and their number. The function computes four independent chains of multiplications, so that the CPU
    /// can overlap them.
    fn write(&mut self, bytes: &[u8]) {
        let [k0, k1, k2, k3] = self.keys;
        let mut chains = [self.state, k0, k1, k2];
        let (groups, rest) = bytes.as_chunks::<32>();
        for group in groups {
            for (chain, word) in chains.iter_mut().zip(group.as_chunks::<8>().0) {
                *chain = fold(*chain ^ u64::from_le_bytes(*word), k3);
            }
        }
        let [mut state, chains @ ..] = chains;
        if !groups.is_empty() {
            state = chains.iter().fold(state, |state, chain| fold(state ^ chain, k3));
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), k3);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length is not combined with the bytes, which could cancel it.
        self.state = fold(state ^ u64::from_le_bytes(last), k3 ^ bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let [.., k3] = self.keys;
        self.state = fold(self.state ^ word, k3);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        let [k0, ..] = self.keys;
        // Consecutive numbers give states at equal distances. This product spreads the states over all bits.
        fold(self.state, k0)
    }
}

/// Multiplies two numbers, and combines the two halves of the product (64 bits each) by XOR.
#[inline]
pub(crate) const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests;
