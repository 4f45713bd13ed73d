//! The messages of a change.

use std::net::SocketAddr;

/// The messages of a change, in the order in which to send them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rekeying {
    /// The epoch that the change has begun.
    pub epoch: u16,
    /// The messages.
    pub messages: Vec<Outgoing>,
    /// A message for the operator, if the group needs something.
    pub warning: Option<String>,
}

/// A datagram to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// The address of the group, or that of one member with the port of the group.
    pub to: SocketAddr,
    /// Its payload.
    pub bytes: Vec<u8>,
}
