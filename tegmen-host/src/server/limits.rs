//! Limits of the ClientHellos that are answered, in total and for each network prefix. They leave time for established
//! sessions and for other prefixes during a flood from one prefix or from many.

use crate::prefix;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use tegmen::address::Address;
use tegmen::dtls::Roles;
use tegmen::time::Instant;

/// ClientHellos that are answered, by all shards together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloLimits {
    /// In a second, of one /24 (IPv4) or /56 (IPv6) prefix; 0 sets no limit. Twice as many may come at once.
    pub per_prefix: u32,
    /// In a second, of all together; 0 sets no limit. Twice as many may come at once.
    pub total: u32,
}

impl Default for HelloLimits {
    fn default() -> Self {
        Self { per_prefix: 2_000, total: 20_000 }
    }
}

/// Number of buckets. If there are more prefixes, several share one bucket.
const PREFIXES: usize = 4096;

/// The state behind [`HelloLimits`], of fixed size and the same for all shards.
pub(crate) struct Gate {
    per_prefix: AtomicU32,
    in_all: AtomicU32,
    /// Has secret keys, so that nobody can choose addresses that share a bucket with those of another client.
    hasher: RandomState,
    prefixes: Box<[Bucket]>,
    total: Bucket,
    dropped: AtomicU64,
}

impl Gate {
    pub(super) fn new(limits: HelloLimits) -> Self {
        Self {
            per_prefix: AtomicU32::new(limits.per_prefix),
            in_all: AtomicU32::new(limits.total),
            hasher: RandomState::new(),
            prefixes: (0..PREFIXES).map(|_| Bucket::default()).collect(),
            total: Bucket::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Changes the limits.
    pub(super) fn set(&self, limits: HelloLimits) {
        self.per_prefix.store(limits.per_prefix, Relaxed);
        self.in_all.store(limits.total, Relaxed);
    }

    /// Counts a ClientHello; false if it is one too many.
    fn admits(&self, now: Instant, from: IpAddr) -> bool {
        let index = self.hasher.hash_one(prefix::of(from)) as usize % self.prefixes.len();
        let admitted = self.prefixes[index].take(now, self.per_prefix.load(Relaxed))
            && self.total.take(now, self.in_all.load(Relaxed));
        if !admitted {
            self.dropped.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// ClientHellos that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// A server that answers no more ClientHellos than its gate admits.
pub(crate) struct Limited(pub(super) Arc<Gate>);

impl Limited {
    /// A server with a gate of its own.
    pub(crate) fn with(limits: HelloLimits) -> Self {
        Self(Arc::new(Gate::new(limits)))
    }
}

impl Roles for Limited {
    const CLIENT: bool = false;
    const SERVER: bool = true;

    fn admits_hello(&self, now: Instant, from: &Address) -> bool {
        self.0.admits(now, SocketAddr::from(*from).ip())
    }
}

/// A token bucket that holds two seconds of its rate, and is full at first.
#[derive(Default)]
struct Bucket {
    /// When it is full again if nothing more is taken, in microseconds of the clock.
    full_at: AtomicU64,
}

impl Bucket {
    /// Microseconds in which an empty bucket is full again.
    const FILLS_IN: u64 = 2_000_000;

    fn take(&self, now: Instant, per_second: u32) -> bool {
        if per_second == 0 {
            return true;
        }
        let (now, step) = (now.as_micros(), 1_000_000 / u64::from(per_second));
        let one_less = |full_at: u64| Some(full_at.max(now) + step).filter(|full_at| *full_at <= now + Self::FILLS_IN);
        self.full_at.fetch_update(Relaxed, Relaxed, one_less).is_ok()
    }
}

#[cfg(test)]
mod tests;
