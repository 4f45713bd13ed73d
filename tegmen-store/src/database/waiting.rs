//! Calls of [`Store::changes`](crate::Store::changes) that wait for the next change of their keys.

use super::calls::Watcher;
use super::entries::{self, Version};
use super::revisions::Revisions;
use crate::sealing::Sealer;
use crate::store::{Changes, Revision};
use rusqlite::Connection;

/// The waiting calls.
#[derive(Default)]
pub(super) struct Waiting(Vec<Watcher>);

impl Waiting {
    /// Answers a call if there are changes for it. Otherwise keeps the call until a commit changes a row whose key
    /// begins with the prefix of the call. Drops the calls whose caller no longer waits, because a store without commits
    /// would keep them forever.
    pub(super) fn ask(
        &mut self,
        connection: &Connection,
        revisions: &Revisions,
        sealer: Option<&Sealer>,
        watcher: Watcher,
    ) {
        match entries::changes(connection, revisions, sealer, &watcher) {
            Ok(changes) if changes.changes.is_empty() => {
                self.0.retain(|watcher| watcher.promise.is_wanted());
                self.0.push(watcher);
            }
            result => watcher.promise.answer(result),
        }
    }

    /// Answers the waiting calls after a commit: each call whose prefix is the beginning of a changed key. Drops the
    /// calls whose caller no longer waits. A waiting call already has all changes before this commit, so this function
    /// reads nothing from the disk.
    pub(super) fn changed(&mut self, mut versions: Vec<Version>, newest: Revision, sealer: Option<&Sealer>) {
        versions.sort_unstable_by(|one, other| (one.revision, &one.key).cmp(&(other.revision, &other.key)));
        let all = std::mem::take(&mut self.0);
        for watcher in all.into_iter().filter(|watcher| watcher.promise.is_wanted()) {
            let of_it = versions.iter().filter(|version| version.key.starts_with(&watcher.prefix));
            match entries::wanted(of_it.cloned().map(Ok), newest, sealer, &watcher) {
                // No row with the prefix of this watcher has changed up to the revision `newest`, so the watcher does
                // not need the history before this revision.
                Ok(Changes { changes, .. }) if changes.is_empty() => self.0.push(Watcher { after: newest, ..watcher }),
                result => watcher.promise.answer(result),
            }
        }
    }
}

#[cfg(test)]
mod tests;
