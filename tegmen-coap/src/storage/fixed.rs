//! The exchanges of a peer in arrays of fixed sizes.

use super::{Busy, EXCHANGE_LIFETIME, ExchangeStorage, Outgoing, Repeat, RequestId};
use tegmen_base::buf::{Frame, Full, copy};
use tegmen_base::time::Instant;

/// The storage of a mote, which keeps the exchanges of each peer in the entry of the peer. This type itself has size
/// zero.
///
/// An entry has space for `OUT` open messages of this endpoint, each of at most `BYTES` bytes. It keeps the replies to
/// the last `SEEN` messages of the peer, at most `REPLIES` bytes in total. If the peer repeats an older request, the
/// request is executed again. RFC 7252, section 4.5, allows this for idempotent requests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Fixed<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize>;

struct Slot<const BYTES: usize> {
    exchange: Outgoing,
    len: u16,
    bytes: [u8; BYTES],
}

/// A message that was handled, and the position of its reply.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    at: Instant,
    /// The position of the reply in the ring of replies: the number of bytes that had been written to the ring before
    /// the reply.
    reply: u32,
    len: u16,
}

/// The exchanges of one peer in [`Fixed`].
pub struct FixedPeer<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> {
    outgoing: [Slot<BYTES>; OUT],
    seen_ids: [u16; SEEN],
    seen: [Seen; SEEN],
    next_seen: usize,
    replies: [u8; REPLIES],
    replies_end: u32,
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> Default
    for FixedPeer<OUT, BYTES, SEEN, REPLIES>
{
    fn default() -> Self {
        const { assert!(REPLIES.is_power_of_two(), "the ring of replies is a power of two, so that positions may wrap") }
        Self {
            outgoing: [const { Slot { exchange: Outgoing::NONE, len: 0, bytes: [0; BYTES] } }; OUT],
            seen_ids: [0; SEEN],
            seen: [Seen { at: Instant::NEVER, reply: 0, len: 0 }; SEEN],
            next_seen: 0,
            replies: [0; REPLIES],
            replies_end: 0,
        }
    }
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize>
    FixedPeer<OUT, BYTES, SEEN, REPLIES>
{
    fn reply(&self, seen: Seen) -> &[u8] {
        let size = REPLIES as u32;
        // If a later reply has overwritten this reply, there is nothing to repeat. A request that is not idempotent is
        // still not executed twice.
        if self.replies_end.wrapping_sub(seen.reply) > size {
            return &[];
        }
        let place = seen.reply.checked_rem(size).unwrap_or(0) as usize;
        self.replies.get(place..).and_then(|reply| reply.get(..seen.len.into())).unwrap_or(&[])
    }
}

impl<const OUT: usize, const BYTES: usize, const SEEN: usize, const REPLIES: usize> ExchangeStorage
    for Fixed<OUT, BYTES, SEEN, REPLIES>
{
    const PLACES: usize = OUT;
    type Peer = FixedPeer<OUT, BYTES, SEEN, REPLIES>;
    type Key = u16;
    type Handled = Seen;

    #[inline]
    fn key(&mut self, _: Instant, _: &mut Self::Peer, message_id: u16, _: &[u8]) -> u16 {
        message_id
    }

    fn handled(&self, now: Instant, peer: &Self::Peer, key: u16) -> Option<Seen> {
        // Most messages are new. A search of the Message IDs alone is sufficient to find this.
        let position = peer.seen_ids.iter().position(|id| *id == key)?;
        let known = peer.seen_ids.iter().zip(&peer.seen).skip(position);
        let mut live = known
            .filter(|(id, seen)| **id == key && seen.at != Instant::NEVER && now.since(seen.at) < EXCHANGE_LIFETIME);
        live.next().map(|(_, seen)| *seen)
    }

    #[inline]
    fn reply<'s>(&'s self, peer: &'s Self::Peer, handled: Seen) -> &'s [u8] {
        peer.reply(handled)
    }

    #[inline]
    fn has_room(&mut self, _: Instant, _: &mut Self::Peer, _: Repeat) -> bool {
        true
    }

    fn keep(&mut self, now: Instant, peer: &mut Self::Peer, key: u16, _: Repeat, reply: &[u8]) {
        let len = reply.len() as u32;
        let size = REPLIES as u32;
        let mut start = peer.replies_end;
        let at = start.checked_rem(size).unwrap_or(0);
        if at.saturating_add(len) > size {
            start = start.wrapping_add(size.wrapping_sub(at)); // never across the end of the ring
        }
        let place = start.checked_rem(size).unwrap_or(0) as usize;
        let fits = copy(peer.replies.get_mut(place..).unwrap_or(&mut []), reply).is_ok();
        if fits {
            peer.replies_end = start.wrapping_add(len);
        }
        let seen = Seen { at: now, reply: start, len: if fits { reply.len() as u16 } else { 0 } };
        if let (Some(id), Some(slot)) = (peer.seen_ids.get_mut(peer.next_seen), peer.seen.get_mut(peer.next_seen)) {
            (*id, *slot) = (key, seen);
        }
        peer.next_seen = peer.next_seen.wrapping_add(1);
        if peer.next_seen >= SEEN {
            peer.next_seen = 0;
        }
    }

    fn last_reply<'s>(&'s self, _: Instant, peer: &'s Self::Peer) -> &'s [u8] {
        let last = peer.next_seen.checked_sub(1).unwrap_or(SEEN.saturating_sub(1));
        match peer.seen.get(last) {
            Some(seen) if seen.at != Instant::NEVER => peer.reply(*seen),
            _ => &[],
        }
    }

    fn open<'s>(&'s mut self, peer: &'s mut Self::Peer, message: &[u8]) -> Result<&'s mut Outgoing, Busy> {
        let slot = peer.outgoing.iter_mut().find(|slot| !slot.exchange.is_open()).ok_or(Busy::Outstanding)?;
        copy(&mut slot.bytes, message)?;
        slot.len = message.len() as u16;
        Ok(&mut slot.exchange)
    }

    #[inline]
    fn exchanges<'s>(&'s self, peer: &'s Self::Peer) -> impl Iterator<Item = &'s Outgoing> {
        peer.outgoing.iter().map(|slot| &slot.exchange)
    }

    #[inline]
    fn find<'s>(
        &'s mut self,
        peer: &'s mut Self::Peer,
        mut is_it: impl FnMut(&Outgoing) -> bool,
    ) -> Option<&'s mut Outgoing> {
        peer.outgoing.iter_mut().map(|slot| &mut slot.exchange).find(|exchange| exchange.is_open() && is_it(exchange))
    }

    #[inline]
    fn write(&self, peer: &Self::Peer, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full> {
        // If the array has only one element, no search is necessary.
        let Some(slot) = peer.outgoing.iter().find(|slot| OUT == 1 || slot.exchange.id == id) else { return Ok(()) };
        frame.append(slot.bytes.get(..slot.len.into()).unwrap_or(&[]))
    }

    #[inline]
    fn settle(&mut self, _: &mut Self::Peer, _: RequestId) {}

    fn forget(&mut self, peer: &mut Self::Peer) {
        *peer = FixedPeer::default();
    }
}

#[cfg(test)]
mod tests;
