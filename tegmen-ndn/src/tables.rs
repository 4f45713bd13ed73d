//! The tables of a forwarder: next hops (FIB), pending Interests (PIT) and a content store.

use crate::data::ReceivedData;
use crate::interest::{Interest, ReceivedInterest};
use crate::lp::NackReason;
use crate::name::Name;
use core::time::Duration;
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::time::Instant;

/// A face: a link to a neighbour or to an application. The number 65,535 is not used for a face.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaceId(pub u16);

/// A time in units of 1,024 microseconds, on a clock that wraps after 50 days. Only times less than 25 days apart can
/// be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tick(u32);

impl Tick {
    /// Converts a time, rounded down to whole units of 1,024 microseconds.
    pub const fn of(time: Instant) -> Self {
        Self((time.as_micros() >> 10) as u32)
    }

    /// Makes a time from a number of units of 1,024 microseconds.
    pub const fn from_units(units: u32) -> Self {
        Self(units)
    }

    /// Returns the time in units of 1,024 microseconds.
    pub const fn units(self) -> u32 {
        self.0
    }

    /// Returns the time that is `duration` after this time. `duration` is at most 25 days.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub const fn after(self, duration: Duration) -> Self {
        // A duration of more than 136 years is first reduced to 136 years, so that its microseconds fit into 64 bits.
        let seconds = duration.as_secs();
        let seconds = if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 };
        let micros = (seconds as u64).wrapping_mul(1_000_000).wrapping_add(duration.subsec_micros() as u64);
        self.after_units(micros >> 10)
    }

    /// Returns the time that is `millis` milliseconds after this time. At most 25 days are added.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub const fn after_millis(self, millis: u64) -> Self {
        // A multiplication of two 64-bit numbers takes long. So a time of more than 49 days is first reduced to 49
        // days.
        let millis = if millis > u32::MAX as u64 { u32::MAX } else { millis as u32 };
        // The conversion uses no division, because a division of 64 bits takes long. A unit is 128/125 milliseconds.
        self.after_units((millis as u64).wrapping_mul(125) >> 7)
    }

    /// Returns the time that is `units` units after this time. At most 25 days are added.
    const fn after_units(self, units: u64) -> Self {
        Self(self.0.wrapping_add(if units > i32::MAX as u64 { i32::MAX as u32 } else { units as u32 }))
    }

    /// Returns true if this time is before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        (other.0.wrapping_sub(self.0) as i32) > 0
    }

    /// Returns the earlier of two times.
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if other.is_before(self) { other } else { self }
    }

    /// Returns the later of two times.
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// Returns the time from `earlier` to this time in units of 1,024 microseconds, or 0 if `earlier` is not before
    /// this time.
    pub const fn since(self, earlier: Self) -> u32 {
        if earlier.is_before(self) { self.0.wrapping_sub(earlier.0) } else { 0 }
    }

    /// Converts this time to an [`Instant`] of the caller's clock, which shows `now`. The result is a multiple of 1,024
    /// microseconds. If this time is before `now`, converts `now` instead.
    pub const fn instant(self, now: Instant) -> Instant {
        let units = self.since(Self::of(now)) as u64;
        Instant::from_micros(((now.as_micros() >> 10).saturating_add(units)) << 10)
    }
}

/// Converts a duration from units of 1,024 microseconds to milliseconds. The result is never too large. It may be too
/// small by up to 0.02 percent, because the conversion multiplies by 43/42 in place of 1.024.
pub const fn millis_of(units: u32) -> u32 {
    units.saturating_add(units / 42)
}

/// The face in a free record.
pub(crate) const NO_FACE: FaceId = FaceId(u16::MAX);

/// A record of a list. A list has at most one record of a face.
pub trait Record: Copy {
    /// Makes a free record.
    fn free() -> Self;

    /// Returns the face, or the number 65,535 for a free record.
    fn face(&self) -> FaceId;
}

impl<K: Copy + Default> Record for InRecord<K> {
    fn free() -> Self {
        Self { face: NO_FACE, nonce: [0; 4], token: K::default() }
    }

    fn face(&self) -> FaceId {
        self.face
    }
}

impl Record for OutRecord {
    fn free() -> Self {
        Self::new(NO_FACE, [0; 4], Tick::of(Instant::AT_ONCE))
    }

    fn face(&self) -> FaceId {
        self.face
    }
}

/// A short list of records.
pub trait List<T>: Default {
    /// Adds a record, or replaces the record of the same face. Returns false if the list is full.
    fn put(&mut self, record: T) -> bool;
    /// Returns the records of the list.
    fn as_slice(&self) -> &[T];
    /// Returns the records. The caller can change these records in place.
    fn as_mut_slice(&mut self) -> &mut [T];
}

/// The record of a face that requested a name.
#[derive(Clone, Copy, Debug)]
pub struct InRecord<K> {
    /// The face that requested the name.
    pub face: FaceId,
    /// The Nonce of the last Interest of the face.
    pub nonce: [u8; 4],
    /// The PitToken of the last Interest of the face.
    pub token: K,
}

/// The record of a next hop to which an Interest was sent.
#[derive(Clone, Copy, Debug)]
pub struct OutRecord {
    /// The face to the next hop.
    pub face: FaceId,
    /// The Nonce of the last Interest that was sent to the next hop.
    pub nonce: [u8; 4],
    /// The low three bytes of the time of the last Interest, in the units of [`Tick`].
    at: [u8; 3],
    /// The low six bits are the number of retransmissions, at most 63. The two high bits are the Nack of this next hop,
    /// or 0 if it sent none.
    tries: u8,
}

const TRIES: u8 = 0x3f;

impl OutRecord {
    /// Makes the record of an Interest that is sent for the first time.
    pub const fn new(face: FaceId, nonce: [u8; 4], at: Tick) -> Self {
        Self { face, nonce, at: low_bytes(at), tries: 0 }
    }

    /// Records a retransmission.
    pub(crate) const fn repeat(&mut self, nonce: [u8; 4], at: Tick) {
        (self.nonce, self.at) = (nonce, low_bytes(at));
        if self.tries & TRIES != TRIES {
            self.tries = self.tries.wrapping_add(1);
        }
    }

    /// Returns the time of the last Interest. This time must be less than 4.7 hours before `now`.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub const fn at(&self, now: Tick) -> Tick {
        let [a, b, c] = self.at;
        let low = u32::from_be_bytes([0, a, b, c]);
        Tick(now.0.wrapping_sub(now.0.wrapping_sub(low) & 0xff_ffff))
    }

    /// Returns the number of retransmissions, at most 63.
    pub const fn retries(&self) -> u8 {
        self.tries & TRIES
    }

    /// Returns the reason of the Nack that this next hop sent, or `None` if it sent no Nack.
    pub const fn nack(&self) -> Option<Refused> {
        match self.tries >> 6 {
            0 => None,
            1 => Some(Refused::Congestion),
            2 => Some(Refused::Duplicate),
            _ => Some(Refused::NoRoute),
        }
    }

    pub(crate) const fn set_nack(&mut self, nack: Refused) {
        let bits: u8 = match nack {
            Refused::Congestion => 1,
            Refused::Duplicate => 2,
            Refused::NoRoute => 3,
        };
        self.tries = self.tries & TRIES | bits << 6;
    }
}

const fn low_bytes(at: Tick) -> [u8; 3] {
    let [_, a, b, c] = at.0.to_be_bytes();
    [a, b, c]
}

/// The reasons of a Nack, the least severe reason first. Unknown reasons count as [`Self::NoRoute`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refused {
    /// The link or a table is full.
    Congestion,
    /// The Interest loops.
    Duplicate,
    /// No next hop is known.
    NoRoute,
}

impl Refused {
    /// Converts the reason of a Nack.
    pub const fn of(reason: NackReason) -> Self {
        match reason {
            NackReason::CONGESTION => Self::Congestion,
            NackReason::DUPLICATE => Self::Duplicate,
            _ => Self::NoRoute,
        }
    }

    /// Converts to the reason of a Nack.
    pub const fn reason(self) -> NackReason {
        match self {
            Self::Congestion => NackReason::CONGESTION,
            Self::Duplicate => NackReason::DUPLICATE,
            Self::NoRoute => NackReason::NO_ROUTE,
        }
    }
}

/// An Interest that waits for its Data packet.
#[derive(Debug)]
pub struct Entry<I, O> {
    /// The faces that requested the name.
    pub asked: I,
    /// The next hops to which the Interest was sent.
    pub sent: O,
    /// The time at which the Interest expires, and its entry is removed.
    pub expires: Tick,
    /// The remaining HopLimit, or 255 if the Interest has no HopLimit. A real HopLimit is never 255 here, because the
    /// node has already decremented it.
    hops: u8,
}

impl<I, O: List<OutRecord>> Entry<I, O> {
    /// Makes an entry without faces.
    pub fn new(expires: Tick, hops: Option<u8>) -> Self
    where
        I: Default,
    {
        Self { asked: I::default(), sent: O::default(), expires, hops: hops.unwrap_or(u8::MAX) }
    }

    /// Returns the remaining HopLimit.
    pub fn hop_limit(&self) -> Option<u8> {
        Some(self.hops).filter(|hops| *hops != u8::MAX)
    }

    /// Returns true if the Interest with this nonce is in a loop: an Interest with the nonce came from another face, or
    /// this node has sent it.
    pub fn loops<K>(&self, from: FaceId, nonce: [u8; 4]) -> bool
    where
        I: List<InRecord<K>>,
    {
        let mut is_own = false;
        for asked in self.asked.as_slice().iter().filter(|asked| asked.nonce == nonce) {
            if asked.face != from {
                return true;
            }
            is_own = true;
        }
        !is_own && self.sent.as_slice().iter().any(|sent| sent.nonce == nonce)
    }

    /// Adds or renews the record of a face. Returns false if the list is full.
    pub fn ask<K>(&mut self, record: InRecord<K>) -> bool
    where
        I: List<InRecord<K>>,
    {
        self.asked.put(record)
    }

    /// Adds or renews the record of a next hop. Returns false if the list is full.
    pub fn send(&mut self, record: OutRecord) -> bool {
        self.sent.put(record)
    }

    /// Returns true if the Interest was sent to this face.
    pub fn was_sent_to(&self, face: FaceId) -> bool {
        self.sent.as_slice().iter().any(|sent| sent.face == face)
    }
}

/// The position of an entry in its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PitId(pub u32);

/// The table of pending Interests.
pub trait Pit {
    /// The form in which the table stores a PitToken.
    type Token: Copy + Default;
    /// True if the table can have Interests with parameters. If it is false, the forwarder does not check the digest
    /// and the signature of an Interest that the table refuses.
    const HAS_PARAMETERS: bool = true;
    /// The list of faces that requested the name of an entry.
    type Asked: List<InRecord<Self::Token>>;
    /// The list of next hops of an entry.
    type Sent: List<OutRecord>;

    /// Finds the entry of an Interest with the same name, CanBePrefix, MustBeFresh and ForwardingHint.
    fn find(&self, interest: &Interest<'_>) -> Option<PitId>;

    /// Adds an entry that ends at `expires`. Returns `None` if the table has no space for an Interest of this face.
    fn insert(&mut self, from: FaceId, interest: &ReceivedInterest<'_>, expires: Tick) -> Option<PitId>;

    /// Returns an entry. The caller can change this entry in place.
    fn entry(&mut self, id: PitId) -> Option<&mut Entry<Self::Asked, Self::Sent>>;

    /// Returns the name of an entry.
    fn name(&self, id: PitId) -> Option<Name<'_>>;

    /// Returns the Interest of an entry, without Nonce and lifetime. Returns `None` if the Interest has elements that
    /// the table does not store.
    fn interest(&self, id: PitId) -> Option<Interest<'_>>;

    /// Removes an entry. Keeps the name of the entry, and the nonces of its Interests that were sent, for
    /// [`Self::is_dead`].
    fn remove(&mut self, id: PitId);

    /// Returns true if an entry with this name and nonce was removed a short time ago.
    fn is_dead(&self, name: &Name<'_>, nonce: [u8; 4]) -> bool;

    /// Returns true if the table has an entry whose name contains the digest of a Data packet.
    fn has_digests(&self) -> bool;

    /// Finds an entry that a Data packet with this name and digest answers. The Interest of the entry must have been
    /// sent to the face `from`.
    fn matching(&self, name: &Name<'_>, digest: Option<&[u8; DIGEST_LEN]>, from: FaceId) -> Option<PitId>;

    /// Sets the time at which [`Self::due`] returns the entry.
    fn set_timer(&mut self, id: PitId, at: Tick);

    /// Returns an entry whose timer has expired.
    fn due(&mut self, now: Tick) -> Option<PitId>;

    /// Returns the time of the next timer.
    fn next_timer(&self) -> Option<Tick>;
}

/// Returns true if a Data packet with this name and digest answers an Interest.
// The content store of a device passes no digest, so that an inlined copy is smaller than a call.
#[cfg_attr(not(target_pointer_width = "64"), inline(always))]
pub fn answers(interest: &Name<'_>, can_be_prefix: bool, data: &Name<'_>, digest: Option<&[u8; DIGEST_LEN]>) -> bool {
    if interest.is_prefix_of(data) {
        return can_be_prefix || interest.as_bytes().len() == data.as_bytes().len();
    }
    let Some(digest) = digest else { return false };
    // The full name: that of the packet, and a component of type 1 and 32 bytes.
    let rest = interest.as_bytes().strip_prefix(data.as_bytes());
    rest.and_then(|rest| rest.strip_prefix(&[1, DIGEST_LEN as u8])) == Some(digest)
}

/// A next hop of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The face to the next hop.
    pub face: FaceId,
    /// The cost. The strategy prefers a next hop with a lower cost.
    pub cost: u16,
}

/// The strategy that chooses next hops.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Strategy {
    /// Sends an Interest to the next hop with the lowest cost. After a Nack, and for an Interest that the consumer
    /// repeats, takes another next hop.
    #[default]
    BestRoute,
    /// Sends an Interest to all next hops.
    Multicast,
}

/// The next hops of prefixes.
pub trait Fib {
    /// Returns the strategy and the next hops for a name. The longest prefix with next hops gives the next hops, and
    /// the longest prefix with a strategy gives the strategy.
    fn next_hops(&self, name: &Name<'_>) -> (Strategy, &[NextHop]);
}

/// A store of Data packets.
pub trait Store {
    /// Finds a Data packet that answers an Interest. The packet is fresh if the Interest requires it.
    fn find(&mut self, now: Instant, interest: &Interest<'_>) -> Option<&[u8]>;

    /// Stores a Data packet. If there is no space, removes the packet that was not used for the longest time.
    fn insert(&mut self, now: Instant, data: &ReceivedData<'_>);
}
