//! The sessions of a proxy with its origins.

use super::ProxyConfig;
use super::failed::Failed;
use crate::client::{ClientConfig, ClientError, Endpoint, Session};
use crate::hash::Keys;
use crate::target::TargetScheme;
use crate::uri::{Scheme, Uri};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen::coap::Code;
use tokio::sync::OnceCell;

/// Maximum number of sessions that are kept open.
const MOST: usize = 256;

/// A server to which the proxy sends requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Origin {
    pub(super) scheme: TargetScheme,
    /// The host, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// The sessions by origin, over two endpoints: one for `coap` and one for `coaps`. Each endpoint has at most one
/// session with each address. An endpoint is opened for its first session.
pub(super) struct Pool {
    plain: OnceCell<Endpoint>,
    secure: OnceCell<Endpoint>,
    config: ClientConfig,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    by_origin: HashMap<Origin, (Session, u64), Keys>,
    /// The total number of uses of all sessions. Each session has the value of this counter at its last use, so the
    /// session with the lowest value was not used for the longest time.
    uses: u64,
}

impl Pool {
    pub(super) fn new(proxy: &ProxyConfig) -> Self {
        Self { plain: OnceCell::new(), secure: OnceCell::new(), config: proxy.client(), sessions: Mutex::default() }
    }

    /// Returns the endpoint for this scheme.
    async fn endpoint(&self, scheme: Scheme) -> Result<&Endpoint, ClientError> {
        let endpoint = if scheme == Scheme::Coaps { &self.secure } else { &self.plain };
        let open = async || {
            // A machine without IPv6 has no [::].
            let endpoint = match Endpoint::with(self.config.clone()).bind("[::]:0").await {
                Ok(endpoint) => endpoint,
                Err(_) => Endpoint::with(self.config.clone()).bind("0.0.0.0:0").await?,
            };
            endpoint.send_together();
            Ok(endpoint)
        };
        endpoint.get_or_try_init(open).await
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a session with an origin over this scheme: the open session if there is one, or a new session.
    pub(super) async fn session(&self, scheme: Scheme, origin: &Origin) -> Result<Session, ClientError> {
        if let Some(session) = self.sessions().take(origin) {
            return Ok(session);
        }
        let Origin { host, port, .. } = origin.clone();
        let uri = Uri { scheme, host, port, path: Vec::new(), query: Vec::new() };
        let endpoint = Box::pin(self.endpoint(scheme)).await?;
        let session = Box::pin(endpoint.connect_with(&uri, self.config.clone())).await?;
        let remote = session.remote();
        if remote.ip().to_canonical().is_multicast() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "its name has the address of a group");
            return Err(ClientError::Unreachable { remote, source });
        }
        self.sessions().keep(origin, &session);
        Ok(session)
    }

    /// Returns the failure of a CoAP request to an origin. Forgets the session with an origin that does not answer,
    /// because its name may have another address now.
    pub(super) fn failed(&self, origin: &Origin, error: &ClientError) -> Failed {
        let failed = Failed::of(&origin.host, error);
        if failed.code == Code::GATEWAY_TIMEOUT {
            self.forget(origin);
        }
        failed
    }

    /// Returns the failure of a request to an origin that did not answer within this time. Forgets the session with the
    /// origin.
    pub(super) fn late(&self, origin: &Origin, longest: Duration) -> Failed {
        self.forget(origin);
        Failed::new(Code::GATEWAY_TIMEOUT, format!("{}: no response within {longest:?}", origin.host))
    }

    #[cfg(test)]
    pub(super) fn has(&self, origin: &Origin) -> bool {
        self.sessions().by_origin.contains_key(origin)
    }

    fn forget(&self, origin: &Origin) {
        self.sessions().by_origin.remove(origin);
    }
}

impl Sessions {
    fn take(&mut self, origin: &Origin) -> Option<Session> {
        self.uses += 1;
        let (session, used) = self.by_origin.get_mut(origin)?;
        if !session.is_open() {
            self.by_origin.remove(origin);
            return None;
        }
        *used = self.uses;
        Some(session.clone())
    }

    fn keep(&mut self, origin: &Origin, session: &Session) {
        self.by_origin.insert(origin.clone(), (session.clone(), self.uses));
        if self.by_origin.len() > MOST
            && let Some(idle) =
                self.by_origin.iter().min_by_key(|(_, (_, used))| *used).map(|(origin, _)| origin.clone())
        {
            self.by_origin.remove(&idle);
        }
    }
}
