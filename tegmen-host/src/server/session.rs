//! The sessions of a server, for its operator.

use std::net::SocketAddr;
use tegmen::identity::{PeerId, Principal};

/// Names a session of a server. The id of a session that has ended names no other one.
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
    /// The number that identifies requests of the client: see
    /// [`Credentials::delegated`](crate::credentials::Credentials::delegated), for example.
    pub principal: Principal,
}
