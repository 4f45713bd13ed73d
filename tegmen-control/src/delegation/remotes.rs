//! Sessions between a device and a remote server. The server of the device performs the handshake with the remote
//! server, and both servers use certificates. The server of the device then sends the session to the device, and the
//! device resumes the session at the remote server.

use super::connection::{Carrier, ConnectionId};
use super::conversation::LONGEST_HANDLE;
use super::decisions::{Given, SUITE, hand_over};
use super::error::DelegationError;
use super::handovers::Peer;
use super::memory::InMemory;
use super::server::Delegations;
use std::net::SocketAddr;
use tegmen::dtls::{Handle, Keys as _, SessionState, Suites};
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::uri::Scheme;
use tegmen_store::Store;

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Opens a session with the server at `remote` in the name of a device, with the certificate of the device, and
    /// queues the session for the device. The remote server must prove `server_name` with a certificate. This
    /// certificate is verified with the trust anchors that [`Certificates`](super::Certificates) returns together with
    /// the certificate of the device. The device receives the session when its server next contacts it, and resumes the
    /// session at once.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`]; [`DelegationError::Remote`] if `server_name` is empty, or if the remote server
    /// opens no session, or gives neither a ticket nor an id to resume it; [`DelegationError::NotGiven`];
    /// [`DelegationError::Store`].
    pub async fn open_at(
        &self,
        name: &str,
        remote: SocketAddr,
        server_name: &str,
    ) -> Result<ConnectionId, DelegationError> {
        let device = self.known(name)?;
        let failed = |why: String| DelegationError::Remote { device: name.to_owned(), remote, why };
        if server_name.is_empty() {
            return Err(failed("server_name is empty: give a name in the certificate of the server".to_owned()));
        }
        let keys = self.certificates.as_ref().and_then(|certificates| certificates.of(name));
        let keys = keys.ok_or_else(|| failed("the device has no certificate".to_owned()))?;
        let keys = PublicKeys::clone(&keys).expecting(server_name);
        // A server may resume under the same name alone.
        let peer = Peer { address: remote.into(), server_name: keys.server_name().to_vec() };
        let config = ClientConfig::default().with(|config| {
            config.dtls.suites = Suites(&[SUITE]);
            config.trust.public_keys = Some(keys);
            config.state.hand_over = true;
            config.recovery.reconnect = false;
        });
        let session = Session::connect_to(remote, Scheme::Coaps, config).await;
        let session = session.map_err(|error| failed(error.to_string()))?;
        let (name_of_peer, resumable) = (session.server(), session.take_resumable());
        session.close();
        let (Some(name_of_peer), Some(resumable)) = (name_of_peer, resumable) else {
            return Err(failed("it gives neither a ticket nor a session id".to_owned()));
        };
        let len = resumable.handle.len();
        if len > LONGEST_HANDLE {
            return Err(failed(format!("its ticket has {len} bytes: let it give shorter ones, or session ids")));
        }
        let handle = match resumable.is_ticket {
            true => Handle::Ticket(&resumable.handle),
            false => Handle::Id(&resumable.handle),
        };
        let SessionState { cipher_suite, master, principal, .. } = &resumable.session;
        let (master, since) = (Secret::new(*master.expose()), Some(self.seconds()));
        let opened = SessionState { cipher_suite: *cipher_suite, master, principal: *principal, since };
        let carry = |state: &mut InMemory, given: &Given| hand_over(state, given, handle, Some(peer));
        let given = self.give(&device, Some(name_of_peer.as_str().into()), &opened, Carrier::Device, carry);
        let given = self.given_to(&device, &name_of_peer, given)?;
        self.write_made().await?;
        self.want(&device);
        Ok(given.id)
    }
}
