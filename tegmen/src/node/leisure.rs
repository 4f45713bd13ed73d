//! Delayed responses to requests to a group. Each response waits for a random time (the leisure), so that the members
//! do not all respond at the same time (RFC 7252, section 8.2).

use crate::buf::{Frame, Full};
use crate::identity::PeerId;
use crate::time::{Duration, Instant};

/// The memory for delayed responses to requests to a group. Each response waits until its random time is over.
pub trait Leisure {
    /// False only for `()`, the type for a node that does not respond to requests to a group.
    const IS_ON: bool = true;

    /// Returns the maximum time for which a response waits.
    fn longest(&self) -> Duration;

    /// Stores a response to `peer` until the time `at`.
    ///
    /// # Errors
    /// [`Full`] if there is no space. The response is then not sent.
    fn keep(&mut self, at: Instant, peer: PeerId, message: &[u8]) -> Result<(), Full>;

    /// Returns the time at which the next response to `peer` must be sent; [`Instant::NEVER`] if no response waits.
    fn next(&self, peer: PeerId) -> Instant;

    /// If a response to `peer` is due at the time `now`, removes it from the memory and writes it into `frame`.
    fn take(&mut self, now: Instant, peer: PeerId, frame: &mut Frame<'_>);
}

/// The memory of a node that does not respond to requests to a group.
impl Leisure for () {
    const IS_ON: bool = false;

    #[inline]
    fn longest(&self) -> Duration {
        Duration::from_secs(0)
    }

    #[inline]
    fn keep(&mut self, _: Instant, _: PeerId, _: &[u8]) -> Result<(), Full> {
        Err(Full)
    }

    #[inline]
    fn next(&self, _: PeerId) -> Instant {
        Instant::NEVER
    }

    #[inline]
    fn take(&mut self, _: Instant, _: PeerId, _: &mut Frame<'_>) {}
}

/// Memory for at most `N` waiting responses, each of at most `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct LeisureArray<const N: usize, const BYTES: usize> {
    places: [Option<Place<BYTES>>; N],
    longest: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Place<const BYTES: usize> {
    at: Instant,
    peer: PeerId,
    len: u16,
    bytes: [u8; BYTES],
}

impl<const N: usize, const BYTES: usize> LeisureArray<N, BYTES> {
    /// Creates an empty memory. Each response will wait for a random time of at most `longest`. The DEFAULT_LEISURE of
    /// RFC 7252, section 4.8.2, is 5 seconds.
    pub const fn new(longest: Duration) -> Self {
        Self { places: [None; N], longest }
    }
}

impl<const N: usize, const BYTES: usize> Leisure for LeisureArray<N, BYTES> {
    fn longest(&self) -> Duration {
        self.longest
    }

    fn keep(&mut self, at: Instant, peer: PeerId, message: &[u8]) -> Result<(), Full> {
        let place = self.places.iter_mut().find(|place| place.is_none()).ok_or(Full)?;
        let mut bytes = [0; BYTES];
        crate::buf::copy(&mut bytes, message)?;
        *place = Some(Place { at, peer, len: message.len() as u16, bytes });
        Ok(())
    }

    fn next(&self, peer: PeerId) -> Instant {
        let own = self.places.iter().flatten().filter(|place| place.peer == peer);
        own.map(|place| place.at).min().unwrap_or(Instant::NEVER)
    }

    fn take(&mut self, now: Instant, peer: PeerId, frame: &mut Frame<'_>) {
        let is_due = |place: &Place<BYTES>| place.peer == peer && place.at <= now;
        let place = self.places.iter_mut().find(|place| place.as_ref().is_some_and(is_due));
        if let Some(Place { len, bytes, .. }) = place.and_then(Option::take)
            && let Some(message) = bytes.get(..len.into())
        {
            // A message that does not fit is not sent.
            let _ = frame.append(message);
        }
    }
}
