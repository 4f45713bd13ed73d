//! The interface, its operations, and their requests.

use crate::failures::Failures;
use crate::keys::{Keys, KeysError, Principal};
use crate::problem::Problem;
use axum::body::Bytes;
use std::path::Path;
use std::sync::Arc;
use tegmen_control::service::Service;
use tegmen_store::{Revision, Store};

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    ListDevices,
    AddDevice,
    ShowDevice,
    ReplaceDevice,
    ChangeDevice,
    RemoveDevice,
    ShowPolicy,
    ApplyPolicy,
    TestPolicy,
    DiffPolicy,
    ExplainPolicy,
    ListRevocations,
    Revoke,
    ListKeys,
    CreateKey,
    DeleteKey,
}

/// A request that passed authentication, scope and size.
pub(crate) struct Admitted {
    /// The parameter of the path, if it has one.
    pub(crate) name: String,
    pub(crate) query: String,
    /// The revision in `If-Match`; `None` for `*`. It is read only by operations that need it.
    pub(crate) over: Result<Option<Revision>, Problem>,
    pub(crate) body: Bytes,
    pub(crate) by: Principal,
}

/// The interface over an access control server.
pub struct Api<S> {
    pub(crate) service: Arc<Service<S>>,
    pub(crate) store: S,
    pub(crate) keys: Keys<S>,
    pub(crate) failures: Failures,
}

impl<S: Store> Api<S> {
    /// Returns the interface to a server and the store of its state. While no valid key has the scope `keys:write`, this draws
    /// a bootstrap token, which can create one key, and writes it to the file `bootstrap`, readable for its owner alone. The
    /// flag is true if the file was written.
    ///
    /// # Errors
    /// [`KeysError`].
    pub async fn open(service: Arc<Service<S>>, store: S, bootstrap: &Path) -> Result<(Self, bool), KeysError> {
        let keys = Keys(store.clone());
        let written = keys.bootstrap(bootstrap).await?;
        Ok((Self { service, store, keys, failures: Failures::default() }, written))
    }
}
