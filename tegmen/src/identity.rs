//! The identity of a peer: the principal that it proved, and the protection of its messages.

/// The principal that a peer proved, as a number that the application chose when it answered with the key. Its meaning
/// (names, rights) is up to the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Principal(pub u32);

impl Principal {
    /// Nobody in particular: a peer that has not proved anything.
    pub const NOBODY: Self = Self(u32::MAX);
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
}

/// The identity of a request's sender. A handler sees the protection of the request only here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The principal that the sender proved; [`Principal::NOBODY`] if it proved nothing.
    pub principal: Principal,
    /// The protection of the request.
    pub protection: Protection,
}
