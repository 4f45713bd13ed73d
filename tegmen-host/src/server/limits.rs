//! Limits of the ClientHellos that a server answers, in total and for each network prefix. During a flood from one or
//! many prefixes, the limits leave time for established sessions and for other prefixes.

use crate::prefix;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use tegmen::address::Address;
use tegmen::dtls::Roles;
use tegmen::time::Instant;

/// The maximum rates of the ClientHellos that all shards together answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloLimits {
    /// Maximum number of ClientHellos in a second from one /24 (IPv4) or /56 (IPv6) prefix; 0 sets no limit. A burst
    /// may contain twice this number.
    pub per_prefix: u32,
    /// Maximum number of ClientHellos in a second from all prefixes together; 0 sets no limit. A burst may contain
    /// twice this number.
    pub total: u32,
}

impl Default for HelloLimits {
    fn default() -> Self {
        Self { per_prefix: 2_000, total: 20_000 }
    }
}

/// Number of token buckets. If there are more network prefixes than buckets, several prefixes share one bucket.
const PREFIXES: usize = 4096;

/// The current limits, and token buckets that show if a ClientHello exceeds a limit. The number of buckets is fixed,
/// and all shards share them.
pub(crate) struct Gate {
    per_prefix: AtomicU32,
    in_all: AtomicU32,
    /// The hash function of the buckets. It has secret keys, so that an attacker cannot choose addresses that share a
    /// bucket with another client.
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

    /// Counts a ClientHello. Returns false if it exceeds a limit.
    fn admits(&self, now: Instant, from: IpAddr) -> bool {
        let index = self.hasher.hash_one(prefix::of(from)) as usize % self.prefixes.len();
        let admitted = self.prefixes[index].take(now, self.per_prefix.load(Relaxed))
            && self.total.take(now, self.in_all.load(Relaxed));
        if !admitted {
            self.dropped.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// Returns the number of dropped ClientHellos.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// The role of a server that answers only the ClientHellos that its [`Gate`] admits.
pub(crate) struct Limited(pub(super) Arc<Gate>);

impl Limited {
    /// Returns a server role with a new [`Gate`], which has these limits.
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

/// A token bucket. It holds the tokens of two seconds, and it is full at first.
#[derive(Default)]
struct Bucket {
    /// The time at which the bucket is full again if no token is taken before, in microseconds of the clock.
    full_at: AtomicU64,
}

impl Bucket {
    /// The time in microseconds in which an empty bucket becomes full.
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
