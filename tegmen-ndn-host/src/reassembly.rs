//! Reassembles packets that arrive in fragments.

use std::collections::HashMap;
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::MAX_PACKET;
use tegmen_ndn::lp::Part;

/// Maximum number of packets of one face that are reassembled at the same time.
const PARTIALS: usize = 16;
/// Maximum number of fragments of one packet.
const FRAGMENTS: u64 = 64;
/// The time after which an incomplete packet is removed.
const PARTIAL_LIFETIME: Duration = Duration::from_secs(1);

/// The incomplete packets of a face. The key is the sequence number of the first fragment.
#[derive(Default)]
pub(crate) struct Reassembly(HashMap<u64, Partial>);

/// A packet with missing fragments.
struct Partial {
    pieces: Vec<Option<Box<[u8]>>>,
    missing: usize,
    /// The total number of bytes of the received fragments.
    len: usize,
    since: Instant,
}

impl Reassembly {
    /// Adds a fragment. Returns the packet if all its fragments have arrived.
    pub(crate) fn add(&mut self, now: Instant, part: Part, fragment: &[u8]) -> Option<Vec<u8>> {
        if part.count > FRAGMENTS {
            return None;
        }
        self.expire(now);
        let first = part.sequence.wrapping_sub(part.index);
        if self.0.len() >= PARTIALS && !self.0.contains_key(&first) {
            return None;
        }
        let count = part.count as usize;
        let partial = self.0.entry(first).or_insert_with(|| Partial {
            pieces: (0..count).map(|_| None).collect(),
            missing: count,
            len: 0,
            since: now,
        });
        let piece = partial.pieces.get_mut(part.index as usize).filter(|piece| piece.is_none())?;
        partial.len = partial.len.saturating_add(fragment.len());
        if partial.len > MAX_PACKET {
            // No packet is as long. Its fragments take no memory.
            self.0.remove(&first);
            return None;
        }
        *piece = Some(fragment.into());
        partial.missing -= 1;
        if partial.missing > 0 || partial.pieces.len() != count {
            return None;
        }
        let partial = self.0.remove(&first)?;
        Some(partial.pieces.iter().flatten().flat_map(|piece| piece.iter().copied()).collect())
    }

    /// Removes packets whose missing fragments did not arrive within [`PARTIAL_LIFETIME`].
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, partial| now < partial.since.after(PARTIAL_LIFETIME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(sequence: u64, index: u64, count: u64) -> Part {
        Part { sequence, index, count }
    }

    #[test]
    fn fragments_in_any_order_are_one_packet() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::from_micros(1));
        assert_eq!(reassembly.add(now, part(9, 2, 3), b"c"), None);
        assert_eq!(reassembly.add(now, part(7, 0, 3), b"a"), None);
        assert_eq!(reassembly.add(now, part(7, 0, 3), b"A"), None, "the first one stays");
        assert_eq!(reassembly.add(now, part(8, 1, 3), b"b"), Some(b"abc".to_vec()));
        assert!(reassembly.0.is_empty());
    }

    #[test]
    fn fragments_take_no_more_memory_than_packets_may_have() {
        let (mut reassembly, now) = (Reassembly::default(), Instant::from_micros(1));
        let long = vec![0; 60_000];
        for sequence in 0..1_000 {
            reassembly.add(now, part(sequence * 10 + 1, 1, 9), &long);
            reassembly.add(now, part(sequence * 10 + 2, 2, 9), &long[..8_000]);
            reassembly.add(now, part(sequence * 10 + 3, 3, 9), &long[..8_000]);
        }
        let bytes: usize =
            reassembly.0.values().flat_map(|partial| partial.pieces.iter().flatten()).map(|piece| piece.len()).sum();
        assert!(reassembly.0.len() <= PARTIALS && bytes <= PARTIALS * MAX_PACKET, "{bytes}");
        assert_eq!(reassembly.add(now, part(1, 0, FRAGMENTS + 1), b""), None);
        reassembly.expire(now.after(PARTIAL_LIFETIME));
        assert!(reassembly.0.is_empty());
    }
}
