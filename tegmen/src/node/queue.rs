//! Messages that wait until NSTART and PROBING_RATE allow them (RFC 7252, section 4.7).

use crate::buf::copy;
use crate::coap::Busy;
use crate::coap::RequestId;
use crate::identity::PeerId;

/// A message that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The peer that it is for.
    pub peer: PeerId,
    /// The name of its exchange.
    pub request: RequestId,
    /// False if it is not confirmable.
    pub confirmable: bool,
    /// False if it is a response.
    pub is_request: bool,
}

/// The messages that wait to be sent, of all peers of a node.
pub trait Queue {
    /// The number of messages that can wait.
    const PLACES: usize;

    /// Adds a message after all others.
    ///
    /// # Errors
    /// [`Busy`] if there is no place, or the message is too long for one.
    fn push(&mut self, queued: Queued, message: &[u8]) -> Result<(), Busy>;

    /// Returns the oldest message to this peer for which `is_it` holds.
    fn first(&self, peer: PeerId, is_it: impl FnMut(&Queued) -> bool) -> Option<(Queued, &[u8])>;

    /// Removes the messages for which `keep` does not hold.
    fn retain(&mut self, keep: impl FnMut(&Queued) -> bool);
}

/// No message can wait.
impl Queue for () {
    const PLACES: usize = 0;

    #[inline]
    fn push(&mut self, _: Queued, _: &[u8]) -> Result<(), Busy> {
        Err(Busy::Outstanding)
    }

    #[inline]
    fn first(&self, _: PeerId, _: impl FnMut(&Queued) -> bool) -> Option<(Queued, &[u8])> {
        None
    }

    #[inline]
    fn retain(&mut self, _: impl FnMut(&Queued) -> bool) {}
}

/// A queue of at most `N` messages of at most `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct QueueArray<const N: usize, const BYTES: usize> {
    places: [Place<BYTES>; N],
    /// The number of messages that were added up to now.
    added: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place<const BYTES: usize> {
    queued: Option<Queued>,
    /// The message is the one that was added with this number.
    number: u32,
    len: u16,
    bytes: [u8; BYTES],
}

impl<const N: usize, const BYTES: usize> Default for QueueArray<N, BYTES> {
    fn default() -> Self {
        Self { places: [const { Place { queued: None, number: 0, len: 0, bytes: [0; BYTES] } }; N], added: 0 }
    }
}

impl<const N: usize, const BYTES: usize> Queue for QueueArray<N, BYTES> {
    const PLACES: usize = N;

    fn push(&mut self, queued: Queued, message: &[u8]) -> Result<(), Busy> {
        let place = self.places.iter_mut().find(|place| place.queued.is_none()).ok_or(Busy::Outstanding)?;
        copy(&mut place.bytes, message)?;
        (place.queued, place.number, place.len) = (Some(queued), self.added, message.len() as u16);
        self.added = self.added.wrapping_add(1);
        Ok(())
    }

    fn first(&self, peer: PeerId, mut is_it: impl FnMut(&Queued) -> bool) -> Option<(Queued, &[u8])> {
        let waiting = self
            .places
            .iter()
            .filter(|place| place.queued.as_ref().is_some_and(|queued| queued.peer == peer && is_it(queued)));
        let oldest = waiting.max_by_key(|place| self.added.wrapping_sub(place.number))?;
        Some((oldest.queued?, oldest.bytes.get(..oldest.len.into())?))
    }

    fn retain(&mut self, mut keep: impl FnMut(&Queued) -> bool) {
        for place in &mut self.places {
            place.queued = place.queued.filter(|queued| keep(queued));
        }
    }
}
