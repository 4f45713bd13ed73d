//! Commands to a shard, which do not come from its sockets.

use super::ServerLimits;
use super::key_operation::Worked;
use super::reply::Reply;
use super::session::Session;
use crate::credentials::StoredKey;
use crate::public_keys::PublicKeys;
use crate::state::SessionName;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tegmen::address::Address;
use tegmen::identity::{Identity, PeerId};
use tegmen::time::Instant;
use tokio::sync::mpsc::UnboundedSender;

/// A function that selects the observers that are notified.
pub(crate) type Whom = dyn Fn(&Identity) -> bool + Send + Sync;

/// A command to a shard.
pub(crate) enum Command {
    /// The response that the responder with this number sends.
    Respond(u64, Reply),
    /// Send prepared responses.
    Release(Release),
    /// The decision of the authorization with this number.
    Decide(u64, bool),
    /// Send the list of the sessions.
    Sessions(Sender<Vec<Session>>),
    /// End the session of this peer, and send true if the peer had a session.
    Close(PeerId, Sender<bool>),
    /// Take the changed paths from [`Changes`](super::notifier::Changes).
    Changed,
    /// The representation at this path changed for some of its observers. The function selects these observers.
    ChangedFor(Arc<str>, Arc<Whom>),
    /// A client registers for a group observation.
    GroupRegistration(GroupRegistration),
    Key(FoundKey),
    /// The answer of the key store about the peer of a stored session.
    StillHas {
        name: SessionName,
        found: Option<StoredKey>,
    },
    /// The worker completed the private-key operation for a handshake.
    Worked {
        peer: PeerId,
        worked: Worked,
    },
    /// Use these keys of the server from now on.
    Keys(Box<PublicKeys>),
    /// Use these limits from now on.
    Limits(ServerLimits),
    /// Answer, to show that the shard still works.
    Pulse(UnboundedSender<()>),
    /// The database has reserved further record numbers for a session, or could not reserve them.
    Leased {
        peer: PeerId,
        end: u32,
        /// An error if the database could not reserve the record numbers below `end`.
        result: Result<(), String>,
    },
}

/// The registration of a client for a group observation.
pub(crate) struct GroupRegistration {
    /// The index of the group observation in [`Offers::all`](super::group_observations::Offers::all).
    pub(super) offer: usize,
    /// The address at which the request of the client arrived.
    pub(super) local: Address,
    pub(super) identity: Identity,
    /// True if the client takes part already, and confirms that it still does.
    pub(super) confirms: bool,
    /// The number of the responder of the request, and the commands to the shard that received the request.
    pub(super) responder: (u64, UnboundedSender<Command>),
}

impl GroupRegistration {
    /// Sends the response to the client.
    pub(super) fn respond(self, reply: Reply) {
        let (number, commands) = self.responder;
        // If the server has ended there is nobody to respond to.
        let _ = commands.send(Command::Respond(number, reply));
    }
}

/// The answer of the key store to a handshake that needs the key of an identity.
pub(crate) struct FoundKey {
    pub(super) peer: PeerId,
    pub(super) identity: String,
    pub(super) found: Option<StoredKey>,
    pub(super) asked: Instant,
}

/// The command to send prepared responses.
pub(crate) struct Release {
    /// The numbers of the requests. Successive requests have successive numbers.
    pub(super) numbers: VecDeque<Range<u64>>,
    /// The response to each request; `None` for the prepared responses.
    pub(super) instead: Option<Reply>,
}

impl Iterator for Release {
    /// The number of a request, and its response. The response is `None` if the prepared response has to be sent.
    type Item = (u64, Option<Reply>);

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.numbers.front_mut()?;
        let number = first.next();
        if first.is_empty() {
            self.numbers.pop_front();
        }
        Some((number?, self.instead.clone()))
    }
}
