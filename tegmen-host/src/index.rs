//! An index of the entries of a table: of peers by path or by connection id, of the replies in an exchange pool, or of
//! session identities. The index is one array with open addressing. So a lookup among a million entries waits for
//! memory only once before it reads the entry. The hash maps of libraries first read their control bytes, and so wait
//! twice.

use crate::hash::fold;
use std::hash::{BuildHasher, RandomState};
use tegmen::address::Path;
use tegmen_accel::prefetch;

/// A map from the [`Tag`] of a path, a connection id, a reply or a session identity to the position of an entry in a
/// table.
pub struct Index {
    /// The slots of the hash table. An empty slot is zero. Any other slot contains a [`Tag`], and the position of the
    /// entry with this tag in its table, plus one.
    slots: Box<[u64]>,
    len: usize,
    keys: [u64; 6],
}

/// A hash under secret keys of a path, a connection id, a reply or a session identity. Without the keys, nobody can
/// predict which of these values collide.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tag(u32);

impl Tag {
    /// Returns the tag for a hash of 64 bits, which the caller makes under secret keys.
    pub const fn of(hash: u64) -> Self {
        Self((hash >> 32) as u32)
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// Returns an empty index.
    pub fn new() -> Self {
        let random = RandomState::new();
        Self { slots: vec![0; SLOTS_MIN].into(), len: 0, keys: std::array::from_fn(|i| random.hash_one(i)) }
    }

    /// Returns the tag of `path`.
    #[inline]
    pub(crate) fn tag(&self, path: &Path) -> Tag {
        let words = |ip: &[u8; 16]| {
            let both = u128::from_ne_bytes(*ip);
            (both as u64, (both >> 64) as u64)
        };
        let Path { local, remote } = path;
        let ((a, b), (c, d)) = (words(&remote.ip), words(&local.ip));
        let ports = u64::from(remote.port) << 48 | u64::from(local.port) << 32 | u64::from(remote.scope);
        let [k0, k1, k2, k3, k4, k5] = self.keys;
        // The first two products do not wait for each other.
        let (remote, local) = (fold(a ^ k0, b ^ k1), fold(c ^ k2, d ^ k3));
        Tag((fold(remote ^ ports ^ k4, local ^ k5) >> 32) as u32)
    }

    /// Returns the tag of a connection id, of at most 20 bytes.
    pub(crate) fn tag_of_id(&self, id: &[u8]) -> Tag {
        let mut words = [0u64; 4];
        for (word, bytes) in words.iter_mut().zip(id.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(padded);
        }
        let ([a, b, c, _], [k0, k1, k2, k3, k4, _]) = (words, self.keys);
        let (first, last) = (fold(a ^ k0, b ^ k1), fold(c ^ k2, id.len() as u64 ^ k3));
        Tag((fold(first, last ^ k4) >> 32) as u32)
    }

    /// Prefetches the slot of `tag` into the cache.
    #[inline]
    pub fn prefetch(&self, tag: Tag) {
        prefetch(&self.slots[self.home(tag)]);
    }

    /// Returns the position that the first slot for `tag` contains. This is usually the position that the caller
    /// searches. Returns `u32::MAX` if the slot is empty.
    #[inline]
    pub(crate) fn guess(&self, tag: Tag) -> u32 {
        // Zero is an empty slot.
        (self.slots[self.home(tag)] as u32).wrapping_sub(1)
    }

    /// Returns the position with this tag for which `is_it` returns true.
    #[inline]
    pub fn find(&self, tag: Tag, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(tag);
        loop {
            let (found, position) = taken(self.slots[at])?;
            if found == tag && is_it(position) {
                return Some(position);
            }
            at = self.after(at);
        }
    }

    /// Adds a position below `u32::MAX`. The index must not contain this position.
    pub fn insert(&mut self, tag: Tag, position: u32) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            let larger = vec![0; self.slots.len() * 2].into();
            for slot in core::mem::replace(&mut self.slots, larger) {
                if let Some((tag, _)) = taken(slot) {
                    self.put(tag, slot);
                }
            }
        }
        self.put(tag, slot(tag, position));
        self.len += 1;
    }

    /// Puts the position `new` in the place of the position `old`. Returns false, and changes nothing, if the index does
    /// not contain `old`.
    pub(crate) fn replace(&mut self, tag: Tag, old: u32, new: u32) -> bool {
        let mut at = self.home(tag);
        while let Some(found) = taken(self.slots[at]) {
            if found == (tag, old) {
                self.slots[at] = slot(tag, new);
                return true;
            }
            at = self.after(at);
        }
        false
    }

    /// Removes a position, if the index contains it.
    pub fn remove(&mut self, tag: Tag, position: u32) {
        let mut hole = self.home(tag);
        loop {
            match taken(self.slots[hole]) {
                None => return,
                Some(found) if found == (tag, position) => break,
                Some(_) => hole = self.after(hole),
            }
        }
        self.len -= 1;
        // Whatever follows without a gap moves up, unless it would come before its home.
        let mut at = self.after(hole);
        while let Some((tag, _)) = taken(self.slots[at]) {
            if self.distance(self.home(tag), at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = 0;
    }

    /// Returns true if the index contains no position.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of positions in the index.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that the index takes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    fn put(&mut self, tag: Tag, slot: u64) {
        let mut at = self.home(tag);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = slot;
    }

    fn home(&self, tag: Tag) -> usize {
        tag.0 as usize & (self.slots.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }
}

/// Returns the slot with this tag and this position.
fn slot(tag: Tag, position: u32) -> u64 {
    u64::from(tag.0) << 32 | (u64::from(position) + 1)
}

/// Returns the tag and the position in a slot; `None` if the slot is empty.
fn taken(slot: u64) -> Option<(Tag, u32)> {
    (slot != 0).then_some((Tag((slot >> 32) as u32), (slot as u32).wrapping_sub(1)))
}

/// The initial number of slots. The number of slots is always a power of two.
const SLOTS_MIN: usize = 16;

#[cfg(test)]
mod tests;
