//! The identity of a peer: its entry in the table of peers, the principal that it proved, and the protection of its
//! messages.

use core::num::NonZeroU32;

/// Names an entry of the table of peers. An entry that was removed and used again has another generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId {
    /// Position in the table.
    pub index: u32,
    /// Never zero, so that an id that may be missing takes no more than the two registers of one.
    pub(crate) generation: NonZeroU32,
}

impl PeerId {
    /// Returns the id of the entry at `index` in this `generation`. The lowest bit of `generation` is ignored, because
    /// a table counts in steps of two.
    pub fn new(index: u32, generation: u32) -> Self {
        Self { index, generation: NonZeroU32::MIN | generation }
    }
}

/// The principal that a peer proved, as a number that the application chose when it answered with the key. Its meaning
/// (names, rights) is up to the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Principal(pub u32);

impl Principal {
    /// A peer that has proved no identity.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// The SenderID of an authentic request to a group (Axiom), by which its response finds the member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SenderId(pub(crate) u8);

impl SenderId {
    /// Returns the number in the header.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The protection of a peer's datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing.
    Plain,
    /// A DTLS session.
    Dtls,
    /// The message protects itself (OSCORE): never the protection of a peer, only of the [sender of a
    /// request](Identity).
    Oscore,
    /// A request to a group protects itself (Axiom): never the protection of a peer, only of the sender of a request. The keys
    /// prove that a member of the group sent it, which is the principal. The member claims this SenderID.
    GroupRequest(SenderId),
    /// The response of a member to a request to its group (Axiom). The principal is the group. The source address of
    /// the response identifies the member.
    GroupResponse,
}

impl Protection {
    /// Returns the SenderID of a request that a member sent to its group.
    pub(crate) const fn member(self) -> Option<SenderId> {
        if let Self::GroupRequest(sender) = self { Some(sender) } else { None }
    }
}

/// The identity of a request's sender. A handler sees the protection of the request only here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The principal that the sender proved; [`Principal::NOBODY`] if it proved nothing.
    pub principal: Principal,
    /// The protection of the request.
    pub protection: Protection,
}
