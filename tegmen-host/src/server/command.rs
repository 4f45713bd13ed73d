//! Commands to a shard: messages that do not come from its sockets.

use super::ServerLimits;
use super::key_operation::Worked;
use super::reply::Reply;
use super::session::Session;
use crate::credentials::StoredKey;
use crate::public_keys::PublicKeys;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tegmen::identity::{Identity, PeerId};
use tegmen::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// Chooses the observers that are notified.
pub(crate) type Whom = dyn Fn(&Identity) -> bool + Send + Sync;

/// A message to a shard from outside its sockets.
pub(crate) enum Command {
    /// The response of the responder with this number.
    Respond(u64, Reply),
    /// The decision of the authorization with this number.
    Decide(u64, bool),
    /// Send a list of the sessions.
    Sessions(Sender<Vec<Session>>),
    /// End a session, and send whether there was one.
    Close(PeerId, Sender<bool>),
    /// There is something in [`Changes`](super::notifier::Changes).
    Changed,
    /// The representation at a path changed for some of its observers.
    ChangedFor(Arc<str>, Arc<Whom>),
    Key(FoundKey),
    /// A private key did what a handshake waits for.
    Worked {
        peer: PeerId,
        worked: Worked,
    },
    /// The keys with which the server proves itself from now on.
    Keys(Box<PublicKeys>),
    /// The limits that apply from now on.
    Limits(ServerLimits),
    /// Answer, to show that the shard does its work.
    Pulse(UnboundedSender<()>),
    /// More numbers of a session may be used.
    Leased {
        peer: PeerId,
        end: u32,
        /// The reason, if no more can be used.
        result: Result<(), String>,
    },
}

/// The answer of a key store.
pub(crate) struct FoundKey {
    pub(super) peer: PeerId,
    pub(super) identity: String,
    pub(super) found: Option<StoredKey>,
    pub(super) asked: Instant,
}
