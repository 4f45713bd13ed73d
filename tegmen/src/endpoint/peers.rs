//! The peer table. It is a trait, because a mote has an array of three peers, and a server a slab of a million.

use crate::address::{Address, Path};
use crate::dtls::association::{Association, Rank};
use crate::dtls::connection_id::ConnectionIds;
use crate::dtls::record::{Channel, MAX_CONTENT};
use crate::dtls::{AlertDescription, Buffers, Handshake, HandshakeState};
use crate::identity::{Identity, PeerId, Principal, Protection};
use crate::time::Instant;

/// The phase of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// There is no association: the place is free.
    Vacant,
    /// The handshake is not over.
    Handshaking,
    /// Data may be exchanged.
    Established,
    /// The association is over, and only its alert is still to be sent. It is not found by address any more.
    Closing,
}

/// One peer: all memory of an established session, except what the table adds.
#[derive(Debug)]
#[repr(C)] // small fields first: a mote reaches the first 32 bytes with short instructions
pub struct Peer {
    pub(crate) phase: Phase,
    /// The datagrams of the peer are protected by a DTLS session; otherwise by nothing.
    pub(crate) is_session: bool,
    /// The alert that is sent while [`Phase::Closing`], if one is due.
    pub(crate) alert: Option<AlertDescription>,
    /// In units of 2^20 microseconds, for the idle timeout.
    pub(crate) last_heard: u32,
    pub(crate) association: Association,
    pub(crate) path: Path,
}

/// The initial values of a peer.
#[derive(Clone, Copy, Debug)]
pub struct NewPeer<'p> {
    /// Both ends of the path to the peer.
    pub path: &'p Path,
    /// The rank of the peer in the table.
    pub rank: Rank,
    /// The phase of the association.
    pub phase: Phase,
    /// True if a DTLS session protects the peer's datagrams; otherwise nothing does.
    pub is_session: bool,
    /// True if it needs a place for a handshake.
    pub with_handshake: bool,
}

impl<'p> NewPeer<'p> {
    /// Returns a peer that begins with a DTLS handshake.
    pub(crate) const fn handshaking(path: &'p Path, rank: Rank) -> Self {
        Self { path, rank, phase: Phase::Handshaking, is_session: true, with_handshake: true }
    }
}

impl Peer {
    /// A free place. All bytes are zero, so that a table of them takes no flash.
    pub const fn vacant() -> Self {
        const NOWHERE: Address = Address { ip: [0; 16], port: 0, scope: 0 };
        Self {
            path: Path { local: NOWHERE, remote: NOWHERE },
            association: Association::none(),
            last_heard: 0,
            phase: Phase::Vacant,
            is_session: false,
            alert: None,
        }
    }

    /// Takes a free place.
    pub fn occupy(&mut self, new: &NewPeer<'_>) {
        self.path = *new.path;
        self.association.principal = Principal::NOBODY;
        self.phase = new.phase;
        self.association.rank = new.rank;
        self.is_session = new.is_session;
        self.alert = None;
        self.association.awaits_retransmission = false;
    }

    /// Frees the place, and wipes the keys.
    pub fn vacate(&mut self) {
        self.association.channel.wipe();
        self.phase = Phase::Vacant;
    }

    /// Both ends of the path to the peer.
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the time of the last authentic message from the peer, in units of 2^20 microseconds.
    pub const fn last_heard(&self) -> u32 {
        self.last_heard
    }

    /// Returns the principal that the peer proved.
    pub const fn principal(&self) -> Principal {
        self.association.principal
    }

    /// Returns the phase of the association.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the rank of the peer in the table.
    pub const fn rank(&self) -> Rank {
        self.association.rank
    }

    /// Returns the protection of the peer's datagrams.
    pub const fn protection(&self) -> Protection {
        if self.is_session { Protection::Dtls } else { Protection::Plain }
    }

    /// Returns the identity of the peer, and how its datagrams are protected.
    pub(crate) const fn identity(&self) -> Identity {
        Identity { principal: self.principal(), protection: self.protection() }
    }

    /// Moves the peer to another phase. Only the table calls it, because it finds peers by their phase.
    pub const fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Returns the handshake of the peer with its state and buffers, which the table owns.
    pub const fn handshake<'b>(
        &'b mut self,
        state: &'b mut HandshakeState,
        ids: Option<&'b mut ConnectionIds>,
        buffers: Buffers<'b>,
    ) -> Handshake<'b> {
        Handshake { state, association: &mut self.association, ids, buffers }
    }

    /// Moves the peer to another path. Only the table calls it, because it finds peers by their path.
    pub const fn set_path(&mut self, path: &Path) {
        self.path = *path;
    }

    /// Returns the maximum number of bytes that one record to this peer can carry, because of the agreed record size.
    /// The size of the datagram may set a lower limit.
    pub const fn max_content(&self) -> usize {
        if self.is_session { self.association.record_size.sent() } else { MAX_CONTENT }
    }

    /// Returns the keys and counters of the session.
    pub const fn channel(&self) -> &Channel {
        &self.association.channel
    }
}

/// The table is full, and no peer in it can be displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

/// A bounded table of peers, with an alarm for each.
///
/// At most one peer with the same path is in [`Phase::Handshaking`], and one in [`Phase::Established`].
pub trait Peers {
    /// The data that the owner keeps for each peer, usually CoAP exchanges. It is dropped with the peer.
    type Attached: Default;

    /// Returns the peer on this path in this phase.
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId>;

    /// Returns the entry of a peer.
    fn peer(&mut self, id: PeerId) -> Option<&mut Peer>;

    /// Returns the data attached to the peer.
    fn attached(&mut self, id: PeerId) -> Option<&mut Self::Attached>;

    /// Returns the handshake of the peer, if it has one.
    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>>;

    /// Adds a peer. If the peer gets a place for a handshake, the caller begins that handshake.
    ///
    /// # Errors
    /// [`TableFull`] if no peer of the same or a lower rank can be displaced. An unauthenticated peer never displaces
    /// an authenticated one. The table displaces the peer of lowest rank, and among those the one that has been there
    /// longest.
    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull>;

    /// Moves a peer to another phase, and so changes what [`Self::find`] finds.
    fn set_phase(&mut self, id: PeerId, phase: Phase);

    /// Frees the handshake of a peer that no longer needs it.
    fn release_handshake(&mut self, id: PeerId);

    /// True while so few handshakes are in progress that a client with a ticket need not prove its address first.
    fn can_spare_handshakes(&self) -> bool {
        false
    }

    /// Returns the peer with this connection id of ours; the id is not empty.
    fn find_connection_id(&self, connection_id: &[u8]) -> Option<PeerId>;

    /// Returns the connection ids of a peer, if it has any.
    fn connection_ids(&mut self, id: PeerId) -> Option<&mut ConnectionIds>;

    /// Sets or removes the connection ids of a peer; our id must not belong to another peer. Returns false if the table
    /// has no place for them.
    fn set_connection_ids(&mut self, id: PeerId, ids: Option<ConnectionIds>) -> bool;

    /// Moves a peer to another path, on which there is no other peer in its phase. This changes the result of
    /// [`Self::find`].
    fn set_path(&mut self, id: PeerId, path: &Path);

    /// Removes a peer, its handshake, its connection ids and its attached data, and wipes its keys.
    fn remove(&mut self, id: PeerId);

    /// Sets the alarm of a peer to `at`, unless it is earlier already.
    fn schedule(&mut self, id: PeerId, at: Instant);

    /// Returns the time of the earliest alarm.
    fn next_alarm(&self) -> Option<Instant>;

    /// Returns a peer whose alarm is at or before `now`, and turns that alarm off.
    fn take_due(&mut self, now: Instant) -> Option<PeerId>;

    /// Returns the number of peers in the table.
    fn len(&self) -> usize;

    /// True if the table has no peers.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The result of [`Peers::insert`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// The new peer.
    pub id: PeerId,
    /// True if another peer was removed.
    pub evicted: bool,
}

/// Returns true if a peer of rank `new` may displace one of rank `old`. Every peer may displace an unauthenticated peer.
/// Only a peer to which we connect may displace an authenticated peer. No peer may displace one to which we connected.
pub fn may_displace(new: Rank, old: Rank) -> bool {
    match old {
        Rank::Stranger => true,
        Rank::Authenticated => new == Rank::Ours,
        Rank::Ours | Rank::OursAsServer => false,
    }
}

/// A table in other memory: on a mote in static memory, so that it is never moved.
impl<T: Peers> Peers for &mut T {
    type Attached = T::Attached;

    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId> {
        (**self).find(path, phase)
    }

    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        (**self).peer(id)
    }

    fn attached(&mut self, id: PeerId) -> Option<&mut Self::Attached> {
        (**self).attached(id)
    }

    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>> {
        (**self).handshake(id)
    }

    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull> {
        (**self).insert(new)
    }

    fn set_phase(&mut self, id: PeerId, phase: Phase) {
        (**self).set_phase(id, phase);
    }

    fn release_handshake(&mut self, id: PeerId) {
        (**self).release_handshake(id);
    }

    fn can_spare_handshakes(&self) -> bool {
        (**self).can_spare_handshakes()
    }

    fn find_connection_id(&self, connection_id: &[u8]) -> Option<PeerId> {
        (**self).find_connection_id(connection_id)
    }

    fn connection_ids(&mut self, id: PeerId) -> Option<&mut ConnectionIds> {
        (**self).connection_ids(id)
    }

    fn set_connection_ids(&mut self, id: PeerId, ids: Option<ConnectionIds>) -> bool {
        (**self).set_connection_ids(id, ids)
    }

    fn set_path(&mut self, id: PeerId, path: &Path) {
        (**self).set_path(id, path);
    }

    fn remove(&mut self, id: PeerId) {
        (**self).remove(id);
    }

    fn schedule(&mut self, id: PeerId, at: Instant) {
        (**self).schedule(id, at);
    }

    fn next_alarm(&self) -> Option<Instant> {
        (**self).next_alarm()
    }

    fn take_due(&mut self, now: Instant) -> Option<PeerId> {
        (**self).take_due(now)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
