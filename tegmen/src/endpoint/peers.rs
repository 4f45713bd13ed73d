//! The peer table: a trait, because a mote has an array of three and a server a slab of a million.

use super::address::Path;
use crate::dtls::record::Channel;
use crate::dtls::{AlertDescription, Buffers, HandshakeState, Ongoing};
use crate::time::Instant;

/// Names an entry of the table. An entry that was removed and used again has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerId {
    /// Position in the table.
    pub index: u32,
    /// How often the position was used before.
    pub generation: u32,
}

/// Who a peer proved to be, as a number that the application chose when it answered with the key. Its meaning (names,
/// rights) stays with the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Principal(pub u32);

impl Principal {
    /// Nobody in particular: a peer that has not proved anything.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// Who is displaced first when the table is full: the lowest, and only by somebody who is not lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// Has an address, and proved nothing else.
    Stranger,
    /// Proved a key.
    Authenticated,
    /// We opened the association ourselves.
    Ours,
}

/// How far an association is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The handshake is not over.
    Handshaking,
    /// Data may be exchanged.
    Established,
    /// Over; only its alert is still to be sent. Not found by address any more.
    Closing,
}

/// What protects the datagrams of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing.
    Plain,
    /// A DTLS session.
    Dtls,
}

/// One peer: all that an established session takes, apart from what the table adds.
#[derive(Debug)]
pub struct Peer {
    pub(crate) path: Path,
    pub(crate) channel: Channel,
    pub(crate) principal: Principal,
    /// In units of 2^20 microseconds, for the idle timeout.
    pub(crate) last_heard: u32,
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) protection: Protection,
    /// The alert that is due while [`Phase::Closing`], and whether it goes out sealed.
    pub(crate) alert: Option<(AlertDescription, bool)>,
    /// True while our last flight may have to be sent again.
    pub(crate) lingers: bool,
}

impl Peer {
    pub(crate) fn new(path: Path, rank: Rank, phase: Phase, protection: Protection) -> Self {
        Self {
            path,
            channel: Channel::none(),
            principal: Principal::NOBODY,
            last_heard: 0,
            phase,
            rank,
            protection,
            alert: None,
            lingers: false,
        }
    }

    /// Both ends of the way to it.
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Who it proved to be.
    pub const fn principal(&self) -> Principal {
        self.principal
    }

    /// How far the association is.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Its rank in the table.
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// What protects its datagrams.
    pub const fn protection(&self) -> Protection {
        self.protection
    }

    /// Moves it to another phase; for the table, which finds peers by it.
    pub const fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Its handshake with everything it works on; for the table, whose memory the other two are.
    pub const fn ongoing<'b>(&'b mut self, state: &'b mut HandshakeState, buffers: Buffers<'b>) -> Ongoing<'b> {
        Ongoing { state, channel: &mut self.channel, principal: &mut self.principal, buffers }
    }

    /// Its keys and counters.
    pub const fn channel(&self) -> &Channel {
        &self.channel
    }
}

/// The table holds nobody who may be displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

/// A bounded table of peers, with an alarm for each.
///
/// At most one peer with the same path is in [`Phase::Handshaking`], and one in [`Phase::Established`].
pub trait Peers {
    /// What the owner keeps beside each peer: CoAP exchanges, usually. Dropped with the peer.
    type Attached: Default;

    /// The peer on this path in this phase.
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId>;

    /// The peer itself.
    fn peer(&mut self, id: PeerId) -> Option<&mut Peer>;

    /// What is kept beside it.
    fn attached(&mut self, id: PeerId) -> Option<&mut Self::Attached>;

    /// Its handshake, if it has one.
    fn ongoing(&mut self, id: PeerId) -> Option<Ongoing<'_>>;

    /// Adds a peer, with a handshake if one is given.
    ///
    /// # Errors
    /// [`TableFull`] if nobody of the same or a lower rank can be displaced; authenticated peers are never displaced
    /// by strangers. Where somebody was displaced, it is the one of lowest rank that has been there longest.
    fn insert(&mut self, peer: Peer, handshake: Option<HandshakeState>) -> Result<Inserted, TableFull>;

    /// Moves a peer to another phase, and so changes what [`Self::find`] finds.
    fn set_phase(&mut self, id: PeerId, phase: Phase);

    /// Frees the handshake of a peer that needs it no more.
    fn release_handshake(&mut self, id: PeerId);

    /// Removes a peer, its handshake and what is attached; keys are wiped.
    fn remove(&mut self, id: PeerId);

    /// Sets the alarm of a peer to `at`, unless it is earlier already.
    fn schedule(&mut self, id: PeerId, at: Instant);

    /// The earliest alarm.
    fn next_alarm(&self) -> Option<Instant>;

    /// A peer whose alarm is at or before `now`; its alarm is then off.
    fn take_due(&mut self, now: Instant) -> Option<PeerId>;

    /// Peers in the table.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What [`Peers::insert`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// The new peer.
    pub id: PeerId,
    /// True if another one had to go.
    pub evicted: bool,
}

struct Slot<A> {
    peer: Peer,
    alarm: Instant,
    attached: A,
    /// Order of insertion, for eviction among equals.
    age: u32,
}

struct HandshakeSlot<const OUTGOING: usize, const INCOMING: usize> {
    /// The peer's index, or [`FREE`].
    owner: u32,
    state: HandshakeState,
    outgoing: [u8; OUTGOING],
    incoming: [u8; INCOMING],
}

/// Peers in arrays, searched one by one: for a mote, and for tests.
///
/// `PEERS` entries, of which `HANDSHAKES` may be in a handshake at once, each with room for an outgoing cookie or
/// identity of `OUTGOING` bytes and for `INCOMING` bytes of fragments and early records.
pub struct PeerArray<
    A,
    const PEERS: usize,
    const HANDSHAKES: usize,
    const OUTGOING: usize = 64,
    const INCOMING: usize = 128,
> {
    slots: [(u32, Option<Slot<A>>); PEERS],
    handshakes: [Option<HandshakeSlot<OUTGOING, INCOMING>>; HANDSHAKES],
    inserted: u32,
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize> PeerArray<A, P, H, O, I> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { slots: [const { (0, None) }; P], handshakes: [const { None }; H], inserted: 0 }
    }

    fn slot(&mut self, id: PeerId) -> Option<&mut Slot<A>> {
        let (generation, slot) = self.slots.get_mut(id.index as usize)?;
        if *generation == id.generation { slot.as_mut() } else { None }
    }

    /// A free position, or that of the peer that is displaced by one of `rank`.
    fn place(&self, rank: Rank) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(|(_, slot)| slot.is_none()) {
            return Some(free);
        }
        let candidates = self.slots.iter().enumerate().filter_map(|(i, (_, slot))| slot.as_ref().map(|s| (i, s)));
        let (index, victim) = candidates.min_by_key(|(_, slot)| (slot.peer.rank, slot.age))?;
        may_displace(rank, victim.peer.rank).then_some(index)
    }

    /// A free handshake slot, one that only lingers, or that of the oldest stranger.
    fn handshake_place(&self, rank: Rank) -> Option<usize> {
        let key = |slot: &Option<HandshakeSlot<O, I>>| match slot {
            None => Some((0, 0)),
            Some(slot) if slot.state.is_lingering() => Some((1, 0)),
            Some(slot) => {
                let (_, owner) = self.slots.get(slot.owner as usize)?;
                let owner = owner.as_ref()?;
                may_displace(rank, owner.peer.rank).then_some((2, owner.age))
            }
        };
        let candidates = self.handshakes.iter().enumerate().filter_map(|(i, slot)| key(slot).map(|key| (key, i)));
        candidates.min().map(|(_, index)| index)
    }
}

/// A stranger may displace a stranger; nobody displaces an authenticated peer or one of ours but one of ours.
pub fn may_displace(new: Rank, old: Rank) -> bool {
    match old {
        Rank::Stranger => true,
        Rank::Authenticated => new == Rank::Ours,
        Rank::Ours => false,
    }
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize> Default for PeerArray<A, P, H, O, I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Default, const P: usize, const H: usize, const O: usize, const I: usize> Peers for PeerArray<A, P, H, O, I> {
    type Attached = A;

    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId> {
        for (index, (generation, slot)) in self.slots.iter().enumerate() {
            if slot.as_ref().is_some_and(|slot| slot.peer.phase == phase && slot.peer.path == *path) {
                return Some(PeerId { index: index as u32, generation: *generation });
            }
        }
        None
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.slot(id).map(|slot| &mut slot.peer)
    }

    fn attached(&mut self, id: PeerId) -> Option<&mut A> {
        self.slot(id).map(|slot| &mut slot.attached)
    }

    fn ongoing(&mut self, id: PeerId) -> Option<Ongoing<'_>> {
        let (generation, slot) = self.slots.get_mut(id.index as usize)?;
        let Slot { peer, .. } = slot.as_mut().filter(|_| *generation == id.generation)?;
        let handshake = self.handshakes.iter_mut().flatten().find(|handshake| handshake.owner == id.index)?;
        let HandshakeSlot { state, outgoing, incoming, .. } = handshake;
        Some(peer.ongoing(state, Buffers { outgoing, incoming }))
    }

    fn insert(&mut self, peer: Peer, handshake: Option<HandshakeState>) -> Result<Inserted, TableFull> {
        let mut evicted = false;
        let mut handshake_index = None;
        if handshake.is_some() {
            let place = self.handshake_place(peer.rank).ok_or(TableFull)?;
            // Whoever is displaced from an unfinished handshake has nothing left.
            if let Some(Some(old)) = self.handshakes.get(place) {
                let (index, lingering) = (old.owner, old.state.is_lingering());
                let generation = self.slots.get(index as usize).map_or(0, |(generation, _)| *generation);
                let id = PeerId { index, generation };
                if lingering {
                    // Its last flight goes only for a peer that finds a place.
                    self.place(peer.rank).ok_or(TableFull)?;
                    self.release_handshake(id);
                } else {
                    self.remove(id);
                    evicted = true;
                }
            }
            handshake_index = Some(place);
        }
        let index = self.place(peer.rank).ok_or(TableFull)?;
        let generation = self.slots.get(index).map_or(0, |(generation, _)| *generation);
        if self.slots.get(index).is_some_and(|(_, slot)| slot.is_some()) {
            self.remove(PeerId { index: index as u32, generation });
            evicted = true;
        }
        self.inserted = self.inserted.wrapping_add(1);
        let age = self.inserted;
        let (generation, slot) = self.slots.get_mut(index).ok_or(TableFull)?;
        *slot = Some(Slot { peer, alarm: Instant::NEVER, attached: A::default(), age });
        let id = PeerId { index: index as u32, generation: *generation };
        if let (Some(state), Some(place)) = (handshake, handshake_index)
            && let Some(free) = self.handshakes.get_mut(place)
        {
            *free = Some(HandshakeSlot { owner: id.index, state, outgoing: [0; O], incoming: [0; I] });
        }
        Ok(Inserted { id, evicted })
    }

    fn set_phase(&mut self, id: PeerId, phase: Phase) {
        if let Some(peer) = self.peer(id) {
            peer.phase = phase;
        }
    }

    fn release_handshake(&mut self, id: PeerId) {
        for slot in &mut self.handshakes {
            if slot.as_ref().is_some_and(|slot| slot.owner == id.index) {
                *slot = None;
            }
        }
    }

    fn remove(&mut self, id: PeerId) {
        if self.slot(id).is_none() {
            return;
        }
        self.release_handshake(id);
        if let Some((generation, slot)) = self.slots.get_mut(id.index as usize) {
            *slot = None;
            *generation = generation.wrapping_add(1);
        }
    }

    fn schedule(&mut self, id: PeerId, at: Instant) {
        if let Some(slot) = self.slot(id) {
            slot.alarm = slot.alarm.min(at);
        }
    }

    fn next_alarm(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|(_, slot)| slot.as_ref()).map(|slot| slot.alarm).min()
    }

    fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        for (index, (generation, slot)) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = slot
                && slot.alarm <= now
            {
                slot.alarm = Instant::NEVER;
                return Some(PeerId { index: index as u32, generation: *generation });
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.slots.iter().filter(|(_, slot)| slot.is_some()).count()
    }
}
