//! The peer table. It is a trait, because a mote has an array of a few peers, and a server has a table of a million
//! peers.

use crate::address::{Address, Path};
use crate::dtls::association::{Association, Rank};
use crate::dtls::connection_id::ConnectionIds;
use crate::dtls::record::{Channel, MAX_CONTENT};
use crate::dtls::{AlertDescription, Buffers, Handshake, HandshakeState};
use crate::identity::{Identity, PeerId, Principal, Protection};
use crate::time::Instant;

/// The phase of the association of an entry in the peer table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No association: the entry is free.
    Vacant,
    /// The handshake is in progress.
    Handshaking,
    /// The peers can exchange data.
    Established,
    /// The association has ended, and only its alert must still be sent. A search by address no longer finds the
    /// peer.
    Closing,
}

/// One peer in the table. This type has all data of an established session, with two exceptions, which the table stores
/// separately: the connection ids of the session, and the data that the owner of the endpoint attaches to the peer.
#[derive(Debug)]
#[repr(C)] // small fields first: a mote reaches the first 32 bytes with short instructions
pub struct Peer {
    pub(crate) phase: Phase,
    /// True if a DTLS session protects the datagrams of the peer; false if they are not protected.
    pub(crate) is_session: bool,
    /// The alert that must still be sent; `None` if no alert is due.
    pub(crate) alert: Option<AlertDescription>,
    /// The time of the last authentic message from the peer, in units of 2^20 microseconds. The idle timeout begins at
    /// this time.
    pub(crate) last_heard: u32,
    pub(crate) association: Association,
    pub(crate) path: Path,
}

/// The initial values of a table entry for a new peer.
#[derive(Clone, Copy, Debug)]
pub struct NewPeer<'p> {
    /// The two addresses of the path to the peer.
    pub path: &'p Path,
    /// The rank of the peer in the table.
    pub rank: Rank,
    /// The phase of the association.
    pub phase: Phase,
    /// True if a DTLS session protects the peer's datagrams; false if they are not protected.
    pub is_session: bool,
    /// True if the table must also provide memory for a handshake with the peer.
    pub with_handshake: bool,
}

impl<'p> NewPeer<'p> {
    /// Returns the initial values for a peer with which we begin a DTLS handshake.
    pub(crate) const fn handshaking(path: &'p Path, rank: Rank) -> Self {
        Self { path, rank, phase: Phase::Handshaking, is_session: true, with_handshake: true }
    }
}

impl Peer {
    /// Creates a free entry. All bytes are zero, so a table of free entries takes no flash memory.
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

    /// Sets the values of a free entry to those of a new peer.
    pub fn occupy(&mut self, new: &NewPeer<'_>) {
        self.path = *new.path;
        self.association.principal = Principal::NOBODY;
        self.phase = new.phase;
        self.association.rank = new.rank;
        self.is_session = new.is_session;
        self.alert = None;
        self.association.awaits_retransmission = false;
    }

    /// Frees the entry, and wipes its keys.
    pub fn vacate(&mut self) {
        self.association.channel.wipe();
        self.phase = Phase::Vacant;
    }

    /// Returns the two addresses of the path to the peer.
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

    /// Returns the rank of the peer. A full peer table first removes the peer with the lowest rank.
    pub const fn rank(&self) -> Rank {
        self.association.rank
    }

    /// Returns the protection of the peer's datagrams.
    pub const fn protection(&self) -> Protection {
        if self.is_session { Protection::Dtls } else { Protection::Plain }
    }

    /// Returns the identity that the peer proved, and the protection of its datagrams.
    pub(crate) const fn identity(&self) -> Identity {
        Identity { principal: self.principal(), protection: self.protection() }
    }

    /// Moves the peer to another phase. Only the peer table ([`Peers`]) may call this function, because it finds peers
    /// by their phase.
    pub const fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Returns the handshake of the peer. `state`, `ids` and `buffers` are the other data of the handshake, which the
    /// table stores outside of this type.
    pub const fn handshake<'b>(
        &'b mut self,
        state: &'b mut HandshakeState,
        ids: Option<&'b mut ConnectionIds>,
        buffers: Buffers<'b>,
    ) -> Handshake<'b> {
        Handshake { state, association: &mut self.association, ids, buffers }
    }

    /// Moves the peer to another path. Only the peer table ([`Peers`]) may call this function, because it finds peers
    /// by their path.
    pub const fn set_path(&mut self, path: &Path) {
        self.path = *path;
    }

    /// Returns the maximum number of bytes of content of one record to this peer, according to the agreed record size
    /// limit. The maximum size of datagrams may require less.
    pub const fn max_content(&self) -> usize {
        if self.is_session { self.association.record_size.sent() } else { MAX_CONTENT }
    }

    /// Returns the keys and the record numbers of the session.
    pub const fn channel(&self) -> &Channel {
        &self.association.channel
    }
}

/// The peer table is full, and the new peer may displace no peer in it: see [`may_displace`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableFull;

/// A table with a maximum number of peers, and with an alarm for each peer.
///
/// At most one peer with the same path is in [`Phase::Handshaking`], and at most one in [`Phase::Established`].
pub trait Peers {
    /// The data that the owner of the endpoint stores for each peer, usually CoAP exchanges. They are dropped with the
    /// peer.
    type Attached: Default;

    /// Returns the peer that has this path and this phase.
    fn find(&self, path: &Path, phase: Phase) -> Option<PeerId>;

    /// Returns the entry of a peer.
    fn peer(&mut self, id: PeerId) -> Option<&mut Peer>;

    /// Returns the data attached to the peer.
    fn attached(&mut self, id: PeerId) -> Option<&mut Self::Attached>;

    /// Returns the handshake of the peer, if it has one.
    fn handshake(&mut self, id: PeerId) -> Option<Handshake<'_>>;

    /// Adds a peer to the table. If `new` asks for memory for a handshake, the caller begins that handshake.
    ///
    /// # Errors
    /// [`TableFull`] if the new peer can displace no other peer: see [`may_displace`]. An unauthenticated peer never
    /// displaces an authenticated peer. The table displaces the peer of lowest rank. Among several peers of this rank,
    /// it displaces the peer that was added first.
    fn insert(&mut self, new: &NewPeer<'_>) -> Result<Inserted, TableFull>;

    /// Moves a peer to another phase. [`Self::find`] then finds it only in this phase.
    fn set_phase(&mut self, id: PeerId, phase: Phase);

    /// Frees the handshake of a peer that no longer needs it.
    fn release_handshake(&mut self, id: PeerId);

    /// True while only few handshakes are in progress. As long as this is true, a client with a ticket need not prove
    /// its address before its handshake.
    fn can_spare_handshakes(&self) -> bool {
        false
    }

    /// Returns the peer that sends records with this connection id, which we issued. The connection id is not empty.
    fn find_connection_id(&self, connection_id: &[u8]) -> Option<PeerId>;

    /// Returns the connection ids of a peer, if it has any.
    fn connection_ids(&mut self, id: PeerId) -> Option<&mut ConnectionIds>;

    /// Sets the connection ids of a peer, or removes them if `ids` is `None`. The id that we issued to this peer must
    /// not belong to another peer. Returns false if the table has no memory for the ids.
    fn set_connection_ids(&mut self, id: PeerId, ids: Option<ConnectionIds>) -> bool;

    /// Moves a peer to another path. The table must have no other peer with this path and this phase. [`Self::find`]
    /// then finds the peer only on this path.
    fn set_path(&mut self, id: PeerId, path: &Path);

    /// Removes a peer, its handshake, its connection ids and its attached data. Wipes its keys.
    fn remove(&mut self, id: PeerId);

    /// Sets the alarm of a peer to `at`, unless an earlier time is already set.
    fn schedule(&mut self, id: PeerId, at: Instant);

    /// Returns the time of the earliest alarm.
    fn next_alarm(&self) -> Option<Instant>;

    /// Returns a peer whose alarm time is `now` or earlier, and turns that alarm off.
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
    /// The id of the new peer.
    pub id: PeerId,
    /// True if another peer was removed to make space.
    pub evicted: bool,
}

/// Returns true if a new peer of rank `new` may displace a peer of rank `old`. Every peer may displace an
/// unauthenticated peer. Only a peer to which we connect may displace an authenticated peer. No peer may displace a
/// peer to which we connected.
pub fn may_displace(new: Rank, old: Rank) -> bool {
    match old {
        Rank::Stranger => true,
        Rank::Authenticated => new == Rank::Ours,
        Rank::Ours | Rank::OursAsServer => false,
    }
}

/// A reference to a table. With a reference, the table can remain in static memory, and is never moved. This is useful
/// in a mote.
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
