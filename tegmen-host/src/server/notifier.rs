//! Notifications of changed representations to the clients that observe them (RFC 7641).

use super::command::{Command, GroupRegistration, Whom};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::identity::Identity;
use tokio::sync::mpsc;

/// The paths at which representations changed, until the shard takes these paths. If the representation at a path
/// changed several times, the set contains the path once.
pub(crate) struct Changes {
    paths: Mutex<HashSet<Arc<str>>>,
    commands: mpsc::UnboundedSender<Command>,
    /// The paths that peers of the shard observe.
    pub(crate) observed: Arc<ObservedPaths>,
    /// The paths of the group observations of the shard.
    group_observed: ObservedPaths,
}

pub(crate) type ObservedPaths = Mutex<HashSet<Arc<str>>>;

impl Changes {
    pub(super) fn new(commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { paths: Mutex::default(), commands, observed: Arc::default(), group_observed: ObservedPaths::default() }
    }

    fn add(&self, path: &str) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.contains(path) {
            return;
        }
        if paths.is_empty() {
            // This fails only if the server ended meanwhile, and then no shard needs the command.
            let _ = self.commands.send(Command::Changed);
        }
        paths.insert(path.into());
    }

    /// Sends a command to the shard (a thread of the server) that takes the changed paths from this value.
    pub(super) fn send(&self, command: Command) {
        // This fails only if the server ended meanwhile, and then no shard needs the command.
        let _ = self.commands.send(command);
    }

    pub(crate) fn take(&self) -> HashSet<Arc<str>> {
        std::mem::take(&mut *self.paths.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A handle that notifies observers (RFC 7641) that a representation has changed. It can be cloned and used from any
/// thread.
#[derive(Clone)]
pub struct Notifier {
    pub(crate) shards: Arc<[Changes]>,
}

impl Notifier {
    /// Returns a notifier for one shard, to which commands are sent through `commands`.
    pub(crate) fn of(commands: &mpsc::UnboundedSender<Command>) -> Self {
        Self { shards: [Changes::new(commands.clone())].into() }
    }

    /// Notifies the observers that the representation at `path` changed. `path` has no leading slash. For each
    /// observer, the application gets the request of the registration again, and the new response of the application is
    /// the notification. If further changes occur before a client has acknowledged a notification, the client gets one
    /// notification for all of them.
    pub fn changed(&self, path: &str) {
        for shard in &*self.shards {
            shard.add(path);
        }
    }

    /// Does the same as [`Self::changed`] for the observers that `whom` selects. Use it for a resource whose
    /// representation depends on the client. The shards call `whom` once for each observation of the path, so `whom`
    /// must return quickly.
    pub fn changed_for(&self, path: &str, whom: impl Fn(&Identity) -> bool + Send + Sync + 'static) {
        let (path, whom): (Arc<str>, Arc<Whom>) = (path.into(), Arc::new(whom));
        for shard in &*self.shards {
            shard.send(Command::ChangedFor(Arc::clone(&path), Arc::clone(&whom)));
        }
    }

    /// Passes the registration of a client for a group observation to the first shard.
    pub(super) fn register(&self, registration: GroupRegistration) {
        if let Some(shard) = self.shards.first() {
            shard.send(Command::GroupRegistration(registration));
        }
    }

    /// True if a shard has an observer or a group observation of `path`. An observer whose peer no longer exists counts
    /// at most until the next check, which occurs each second.
    pub fn is_observed(&self, path: &str) -> bool {
        let has = |paths: &ObservedPaths| paths.lock().unwrap_or_else(PoisonError::into_inner).contains(path);
        self.shards.iter().any(|shard| has(&shard.observed) || has(&shard.group_observed))
    }

    /// Replaces the paths of the group observations, which the first shard has.
    pub(super) fn set_group_observed(&self, paths: HashSet<Arc<str>>) {
        if let Some(shard) = self.shards.first() {
            *shard.group_observed.lock().unwrap_or_else(PoisonError::into_inner) = paths;
        }
    }
}

#[cfg(test)]
mod tests;
