//! The identity of a peer: its entry in the peer table, the principal that it proved, and the protection of its
//! messages.

use core::num::NonZeroU32;

/// The id of an entry in the peer table. If an entry is removed and another peer gets its memory, the new entry has
/// another generation. So the old id does not find the new peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId {
    /// The position of the entry in the table.
    pub index: u32,
    /// The generation of the entry. It is never zero, so that an `Option<PeerId>` is not longer than a `PeerId`.
    pub(crate) generation: NonZeroU32,
}

impl PeerId {
    /// Returns the id of the entry at `index` in this `generation`. Ignores the lowest bit of `generation`, because a
    /// table increments the generation by two.
    pub fn new(index: u32, generation: u32) -> Self {
        Self { index, generation: NonZeroU32::MIN | generation }
    }
}

/// The principal that a peer proved. It is a number that the application chose when it supplied the peer's key. Only
/// the application knows the meaning of this number (names, rights).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Principal(pub u32);

impl Principal {
    /// The principal of a peer that has proved no identity.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// The SenderID of an authentic request to an Axiom group. The response to the request is sealed with the key for the
/// sender with this SenderID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SenderId(pub(crate) u8);

impl SenderId {
    /// Returns the SenderID as a number, as it is in the header of the record.
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
    /// OSCORE protects a single message. The [`Identity`] of the sender of this message has this variant. The identity
    /// of a peer in the peer table never has it.
    Oscore,
    /// Axiom protects a single request to a group. Only the [`Identity`] of the sender of such a request has this
    /// variant. The identity of a peer in the peer table never has it. The keys prove that some member of the group
    /// sent the request, so the group is the principal. The member claims this SenderID, but does not prove it.
    GroupRequest(SenderId),
    /// Axiom protects a member's response to a request to the group. The principal is the group. The source address of
    /// the response identifies the member.
    GroupResponse,
}

impl Protection {
    /// Returns the SenderID of a request that a member sent to its group; `None` for any other protection.
    pub(crate) const fn member(self) -> Option<SenderId> {
        if let Self::GroupRequest(sender) = self { Some(sender) } else { None }
    }
}

/// The identity of the sender of a request. This type is the only source from which a handler knows the protection of
/// the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The principal that the sender proved, or [`Principal::NOBODY`] if it proved no identity.
    pub principal: Principal,
    /// The protection of the request.
    pub protection: Protection,
}
