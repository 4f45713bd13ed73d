//! The association with a peer. A handshake sets it up, and the session then uses it.

use super::record::Channel;
use super::record_size::RecordSize;
use crate::identity::Principal;

/// The rank of an association: who opened it, and whether the peer is authenticated. A full table of peers displaces the
/// peer with the lowest rank first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// The peer sent datagrams from its address, and has proved no key.
    Stranger,
    /// The peer proved a key.
    Authenticated,
    /// We opened the association ourselves.
    Ours,
    /// We opened the association ourselves while the peer opened one with us, and became its server
    /// ([`Roles::SIMULTANEOUS`](crate::dtls::roles::Roles::SIMULTANEOUS)).
    OursAsServer,
}

/// One association with one peer.
#[derive(Debug)]
#[repr(C)] // small fields first: a mote reaches the first 32 bytes of a peer with short instructions
pub(crate) struct Association {
    pub(crate) rank: Rank,
    /// True while the endpoint may have to retransmit its last flight.
    pub(crate) awaits_retransmission: bool,
    /// The record size limit of a session; used only if the role supports it.
    pub(crate) record_size: RecordSize,
    /// The principal that the peer proved.
    pub(crate) principal: Principal,
    /// The keys of the session, and its record numbers.
    pub(crate) channel: Channel,
}

impl Association {
    /// No association. All its bytes are zero, so a table of empty associations takes no flash memory.
    pub(crate) const fn none() -> Self {
        Self {
            rank: Rank::Stranger,
            awaits_retransmission: false,
            record_size: RecordSize::UNLIMITED,
            principal: Principal(0),
            channel: Channel::none(),
        }
    }

    /// True if we are the client in the handshake of this association.
    pub(crate) fn is_client(&self) -> bool {
        self.rank == Rank::Ours
    }
}
