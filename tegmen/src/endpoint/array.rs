//! The peer table of a mote. It consists of arrays, which are searched from the beginning.

use super::peers::{Inserted, NewPeer, Peer, Peers, Phase, TableFull, may_displace};
use crate::address::Path;
use crate::dtls::association::Rank;
use crate::dtls::connection_id::ConnectionIds;
use crate::dtls::state::{MAX_TEXT, wipe_room};
use crate::dtls::{Buffers, Handshake, HandshakeState};
use crate::identity::PeerId;
use crate::time::Instant;

#[repr(C)] // as with `Peer`
struct Slot<A> {
    /// The generation in the `PeerId` of the peer in this slot (an element of the array of peers). It is odd while the
    /// slot has a peer.
    generation: u32,
    /// The number of peers that were inserted into the table before this peer. Among peers of the same rank, the peer
    /// with the lowest number is displaced first.
    age: u32,
    alarm: Instant,
    peer: Peer,
    attached: Option<A>,
}

impl<A> Slot<A> {
    const fn vacant() -> Self {
        Self { peer: Peer::vacant(), generation: 0, age: 0, alarm: Instant::from_micros(0), attached: None }
    }

    fn is_vacant(&self) -> bool {
        self.generation & 1 == 0
    }
}

struct HandshakeSlot<const OUTGOING: usize, const INCOMING: usize> {
    /// The index of the peer to which the handshake slot belongs, plus 1; 0 if the slot is free.
    owner: u32,
    state: HandshakeState,
    outgoing: [u8; OUTGOING],
    incoming: [u8; INCOMING],
}

/// A peer table for a mote and for tests. It consists of arrays, which are searched from the beginning.
///
/// The table has `PEERS` entries. At most `HANDSHAKES` of them may be in a handshake at the same time. Each handshake
/// has `OUTGOING` bytes for an outgoing cookie or identity, and `INCOMING` bytes for received fragments and for records
/// that arrived too early. Only the first `IDS` entries can have connection ids.
#[repr(C)] // as with `Peer`
pub struct PeerArray<
    A,
    const PEERS: usize,
    const HANDSHAKES: usize,
    const OUTGOING: usize = 64,
    const INCOMING: usize = 128,
    const IDS: usize = 0,
> {
    slots: [Slot<A>; PEERS],
    handshakes: [HandshakeSlot<OUTGOING, INCOMING>; HANDSHAKES],
    inserted: u32,
    /// The connection ids of the peer in the slot at the same index.
    ids: [Option<ConnectionIds>; IDS],
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize, const C: usize>
    PeerArray<A, P, H, O, I, C>
{
    /// Creates an empty table.
    pub const fn new() -> Self {
        Self {
            slots: [const { Slot::vacant() }; P],
            handshakes: [const {
                HandshakeSlot { owner: 0, state: HandshakeState::idle(), outgoing: [0; O], incoming: [0; I] }
            }; H],
            inserted: 0,
            ids: [const { None }; C],
        }
    }

    fn id(&self, index: usize) -> PeerId {
        PeerId::new(index as u32, self.slots.get(index).map_or(0, |slot| slot.generation))
    }

    fn slot(&mut self, id: PeerId) -> Option<&mut Slot<A>> {
        self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation.get())
    }

    /// Returns the index of a free slot. If there is none, returns the index of the peer that a new peer of rank `rank`
    /// displaces. Returns `None` if the new peer can displace no peer.
    fn place(&self, rank: Rank) -> Option<usize> {
        let candidates = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.is_vacant() || may_displace(rank, slot.peer.association.rank));
        let key = |(_, slot): &(usize, &Slot<A>)| match slot.is_vacant() {
            true => None,
            false => Some((slot.peer.association.rank, slot.age)),
        };
        candidates.min_by_key(key).map(|(index, _)| index)
    }

    /// Frees the handshake of the peer at `index`.
    #[inline(never)]
    fn free_handshake(&mut self, index: u32) {
        let owner = index.wrapping_add(1);
        for handshake in self.handshakes.iter_mut().filter(|handshake| handshake.owner == owner) {
            handshake.owner = 0;
            handshake.state.wipe();
            // A buffer that is not longer than a text can hold no items.
            if O > MAX_TEXT {
                wipe_room(&mut handshake.outgoing);
            }
        }
    }

    /// Returns the index of a slot for a handshake. The function prefers a free slot. The second choice is a slot whose
    /// handshake is complete, and the third the slot of the oldest peer that a new peer of rank `rank` may displace. In
    /// the third case it also returns the index of this peer, which must be removed from the table.
    fn handshake_place(&self, rank: Rank) -> Option<(usize, Option<usize>)> {
        let mut best = None;
        for (index, handshake) in self.handshakes.iter().enumerate() {
            let (key, displaced) = match handshake.owner.checked_sub(1) {
                None => ((0, 0), None),
                Some(_) if handshake.state.is_lingering() => ((1, 0), None),
                Some(owner) => match self.slots.get(owner as usize) {
                    Some(slot) if may_displace(rank, slot.peer.association.rank) => {
                        ((2, slot.age), Some(owner as usize))
                    }
                    _ => continue,
                },
            };
            if best.is_none_or(|(known, _)| key < known) {
                best = Some((key, (index, displaced)));
            }
        }
        best.map(|(_, found)| found)
    }
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize, const C: usize> Default
    for PeerArray<A, P, H, O, I, C>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize, const C: usize> Peers
    for PeerArray<A, P, H, O, I, C>
{
    type Attached = A;

    #[inline(never)]
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId> {
        let found = self.slots.iter().position(|slot| slot.peer.phase == phase && slot.peer.path == *path)?;
        Some(self.id(found))
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.slot(id).map(|slot| &mut slot.peer)
    }

    fn attached(&mut self, id: PeerId) -> Option<&mut A> {
        self.slot(id)?.attached.as_mut()
    }

    #[inline(never)]
    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation.get())?;
        let owner = id.index.wrapping_add(1);
        // On a mote, `find` of a mutable iterator takes twice as much code as this loop.
        let mut handshakes = self.handshakes.as_mut_slice();
        let HandshakeSlot { state, outgoing, incoming, .. } = loop {
            let (first, rest) = handshakes.split_first_mut()?;
            if first.owner == owner {
                break first;
            }
            handshakes = rest;
        };
        let ids = if C > 0 { self.ids.get_mut(id.index as usize).and_then(Option::as_mut) } else { None };
        Some(slot.peer.handshake(state, ids, Buffers { outgoing, incoming }))
    }

    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull> {
        let handshake = match new.with_handshake {
            true => Some(self.handshake_place(new.rank).ok_or(TableFull)?),
            false => None,
        };
        let index = match handshake {
            Some((_, Some(displaced))) => displaced,
            _ => self.place(new.rank).ok_or(TableFull)?,
        };
        let evicted = self.slots.get(index).is_some_and(|slot| !slot.is_vacant());
        self.remove(self.id(index));
        self.inserted = self.inserted.wrapping_add(1);
        let slot = self.slots.get_mut(index).ok_or(TableFull)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.peer.occupy(new);
        slot.alarm = Instant::NEVER;
        slot.age = self.inserted;
        slot.attached = Some(A::default());
        if let Some(handshake) = handshake.and_then(|(place, _)| self.handshakes.get_mut(place)) {
            handshake.state.wipe();
            handshake.owner = (index as u32).wrapping_add(1);
        }
        Ok(Inserted { id: self.id(index), evicted })
    }

    fn set_phase(&mut self, id: PeerId, phase: Phase) {
        if let Some(peer) = self.peer(id) {
            peer.phase = phase;
        }
    }

    fn release_handshake(&mut self, id: PeerId) {
        if self.slot(id).is_some() {
            self.free_handshake(id.index);
        }
    }

    fn can_spare_handshakes(&self) -> bool {
        self.handshakes.iter().filter(|handshake| handshake.owner == 0).count().saturating_mul(2) > H
    }

    fn find_connection_id(&self, connection_id: &[u8]) -> Option<PeerId> {
        let is_it = |ids: &Option<ConnectionIds>| ids.is_some_and(|ids| ids.ours() == connection_id);
        self.ids.iter().position(is_it).map(|index| self.id(index))
    }

    fn connection_ids(&mut self, id: PeerId) -> Option<&mut ConnectionIds> {
        self.slot(id)?;
        self.ids.get_mut(id.index as usize)?.as_mut()
    }

    fn set_connection_ids(&mut self, id: PeerId, ids: Option<ConnectionIds>) -> bool {
        let place = if self.slot(id).is_some() { self.ids.get_mut(id.index as usize) } else { None };
        place.map(|place| *place = ids).is_some()
    }

    fn set_path(&mut self, id: PeerId, path: &Path) {
        if let Some(peer) = self.peer(id) {
            peer.set_path(path);
        }
    }

    #[inline(never)]
    fn remove(&mut self, id: PeerId) {
        if C > 0 {
            self.set_connection_ids(id, None);
        }
        let Some(slot) = self.slot(id) else { return };
        slot.peer.vacate();
        slot.attached = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.free_handshake(id.index);
    }

    fn schedule(&mut self, id: PeerId, at: Instant) {
        if let Some(slot) = self.slot(id) {
            slot.alarm = slot.alarm.min(at);
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        let alarms = self.slots.iter().filter(|slot| !slot.is_vacant()).map(|slot| slot.alarm);
        alarms.min().filter(|at| *at < Instant::NEVER)
    }

    fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        let index = self.slots.iter().position(|slot| !slot.is_vacant() && slot.alarm <= now)?;
        self.slots.get_mut(index)?.alarm = Instant::NEVER;
        Some(self.id(index))
    }

    fn len(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.is_vacant()).count()
    }
}
