//! The session of a client in a file, so that the next client continues the session without a handshake.

use super::{ClientConfig, ClientError};
use crate::state::SessionFile;
use std::net::SocketAddr;
use tegmen::crypto::Crypto;
use tegmen::dtls::Session;

/// A session of a client, with the file in which it is stored.
pub(super) struct PersistentSession {
    pub(super) file: SessionFile,
    remote: SocketAddr,
    identity: String,
    /// True after a session was taken from the file, until a response of the server arrives. Until then the server may
    /// have forgotten the session.
    pub(super) untried: bool,
}

impl PersistentSession {
    /// Opens the file for the session with `remote`, if the settings name one.
    pub(super) fn open(config: &ClientConfig, remote: SocketAddr) -> Result<Option<Self>, ClientError> {
        let Some(path) = &config.state.session else { return Ok(None) };
        let path = match path.is_dir() {
            true => path.join(format!("{}_{}.session", remote.ip(), remote.port())),
            false => path.clone(),
        };
        let file = SessionFile::open(&path).map_err(ClientError::State)?;
        let identity = config.trust.key.as_ref().map(|key| key.identity.clone()).unwrap_or_default();
        Ok(Some(Self { file, remote, identity, untried: false }))
    }

    pub(super) fn with(&self, port: u16) -> String {
        format!("{} {port} {}", self.remote, self.identity)
    }

    /// Returns the local port of the stored session.
    pub(super) fn port(&self) -> Option<u16> {
        let (remote, rest) = self.file.with()?.split_once(' ')?;
        let (port, identity) = rest.split_once(' ')?;
        let port = port.parse().ok()?;
        (remote == self.remote.to_string() && identity == self.identity).then_some(port)
    }

    /// Takes the session with this server from the file. Returns the session, and the end of the range of record
    /// numbers that is reserved on disk for the session. If the local port has changed, returns the session only if it
    /// has a connection id, by which the server can find the session. Returns `None` if there is no such session.
    pub(super) fn take<C: Crypto>(&mut self, crypto: &mut C, port: u16) -> Result<Option<(Session, u32)>, ClientError> {
        let Some(before) = self.port() else { return Ok(None) };
        let taken = self.file.take(crypto, &self.with(before)).map_err(ClientError::State)?;
        let taken = taken.filter(|(session, _)| before == port || session.names_itself());
        self.untried = taken.is_some();
        Ok(taken)
    }
}
