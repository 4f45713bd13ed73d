//! The identity of a peer: its entry in the table of peers, the principal that it proved, and the protection of its
//! messages.

use core::num::NonZeroU32;

/// The id of an entry in the table of peers. If an entry is removed and its memory is used again, the new entry has
/// another generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId {
    /// The position of the entry in the table.
    pub index: u32,
    /// The generation of the entry. It is never zero, so that an optional id also fits two registers.
    pub(crate) generation: NonZeroU32,
}

impl PeerId {
    /// Returns the id of the entry at `index` in this `generation`. The lowest bit of `generation` is ignored,
    /// because a table increments its generation by two.
    pub fn new(index: u32, generation: u32) -> Self {
        Self { index, generation: NonZeroU32::MIN | generation }
    }
}

/// The principal that a peer proved: a number that the application chose when it gave the key. Only the application
/// knows the meaning of the number (names, rights).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Principal(pub u32);

impl Principal {
    /// The principal of a peer that has proved no identity.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// The SenderID of an authentic request to a group (Axiom). The response to the request is sealed with the key for
/// this sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SenderId(pub(crate) u8);

impl SenderId {
    /// Returns the number that is in the header of the record.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// The protection of a peer's datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// No protection.
    Plain,
    /// The protection of a DTLS session.
    Dtls,
    /// The protection of a single message by OSCORE. A peer never has this protection, only the [sender of a
    /// request](Identity).
    Oscore,
    /// The protection of a single request to a group by Axiom. A peer never has this protection, only the sender of a
    /// request. The keys prove that a member of the group sent the request, and the group is the principal. The
    /// member claims this SenderID.
    GroupRequest(SenderId),
    /// The protection of a member's response to a request to its group (Axiom). The principal is the group. The
    /// source address of the response identifies the member.
    GroupResponse,
}

impl Protection {
    /// Returns the SenderID of a request that a member sent to its group.
    pub(crate) const fn member(self) -> Option<SenderId> {
        if let Self::GroupRequest(sender) = self { Some(sender) } else { None }
    }
}

/// The identity of the sender of a request. A handler learns the protection of the request only from this type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The principal that the sender proved, or [`Principal::NOBODY`] if it proved no identity.
    pub principal: Principal,
    /// The protection of the request.
    pub protection: Protection,
}
