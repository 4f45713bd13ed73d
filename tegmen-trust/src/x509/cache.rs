//! A cache of verified paths. For a peer that connects again, a lookup costs one hash, and saves the verification of
//! the signatures in its path.

use crate::digest::Digest;
use crate::halves::Halves;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A set of digests, each with the period in which it is valid. The set has a maximum size. When it is full, the cache
/// removes digests that were not looked up recently.
pub(crate) struct Cache {
    entries: Mutex<Halves<Span>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The counts of lookups in the cache of verified paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// The number of lookups that found a path that is still valid.
    pub hits: u64,
    /// The number of lookups after which the path had to be verified.
    pub misses: u64,
}

/// A period from `from` to `until` in seconds since 1970. The two times belong to the period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Span {
    pub(crate) const ALWAYS: Self = Self { from: 0, until: u64::MAX };

    pub(crate) fn has(self, now: u64) -> bool {
        (self.from..=self.until).contains(&now)
    }

    pub(crate) fn and(self, from: u64, until: u64) -> Self {
        Self { from: self.from.max(from), until: self.until.min(until) }
    }
}

impl Cache {
    /// Makes a cache of `capacity` entries of about 100 bytes. A cache of less than two entries keeps nothing.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: Mutex::new(Halves::new(capacity)), hits: 0.into(), misses: 0.into() }
    }

    /// Returns the validity period of the entry with this digest, if the period contains `now`. Otherwise returns
    /// `None`.
    pub(crate) fn find(&self, key: &Digest, now: u64) -> Option<Span> {
        let found = self.with(|halves| halves.find(key)).filter(|span| span.has(now));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn insert(&self, key: Digest, span: Span) {
        self.with(|halves| halves.insert(key, span));
    }

    /// Removes all entries, because the trust has changed.
    pub(crate) fn clear(&self) {
        self.with(Halves::clear);
    }

    pub(crate) fn counters(&self) -> CacheCounters {
        CacheCounters { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Halves<Span>) -> T) -> T {
        act(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
