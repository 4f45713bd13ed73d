//! The tables of a forwarder on a host, for millions of names.

use hashbrown::HashTable;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use tegmen_base::buf::Span;
use tegmen_base::crypto::{DIGEST_LEN, RustCrypto, digest};
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::lp::MAX_TOKEN;
use tegmen_ndn::tables::{
    Entry, FaceId, Fib, InRecord, List, NextHop, OutRecord, Pit, PitId, Record, Store, Strategy, Tick, answers,
};
use tegmen_ndn::tlv::Type;
use tegmen_ndn::{Interest, Name, Names, ReceivedData, ReceivedInterest};

/// A PitToken in a fixed array.
#[derive(Clone, Copy, Default, Debug)]
pub struct Token {
    bytes: [u8; MAX_TOKEN],
    len: u8,
}

impl Token {
    /// Makes a token of at most [`MAX_TOKEN`] bytes. A longer token is cut.
    pub fn new(token: &[u8]) -> Self {
        let mut bytes = [0; MAX_TOKEN];
        bytes.iter_mut().zip(token).for_each(|(to, from)| *to = *from);
        Self { bytes, len: token.len().min(MAX_TOKEN) as u8 }
    }

    /// Returns the token, or `None` if the Interest had no token.
    pub fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.len)).filter(|token| !token.is_empty())
    }
}

/// A list of records, which grows in a vector. The records of a pending Interest describe the faces that sent it or
/// received it.
#[derive(Debug)]
pub struct Records<T>(Vec<T>);

impl<T> Default for Records<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Maximum number of faces that the table records for one pending Interest.
const MAX_RECORDS: usize = 4096;

impl<T: Record> List<T> for Records<T> {
    fn put(&mut self, record: T) -> bool {
        if let Some(place) = self.0.iter_mut().find(|place| place.face() == record.face()) {
            *place = record;
            return true;
        }
        let has_place = self.0.len() < MAX_RECORDS;
        if has_place {
            self.0.push(record);
        }
        has_place
    }

    fn as_slice(&self) -> &[T] {
        &self.0
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// The next hops of prefixes.
#[derive(Debug, Default)]
pub struct HostFib {
    hops: HashMap<Box<[u8]>, Vec<NextHop>>,
    strategies: HashMap<Box<[u8]>, Strategy>,
    /// Counts the prefixes by their number of components.
    lengths: Lengths,
}

/// Counts names by their number of components. A search uses these counts to skip each number of components that no
/// name has. The last count is the number of all names with 31 or more components.
#[derive(Debug, Default)]
struct Lengths([u32; 32]);

impl Lengths {
    fn at(&mut self, len: usize) -> &mut u32 {
        let last = self.0.len() - 1;
        &mut self.0[len.min(last)]
    }

    fn add(&mut self, len: usize) {
        *self.at(len) += 1;
    }

    fn remove(&mut self, len: usize) {
        let count = self.at(len);
        *count = count.saturating_sub(1);
    }

    fn has(&self, len: usize) -> bool {
        self.0[len.min(self.0.len() - 1)] > 0
    }
}

/// Calls `visit` with the prefixes of a name, the longest first, until `visit` returns a value. Returns this value.
/// Skips each prefix whose number of components has the count 0 in `lengths`.
fn longest_first<'n, R>(
    name: &Name<'n>,
    lengths: &Lengths,
    mut visit: impl FnMut(Name<'n>, usize) -> Option<R>,
) -> Option<R> {
    let bytes = name.as_bytes();
    let mut ends = [0u16; 64];
    let mut len = 0;
    for element in tegmen_ndn::tlv::Elements::of(bytes).map_while(Result::ok) {
        len += 1;
        if let Some(end) = ends.get_mut(len) {
            *end = element.end as u16;
        }
    }
    // A name with more components is looked up as a whole, and by its first 63 components.
    if len >= ends.len() {
        if let Some(found) = visit(*name, len) {
            return Some(found);
        }
        len = ends.len() - 1;
    }
    (0..=len)
        .rev()
        .filter(|len| lengths.has(*len))
        .find_map(|len| visit(Name::of_checked(bytes.get(..usize::from(ends[len])).unwrap_or(bytes)), len))
}

impl HostFib {
    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.hops.len()
    }

    /// Returns true if there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// Adds a next hop, or changes its cost.
    pub fn add(&mut self, prefix: &Name<'_>, hop: NextHop) {
        let Self { hops, lengths, .. } = self;
        let hops = hops.entry(prefix.as_bytes().into()).or_insert_with(|| {
            lengths.add(prefix.len());
            Vec::new()
        });
        match hops.iter_mut().find(|known| known.face == hop.face) {
            Some(known) => known.cost = hop.cost,
            None => hops.push(hop),
        }
    }

    /// Removes a next hop. Returns false if there is none.
    pub fn remove(&mut self, prefix: &Name<'_>, face: FaceId) -> bool {
        let Some(hops) = self.hops.get_mut(prefix.as_bytes()) else { return false };
        let before = hops.len();
        hops.retain(|hop| hop.face != face);
        let is_removed = hops.len() < before;
        if hops.is_empty() {
            self.hops.remove(prefix.as_bytes());
            self.lengths.remove(prefix.len());
        }
        is_removed
    }

    /// Removes all next hops with this face.
    pub fn remove_face(&mut self, face: FaceId) {
        let Self { hops, lengths, .. } = self;
        hops.retain(|prefix, hops| {
            hops.retain(|hop| hop.face != face);
            if hops.is_empty() {
                lengths.remove(Name::of_checked(prefix).len());
            }
            !hops.is_empty()
        });
    }

    /// Sets the strategy of a prefix. `None` removes the strategy of the prefix.
    pub fn set_strategy(&mut self, prefix: &Name<'_>, strategy: Option<Strategy>) {
        match strategy {
            Some(strategy) => self.strategies.insert(prefix.as_bytes().into(), strategy),
            None => self.strategies.remove(prefix.as_bytes()),
        };
    }

    /// Returns the prefixes with their next hops, in an undefined order.
    pub fn iter(&self) -> impl Iterator<Item = (Name<'_>, &[NextHop])> {
        self.hops.iter().map(|(prefix, hops)| (Name::of_checked(prefix), &**hops))
    }
}

impl Fib for HostFib {
    fn next_hops(&self, name: &Name<'_>) -> (Strategy, &[NextHop]) {
        let hops = longest_first(name, &self.lengths, |prefix, _| self.hops.get(prefix.as_bytes()));
        let strategy = (0..=name.len()).rev().filter(|_| !self.strategies.is_empty());
        let mut strategy = strategy.filter_map(|len| self.strategies.get(name.prefix(len).as_bytes()));
        (strategy.next().copied().unwrap_or_default(), hops.map_or(&[], |hops| hops))
    }
}

/// Values with positions that do not change. The position of a value that was removed is used again.
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    /// Adds a value, and returns its position.
    fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(value);
                id
            }
            None => {
                self.slots.push(Some(value));
                (self.slots.len() - 1) as u32
            }
        }
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(value)
    }
}

/// A pending Interest.
struct Slot {
    entry: Entry<Records<InRecord<Token>>, Records<OutRecord>>,
    /// The name, followed by the ForwardingHint.
    bytes: Box<[u8]>,
    name: u16,
    from: FaceId,
    flags: Flags,
    /// The time at which the timer of this Interest ends. The heap of timers may also contain earlier times of this
    /// timer, which are obsolete.
    timer: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Flags {
    can_be_prefix: bool,
    must_be_fresh: bool,
    has_parameters: bool,
}

impl Slot {
    fn name(&self) -> Name<'_> {
        Name::of_checked(self.bytes.get(..usize::from(self.name)).unwrap_or(&[]))
    }

    fn hint(&self) -> &[u8] {
        self.bytes.get(usize::from(self.name)..).unwrap_or(&[])
    }

    fn has_digest(&self) -> bool {
        self.name().last().is_some_and(|last| last.kind == Type::IMPLICIT_DIGEST)
    }
}

/// Maximum sizes of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of pending Interests.
    pub waiting: usize,
    /// Maximum number of pending Interests of one face.
    pub waiting_of_face: usize,
    /// Maximum number of bytes of the content store.
    pub stored_bytes: usize,
    /// Maximum number of stored nonces of Interests that were removed from the table of pending Interests.
    pub dead: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiting: 1 << 20, waiting_of_face: 1 << 18, stored_bytes: 64 << 20, dead: 1 << 16 }
    }
}

/// A table of pending Interests.
pub struct HostPit {
    slots: Slab<Slot>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// The number of pending Interests of each face.
    of_face: HashMap<FaceId, usize>,
    /// The number of pending Interests with CanBePrefix, for each number of components in their names.
    prefixes: Lengths,
    digests: usize,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The newest time that the table has received from the forwarder. The times of timers are computed from this time.
    clock: u64,
    dead: HashSet<u64>,
    buried: VecDeque<u64>,
    limits: Limits,
}

impl HostPit {
    /// Makes an empty table.
    pub fn new(limits: Limits) -> Self {
        Self {
            slots: Slab::default(),
            by_name: HashTable::new(),
            hasher: RandomState::new(),
            of_face: HashMap::new(),
            prefixes: Lengths::default(),
            digests: 0,
            timers: BinaryHeap::new(),
            clock: 0,
            dead: HashSet::new(),
            buried: VecDeque::new(),
            limits,
        }
    }

    /// Returns the number of pending Interests.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns true if there is no pending Interest.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    fn hash(&self, name: &Name<'_>) -> u64 {
        self.hasher.hash_one(name.as_bytes())
    }

    /// Converts the time of a timer to 64 bits. The result may be a time before `clock`.
    fn extend(&self, at: Tick) -> u64 {
        let ahead = at.units().wrapping_sub(self.clock as u32) as i32;
        self.clock.saturating_add_signed(ahead.into())
    }

    /// Removes the obsolete timers from the heap if the heap has more than 1024 timers plus two timers for each
    /// Interest.
    fn compact(&mut self) {
        if self.timers.len() <= 2 * self.len() + 1024 {
            return;
        }
        let mut timers = std::mem::take(&mut self.timers).into_vec();
        timers.retain(|Reverse((at, id))| self.slots.get(*id).is_some_and(|slot| slot.timer == *at));
        self.timers = timers.into();
    }

    fn dead_hash(&self, name: &Name<'_>, nonce: [u8; 4]) -> u64 {
        self.hasher.hash_one((name.as_bytes(), nonce))
    }
}

impl Pit for HostPit {
    type Token = Token;
    type Asked = Records<InRecord<Token>>;
    type Sent = Records<OutRecord>;

    fn find(&self, interest: &Interest<'_>) -> Option<PitId> {
        let hint = interest.hint.map_or(&[][..], |hint| hint.as_bytes());
        let is_it = |id: &u32| {
            self.slots.get(*id).is_some_and(|slot| {
                slot.name() == interest.name
                    && (slot.flags.can_be_prefix, slot.flags.must_be_fresh)
                        == (interest.can_be_prefix, interest.must_be_fresh)
                    && slot.hint() == hint
            })
        };
        self.by_name.find(self.hash(&interest.name), is_it).map(|id| PitId(*id))
    }

    fn insert(&mut self, from: FaceId, received: &ReceivedInterest<'_>, expires: Tick) -> Option<PitId> {
        let interest = &received.interest;
        let of_face = self.of_face.entry(from).or_default();
        if self.by_name.len() >= self.limits.waiting || *of_face >= self.limits.waiting_of_face {
            return None;
        }
        let name = u16::try_from(interest.name.as_bytes().len()).ok()?;
        *of_face += 1;
        let hint = interest.hint.map_or(&[][..], |hint| hint.as_bytes());
        let slot = Slot {
            entry: Entry::new(expires, interest.hop_limit),
            bytes: [interest.name.as_bytes(), hint].concat().into(),
            name,
            from,
            flags: Flags {
                can_be_prefix: interest.can_be_prefix,
                must_be_fresh: interest.must_be_fresh,
                has_parameters: interest.parameters.is_some(),
            },
            timer: 0,
        };
        self.digests += usize::from(slot.has_digest());
        if slot.flags.can_be_prefix {
            self.prefixes.add(interest.name.len());
        }
        let id = self.slots.insert(slot);
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |id: &u32| slots.get(*id).map_or(0, |slot| hasher.hash_one(slot.name().as_bytes()));
        let hash = hasher.hash_one(interest.name.as_bytes());
        self.by_name.insert_unique(hash, id, rehash);
        Some(PitId(id))
    }

    fn entry(&mut self, PitId(id): PitId) -> Option<&mut Entry<Self::Asked, Self::Sent>> {
        self.slots.get_mut(id).map(|slot| &mut slot.entry)
    }

    fn name(&self, PitId(id): PitId) -> Option<Name<'_>> {
        self.slots.get(id).map(Slot::name)
    }

    fn interest(&self, PitId(id): PitId) -> Option<Interest<'_>> {
        let slot = self.slots.get(id).filter(|slot| !slot.flags.has_parameters)?;
        let Flags { can_be_prefix, must_be_fresh, .. } = slot.flags;
        let hint = Some(slot.hint()).filter(|hint| !hint.is_empty()).map(Names::parse).transpose().ok()?;
        Some(Interest { name: slot.name(), can_be_prefix, must_be_fresh, hint, ..Interest::default() })
    }

    fn remove(&mut self, PitId(id): PitId) {
        let Some(slot) = self.slots.remove(id) else { return };
        let name = slot.name();
        if let Ok(found) = self.by_name.find_entry(self.hasher.hash_one(name.as_bytes()), |known| *known == id) {
            found.remove();
        }
        if let Some(of_face) = self.of_face.get_mut(&slot.from) {
            *of_face -= 1;
            if *of_face == 0 {
                self.of_face.remove(&slot.from);
            }
        }
        self.digests -= usize::from(slot.has_digest());
        if slot.flags.can_be_prefix {
            self.prefixes.remove(name.len());
        }
        for sent in slot.entry.sent.as_slice() {
            let hash = self.dead_hash(&name, sent.nonce);
            if self.dead.insert(hash) {
                self.buried.push_back(hash);
            }
            if self.buried.len() > self.limits.dead
                && let Some(oldest) = self.buried.pop_front()
            {
                self.dead.remove(&oldest);
            }
        }
        self.compact();
    }

    fn is_dead(&self, name: &Name<'_>, nonce: [u8; 4]) -> bool {
        self.dead.contains(&self.dead_hash(name, nonce))
    }

    fn has_digests(&self) -> bool {
        self.digests > 0
    }

    fn matching(&self, name: &Name<'_>, digest: Option<&[u8; DIGEST_LEN]>, from: FaceId) -> Option<PitId> {
        let find = |asked: &Name<'_>| {
            let is_it = |id: &u32| {
                self.slots.get(*id).is_some_and(|slot| {
                    slot.name() == *asked
                        && answers(asked, slot.flags.can_be_prefix, name, digest)
                        && slot.entry.was_sent_to(from)
                })
            };
            self.by_name.find(self.hash(asked), is_it).map(|id| PitId(*id))
        };
        if let Some(found) = find(name) {
            return Some(found);
        }
        if let Some(digest) = digest {
            let full = [name.as_bytes(), &[1, DIGEST_LEN as u8], digest].concat();
            if let Some(found) = find(&Name::of_checked(&full)) {
                return Some(found);
            }
        }
        longest_first(name, &self.prefixes, |prefix, _| find(&prefix))
    }

    fn set_timer(&mut self, PitId(id): PitId, at: Tick) {
        let at = self.extend(at);
        if let Some(slot) = self.slots.get_mut(id)
            && slot.timer != at
        {
            slot.timer = at;
            self.timers.push(Reverse((at, id)));
        }
    }

    fn due(&mut self, now: Tick) -> Option<PitId> {
        self.clock = self.clock.max(self.extend(now));
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            if at > self.clock {
                return None;
            }
            self.timers.pop();
            if let Some(slot) = self.slots.get_mut(id)
                && slot.timer == at
            {
                slot.timer = 0;
                return Some(PitId(id));
            }
        }
        None
    }

    fn next_timer(&self) -> Option<Tick> {
        let Reverse((at, _)) = self.timers.peek()?;
        let ahead = at.saturating_sub(self.clock);
        Some(Tick::from_units((self.clock as u32).wrapping_add(ahead as u32)))
    }
}

/// A store of Data packets with a maximum number of bytes.
pub struct HostStore {
    packets: Slab<Stored>,
    /// The packets by the hashes of their names. There is at most one packet for a name.
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// The packets in the order of the bytes of their names, for Interests with CanBePrefix.
    in_order: BTreeMap<Box<[u8]>, u32>,
    /// The packet that was used last, and the packet that was not used for the longest time.
    newest: Option<u32>,
    oldest: Option<u32>,
    bytes: usize,
    most: usize,
}

struct Stored {
    packet: Box<[u8]>,
    /// The position of the components of the name in the packet.
    name: Span,
    /// The time from which the packet is no longer fresh.
    stale: Instant,
    /// The packet that was used next after this packet, and the packet that was used last before it.
    newer: Option<u32>,
    older: Option<u32>,
}

impl Stored {
    /// Returns the number of bytes that the store counts for a packet: the packet, a copy of its name, and the entries
    /// of the tables.
    const fn bytes(name: usize, packet: usize) -> usize {
        packet + name + 160
    }

    fn name(&self) -> &[u8] {
        self.name.of(&self.packet)
    }
}

impl HostStore {
    /// Makes an empty store for at most this number of bytes.
    pub fn new(most: usize) -> Self {
        Self {
            packets: Slab::default(),
            by_name: HashTable::new(),
            hasher: RandomState::new(),
            in_order: BTreeMap::new(),
            newest: None,
            oldest: None,
            bytes: 0,
            most,
        }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns true if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the number of bytes of the packets and of their names.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn id_of(&self, name: &[u8]) -> Option<u32> {
        let is_it = |id: &u32| self.packets.get(*id).is_some_and(|stored| stored.name() == name);
        self.by_name.find(self.hasher.hash_one(name), is_it).copied()
    }

    fn remove(&mut self, id: u32) {
        self.unlink(id);
        let Some(stored) = self.packets.remove(id) else { return };
        let name = stored.name();
        if let Ok(found) = self.by_name.find_entry(self.hasher.hash_one(name), |known| *known == id) {
            found.remove();
        }
        self.in_order.remove(name);
        self.bytes -= Stored::bytes(name.len(), stored.packet.len());
    }

    /// Removes a packet from the list of uses.
    fn unlink(&mut self, id: u32) {
        let Some(stored) = self.packets.get_mut(id) else { return };
        let (newer, older) = (stored.newer.take(), stored.older.take());
        match newer.and_then(|newer| self.packets.get_mut(newer)) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match older.and_then(|older| self.packets.get_mut(older)) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Adds a packet to the list of uses, as the packet that was used last.
    fn link(&mut self, id: u32) {
        let older = self.newest.replace(id);
        match older.and_then(|older| self.packets.get_mut(older)) {
            Some(older) => older.newer = Some(id),
            None => self.oldest = Some(id),
        }
        if let Some(stored) = self.packets.get_mut(id) {
            stored.older = older;
        }
    }

    /// Finds a packet that answers an Interest, if the packet has a longer name than the Interest, or if the name of the
    /// Interest ends with the digest of the packet.
    fn longer(&self, now: Instant, interest: &Interest<'_>) -> Option<u32> {
        let is_fresh = |stored: &Stored| !interest.must_be_fresh || now < stored.stale;
        let asked = interest.name.as_bytes();
        if let Some(last) = interest.name.last().filter(|last| last.kind == Type::IMPLICIT_DIGEST) {
            let name = interest.name.prefix(interest.name.len() - 1);
            let is_it = |id: &u32| {
                self.packets.get(*id).is_some_and(|stored| {
                    digest::<RustCrypto, DIGEST_LEN>(&[&stored.packet]) == last.value && is_fresh(stored)
                })
            };
            return self.id_of(name.as_bytes()).filter(is_it);
        }
        if !interest.can_be_prefix {
            return None;
        }
        // Names with a prefix follow it. Few are examined, so that stale ones cost no more than a request to the producer.
        let after = self.in_order.range::<[u8], _>((std::ops::Bound::Excluded(asked), std::ops::Bound::Unbounded));
        let mut after = after.take(EXAMINED).take_while(|(name, _)| name.starts_with(asked));
        after.find(|(_, id)| self.packets.get(**id).is_some_and(is_fresh)).map(|(_, id)| *id)
    }
}

/// Maximum number of packets that a search examines. The search finds a fresh packet whose name begins with a prefix.
const EXAMINED: usize = 64;

impl Store for HostStore {
    fn find(&mut self, now: Instant, interest: &Interest<'_>) -> Option<&[u8]> {
        let is_fresh =
            |id: &u32| !interest.must_be_fresh || self.packets.get(*id).is_some_and(|stored| now < stored.stale);
        let exact = self.id_of(interest.name.as_bytes()).filter(is_fresh);
        let id = exact.or_else(|| self.longer(now, interest))?;
        if self.newest != Some(id) {
            self.unlink(id);
            self.link(id);
        }
        self.packets.get(id).map(|stored| &*stored.packet)
    }

    fn insert(&mut self, now: Instant, data: &ReceivedData<'_>) {
        let name = data.data.name.as_bytes();
        if let Some(known) = self.id_of(name) {
            self.remove(known);
        }
        let bytes = Stored::bytes(name.len(), data.wire.len());
        if bytes > self.most || data.wire.len() > usize::from(u16::MAX) {
            return;
        }
        while self.bytes + bytes > self.most {
            let Some(oldest) = self.oldest else { return };
            self.remove(oldest);
        }
        let stale = now.after(Duration::from_millis(data.data.freshness.unwrap_or(0)));
        let stored = Stored {
            packet: data.wire.into(),
            name: Span::within(data.wire.as_ptr().addr(), name),
            stale,
            newer: None,
            older: None,
        };
        let id = self.packets.insert(stored);
        let (packets, hasher) = (&self.packets, &self.hasher);
        let rehash = |id: &u32| packets.get(*id).map_or(0, |stored| hasher.hash_one(stored.name()));
        self.by_name.insert_unique(hasher.hash_one(name), id, rehash);
        self.in_order.insert(name.into(), id);
        self.link(id);
        self.bytes += bytes;
    }
}
