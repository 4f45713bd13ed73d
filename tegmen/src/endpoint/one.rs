//! The peer table of a mote with one peer, such as a sensor with one server. It needs no search and has less code.

use super::peers::{Inserted, NewPeer, Peer, Peers, Phase, TableFull, may_displace};
use crate::address::Path;
use crate::dtls::connection_id::ConnectionIds;
use crate::dtls::state::{MAX_TEXT, wipe_room};
use crate::dtls::{Buffers, Handshake, HandshakeState};
use crate::identity::PeerId;
use crate::time::Instant;

/// A peer table for one peer. It has `OUTGOING` bytes for an outgoing cookie or identity, and `INCOMING` bytes for
/// received fragments and for records that arrived too early. The peer has no connection id.
///
/// The rules for the replacement of the peer are those of every full table. An unknown peer never displaces a session,
/// and a peer to which we connect never displaces a session that we opened ourselves. So a server accepts no other
/// client until the old session has ended or is idle for too long. This also applies to a client that has lost its
/// session. Before we connect to another peer as a client, our old session must be removed ([`Peers::remove`]).
#[repr(C)] // as with `Peer`
pub struct OnePeer<A, const OUTGOING: usize = 64, const INCOMING: usize = 128> {
    /// The generation of the peer's ids. It is odd while the table has a peer.
    generation: u32,
    /// True while the peer needs the buffers of its handshake.
    has_handshake: bool,
    alarm: Instant,
    peer: Peer,
    attached: Option<A>,
    state: HandshakeState,
    outgoing: [u8; OUTGOING],
    incoming: [u8; INCOMING],
}

impl<A, const O: usize, const I: usize> OnePeer<A, O, I> {
    /// Creates a table without a peer.
    pub const fn new() -> Self {
        Self {
            generation: 0,
            has_handshake: false,
            alarm: Instant::from_micros(0),
            peer: Peer::vacant(),
            attached: None,
            state: HandshakeState::idle(),
            outgoing: [0; O],
            incoming: [0; I],
        }
    }

    fn id(&self) -> PeerId {
        PeerId::new(0, self.generation)
    }

    fn is(&self, id: PeerId) -> bool {
        self.generation == id.generation.get()
    }

    fn is_vacant(&self) -> bool {
        self.generation & 1 == 0
    }
}

impl<A, const O: usize, const I: usize> Default for OnePeer<A, O, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Default, const O: usize, const I: usize> Peers for OnePeer<A, O, I> {
    type Attached = A;

    #[inline(never)]
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId> {
        (self.peer.phase == phase && self.peer.path == *path).then(|| self.id())
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.is(id).then_some(&mut self.peer)
    }

    fn attached(&mut self, id: PeerId) -> Option<&mut A> {
        if self.is(id) { self.attached.as_mut() } else { None }
    }

    #[inline(never)]
    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>> {
        if !self.is(id) || !self.has_handshake {
            return None;
        }
        let Self { state, outgoing, incoming, .. } = self;
        Some(self.peer.handshake(state, None, Buffers { outgoing, incoming }))
    }

    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull> {
        let evicted = !self.is_vacant();
        if evicted && !may_displace(new.rank, self.peer.association.rank) {
            return Err(TableFull);
        }
        self.remove(self.id());
        self.generation |= 1;
        self.peer.occupy(new);
        self.alarm = Instant::NEVER;
        self.attached = Some(A::default());
        self.has_handshake = new.with_handshake;
        Ok(Inserted { id: self.id(), evicted })
    }

    fn set_phase(&mut self, id: PeerId, phase: Phase) {
        if let Some(peer) = self.peer(id) {
            peer.phase = phase;
        }
    }

    #[inline(never)]
    fn release_handshake(&mut self, id: PeerId) {
        if self.is(id) {
            self.has_handshake = false;
            self.state.wipe();
            // A buffer that is not longer than a text can hold no items.
            if O > MAX_TEXT {
                wipe_room(&mut self.outgoing);
            }
        }
    }

    fn can_spare_handshakes(&self) -> bool {
        !self.has_handshake
    }

    fn find_connection_id(&self, _: &[u8]) -> Option<PeerId> {
        None
    }

    fn connection_ids(&mut self, _: PeerId) -> Option<&mut ConnectionIds> {
        None
    }

    fn set_connection_ids(&mut self, _: PeerId, _: Option<ConnectionIds>) -> bool {
        false
    }

    fn set_path(&mut self, id: PeerId, path: &Path) {
        if let Some(peer) = self.peer(id) {
            peer.set_path(path);
        }
    }

    #[inline(never)]
    fn remove(&mut self, id: PeerId) {
        if self.is(id) {
            self.peer.vacate();
            self.attached = None;
            self.release_handshake(id);
            self.generation = self.generation.wrapping_add(1);
        }
    }

    fn schedule(&mut self, id: PeerId, at: Instant) {
        if self.is(id) {
            self.alarm = self.alarm.min(at);
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        (!self.is_vacant() && self.alarm < Instant::NEVER).then_some(self.alarm)
    }

    fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        if self.is_vacant() || self.alarm > now {
            return None;
        }
        self.alarm = Instant::NEVER;
        Some(self.id())
    }

    fn len(&self) -> usize {
        usize::from(!self.is_vacant())
    }
}

#[cfg(test)]
mod tests;
