//! The storage for the CoAP exchanges of a proxy on a mote. A proxy gets the response to a request only after its
//! handler has returned. Unlike [`Fixed`], this storage also stores such a response, so that it can be sent again if
//! the request is retransmitted.

use std::collections::VecDeque;
use tegmen::buf::{Frame, Full};
use tegmen::coap::{Busy, ExchangeStorage, Fixed, Late, Outgoing, Repeat, RequestId};
use tegmen::time::Instant;

/// The storage for all peers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Memory(Inner);

type Inner = Fixed<OUT, MESSAGE, SEEN, REPLIES>;
type InnerPeer = <Inner as ExchangeStorage>::Peer;

/// The part of the storage that belongs to one peer.
#[derive(Default)]
pub(super) struct Kept {
    inner: InnerPeer,
    /// The replies that were stored after their handlers had returned, each with its Message ID. The newest reply is
    /// the last.
    late: VecDeque<(u16, Vec<u8>)>,
}

impl ExchangeStorage for Memory {
    const PLACES: usize = OUT;
    type Peer = Kept;
    type Key = u16;
    type Handled = (u16, <Inner as ExchangeStorage>::Handled);

    fn key(&mut self, _: Instant, _: &mut Kept, message_id: u16, _: &[u8]) -> u16 {
        message_id
    }

    fn handled(&self, now: Instant, peer: &Kept, key: u16) -> Option<Self::Handled> {
        self.0.handled(now, &peer.inner, key).map(|handled| (key, handled))
    }

    fn reply<'s>(&'s self, peer: &'s Kept, (key, handled): Self::Handled) -> &'s [u8] {
        match peer.late.iter().rev().find(|(id, _)| *id == key) {
            Some((_, reply)) => reply,
            None => self.0.reply(&peer.inner, handled),
        }
    }

    fn has_room(&mut self, now: Instant, peer: &mut Kept, repeat: Repeat) -> bool {
        self.0.has_room(now, &mut peer.inner, repeat)
    }

    fn keep(&mut self, now: Instant, peer: &mut Kept, key: u16, repeat: Repeat, reply: &[u8]) {
        peer.late.retain(|(id, _)| *id != key);
        self.0.keep(now, &mut peer.inner, key, repeat, reply);
    }

    fn late(key: u16, repeat: Repeat) -> Option<Late> {
        Some(Late { message_id: key, print: 0, repeat })
    }

    fn keep_late(&mut self, _: Instant, peer: &mut Kept, late: Late, reply: &[u8]) {
        peer.late.push_back((late.message_id, reply.to_vec()));
        if peer.late.len() > SEEN {
            peer.late.pop_front();
        }
    }

    fn last_reply<'s>(&'s self, _: Instant, peer: &'s Kept) -> &'s [u8] {
        peer.late.back().map_or(&[], |(_, reply)| reply)
    }

    fn open<'s>(&'s mut self, peer: &'s mut Kept, message: &[u8]) -> Result<&'s mut Outgoing, Busy> {
        self.0.open(&mut peer.inner, message)
    }

    fn exchanges<'s>(&'s self, peer: &'s Kept) -> impl Iterator<Item = &'s Outgoing> {
        self.0.exchanges(&peer.inner)
    }

    fn find<'s>(&'s mut self, peer: &'s mut Kept, is_it: impl FnMut(&Outgoing) -> bool) -> Option<&'s mut Outgoing> {
        self.0.find(&mut peer.inner, is_it)
    }

    fn write(&self, peer: &Kept, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full> {
        self.0.write(&peer.inner, id, frame)
    }

    fn settle(&mut self, peer: &mut Kept, id: RequestId) {
        self.0.settle(&mut peer.inner, id);
    }

    fn forget(&mut self, peer: &mut Kept) {
        *peer = Kept::default();
    }
}

/// Maximum number of exchanges with a peer that are open at the same time.
pub(super) const OUT: usize = 512;
/// Maximum length of a message, in bytes.
pub(super) const MESSAGE: usize = 128;
/// Maximum number of a peer's messages whose replies are stored.
const SEEN: usize = 512;
/// Maximum number of bytes for the stored replies to a peer.
const REPLIES: usize = 1 << 15;
