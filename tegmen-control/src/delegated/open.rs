//! The sessions that a device resumes at remote servers.

use super::device::{DelegatedDevice, ToOpen};
use crate::delegation::SUITE;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::Suites;
use tegmen_delegation::Go;
use tegmen_host::client::{ClientConfig, ClientError, Endpoint, ResumableSession, Session};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::server::Router;
use tegmen_host::uri::Scheme;

/// The interval at which a device checks if a session that it opened has ended.
const INTERVAL: Duration = Duration::from_secs(1);

/// An endpoint that closes its sessions when it is dropped.
struct Closing(Endpoint);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl DelegatedDevice {
    /// Resumes a session at its peer. If `server_name` is not empty, the ClientHello contains it. Then answers the
    /// requests of the peer in the session, until the connection or the session ends.
    pub(super) async fn resume_at(self, go: Go, server_name: String, router: Router) {
        let (number, remote) = (go.number, SocketAddr::from(go.peer));
        let Some(ToOpen { session, handle, peer }) = self.state().take_to_open(number) else {
            return tracing::warn!("delegation: the device has no session of the connection {number} for {remote}");
        };
        let id = session.principal.0;
        let session = tegmen::dtls::SessionState { principal: self.principal_of(&peer, session.principal), ..session };
        let resumable = ResumableSession { session, is_ticket: handle.is_ticket, handle: handle.bytes, lifetime: 0 };
        match self.connect(remote, &server_name, resumable, router).await {
            Ok((endpoint, session)) => {
                tracing::info!("delegation: resumed a session at {remote}: {peer}");
                let _closing = Closing(endpoint);
                while self.state().admitted.get(id).is_some() && session.is_open() {
                    tokio::time::sleep(INTERVAL).await;
                }
                tracing::info!("delegation: the session at {remote} has ended: {peer}");
            }
            Err(error) => tracing::warn!("delegation: {remote} resumes no session of {peer}: {error}"),
        }
    }

    async fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        resumable: ResumableSession,
        router: Router,
    ) -> Result<(Endpoint, Session), ClientError> {
        let config = ClientConfig::default().with(|config| {
            config.dtls.suites = Suites(&[SUITE]);
            // No keys: the name alone.
            config.trust.public_keys = Some(PublicKeys::new(Suites(&[SUITE])).expecting(server_name));
            config.state.handed_over = Some(Arc::new(resumable));
            config.recovery.reconnect = false;
        });
        let any = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let endpoint = Endpoint::with(config)
            .serve(router)
            .credentials(self.0.credentials.clone())
            .policy(self.policy(false))
            .bind(any)
            .await?;
        let session = endpoint.connect_to(remote, Scheme::Coaps).await?;
        Ok((endpoint, session))
    }
}
