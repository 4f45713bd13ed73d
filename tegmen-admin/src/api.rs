//! The interface for administrators, and the requests that passed the checks of this interface.

use crate::attempts::Attempts;
use crate::authority::LoginAuthority;
use crate::failures::Failures;
use crate::keys::{Keys, KeysError, Principal};
use crate::passwords::Passwords;
use crate::tls::Peer;
use axum::body::Bytes;
use axum::http::HeaderMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use tegmen_control::delegation::Delegations;
use tegmen_control::group::Controller;
use tegmen_control::service::Service;
use tegmen_store::Store;
use tokio::sync::Semaphore;

/// Maximum number of clients that follow the stream of events at the same time.
pub(crate) const STREAMS: usize = 32;

/// A request that passed authentication and the checks of scope and size.
pub(crate) struct Admitted {
    /// The path of the route to which the request belongs, with the names of parameters in braces.
    pub(crate) path: &'static str,
    /// The first parameter of the path; empty if the path has none.
    pub(crate) name: String,
    /// The second parameter of the path; empty if the path has none.
    pub(crate) member: String,
    /// The query string of the URI, as it was received.
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) by: Principal,
    pub(crate) peer: Option<Peer>,
}

impl Admitted {
    /// Returns the parameters of the query.
    pub(crate) fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.split('&').filter_map(|one| one.split_once('='))
    }
}

/// The HTTPS interface of an access control server for administrators.
pub struct Api<S> {
    pub(crate) service: Arc<Service<S>>,
    pub(crate) store: S,
    pub(crate) keys: Keys<S>,
    pub(crate) failures: Failures<IpAddr>,
    pub(crate) attempts: Attempts,
    pub(crate) passwords: Passwords,
    /// The permits for clients that follow the stream of events, one for each client.
    pub(crate) streams: Arc<Semaphore>,
    /// The controller of groups, which uses the same store as the interface. `None` if the server controls no groups.
    /// [`Self::open`] sets this field to `None`.
    pub groups: Option<Arc<Controller<S>>>,
    /// The server of delegated sessions, which uses the same store as the interface. `None` if the server delegates no
    /// sessions. [`Self::open`] sets this field to `None`.
    pub delegations: Option<Arc<Delegations<S>>>,
    /// The authority that issues certificates to users who log in; `None` if users cannot log in. [`Self::open`] sets
    /// this field to `None`.
    pub logins: Option<Arc<dyn LoginAuthority>>,
}

impl<S: Store> Api<S> {
    /// Opens the interface of a server. `store` is the store with the server's state. If no valid API key has the scope
    /// `keys:write`, this function generates a bootstrap token, which can create one key. It writes the token to the
    /// file `bootstrap`, which only its owner can read. Returns the interface, and true if it wrote a token.
    ///
    /// # Errors
    /// [`KeysError`] if the token could not be stored or written.
    pub async fn open(service: Arc<Service<S>>, store: S, bootstrap: &Path) -> Result<(Self, bool), KeysError> {
        let keys = Keys(store.clone());
        let written = keys.bootstrap(bootstrap).await?;
        let streams = Arc::new(Semaphore::new(STREAMS));
        let passwords = Passwords::new().map_err(|_| KeysError::Random)?;
        let api = Self {
            service,
            store,
            keys,
            failures: Failures::default(),
            attempts: Attempts::default(),
            passwords,
            streams,
            groups: None,
            delegations: None,
            logins: None,
        };
        Ok((api, written))
    }

    /// Returns the number of times that the server has compared a password with a hash since its start. The server does
    /// this once for each login, even if the user does not exist.
    pub fn passwords_compared(&self) -> u64 {
        self.passwords.compared()
    }
}
