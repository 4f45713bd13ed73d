//! The end of a handshake, and the data that a client stores to resume the session.

use super::Connection;
use crate::client::ClientError;
use crate::client::resumable::ResumableSession;
use crate::client::resumption::{StoredSession, seconds, since_1970};
use crate::exporter::export;
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use tegmen::dtls::{Handle, Resumable};

/// Number of seconds for which a session is stored if the server gives no lifetime. `MAX_LIFETIME` is the number of
/// seconds after which a stored session expires at the latest.
const UNSAID: u64 = 24 * 3600;
const MAX_LIFETIME: u64 = 7 * 24 * 3600;

impl Connection<'_> {
    /// Handles the end of a handshake: exports keying material, and stores the ticket or session id of the session.
    pub(in crate::client) fn on_established(&mut self) -> Result<(), ClientError> {
        self.entry.resumed = self.io.node.endpoint.is_resumed(self.entry.peer);
        self.entry.cipher_suite = self.io.node.endpoint.cipher_suite(self.entry.peer);
        let label = self.entry.config.export;
        self.entry.exported =
            label.and_then(|label| export::<HostCrypto, _, _>(&mut self.io.node.endpoint, self.entry.peer, label));
        if self.entry.config.state.hand_over {
            let resumable = self.io.node.endpoint.resumable(self.entry.peer);
            self.entry.resumable = resumable.and_then(ResumableSession::of);
        }
        let Some(store) = &mut self.entry.resumption else { return Ok(()) };
        if self.entry.resumed {
            self.entry.server = store.name();
        }
        let kept = match self.io.node.endpoint.resumable(self.entry.peer) {
            Some(Resumable::Again) => return Ok(()),
            None => None,
            Some(Resumable::With { session, handle, lifetime }) => {
                let lifetime = if lifetime == 0 { UNSAID } else { u64::from(lifetime).min(MAX_LIFETIME) };
                let believed = match self.entry.resumed {
                    true => store.kept.as_ref().map(|kept| kept.until),
                    false => self.entry.believed_until.map(since_1970),
                };
                let (ticket, session_id) = match handle {
                    Handle::Ticket(ticket) => (Some(to_hex(ticket)), None),
                    Handle::Id(id) => (None, Some(to_hex(id))),
                };
                Some(StoredSession {
                    server: self.entry.remote.to_string(),
                    cipher_suite: session.cipher_suite.0,
                    master_secret: to_hex(session.master.expose()),
                    ticket,
                    session_id,
                    until: (seconds() + lifetime).min(believed.unwrap_or(u64::MAX)),
                    name: self.entry.server.clone(),
                    trust: store.trust.clone(),
                })
            }
        };
        let file = store.file.display().to_string();
        store.keep(kept).map_err(|source| ClientError::Resume { file, source })
    }
}
