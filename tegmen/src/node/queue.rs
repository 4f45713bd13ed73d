//! Messages that wait until NSTART and PROBING_RATE allow them (RFC 7252, section 4.7).

use crate::buf::copy;
use crate::coap::Busy;
use crate::coap::RequestId;
use crate::identity::PeerId;

/// A message that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// The peer to which the message is sent.
    pub peer: PeerId,
    /// The id of the exchange that begins with this message.
    pub request: RequestId,
    /// True if the message is confirmable.
    pub confirmable: bool,
    /// True if the message is a request, false if it is a response.
    pub is_request: bool,
}

/// The messages that wait in a node until they may be sent. Each message is for one of the node's peers.
pub trait Queue {
    /// Maximum number of waiting messages.
    const PLACES: usize;

    /// Adds a message to the end of the queue.
    ///
    /// # Errors
    /// [`Busy`] if the queue is full, or if the message is too long for it.
    fn push(&mut self, queued: Queued, message: &[u8]) -> Result<(), Busy>;

    /// Returns the oldest message to this peer for which `is_it` returns true, with its bytes; `None` if there is no
    /// such message.
    fn first(&self, peer: PeerId, is_it: impl FnMut(&Queued) -> bool) -> Option<(Queued, &[u8])>;

    /// Removes the messages for which `keep` returns false.
    fn retain(&mut self, keep: impl FnMut(&Queued) -> bool);
}

/// A queue that stores no messages.
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

/// A queue of at most `N` messages, each of at most `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct QueueArray<const N: usize, const BYTES: usize> {
    places: [Place<BYTES>; N],
    /// Number of messages that were added to the queue since the start. After 2^32 messages, it begins with 0 again.
    added: u32,
}

#[derive(Clone, Copy, Debug)]
struct Place<const BYTES: usize> {
    queued: Option<Queued>,
    /// The number of the message: how many messages were added to the queue before it (see [`QueueArray::added`]).
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
