//! A map with a maximum number of entries, under digests.

use crate::digest::Digest;
use std::collections::HashMap;

/// A map from digests to values, in two halves. New entries are added to the newer half. When the newer half is full, it
/// becomes the older half, and the entries of the previous older half are dropped.
pub(crate) struct Halves<V> {
    /// Maximum number of entries in each half. With 0 the map stores no entry.
    half: usize,
    newer: HashMap<Digest, V>,
    older: HashMap<Digest, V>,
}

impl<V> Halves<V> {
    /// Makes a map with at most `capacity` entries. With a capacity below two the map stores no entry. An empty map
    /// takes no heap.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { half: capacity / 2, newer: HashMap::new(), older: HashMap::new() }
    }

    pub(crate) fn insert(&mut self, key: Digest, value: V) {
        if self.half == 0 {
            return;
        }
        if self.newer.len() >= self.half {
            // The new half uses the memory of the dropped one.
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        self.newer.insert(key, value);
    }

    /// Removes the entry with this digest, and returns its value.
    pub(crate) fn take(&mut self, key: &Digest) -> Option<V> {
        self.newer.remove(key).or_else(|| self.older.remove(key))
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        (self.newer, self.older) = (HashMap::new(), HashMap::new());
    }
}

impl<V: Copy> Halves<V> {
    /// Returns the value with this digest. Moves the entry to the newer half, so that it is kept for longer.
    pub(crate) fn find(&mut self, key: &Digest) -> Option<V> {
        if let Some(value) = self.newer.get(key) {
            return Some(*value);
        }
        let value = self.older.remove(key)?;
        self.insert(*key, value);
        Some(value)
    }
}

#[cfg(test)]
mod tests;
