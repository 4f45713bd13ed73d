//! The limit PROBING_RATE for non-confirmable messages, for each peer (RFC 7252, section 4.7).

use crate::coap::Probing;
use crate::identity::PeerId;
use crate::time::Instant;

/// The memory in which a node stores, for each peer, the time from which it may send the next non-confirmable message.
pub trait Pacing {
    /// Counts a non-confirmable message of `len` bytes that the node sends to the peer. Do not call this function for a
    /// response to a request that has just arrived.
    fn sent(&mut self, now: Instant, peer: PeerId, len: usize);

    /// Processes the arrival of a message from the peer. The peer can be reached, so the next message may be sent at
    /// once.
    fn heard(&mut self, peer: PeerId);

    /// Returns the time from which the next non-confirmable message may be sent to the peer; [`Instant::NEVER`] if the
    /// memory has no space for the peer.
    fn next(&self, peer: PeerId) -> Instant;
}

/// The implementation for a node that sends only confirmable requests and notifications. It stores no times.
impl Pacing for () {
    #[inline]
    fn sent(&mut self, _: Instant, _: PeerId, _: usize) {}

    #[inline]
    fn heard(&mut self, _: PeerId) {}

    #[inline]
    fn next(&self, _: PeerId) -> Instant {
        Instant::NEVER
    }
}

/// Memory for `N` peers to which the node has sent non-confirmable messages. If the memory is full, a non-confirmable
/// message to another peer must wait until one of the `N` peers has sent a message, or until the node may send the next
/// non-confirmable message to one of the `N` peers.
#[derive(Clone, Copy, Debug)]
pub struct PacingArray<const N: usize> {
    peers: [Option<(PeerId, Probing)>; N],
}

impl<const N: usize> Default for PacingArray<N> {
    fn default() -> Self {
        Self { peers: [None; N] }
    }
}

impl<const N: usize> Pacing for PacingArray<N> {
    fn sent(&mut self, now: Instant, peer: PeerId, len: usize) {
        let own = self.peers.iter().position(|place| place.is_some_and(|(of, _)| of == peer));
        let place = own.or_else(|| self.peers.iter().position(|place| until(place) <= now));
        if let Some(place) = place.and_then(|place| self.peers.get_mut(place)) {
            let (_, probing) = place.filter(|(of, _)| *of == peer).unwrap_or((peer, Probing::new()));
            let (_, probing) = place.insert((peer, probing));
            probing.sent(now, len);
        }
    }

    fn heard(&mut self, peer: PeerId) {
        self.peers.iter_mut().filter(|place| place.is_some_and(|(of, _)| of == peer)).for_each(|place| *place = None);
    }

    fn next(&self, peer: PeerId) -> Instant {
        let own = self.peers.iter().find(|place| place.is_some_and(|(of, _)| of == peer));
        own.map(until).or_else(|| self.peers.iter().map(until).min()).unwrap_or(Instant::NEVER)
    }
}

/// Returns the time from which this element of the array can be used for another peer.
fn until(place: &Option<(PeerId, Probing)>) -> Instant {
    place.map_or(Instant::AT_ONCE, |(_, probing)| probing.next())
}
