//! Stores the session of a connection in a file.

use super::Connection;
use crate::client::ClientError;
use crate::state::StateError;
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::endpoint::Peers as _;
use tegmen::identity::PeerId;

/// The client reserves further record numbers on disk when only this number of reserved numbers is left. The messages
/// that are sent in the meantime use the numbers that are left, and do not wait for the disk.
const AHEAD: u32 = 64;

impl Connection<'_> {
    /// Stores the session that was just established.
    pub(in crate::client) fn keep_session(&mut self) -> Result<(), ClientError> {
        let port = self.entry.path.local.port;
        let Some(kept) = &mut self.entry.kept else { return Ok(()) };
        self.io.node.endpoint.lease_session(self.entry.peer, CHUNK);
        let Some(session) = self.io.node.endpoint.copy_session(self.entry.peer) else { return Ok(()) };
        let with = kept.with(port);
        kept.file.keep(&mut self.io.environment.crypto, &session, &with).map_err(ClientError::State)
    }

    /// Reserves further record numbers on disk if only a few reserved numbers are left.
    pub(in crate::client) fn lease_ahead(&mut self) -> Result<(), StateError> {
        let Some(kept) = &mut self.entry.kept else { return Ok(()) };
        let Some(peer) = self.io.node.endpoint.peers.peer(self.entry.peer) else { return Ok(()) };
        let (used, end) = (peer.channel().sealed(), peer.channel().lease_end());
        if used + AHEAD >= end && end < MAX_SEALED {
            kept.file.extend(end + CHUNK)?;
            self.io.node.endpoint.lease_session(self.entry.peer, end + CHUNK);
        }
        Ok(())
    }

    /// Notes that a response to a request came, so the server knows the session that was taken from the file.
    pub(in crate::client) const fn is_tried(&mut self) {
        if let Some(kept) = &mut self.entry.kept {
            kept.untried = false;
        }
    }

    /// Removes the stored session from its file, because the session has ended.
    pub(in crate::client) fn forget_session(&mut self) {
        if let Some(kept) = &mut self.entry.kept {
            kept.file.remove();
            kept.untried = false;
        }
    }

    /// Stores the session with its next record numbers, so that the next client can continue it. Returns false if the
    /// settings do not store the session.
    pub(in crate::client) fn park(&mut self) -> bool {
        let Some(mut kept) = self.entry.kept.take() else { return false };
        self.io.kept -= 1;
        let peer: PeerId = self.entry.peer;
        match self.io.node.endpoint.take_session(peer) {
            // A session that cannot be written is restored as after a power cut.
            Some(session) => drop(kept.file.park(&session)),
            None => kept.file.remove(),
        }
        true
    }
}
