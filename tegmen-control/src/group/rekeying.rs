//! The messages of a change.

use std::net::SocketAddr;

/// The messages of a change, in the order in which to send them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rekeying {
    /// The number of the epoch that the change has begun.
    pub epoch: u16,
    /// The messages: one datagram each. Empty for the first epoch, and where another caller has the messages of the same change.
    pub messages: Vec<Outgoing>,
    /// A text for the operator with the next step, if few epochs are left.
    pub warning: Option<String>,
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The address of the group, or that of one member with the port of the group.
    pub to: SocketAddr,
    /// The payload of the datagram: a rekey message, at most 95 bytes.
    pub bytes: Vec<u8>,
}
