//! The list of the sessions of a server.

use super::{Command, Notifier, Session, SessionId};

/// A handle that lists and ends the sessions of a server. It can be cloned and used from any thread, but not from a
/// handler or an event function.
#[derive(Clone)]
pub struct SessionList(pub(super) Notifier);

impl SessionList {
    /// Returns the established DTLS sessions: see [`Server::sessions`](super::Server::sessions).
    pub fn sessions(&self) -> Vec<Session> {
        let (sender, sessions) = std::sync::mpsc::channel();
        for shard in &*self.0.shards {
            shard.send(Command::Sessions(sender.clone()));
        }
        drop(sender);
        sessions.iter().flatten().collect()
    }

    /// Ends a session with a close_notify alert: see [`Server::close`](super::Server::close).
    pub fn close(&self, id: SessionId) -> bool {
        let (sender, closed) = std::sync::mpsc::channel();
        if let Some(shard) = self.0.shards.get(id.shard) {
            shard.send(Command::Close(id.peer, sender));
        }
        closed.recv().unwrap_or(false)
    }
}
