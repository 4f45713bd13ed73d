//! The messages of a change of a group.

use std::net::SocketAddr;

/// The messages that announce a change of the members or keys of a group, in the order in which they must be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rekeying {
    /// The number of the epoch that the change has begun.
    pub epoch: u16,
    /// The messages, one datagram each. Empty for the first epoch, and if another caller received the messages of the
    /// same change.
    pub messages: Vec<Outgoing>,
    /// A warning if few epochs are left. The warning also names what the operator has to do next.
    pub warning: Option<String>,
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The destination: the address of the group, or the address of one member with the port of the group.
    pub to: SocketAddr,
    /// The payload of the datagram: a rekey message, at most 95 bytes.
    pub bytes: Vec<u8>,
}
