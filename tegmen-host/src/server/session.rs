//! The sessions of a server, for its operator.

use std::net::SocketAddr;
use tegmen::identity::{PeerId, Principal};

/// The id of a server session. The id of an ended session is never used for another session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    pub(super) shard: usize,
    pub(super) peer: PeerId,
}

/// An established DTLS session.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Session {
    /// The id of the session: see [`Server::close`](super::Server::close).
    pub id: SessionId,
    /// The address of the client.
    pub remote: SocketAddr,
    /// The identity of the client; empty if it has none.
    pub identity: String,
    /// The principal of the client. All requests of the client have this principal. For a session in the name of a
    /// device, [`Credentials::delegated`](crate::credentials::Credentials::delegated) finds the device by this
    /// principal.
    pub principal: Principal,
}
