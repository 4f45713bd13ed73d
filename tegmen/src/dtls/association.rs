//! The association with a peer. A handshake sets the values of the association, and the session then uses these values.

use super::record::Channel;
use super::record_size::RecordSize;
use crate::identity::Principal;

/// The rank of an association. It depends on the endpoint that opened the association, and on the authentication of the
/// peer. A full peer table displaces the peer with the lowest rank first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// Datagrams arrived from the address of the peer, but the peer has proved no key.
    Stranger,
    /// The peer has proved that it has its key.
    Authenticated,
    /// We opened the association ourselves.
    Ours,
    /// We opened the association ourselves. The peer opened an association with us at the same time, and we became its
    /// server ([`Roles::SIMULTANEOUS`](crate::dtls::roles::Roles::SIMULTANEOUS)).
    OursAsServer,
}

/// The association with one peer.
#[derive(Debug)]
#[repr(C)] // small fields first: a mote reaches the first 32 bytes of a peer with short instructions
pub(crate) struct Association {
    pub(crate) rank: Rank,
    /// True while the endpoint keeps the last flight of the handshake, which it may have to send again.
    pub(crate) awaits_retransmission: bool,
    /// The record size limit of a session. It is used only if the role supports such limits.
    pub(crate) record_size: RecordSize,
    /// The principal that the peer proved.
    pub(crate) principal: Principal,
    /// The keys and the record numbers of the session.
    pub(crate) channel: Channel,
}

impl Association {
    /// Creates the value for a table entry that has no association. All its bytes are zero, so a table of these values
    /// takes no flash memory.
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
