//! A cache of verified paths: a peer that connects again costs one hash instead of two signatures.

use crate::digest::Digest;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A bounded set of digests, each with the time within which it holds. Digests that were not asked for recently are
/// removed first.
pub(crate) struct Cache {
    entries: Mutex<Halves>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Digests are added to the newer half. When it is full it becomes the older half, and the previous older half is
/// dropped.
#[derive(Default)]
struct Halves {
    half: usize,
    newer: HashMap<Digest, Span>,
    older: HashMap<Digest, Span>,
}

/// The counts of lookups in the cache of verified paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// A path was found and its time was not over.
    pub hits: u64,
    /// A path had to be verified.
    pub misses: u64,
}

/// Seconds since 1970 from `from` to `until`, both within.
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
    /// `capacity` in entries of about 100 bytes; less than two keep nothing.
    pub(crate) fn new(capacity: usize) -> Self {
        let half = capacity / 2;
        Self { entries: Mutex::new(Halves { half, ..Halves::default() }), hits: 0.into(), misses: 0.into() }
    }

    /// The span of an entry that holds now.
    pub(crate) fn find(&self, key: &Digest, now: u64) -> Option<Span> {
        let found = self.with(|halves| halves.find(key)).filter(|span| span.has(now));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn insert(&self, key: Digest, span: Span) {
        self.with(|halves| halves.insert(key, span));
    }

    /// Forgets everything, because the trust has changed.
    pub(crate) fn clear(&self) {
        self.with(|halves| *halves = Halves { half: halves.half, ..Halves::default() });
    }

    pub(crate) fn counters(&self) -> CacheCounters {
        CacheCounters { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Halves) -> T) -> T {
        act(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Halves {
    fn find(&mut self, key: &Digest) -> Option<Span> {
        if let Some(span) = self.newer.get(key) {
            return Some(*span);
        }
        let span = self.older.remove(key)?;
        self.insert(*key, span);
        Some(span)
    }

    fn insert(&mut self, key: Digest, span: Span) {
        if self.half == 0 {
            return;
        }
        if self.newer.len() >= self.half {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, span);
    }
}

#[cfg(test)]
mod tests;
