//! The entries of jobs in the state of a proxy.

use super::Shared;
use super::failed::Failed;
use super::memory::Owner;
use crate::clock;
use crate::server::{Notifier, Responder};
use std::sync::Arc;
use tegmen::coap::Code;

/// The entry of a job in the state of a proxy. A task that completes the job removes the entry itself, and then calls
/// [`Self::removed`]. If the server of the task ends before, the drop of this value removes the entry. Then another
/// server of the proxy can send an equal request again.
pub(super) struct Entry {
    shared: Arc<Shared>,
    kind: Kind,
}

/// The kind of an entry, with the values that name the entry.
pub(super) enum Kind {
    /// A request for all clients that wait for its response.
    Fetch { id: u64, key: Arc<[u8]>, owner: Owner },
    /// An observation for all clients. `observers` has the path at the proxy, and the notifier for its observers.
    Watch { key: Arc<[u8]>, observers: (String, Notifier) },
    /// A request for one client.
    Apart,
    /// An observation for which OSCORE protects the registration. `observers` has the same values as in `Watch`.
    Protected { key: Arc<[u8]>, observers: (String, Notifier) },
    /// The task has removed the entry.
    Removed,
}

impl Entry {
    pub(super) fn new(shared: &Arc<Shared>, kind: Kind) -> Self {
        Self { shared: shared.clone(), kind }
    }

    /// Records that the task has removed the entry.
    pub(super) fn removed(mut self) {
        self.kind = Kind::Removed;
    }
}

impl Drop for Entry {
    /// The caller must not have locked the state.
    fn drop(&mut self) {
        let (waiters, observers): (Vec<Responder>, _) = match std::mem::replace(&mut self.kind, Kind::Removed) {
            Kind::Removed => return,
            Kind::Apart => return self.shared.state().end_apart(None, true),
            Kind::Fetch { id, key, owner } => {
                let waiters = self.shared.state().end(clock::now(), id, (&key, 0), owner, None);
                (waiters.into_iter().map(|waiter| waiter.responder).collect(), None)
            }
            Kind::Watch { key, observers } => {
                let waiters = self.shared.state().end_watch(&key);
                (waiters.into_iter().map(|waiter| waiter.responder).collect(), Some(observers))
            }
            Kind::Protected { key, observers } => (self.shared.state().protected.end(&key), Some(observers)),
        };
        let failed = Failed::new(Code::SERVICE_UNAVAILABLE, "the server that sent the request to the origin has ended");
        waiters.into_iter().for_each(|waiter| waiter.send(failed.reply()));
        if let Some((path, notifier)) = observers {
            notifier.changed(&path);
        }
    }
}
