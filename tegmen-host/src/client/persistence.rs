//! The session of a client in a file, so that the next client continues it without a handshake.

use super::{Client, ClientConfig, ClientError};
use crate::state::{SessionFile, StateError};
use std::net::SocketAddr;
use tegmen::crypto::Crypto;
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::dtls::session::Session;
use tegmen::endpoint::Peers as _;
use tegmen::identity::PeerId;

/// What a client keeps of its session.
pub(super) struct PersistentSession {
    file: SessionFile,
    remote: SocketAddr,
    identity: String,
    /// True after a session was taken from the file, until the server was heard.
    pub(super) untried: bool,
}

/// Numbers that are left when more are leased: a response and its retransmissions do not wait.
const AHEAD: u32 = 64;
/// A response with a token of so many bytes answers a request that was sent now: nobody can have kept it from before.
const FRESH_TOKEN: usize = 4;

impl PersistentSession {
    /// Opens the file for the session with `remote`, if one is wanted.
    pub(super) fn open(config: &ClientConfig, remote: SocketAddr) -> Result<Option<Self>, ClientError> {
        let Some(path) = &config.session else { return Ok(None) };
        let path = match path.is_dir() {
            true => path.join(format!("{}_{}.session", remote.ip(), remote.port())),
            false => path.clone(),
        };
        let file = SessionFile::open(&path).map_err(ClientError::State)?;
        let identity = config.key.as_ref().map(|key| key.identity.clone()).unwrap_or_default();
        Ok(Some(Self { file, remote, identity, untried: false }))
    }

    fn with(&self, port: u16) -> String {
        format!("{} {port} {}", self.remote, self.identity)
    }

    /// The port from which the session was held.
    pub(super) fn port(&self) -> Option<u16> {
        let (remote, rest) = self.file.with()?.split_once(' ')?;
        let (port, identity) = rest.split_once(' ')?;
        let port = port.parse().ok()?;
        (remote == self.remote.to_string() && identity == self.identity).then_some(port)
    }

    /// The session, if there is one with this server, and the end of its lease. From another port than before it can only
    /// be found by its connection id.
    pub(super) fn take<C: Crypto>(&mut self, crypto: &mut C, port: u16) -> Result<Option<(Session, u32)>, ClientError> {
        let Some(before) = self.port() else { return Ok(None) };
        let taken = self.file.take(crypto, &self.with(before)).map_err(ClientError::State)?;
        let taken = taken.filter(|(session, _)| before == port || session.names_itself());
        self.untried = taken.is_some();
        Ok(taken)
    }
}

impl Client {
    /// Keeps the session that was just established.
    pub(super) fn keep_session(&mut self) -> Result<(), ClientError> {
        let port = self.local().port();
        let Some(kept) = &mut self.kept else { return Ok(()) };
        self.endpoint.lease_session(self.peer, CHUNK);
        let Some(session) = self.endpoint.copy_session(self.peer) else { return Ok(()) };
        let with = kept.with(port);
        kept.file.keep(&mut self.crypto, &session, &with).map_err(ClientError::State)
    }

    /// Leases more numbers where those of the session come to their end.
    pub(super) fn lease_ahead(&mut self) -> Result<(), StateError> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let Some(peer) = self.endpoint.peers.peer(self.peer) else { return Ok(()) };
        let (used, end) = (peer.channel().sealed(), peer.channel().lease_end());
        if used + AHEAD >= end && end < MAX_SEALED {
            kept.file.extend(end + CHUNK)?;
            self.endpoint.lease_session(self.peer, end + CHUNK);
        }
        Ok(())
    }

    /// A response to a request of ours came.
    pub(super) fn heard(&mut self, token_len: usize) {
        let Some(kept) = &mut self.kept else { return };
        kept.untried = false;
        if token_len >= FRESH_TOKEN && self.endpoint.is_unverified(self.peer) {
            self.endpoint.verify_session(self.peer);
        }
    }

    /// The session is over.
    pub(super) fn forget_session(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.file.remove();
            kept.untried = false;
        }
    }

    /// Keeps where the session is for the next client; false if none is kept.
    pub(super) fn park(&mut self) -> bool {
        let Some(mut kept) = self.kept.take() else { return false };
        let peer: PeerId = self.peer;
        match self.endpoint.take_session(peer) {
            // What cannot be written goes on as after a power cut.
            Some(session) => drop(kept.file.park(&session)),
            None => kept.file.remove(),
        }
        true
    }
}
