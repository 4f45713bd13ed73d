//! Calls that wait for the next change of their keys.

use super::calls::Watcher;
use super::entries;
use super::revisions::Revisions;
use crate::sealing::Sealer;
use rusqlite::Connection;

/// Calls that wait.
#[derive(Default)]
pub(super) struct Waiting(Vec<Watcher>);

impl Waiting {
    /// Answers a call, or lets it wait.
    pub(super) fn ask(
        &mut self,
        connection: &Connection,
        revisions: &Revisions,
        sealer: Option<&Sealer>,
        watcher: Watcher,
    ) {
        match entries::changes(connection, revisions, sealer, &watcher) {
            Ok(changes) if changes.changes.is_empty() => self.0.push(watcher),
            result => watcher.promise.answer(result),
        }
    }

    /// Answers the calls whose keys changed, and drops the calls whose caller is gone.
    pub(super) fn changed(
        &mut self,
        connection: &Connection,
        revisions: &Revisions,
        sealer: Option<&Sealer>,
        keys: &[Vec<u8>],
    ) {
        let all = std::mem::take(&mut self.0);
        for watcher in all.into_iter().filter(|watcher| watcher.promise.is_wanted()) {
            if keys.iter().any(|key| key.starts_with(&watcher.prefix)) {
                self.ask(connection, revisions, sealer, watcher);
            } else {
                // Nothing of its keys was changed until now, so history may be forgotten up to here.
                self.0.push(Watcher { after: revisions.newest(), ..watcher });
            }
        }
    }
}
