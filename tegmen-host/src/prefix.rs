//! Network prefixes. For each prefix, the server counts the entries that unauthenticated peers occupy in a table or a
//! queue of limited size. So the peers of one prefix cannot occupy all entries.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of counters in [`Shares`]. If there are more prefixes, several prefixes share one counter.
const PREFIXES: usize = 1 << 14;

/// Returns the /24 prefix of an IPv4 address, or the /56 prefix of an IPv6 address, as a number.
pub(crate) fn of(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}

/// For each network prefix, the number of entries that its peers occupy in a table or a queue. The number of counters
/// is fixed, and threads may share them.
pub(crate) struct Shares {
    /// The hash function of the counters. It has secret keys, so that an attacker cannot choose addresses that share a
    /// counter with another peer.
    hasher: RandomState,
    held: Box<[AtomicU32]>,
}

impl Shares {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), held: (0..PREFIXES).map(|_| AtomicU32::new(0)).collect() }
    }

    fn count(&self, ip: IpAddr) -> &AtomicU32 {
        &self.held[self.hasher.hash_one(of(ip)) as usize % PREFIXES]
    }

    /// Returns the number of entries that peers with the network prefix of `ip` occupy in the table or queue to which
    /// these counters belong.
    pub(crate) fn held(&self, ip: IpAddr) -> u32 {
        self.count(ip).load(Ordering::Relaxed)
    }

    /// Adds one to the number of entries that peers with the network prefix of `ip` occupy in the table or queue to
    /// which these counters belong.
    pub(crate) fn take(&self, ip: IpAddr) {
        self.count(ip).fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of entries that peers with the network prefix of `ip` occupy in the table or queue
    /// to which these counters belong.
    pub(crate) fn give_back(&self, ip: IpAddr) {
        self.count(ip).fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of bytes that the counters take on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.held)
    }
}
