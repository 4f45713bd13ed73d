//! How many hellos are looked at: in all, and of one network prefix, so that a flood from one place, or from many,
//! leaves time for those who have a session and for those who come from elsewhere.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use tegmen::time::Instant;

/// Hellos that are let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloLimits {
    /// In a second, of one /24 (IPv4) or /56 (IPv6) prefix; 0 sets no limit. Twice as many may come at once.
    pub per_prefix: u32,
    /// In a second, of all together; 0 sets no limit.
    pub total: u32,
}

impl Default for HelloLimits {
    fn default() -> Self {
        Self { per_prefix: 2_000, total: 20_000 }
    }
}

/// Prefixes that are told apart; more of them share what they have.
const PREFIXES: usize = 4096;

/// The state behind [`HelloLimits`], of fixed size.
pub(super) struct Gate {
    limits: HelloLimits,
    /// With keys that nobody outside knows, so that nobody chooses whom to share with.
    hasher: RandomState,
    prefixes: Box<[Bucket]>,
    total: Bucket,
    /// Hellos that were dropped.
    pub(super) dropped: u64,
}

impl Gate {
    pub(super) fn new(limits: HelloLimits) -> Self {
        let prefixes = vec![Bucket::default(); if limits.per_prefix > 0 { PREFIXES } else { 1 }].into();
        Self { limits, hasher: RandomState::new(), prefixes, total: Bucket::default(), dropped: 0 }
    }

    /// False if this datagram is a hello too many.
    pub(super) fn admits(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) -> bool {
        if !is_hello(datagram) {
            return true;
        }
        let index = self.hasher.hash_one(prefix(from.ip())) as usize % self.prefixes.len();
        let admitted =
            self.prefixes[index].take(now, self.limits.per_prefix) && self.total.take(now, self.limits.total);
        self.dropped += u64::from(!admitted);
        admitted
    }
}

/// A handshake record of epoch 0 that begins with a ClientHello.
fn is_hello(datagram: &[u8]) -> bool {
    matches!(datagram, [22, _, _, 0, 0, _, _, _, _, _, _, _, _, 1, ..])
}

fn prefix(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}

/// A token bucket that holds two seconds of its rate.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// When the bucket would have been empty at this rate; what lies between then and now is full.
    empty_at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant, per_second: u32) -> bool {
        if per_second == 0 {
            return true;
        }
        let (now, full) = (now.as_micros(), 2_000_000);
        let from = self.empty_at.as_micros().max(now.saturating_sub(full));
        let next = from + 1_000_000 / u64::from(per_second);
        if next > now {
            return false;
        }
        self.empty_at = Instant::from_micros(next);
        true
    }
}

#[cfg(test)]
mod tests;
