//! Packets that arrive in fragments.

use std::collections::HashMap;
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::MAX_PACKET;
use tegmen_ndn::lp::Part;

/// The packets of one face that are put together at the same time.
const PARTIALS: usize = 16;
/// The fragments of one packet.
const FRAGMENTS: u64 = 64;
/// The time after which an incomplete packet is given up.
const PARTIAL_LIFETIME: Duration = Duration::from_secs(1);

/// The incomplete packets of a face, by the sequence number of their first fragments.
#[derive(Default)]
pub(crate) struct Reassembly(HashMap<u64, Partial>);

/// A packet of which fragments are missing.
struct Partial {
    pieces: Vec<Option<Box<[u8]>>>,
    missing: usize,
    since: Instant,
}

impl Reassembly {
    /// Adds a fragment. Returns the packet once all its fragments are there.
    pub(crate) fn add(&mut self, now: Instant, part: Part, fragment: &[u8]) -> Option<Vec<u8>> {
        if part.count > FRAGMENTS {
            return None;
        }
        self.0.retain(|_, partial| now < partial.since.after(PARTIAL_LIFETIME));
        let first = part.sequence.wrapping_sub(part.index);
        if self.0.len() >= PARTIALS && !self.0.contains_key(&first) {
            return None;
        }
        let count = part.count as usize;
        let partial = self.0.entry(first).or_insert_with(|| Partial {
            pieces: (0..count).map(|_| None).collect(),
            missing: count,
            since: now,
        });
        let piece = partial.pieces.get_mut(part.index as usize).filter(|piece| piece.is_none())?;
        *piece = Some(fragment.into());
        partial.missing -= 1;
        if partial.missing > 0 || partial.pieces.len() != count {
            return None;
        }
        let partial = self.0.remove(&first)?;
        let packet: Vec<u8> = partial.pieces.iter().flatten().flat_map(|piece| piece.iter().copied()).collect();
        Some(packet).filter(|packet| packet.len() <= MAX_PACKET)
    }
}
