//! PROBING_RATE (RFC 7252, section 4.7) for each peer.

use crate::coap::Probing;
use crate::identity::PeerId;
use crate::time::Instant;

/// The time at which each peer may be sent the next message without acknowledgement.
pub trait Pacing {
    /// A message of `len` bytes is sent that is not confirmable, and that is no response to a request just received.
    fn sent(&mut self, now: Instant, peer: PeerId, len: usize);

    /// The peer sent something: it is there, and may be sent the next message at once.
    fn heard(&mut self, peer: PeerId);

    /// Returns the time at which the peer may be sent the next message; [`Instant::NEVER`] if there is no memory for that.
    fn next(&self, peer: PeerId) -> Instant;
}

/// No memory: no message without acknowledgement may be sent.
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

/// The `N` peers that were sent such messages last. A further peer waits until one of them has answered, or may be sent the
/// next message.
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

/// The time at which the place may be used for another peer.
fn until(place: &Option<(PeerId, Probing)>) -> Instant {
    place.map_or(Instant::AT_ONCE, |(_, probing)| probing.next())
}
