//! Tables of a forwarder in arrays of fixed size, for devices.

use crate::data::ReceivedData;
use crate::interest::{Interest, ReceivedInterest};
use crate::lowpan::MAX_ID;
use crate::name::Name;
use crate::tables::{
    Entry, FaceId, Fib, InRecord, List, NO_FACE, NextHop, OutRecord, Pit, PitId, Record, Store, Strategy, Tick, answers,
};
use tegmen_base::buf::{Span, copy};
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::time::Instant;

/// A list of at most `N` records.
#[derive(Debug)]
pub struct FixedList<T, const N: usize> {
    /// The records. Free records come last.
    records: [T; N],
}

impl<T: Record, const N: usize> FixedList<T, N> {
    fn len(&self) -> usize {
        self.records.iter().take_while(|record| record.face() != NO_FACE).count()
    }
}

impl<T: Record, const N: usize> Default for FixedList<T, N> {
    fn default() -> Self {
        Self { records: [T::free(); N] }
    }
}

impl<T: Record, const N: usize> List<T> for FixedList<T, N> {
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn put(&mut self, record: T) -> bool {
        let is_place = |place: &&mut T| place.face() == record.face() || place.face() == NO_FACE;
        self.records.iter_mut().find(is_place).map(|place| *place = record).is_some()
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn as_slice(&self) -> &[T] {
        self.records.get(..self.len()).unwrap_or(&[])
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        let len = self.len();
        self.records.get_mut(..len).unwrap_or(&mut [])
    }
}

/// The next hops of prefixes, as a slice. The order of the elements does not matter. The strategy for a name is
/// multicast if the name begins with one of the prefixes in `multicast`. Otherwise the strategy is best route.
#[derive(Clone, Copy, Default, Debug)]
pub struct Routes<'r> {
    /// The prefixes, with their next hops.
    pub routes: &'r [(Name<'r>, &'r [NextHop])],
    /// The prefixes whose Interests go to all next hops.
    pub multicast: &'r [Name<'r>],
}

/// Prefixes with their next hops, for the strategy best route only.
impl Fib for &[(Name<'_>, &[NextHop])] {
    fn next_hops(&self, name: &Name<'_>) -> (Strategy, &[NextHop]) {
        let (mut longest, mut hops): (usize, &[NextHop]) = (0, &[]);
        for (prefix, next) in *self {
            let len = prefix.as_bytes().len();
            if len >= longest && prefix.is_prefix_of(name) {
                (longest, hops) = (len, next);
            }
        }
        (Strategy::BestRoute, hops)
    }
}

impl Fib for Routes<'_> {
    fn next_hops(&self, name: &Name<'_>) -> (Strategy, &[NextHop]) {
        let (_, hops) = self.routes.next_hops(name);
        let is_multicast = self.multicast.iter().any(|prefix| prefix.is_prefix_of(name));
        (if is_multicast { Strategy::Multicast } else { Strategy::BestRoute }, hops)
    }
}

/// An entry of [`FixedPit`], and the name in its Interest.
#[derive(Debug)]
struct Place<const NAME: usize, const ASKED: usize, const SENT: usize, K: Copy + Default> {
    entry: Entry<FixedList<InRecord<K>, ASKED>, FixedList<OutRecord, SENT>>,
    /// The time from the expiry of the entry's timer ([`Pit::set_timer`]) to the expiry of the Interest, in units of
    /// [`Tick`].
    timer: u16,
    matches: Matches,
    len: u8,
    name: [u8; NAME],
}

/// The combination of CanBePrefix and MustBeFresh in an Interest. It decides which Data packets answer the Interest. No
/// combination has the number 0, so the compiler uses 0 for a free place, and a device can clear a whole table at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Matches {
    Name = 1,
    Prefix,
    FreshName,
    FreshPrefix,
}

impl Matches {
    const fn of(interest: &Interest<'_>) -> Self {
        match (interest.can_be_prefix, interest.must_be_fresh) {
            (false, false) => Self::Name,
            (true, false) => Self::Prefix,
            (false, true) => Self::FreshName,
            (true, true) => Self::FreshPrefix,
        }
    }

    const fn can_be_prefix(self) -> bool {
        matches!(self, Self::Prefix | Self::FreshPrefix)
    }

    const fn must_be_fresh(self) -> bool {
        matches!(self, Self::FreshName | Self::FreshPrefix)
    }
}

/// A table of `N` Interests with names of at most `NAME` bytes. `NAME` must not be above 255. Each Interest has at most
/// `ASKED` faces that wait for it, and is sent to at most `SENT` next hops. After the removal of an Interest, the table
/// remembers its nonces, at most `DEAD` in total. `DEAD` must be below 65,535.
///
/// Interests with parameters or with a ForwardingHint are not accepted. Each Interest has a timer for its next
/// retransmission. The table stores the time from the expiry of the timer to the expiry of the Interest, at most 67
/// seconds. So an Interest with a longer lifetime is retransmitted only in its last 67 seconds. The Interests of one
/// face can use at most three quarters of the table.
///
/// `K` is the form in which the table stores PitTokens, and what a link stores in their place, such as a
/// [HopID](crate::lowpan::HopId) of a neighbour. The default stores nothing.
#[derive(Debug)]
pub struct FixedPit<
    const N: usize,
    const NAME: usize,
    const ASKED: usize,
    const SENT: usize,
    const DEAD: usize,
    K: Copy + Default = (),
> {
    places: [Option<Place<NAME, ASKED, SENT, K>>; N],
    /// Hashes of the names and nonces of Interests that were removed from the table. The value 0 marks an empty
    /// element.
    dead: [u32; DEAD],
    next_dead: u16,
    /// The place at which the search for a free place begins: the place after the last new Interest. So a HopID is used
    /// again as late as possible, and a late Data packet seldom gets the name of another Interest.
    next: u8,
}

impl<const N: usize, const NAME: usize, const ASKED: usize, const SENT: usize, const DEAD: usize, K: Copy + Default>
    Default for FixedPit<N, NAME, ASKED, SENT, DEAD, K>
{
    fn default() -> Self {
        const { assert!(NAME <= 255 && N < u32::MAX as usize && DEAD < u16::MAX as usize) };
        Self { places: [const { None }; N], dead: [0; DEAD], next_dead: 0, next: 0 }
    }
}

impl<const NAME: usize, const ASKED: usize, const SENT: usize, K: Copy + Default> Place<NAME, ASKED, SENT, K> {
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn name(&self) -> Name<'_> {
        Name::of_checked(self.name.get(..usize::from(self.len)).unwrap_or(&[]))
    }

    const fn timer(&self) -> Tick {
        Tick::from_units(self.entry.expires.units().wrapping_sub(self.timer as u32))
    }
}

impl<const N: usize, const NAME: usize, const ASKED: usize, const SENT: usize, const DEAD: usize, K: Copy + Default>
    FixedPit<N, NAME, ASKED, SENT, DEAD, K>
{
    /// Returns the number of pending Interests.
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Returns true if there is no pending Interest.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(&self, id: PitId) -> Option<&Place<NAME, ASKED, SENT, K>> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    fn position(&self, is_it: impl Fn(&Place<NAME, ASKED, SENT, K>) -> bool) -> Option<PitId> {
        self.places.iter().position(|place| place.as_ref().is_some_and(&is_it)).map(|place| PitId(place as u32))
    }
}

impl<const N: usize, const NAME: usize, const ASKED: usize, const SENT: usize, const DEAD: usize, K: Copy + Default> Pit
    for FixedPit<N, NAME, ASKED, SENT, DEAD, K>
{
    type Token = K;
    const HAS_PARAMETERS: bool = false;
    type Asked = FixedList<InRecord<K>, ASKED>;
    type Sent = FixedList<OutRecord, SENT>;

    fn find(&self, interest: &Interest<'_>) -> Option<PitId> {
        let matches = Matches::of(interest);
        self.position(|place| place.name() == interest.name && place.matches == matches)
    }

    fn insert(&mut self, from: FaceId, received: &ReceivedInterest<'_>, expires: Tick) -> Option<PitId> {
        let interest = &received.interest;
        let name = interest.name.as_bytes();
        if interest.parameters.is_some() || interest.hint.is_some() || name.len() > NAME {
            return None;
        }
        let is_of = |place: &&Place<NAME, ASKED, SENT, K>| {
            place.entry.asked.as_slice().first().is_some_and(|asked| asked.face == from)
        };
        let of_face = self.places.iter().flatten().filter(is_of).count();
        if of_face >= N.div_ceil(4).saturating_mul(3) {
            return None;
        }
        let next = usize::from(self.next);
        let is_free = |place: &usize| matches!(self.places.get(*place), Some(None));
        let free = (0..N).map(|place| place.wrapping_add(next).checked_rem(N).unwrap_or(0)).find(is_free)?;
        let place = self.places.get_mut(free)?.insert(Place {
            entry: Entry::new(expires, interest.hop_limit),
            timer: 0,
            matches: Matches::of(interest),
            len: name.len() as u8,
            name: [0; NAME],
        });
        let _ = copy(&mut place.name, name); // it fits
        // Each search begins at a place that has a HopID.
        let next = free.wrapping_add(1);
        self.next = if next < MAX_ID.into() { next as u8 } else { 0 };
        Some(PitId(free as u32))
    }

    fn entry(&mut self, id: PitId) -> Option<&mut Entry<Self::Asked, Self::Sent>> {
        Some(&mut self.places.get_mut(id.0 as usize)?.as_mut()?.entry)
    }

    fn name(&self, id: PitId) -> Option<Name<'_>> {
        self.place(id).map(Place::name)
    }

    fn interest(&self, id: PitId) -> Option<Interest<'_>> {
        let place = self.place(id)?;
        let (can_be_prefix, must_be_fresh) = (place.matches.can_be_prefix(), place.matches.must_be_fresh());
        Some(Interest { name: place.name(), can_be_prefix, must_be_fresh, ..Interest::default() })
    }

    fn remove(&mut self, id: PitId) {
        let Self { places, dead, next_dead, .. } = self;
        let Some(removed) = places.get_mut(id.0 as usize) else { return };
        let Some(place) = removed else { return };
        for sent in place.entry.sent.as_slice() {
            if let Some(dead) = dead.get_mut(usize::from(*next_dead)) {
                *dead = hash(&place.name(), sent.nonce);
            }
            *next_dead = next_dead.wrapping_add(1).checked_rem(DEAD as u16).unwrap_or(0);
        }
        *removed = None;
    }

    fn is_dead(&self, name: &Name<'_>, nonce: [u8; 4]) -> bool {
        self.dead.contains(&hash(name, nonce))
    }

    fn has_digests(&self) -> bool {
        // A component of another type can end with the same bytes. The caller then only computes a digest in vain.
        let is_full = |place: &Place<NAME, ASKED, SENT, K>| {
            let last: Option<&[u8; DIGEST_LEN + 2]> = place.name().as_bytes().last_chunk();
            last.is_some_and(|last| last.starts_with(&[1, DIGEST_LEN as u8]))
        };
        self.places.iter().flatten().any(is_full)
    }

    fn matching(&self, name: &Name<'_>, digest: Option<&[u8; DIGEST_LEN]>, from: FaceId) -> Option<PitId> {
        self.position(|place| {
            answers(&place.name(), place.matches.can_be_prefix(), name, digest) && place.entry.was_sent_to(from)
        })
    }

    fn set_timer(&mut self, id: PitId, at: Tick) {
        if let Some(Some(place)) = self.places.get_mut(id.0 as usize) {
            place.timer = place.entry.expires.since(at).min(u16::MAX.into()) as u16;
        }
    }

    fn due(&mut self, now: Tick) -> Option<PitId> {
        self.position(|place| !now.is_before(place.timer()))
    }

    fn next_timer(&self) -> Option<Tick> {
        let mut next: Option<Tick> = None;
        for place in self.places.iter().flatten() {
            let timer = place.timer();
            next = Some(next.map_or(timer, |next| next.earlier(timer)));
        }
        next
    }
}

/// Computes a hash of a name and a nonce (FNV-1a). If two Interests have the same hash, the second counts as a
/// duplicate, and its consumer has to retransmit it with another nonce. The hash is never 0, because 0 marks an empty
/// element of [`FixedPit::dead`].
fn hash(name: &Name<'_>, nonce: [u8; 4]) -> u32 {
    let bytes = name.as_bytes().iter().chain(&nonce);
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.fold(0x811c_9dc5, step).max(1)
}

/// The time after which a stored packet is no longer fresh, in the units of [`Instant::coarse`]: 25 days. Later the
/// clock of [`Tick`] wraps, and a packet would seem to be fresh again.
const LONGEST: u32 = (1 << 21) - 1;

/// A store of `N` Data packets of at most `LEN` bytes. `LEN` must not be above 65,535. A stored packet is fresh for at
/// most 25 days.
#[derive(Debug)]
pub struct FixedStore<const N: usize, const LEN: usize> {
    places: [Option<Stored<LEN>>; N],
    /// The number of calls that found or stored a packet. It serves as a clock for the last use of a packet.
    uses: u32,
}

#[derive(Debug)]
struct Stored<const LEN: usize> {
    packet: [u8; LEN],
    len: u16,
    /// The position of the components of the name in the stored packet.
    name: Span,
    /// The time from which the packet is no longer fresh.
    stale: Tick,
    /// The time at which the packet was stored, in the units of [`Instant::coarse`].
    stored: u32,
    used: u32,
}

impl<const LEN: usize> Stored<LEN> {
    fn packet(&self) -> &[u8] {
        self.packet.get(..self.len.into()).unwrap_or(&[])
    }

    fn name(&self) -> Name<'_> {
        Name::of_checked(self.name.of(&self.packet))
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.coarse().wrapping_sub(self.stored) < LONGEST && Tick::of(now).is_before(self.stale)
    }
}

impl<const N: usize, const LEN: usize> Default for FixedStore<N, LEN> {
    fn default() -> Self {
        const { assert!(LEN <= u16::MAX as usize) };
        Self { places: [const { None }; N], uses: 0 }
    }
}

impl<const N: usize, const LEN: usize> Store for FixedStore<N, LEN> {
    /// Finds a packet. Does not find a packet by a full name, which ends with the digest of the packet.
    fn find(&mut self, now: Instant, interest: &Interest<'_>) -> Option<&[u8]> {
        let is_fresh = |stored: &Stored<LEN>| !interest.must_be_fresh || stored.is_fresh(now);
        let is_it = |stored: &&mut Stored<LEN>| {
            answers(&interest.name, interest.can_be_prefix, &stored.name(), None) && is_fresh(stored)
        };
        self.uses = self.uses.wrapping_add(1);
        let stored = self.places.iter_mut().flatten().find(is_it)?;
        stored.used = self.uses;
        Some(stored.packet())
    }

    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    fn insert(&mut self, now: Instant, data: &ReceivedData<'_>) {
        if data.wire.len() > LEN {
            return;
        }
        self.uses = self.uses.wrapping_add(1);
        let uses = self.uses;
        // A new packet replaces a stored packet with the same name, even if an element of the array is free. Otherwise
        // it takes a free element, or replaces the packet that was not used for the longest time.
        let (mut best, mut chosen) = (0, None);
        for place in &mut self.places {
            let rank = match place {
                Some(stored) if stored.name() == data.data.name => u32::MAX,
                Some(stored) => uses.wrapping_sub(stored.used).min(u32::MAX - 2),
                None => u32::MAX - 1,
            };
            if rank >= best {
                (best, chosen) = (rank, Some(place));
            }
        }
        let stale = Tick::of(now).after_millis(data.data.freshness.unwrap_or(0));
        let stored = now.coarse();
        if let Some(place) = chosen {
            let name = Span::within(data.wire.as_ptr().addr(), data.data.name.as_bytes());
            let len = data.wire.len() as u16;
            let new = place.insert(Stored { packet: [0; LEN], len, name, stale, stored, used: uses });
            let _ = copy(&mut new.packet, data.wire); // it fits
        }
    }
}
