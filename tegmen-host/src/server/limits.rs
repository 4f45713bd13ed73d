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
mod tests {
    use super::*;

    const HELLO: [u8; 14] = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
    const START: u64 = 10_000_000;

    fn flood(gate: &mut Gate, from: &str, micros: u64, count: usize) -> usize {
        let from: SocketAddr = from.parse().unwrap();
        (0..count).filter(|_| gate.admits(Instant::from_micros(START + micros), from, &HELLO)).count()
    }

    #[test]
    fn a_flood_from_one_prefix_leaves_the_others() {
        let mut gate = Gate::new(HelloLimits { per_prefix: 100, total: 10_000 });
        assert_eq!(flood(&mut gate, "10.1.1.1:1", 0, 1000), 200);
        assert_eq!(flood(&mut gate, "10.1.1.99:7", 0, 1000), 0, "the same prefix");
        assert_eq!(flood(&mut gate, "10.1.2.1:1", 0, 100), 100);
        assert_eq!(flood(&mut gate, "[2001:db8::1]:1", 0, 1000), 200);
        assert_eq!(flood(&mut gate, "[2001:db8:0:ff::1]:1", 0, 1000), 0, "the same /56");
        assert_eq!(flood(&mut gate, "10.1.1.1:1", 1_000_000, 1000), 100, "a second later");
        assert_eq!(gate.dropped, 800 + 1000 + 800 + 1000 + 900);
    }

    #[test]
    fn a_flood_from_everywhere_is_bounded_in_all() {
        let mut gate = Gate::new(HelloLimits { per_prefix: 100, total: 1000 });
        let through: usize = (0..250).map(|net| flood(&mut gate, &format!("10.{net}.1.1:1"), 0, 100)).sum();
        assert_eq!(through, 2000);
    }

    #[test]
    fn only_hellos_are_counted_and_no_limit_is_none() {
        let mut gate = Gate::new(HelloLimits { per_prefix: 1, total: 1 });
        let from = "10.1.1.1:1".parse().unwrap();
        for datagram in [&[23; 40][..], &HELLO[..13], b"", &[22, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]] {
            assert!((0..100).all(|_| gate.admits(Instant::from_micros(START), from, datagram)));
        }
        let mut open = Gate::new(HelloLimits { per_prefix: 0, total: 0 });
        assert_eq!(flood(&mut open, "10.1.1.1:1", 0, 100_000), 100_000);
    }
}
