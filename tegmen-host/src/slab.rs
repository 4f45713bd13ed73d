//! The peer table of a server: a slab of up to millions of peers, an index by address, and a timing wheel.

use crate::index::{Index, Tag};
use crate::prefix::Shares;
use crate::wheel::{Link, Links, NONE, Wheel};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use tegmen::address::Path;
use tegmen::dtls::{Buffers, ConnectionIds, Handshake, HandshakeState, Rank, wipe_room};
use tegmen::endpoint::{Inserted, NewPeer, Peer, Peers, Phase, TableFull, may_displace};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::{Duration, Instant};
use tegmen_accel::prefetch;

/// Size, in bytes, of a handshake's buffer for outgoing data. The buffer holds a cookie (at most 255 bytes) or a PSK
/// identity. In a handshake with public keys it holds a signature and a public key of RSA-4096.
const OUTGOING: usize = 1536;
/// Size, in bytes, of a handshake's buffer for incoming fragments and early records. The buffer holds the longest
/// accepted certificate chain, and for each byte of the chain one bit that shows whether the byte has arrived.
const INCOMING: usize = 6144;
/// Maximum number of ended handshakes whose memory the table keeps for later handshakes, about 8 KiB for each. A burst of
/// handshakes then uses the same memory again, which is still in the cache of the processor.
const SPARE: usize = 128;

/// Maximum number of paths whose entries one call of [`Slab::prefetch`] loads into the cache of the processor.
pub const BATCH: usize = 32;

/// Number of peers below which the table prefetches nothing. All data that a search reads is then in the cache of the
/// processor, if the cache has one megabyte.
const SMALL: usize = 4096;

/// If the maximum number of handshakes is in progress, the table searches for a handshake that a new one can replace.
/// One search examines at most this number of handshakes. The next search begins after the last one of them.
const LOOKED_AT: usize = 16;
/// The age from which a new handshake can replace a handshake whose client has not answered the server's first flight.
/// This happens only if the table has its maximum number of handshakes ([`Capacity::handshakes`]), and if the network
/// prefix of the new handshake has fewer handshakes in the table. The age is longer than one second, which is the time
/// after which a client repeats a lost flight.
const SILENT: Duration = Duration::from_secs(2);
/// The age from which a new handshake can replace a handshake whose client has answered the server's first flight, and
/// has not proved its key yet. The other conditions are those of [`SILENT`].
const UNPROVED: Duration = Duration::from_secs(8);
/// The factor by which [`SILENT`] and [`UNPROVED`] are multiplied if the network prefix of the new handshake does not
/// have fewer handshakes in the table.
const FOR_ANYBODY: u32 = 4;

/// Number of sessions that one search for a removable session compares. The search reads at most four times as many
/// entries, so its work is limited. Each completed handshake causes at most one search.
const CROWD: usize = 128;

/// Number of entries in a block of a server's table.
const BLOCK: usize = 256;

// In lines of the cache: what a search by address compares is the first.
#[repr(align(64))]
struct Entry<A> {
    /// The peer of the entry. While the entry is free, the phase of this peer is [`Phase::Vacant`], and `next_free` is
    /// the index of the next free entry.
    peer: Peer,
    /// The generation of the entry. It rises by two each time a peer is removed from the entry: see [`PeerId::new`].
    generation: u32,
    /// Index of the peer's handshake in [`Slab::handshakes`], or [`NONE`].
    handshake: u32,
    link: Link,
    next_free: u32,
    /// Index of the peer's connection ids in [`Slab::ids`], or [`NONE`].
    ids: u32,
    attached: A,
}

impl<A> Entry<A> {
    /// Returns true if the entry holds this peer, or held it last.
    fn has_been(&self, id: PeerId) -> bool {
        PeerId::new(id.index, self.generation) == id
    }

    fn is(&self, id: PeerId) -> bool {
        self.has_been(id) && self.peer.phase() != Phase::Vacant
    }
}

/// The blocks of entries, without the indexes that refer to them.
struct Entries<A, const BLOCK: usize> {
    blocks: Vec<Box<[Entry<A>]>>,
}

impl<A, const BLOCK: usize> Entries<A, BLOCK> {
    fn get(&self, index: u32) -> Option<&Entry<A>> {
        self.blocks.get(index as usize / BLOCK)?.get(index as usize % BLOCK)
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut Entry<A>> {
        self.blocks.get_mut(index as usize / BLOCK)?.get_mut(index as usize % BLOCK)
    }

    fn path(&self, index: u32) -> Option<(&Path, Phase)> {
        let peer = &self.get(index)?.peer;
        (peer.phase() != Phase::Vacant).then(|| (peer.path(), peer.phase()))
    }
}

impl<A, const BLOCK: usize> Links for Entries<A, BLOCK> {
    fn link(&mut self, index: u32) -> &mut Link {
        &mut self.blocks[index as usize / BLOCK][index as usize % BLOCK].link
    }
}

struct HandshakeSlot {
    owner: PeerId,
    begun: Instant,
    /// The address of the peer that has the handshake.
    remote: IpAddr,
    state: HandshakeState,
    outgoing: [u8; OUTGOING],
    /// The buffer for incoming data; `None` in a completed handshake, whose last flight may have to be sent again.
    incoming: Option<Box<[u8; INCOMING]>>,
}

/// The maximum numbers of peers and handshakes of a table.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Maximum number of peers that are not in a handshake. At the maximum, the table examines a sample of the
    /// sessions. It finds the principal that has the most sessions in the sample, and removes the longest idle session
    /// of this principal. An unauthenticated peer never displaces an authenticated peer.
    pub peers: usize,
    /// Maximum number of handshakes at the same time. They do not count as `peers`. Each handshake takes about 8 KiB.
    /// At the maximum, a new handshake can replace the handshake of a silent client from a network prefix (/24, /56)
    /// that has more handshakes. If there is no such handshake, the server does not answer the ClientHello, and the
    /// client repeats it.
    pub handshakes: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { peers: 1 << 20, handshakes: 4096 }
    }
}

/// A table of peers. Its entries are allocated in blocks of `N`, so that a growing table copies no entries.
pub struct Slab<A, const N: usize = BLOCK> {
    entries: Entries<A, N>,
    free: u32,
    len: usize,
    /// Number of peers that are in a handshake.
    handshaking: usize,
    /// Number of peers that authenticated peers displaced from the full table, since the last call of
    /// [`Self::take_displaced`].
    displaced: u64,
    /// Index of the entry at which the last search for a removable session ended.
    hand: u32,
    capacity: Capacity,
    by_path: Index,
    wheel: Wheel,
    handshakes: Vec<Option<Box<HandshakeSlot>>>,
    free_handshakes: Vec<u32>,
    /// Buffers for the incoming data of later handshakes.
    spare: Vec<Box<[u8; INCOMING]>>,
    /// Memory of ended handshakes without secrets, for later handshakes.
    #[expect(clippy::vec_box, reason = "a box moves to `handshakes` and back without a copy of its content")]
    spare_slots: Vec<Box<HandshakeSlot>>,
    /// The peers in a handshake, in the order of their arrival. `stranger_order` has the unauthenticated peers without
    /// a handshake, in the same order. Both lists can contain removed peers.
    handshake_order: VecDeque<PeerId>,
    stranger_order: VecDeque<PeerId>,
    /// For each network prefix, the number of handshakes in `handshakes` whose peers have this prefix.
    shares: Shares,
    /// The time at which the owner of the table last asked for peers whose timers had expired.
    now: Instant,
    /// Connection ids, each with the index of its peer's entry; [`NONE`] marks an unused element.
    ids: Vec<(u32, ConnectionIds)>,
    free_ids: Vec<u32>,
    by_id: Index,
}

impl<A: Default> Slab<A> {
    /// Returns an empty table.
    pub fn new(capacity: Capacity) -> Self {
        Self::with_blocks(capacity)
    }
}

impl<A: Default, const N: usize> Slab<A, N> {
    /// Returns an empty table whose blocks have `N` entries.
    pub fn with_blocks(capacity: Capacity) -> Self {
        Self {
            entries: Entries { blocks: Vec::new() },
            free: NONE,
            len: 0,
            handshaking: 0,
            displaced: 0,
            hand: 0,
            capacity,
            by_path: Index::new(),
            wheel: Wheel::new(),
            handshakes: Vec::new(),
            free_handshakes: Vec::new(),
            spare: Vec::new(),
            spare_slots: Vec::new(),
            handshake_order: VecDeque::new(),
            stranger_order: VecDeque::new(),
            shares: Shares::new(),
            now: Instant::AT_ONCE,
            ids: Vec::new(),
            free_ids: Vec::new(),
            by_id: Index::new(),
        }
    }

    /// Returns the number of bytes that the table takes now: entries, indexes, timers and handshakes. Memory to which
    /// an attached value points is not counted.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.entries.blocks.len() * (N * size_of::<Entry<A>>() + size_of::<Box<[Entry<A>]>>())
            + self.by_path.heap_bytes()
            + self.wheel.heap_bytes()
            + self.handshakes.capacity() * size_of::<Option<Box<HandshakeSlot>>>()
            + (self.handshakes.iter().flatten().count() + self.spare_slots.len()) * size_of::<HandshakeSlot>()
            + self.spare_slots.capacity() * size_of::<Box<HandshakeSlot>>()
            + self.spare.capacity() * size_of::<Box<[u8; INCOMING]>>()
            + (self.spare.len() + self.handshakes.iter().flatten().filter_map(|one| one.incoming.as_ref()).count())
                * INCOMING
            + self.free_handshakes.capacity() * size_of::<u32>()
            + (self.handshake_order.capacity() + self.stranger_order.capacity()) * size_of::<PeerId>()
            + self.shares.heap_bytes()
            + self.ids.capacity() * size_of::<(u32, ConnectionIds)>()
            + self.free_ids.capacity() * size_of::<u32>()
            + self.by_id.heap_bytes()
    }

    /// Prefetches the entries of these paths from memory. Call this before searches for several paths, for example for
    /// the datagrams of a batch. Only the first [`BATCH`] paths are prefetched.
    #[inline]
    pub fn prefetch<'p>(&self, paths: impl Iterator<Item = &'p Path>) {
        // A table of this size stays in the cache, where the search takes less time than the prefetching.
        if self.len < SMALL {
            return;
        }
        let mut tags = [Tag::default(); BATCH];
        let mut count = 0;
        for (place, path) in tags.iter_mut().zip(paths) {
            *place = self.by_path.tag(path);
            self.by_path.prefetch(*place);
            count += 1;
        }
        for tag in &tags[..count] {
            if let Some(entry) = self.entries.get(self.by_path.guess(*tag)) {
                prefetch(entry);
            }
        }
    }

    /// Prefetches the entry of a peer from memory. Call this for several peers before the first of them is used.
    #[inline]
    pub(crate) fn prefetch_peer(&self, id: PeerId) {
        if self.len >= SMALL
            && let Some(entry) = self.entries.get(id.index)
        {
            prefetch(entry);
        }
    }

    /// Returns all peers.
    pub fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        let blocks = self.entries.blocks.iter().enumerate();
        blocks.flat_map(|(block, entries)| {
            entries.iter().enumerate().filter_map(move |(i, entry)| {
                let id = PeerId::new((block * N + i) as u32, entry.generation);
                (entry.peer.phase() != Phase::Vacant).then_some((id, &entry.peer))
            })
        })
    }

    fn entry(&self, id: PeerId) -> Option<&Entry<A>> {
        self.entries.get(id.index).filter(|entry| entry.is(id))
    }

    fn entry_mut(&mut self, id: PeerId) -> Option<&mut Entry<A>> {
        self.entries.get_mut(id.index).filter(|entry| entry.is(id))
    }

    /// Returns the tag (a hash) under which `by_path` contains the path of an entry's peer. Returns `None` if the entry
    /// is free, or if its peer is in a phase in which no search by path finds it.
    fn tag(&self, index: u32) -> Option<Tag> {
        let (path, phase) = self.entries.path(index)?;
        matches!(phase, Phase::Handshaking | Phase::Established).then(|| self.by_path.tag(path))
    }

    fn index_path(&mut self, index: u32) {
        if let Some(tag) = self.tag(index) {
            self.by_path.insert(tag, index);
        }
    }

    fn unindex_path(&mut self, index: u32) {
        if let Some(tag) = self.tag(index) {
            self.by_path.remove(tag, index);
        }
    }

    /// Makes sure that the table can take one more peer that is in no handshake. Returns true if a peer was removed for
    /// this, and false if the table was not full.
    fn make_room(&mut self) -> Result<bool, TableFull> {
        if self.len - self.handshaking < self.capacity.peers {
            return Ok(false);
        }
        self.displace_stranger().then_some(true).ok_or(TableFull)
    }

    /// Removes the oldest unauthenticated peer that is in no handshake. Returns false if there is none.
    fn displace_stranger(&mut self) -> bool {
        while let Some(oldest) = self.stranger_order.pop_front() {
            if self.entry(oldest).is_some_and(|entry| entry.peer.rank() == Rank::Stranger) {
                self.remove(oldest);
                return true;
            }
        }
        false
    }

    /// Removes a peer from the full table, because the peer `new` has just been authenticated. First tries to remove an
    /// unauthenticated peer. If there is none, examines a sample of the entries, and removes the longest idle session
    /// of the principal that has the most sessions in the sample. So a principal that begins many sessions cannot
    /// displace all other peers.
    fn displace_for(&mut self, new: PeerId) {
        if self.displace_stranger() {
            self.displaced += 1;
            return;
        }
        let end = (self.entries.blocks.len() * N) as u32;
        let principal = self.entry(new).map(|entry| entry.peer.principal());
        let (mut seen, mut count) = ([None; CROWD], 0);
        for _ in 0..end.min(4 * CROWD as u32) {
            self.hand = if self.hand + 1 < end { self.hand + 1 } else { 0 };
            let Some(entry) = self.entries.get(self.hand) else { continue };
            let id = PeerId::new(self.hand, entry.generation);
            let peer = &entry.peer;
            if id == new || peer.phase() != Phase::Established || peer.rank() != Rank::Authenticated {
                continue;
            }
            let Some(place) = seen.get_mut(count) else { break };
            *place = Some((peer.principal(), peer.last_heard(), id));
            count += 1;
        }
        let sessions = |of| seen.iter().flatten().filter(|(principal, ..)| *principal == of).count();
        let crowd = |(of, heard, _): &&(Principal, u32, PeerId)| {
            (sessions(*of) + usize::from(principal == Some(*of)), std::cmp::Reverse(*heard))
        };
        if let Some((.., crowded)) = seen.iter().flatten().max_by_key(crowd) {
            self.remove(*crowded);
            self.displaced += 1;
        }
    }

    /// Returns the number of peers that authenticated peers displaced since the last call.
    pub fn take_displaced(&mut self) -> u64 {
        std::mem::take(&mut self.displaced)
    }

    /// Removes the buffer for incoming data from the handshake of a peer. A completed handshake receives nothing: the
    /// session of the peer receives all later records.
    fn spare_incoming(&mut self, id: PeerId) {
        let Some(entry) = self.entries.get(id.index).filter(|entry| entry.has_been(id)) else { return };
        let handshake = self.handshakes.get_mut(entry.handshake as usize).and_then(Option::as_mut);
        let incoming = handshake.and_then(|handshake| handshake.incoming.take());
        self.keep_spare(incoming);
    }

    /// Keeps a buffer for a later handshake, if fewer than [`SPARE`] buffers are kept.
    fn keep_spare(&mut self, incoming: Option<Box<[u8; INCOMING]>>) {
        if self.spare.len() < SPARE {
            self.spare.extend(incoming);
        }
    }

    /// Returns the number of handshakes in the table: those in progress, and completed ones whose last flight may have
    /// to be repeated.
    pub fn handshakes(&self) -> usize {
        self.handshakes.len() - self.free_handshakes.len()
    }

    fn handshake_of(&self, entry: &Entry<A>) -> Option<&HandshakeSlot> {
        self.handshakes.get(entry.handshake as usize)?.as_deref()
    }

    /// Returns the number of handshakes in the table whose peers have the same network prefix as the remote address of
    /// `path`.
    fn share_of(&self, path: &Path) -> u32 {
        self.shares.held(SocketAddr::from(path.remote).ip())
    }

    /// Returns true if a new handshake may replace `handshake`, the handshake of an unauthenticated peer. `mine` is the
    /// number of handshakes from the network prefix of the new handshake.
    fn gives_way(&self, handshake: &HandshakeSlot, mine: u32) -> bool {
        let age = self.now.since(handshake.begun);
        let life = if handshake.state.is_unanswered() { SILENT } else { UNPROVED };
        age >= life && self.shares.held(handshake.remote) > mine || age >= life * FOR_ANYBODY
    }

    /// Makes sure that the table can take one more handshake, from the remote address of `path`. Returns true if
    /// another peer in a handshake was removed for this. Returns false if no peer was removed: the table has fewer
    /// handshakes than its maximum, or freed the memory of a completed handshake. Returns [`TableFull`] if no handshake
    /// can be replaced.
    fn make_handshake_room(&mut self, path: &Path, rank: Rank) -> Result<bool, TableFull> {
        if self.handshakes() < self.capacity.handshakes {
            return Ok(false);
        }
        let (mut looked_at, mine) = (0, self.share_of(path));
        for _ in 0..self.handshake_order.len() {
            let Some(oldest) = self.handshake_order.pop_front() else { break };
            let Some(entry) = self.entry(oldest) else { continue };
            let Some(handshake) = self.handshake_of(entry) else { continue };
            let ours = rank == Rank::Ours;
            if handshake.state.is_lingering() {
                // Its last flight is not sent yet: it is due, and the next poll sends it.
                if handshake.state.deadline() > self.now {
                    self.release_handshake(oldest);
                    return Ok(false);
                }
            } else if may_displace(rank, entry.peer.rank()) && (ours || self.gives_way(handshake, mine)) {
                self.remove(oldest);
                return Ok(true);
            }
            self.handshake_order.push_back(oldest);
            looked_at += 1;
            if looked_at == LOOKED_AT && !ours {
                break;
            }
        }
        Err(TableFull)
    }

    /// Removes ended peers from `order`, if `order` is longer than 64 plus twice `alive`. `alive` is the maximum number
    /// of living peers in `order`. So at least `alive` insertions occur between two passes over `order`, and the passes
    /// cost little for each insertion.
    fn trim(order: &mut VecDeque<PeerId>, alive: usize, keep: impl FnMut(&PeerId) -> bool) {
        if order.len() > 64 + 2 * alive {
            #[cfg(test)]
            tests::EXAMINED.set(tests::EXAMINED.get() + order.len());
            order.retain(keep);
        }
    }

    fn queue_stranger(&mut self, id: PeerId) {
        self.stranger_order.push_back(id);
        let (entries, alive) = (&self.entries, self.len);
        Self::trim(&mut self.stranger_order, alive, |id| {
            let entry = entries.get(id.index).filter(|entry| entry.has_been(*id));
            entry.is_some_and(|entry| entry.is(*id) && entry.peer.rank() == Rank::Stranger)
        });
    }

    fn new_entry(&mut self) -> u32 {
        if self.free == NONE {
            let first = (self.entries.blocks.len() * N) as u32;
            let block = (0..N as u32).map(|i| Entry {
                peer: Peer::vacant(),
                generation: 0,
                handshake: NONE,
                link: Link::new(),
                ids: NONE,
                next_free: if i + 1 < N as u32 { first + i + 1 } else { NONE },
                attached: A::default(),
            });
            self.entries.blocks.push(block.collect());
            self.free = first;
        }
        let index = self.free;
        self.free = self.entries.get(index).map_or(NONE, |entry| entry.next_free);
        index
    }
}

/// Makes a buffer for the incoming data of a handshake.
fn new_incoming() -> Option<Box<[u8; INCOMING]>> {
    vec![0; INCOMING].into_boxed_slice().try_into().ok()
}

impl<A: Default, const N: usize> Peers for Slab<A, N> {
    type Attached = A;

    #[inline(always)]
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId> {
        let same = |index: u32| self.entries.path(index) == Some((path, phase));
        let index = self.by_path.find(self.by_path.tag(path), same)?;
        self.entries.get(index).map(|entry| PeerId::new(index, entry.generation))
    }

    #[inline]
    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.entry_mut(id).map(|entry| &mut entry.peer)
    }

    fn attached(&mut self, id: PeerId) -> Option<&mut A> {
        self.entry_mut(id).map(|entry| &mut entry.attached)
    }

    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>> {
        let entry = self.entries.get_mut(id.index).filter(|entry| entry.has_been(id))?;
        let handshake = self.handshakes.get_mut(entry.handshake as usize)?.as_mut()?;
        let HandshakeSlot { state, outgoing, incoming, .. } = &mut **handshake;
        let ids = self.ids.get_mut(entry.ids as usize).map(|(_, ids)| ids);
        let incoming: &mut [u8] = incoming.as_deref_mut().map_or(&mut [], |incoming| incoming);
        Some(entry.peer.handshake(state, ids, Buffers { outgoing, incoming }))
    }

    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull> {
        let rank = new.rank;
        let mut evicted = false;
        if new.with_handshake {
            evicted |= self.make_handshake_room(new.path, rank)?;
        }
        // Who is in a handshake is counted when it ends.
        if new.phase != Phase::Handshaking {
            evicted |= self.make_room()?;
        }
        let index = self.new_entry();
        let Some(entry) = self.entries.get_mut(index) else { return Err(TableFull) };
        entry.peer.occupy(new);
        entry.attached = A::default();
        let id = PeerId::new(index, entry.generation);
        self.len += 1;
        self.handshaking += usize::from(new.phase == Phase::Handshaking);
        if new.with_handshake {
            let (begun, remote) = (self.now, SocketAddr::from(new.path.remote).ip());
            self.shares.take(remote);
            let incoming = self.spare.pop().or_else(new_incoming);
            let handshake = match self.spare_slots.pop() {
                Some(mut slot) => {
                    (slot.owner, slot.begun, slot.remote, slot.incoming) = (id, begun, remote, incoming);
                    slot
                }
                None => {
                    let (state, outgoing) = (HandshakeState::idle(), [0; OUTGOING]);
                    Box::new(HandshakeSlot { owner: id, begun, remote, state, outgoing, incoming })
                }
            };
            let position = match self.free_handshakes.pop() {
                Some(position) => {
                    self.handshakes[position as usize] = Some(handshake);
                    position
                }
                None => {
                    self.handshakes.push(Some(handshake));
                    (self.handshakes.len() - 1) as u32
                }
            };
            entry.handshake = position;
            self.handshake_order.push_back(id);
            let (entries, alive) = (&self.entries, self.handshakes.len() - self.free_handshakes.len());
            Self::trim(&mut self.handshake_order, alive, |id| {
                let entry = entries.get(id.index);
                entry.is_some_and(|entry| entry.has_been(*id) && entry.handshake != NONE)
            });
        }
        if rank == Rank::Stranger && new.phase != Phase::Handshaking {
            self.queue_stranger(id);
        }
        self.index_path(index);
        Ok(Inserted { id, evicted })
    }

    fn set_phase(&mut self, id: PeerId, phase: Phase) {
        if self.entry(id).is_none() {
            return;
        }
        self.unindex_path(id.index);
        let mut settles = None;
        if let Some(peer) = self.peer(id) {
            settles = (peer.phase() == Phase::Handshaking && phase != Phase::Handshaking).then(|| peer.rank());
            peer.set_phase(phase);
        }
        self.index_path(id.index);
        if phase == Phase::Established {
            self.spare_incoming(id);
        }
        let Some(rank) = settles else { return };
        self.handshaking -= 1;
        if phase == Phase::Established && self.len - self.handshaking > self.capacity.peers {
            self.displace_for(id);
        }
        if rank == Rank::Stranger {
            self.queue_stranger(id);
        }
    }

    fn release_handshake(&mut self, id: PeerId) {
        let Some(entry) = self.entry_mut(id) else { return };
        let position = core::mem::replace(&mut entry.handshake, NONE);
        if let Some(slot) = self.handshakes.get_mut(position as usize)
            && let Some(handshake) = slot.as_mut().filter(|handshake| handshake.owner == id)
        {
            wipe_room(&mut handshake.outgoing);
            self.shares.give_back(handshake.remote);
            let incoming = handshake.incoming.take();
            // The state wipes its secrets when it is dropped.
            handshake.state = HandshakeState::idle();
            let ended = slot.take();
            self.free_handshakes.push(position);
            self.keep_spare(incoming);
            if self.spare_slots.len() < SPARE {
                self.spare_slots.extend(ended);
            }
        }
    }

    fn can_spare_handshakes(&self) -> bool {
        self.handshakes() < self.capacity.handshakes / 2
    }

    fn find_connection_id(&self, connection_id: &[u8]) -> Option<PeerId> {
        let same = |at: u32| self.ids.get(at as usize).is_some_and(|(_, ids)| ids.ours() == connection_id);
        let at = self.by_id.find(self.by_id.tag_of_id(connection_id), same)?;
        let (index, _) = *self.ids.get(at as usize)?;
        self.entries.get(index).map(|entry| PeerId::new(index, entry.generation))
    }

    #[inline]
    fn connection_ids(&mut self, id: PeerId) -> Option<&mut ConnectionIds> {
        let at = self.entry(id)?.ids;
        self.ids.get_mut(at as usize).map(|(_, ids)| ids)
    }

    fn set_connection_ids(&mut self, id: PeerId, ids: Option<ConnectionIds>) -> bool {
        let Some(at) = self.entry(id).map(|entry| entry.ids) else { return false };
        if let Some((owner, old)) = self.ids.get_mut(at as usize) {
            *owner = NONE;
            self.by_id.remove(self.by_id.tag_of_id(old.ours()), at);
            self.free_ids.push(at);
        }
        let at = ids.map_or(NONE, |ids| {
            let at = self.free_ids.pop().unwrap_or_else(|| {
                self.ids.push((NONE, ids));
                (self.ids.len() - 1) as u32
            });
            self.ids[at as usize] = (id.index, ids);
            self.by_id.insert(self.by_id.tag_of_id(ids.ours()), at);
            at
        });
        if let Some(entry) = self.entry_mut(id) {
            entry.ids = at;
        }
        true
    }

    fn set_path(&mut self, id: PeerId, path: &Path) {
        if self.entry(id).is_none() {
            return;
        }
        self.unindex_path(id.index);
        if let Some(peer) = self.peer(id) {
            peer.set_path(path);
        }
        self.index_path(id.index);
    }

    fn remove(&mut self, id: PeerId) {
        if self.entry(id).is_none() {
            return;
        }
        self.release_handshake(id);
        self.set_connection_ids(id, None);
        self.unindex_path(id.index);
        self.wheel.clear(&mut self.entries, id.index);
        let free = self.free;
        if let Some(entry) = self.entries.get_mut(id.index) {
            self.handshaking -= usize::from(entry.peer.phase() == Phase::Handshaking);
            entry.peer.vacate();
            entry.attached = A::default();
            entry.generation = entry.generation.wrapping_add(2);
            entry.next_free = free;
        }
        self.free = id.index;
        self.len -= 1;
    }

    fn schedule(&mut self, id: PeerId, at: Instant) {
        let Some(entry) = self.entry(id) else { return };
        if at < entry.link.at {
            self.wheel.clear(&mut self.entries, id.index);
            self.wheel.set(&mut self.entries, id.index, at);
        }
    }

    #[inline]
    fn next_alarm(&self) -> Option<Instant> {
        self.wheel.next()
    }

    fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        self.now = now;
        let index = self.wheel.take_due(&mut self.entries, now)?;
        self.entries.get(index).map(|entry| PeerId::new(index, entry.generation))
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests;
