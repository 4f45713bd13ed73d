//! Watches that stay open between two calls of [`Store::changes`](crate::Store::changes). So a change is already in
//! memory when the next call asks for it.

use super::address::end_of;
use super::cluster::{Cluster, WATCH, watch};
use super::content;
use super::gateway::{PAUSE, Stream};
use super::wire::{Event, WatchResponse};
use crate::store::answer::Promise;
use crate::store::{Changed, Changes, Revision, StoreError};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time without a message after which the driver opens the watch again at another member of the etcd cluster. A
/// member without a connection to the other members sends no messages.
const SILENCE: Duration = Duration::from_secs(1);
/// Time for which a watch stays open while no call of [`Store::changes`](crate::Store::changes) uses it.
const KEPT: Duration = Duration::from_secs(10);
/// Maximum number of watches that stay open while no call of [`Store::changes`](crate::Store::changes) uses them.
const MOST: usize = 16;

/// The open watches that no call of [`Store::changes`](crate::Store::changes) uses, each with the time since which it
/// is unused.
#[derive(Default)]
pub(super) struct Watches(Mutex<Vec<(Instant, Watching)>>);

impl Watches {
    fn take(&self, prefix: &[u8], after: Revision) -> Option<Watching> {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|(since, _)| since.elapsed() < KEPT);
        let at = watches.iter().position(|(_, watching)| watching.prefix == prefix && watching.after == after)?;
        Some(watches.swap_remove(at).1)
    }

    fn keep(&self, watching: Watching) {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watches.len() < MOST {
            watches.push((Instant::now(), watching));
        }
    }
}

/// A watch of the keys that begin with a prefix.
struct Watching {
    prefix: Vec<u8>,
    /// The last revision whose changes a call of [`Store::changes`](crate::Store::changes) has returned.
    after: Revision,
    /// The last revision whose events the cluster has sent.
    seen: u64,
    /// Received changes that no call of [`Store::changes`](crate::Store::changes) has returned yet. Each entry has a
    /// revision and all events of this revision. All these revisions are later than `after`.
    ready: VecDeque<(u64, Vec<Event>)>,
    stream: Option<Stream>,
    /// Number of times that the driver has changed to another member of the etcd cluster for this watch. The number
    /// selects the member from which the driver receives the changes.
    turn: usize,
    /// True if the cluster has confirmed that it has the revision from which the watch begins.
    is_checked: bool,
}

impl Cluster {
    /// Implements [`Store::changes`](crate::Store::changes). Ends without an answer when the caller no longer waits.
    pub(super) async fn changes(
        &self,
        watches: &Watches,
        (prefix, after, most): (Vec<u8>, Revision, usize),
        promise: Promise<Changes>,
    ) {
        let mut watching = watches.take(&prefix, after).unwrap_or_else(|| Watching {
            prefix,
            after,
            seen: after.0,
            ready: VecDeque::new(),
            stream: None,
            turn: 0,
            is_checked: false,
        });
        while watching.ready.is_empty() {
            if !promise.is_wanted() {
                return watches.keep(watching);
            }
            if let Err(error) = self.listen(&mut watching).await {
                return promise.answer(Err(error));
            }
        }
        let changes = self.take(&mut watching, most);
        // The next call, which the answer leads to, takes it. After an error the watch lacks the revision with the row that
        // cannot be read, so the next call opens another watch.
        if changes.is_ok() {
            watches.keep(watching);
        }
        promise.answer(changes);
    }

    /// Waits for a message of the watch. Opens the watch first if it is closed.
    async fn listen(&self, watching: &mut Watching) -> Result<(), StoreError> {
        let Some(stream) = &mut watching.stream else { return self.begin(watching).await };
        match stream.next::<WatchResponse>(SILENCE).await {
            Ok(message) if message.compact_revision.0 != 0 => {
                Err(StoreError::Compacted { oldest: Revision(message.compact_revision.0) })
            }
            Ok(message) if !message.canceled => {
                let before = watching.seen;
                let mut events = message.events;
                events.retain(|event| event.kv.mod_revision.0 > before);
                events.sort_by(|one, other| {
                    (one.kv.mod_revision, &one.kv.key).cmp(&(other.kv.mod_revision, &other.kv.key))
                });
                for event in events {
                    watching.seen = event.kv.mod_revision.0;
                    match watching.ready.back_mut().filter(|(revision, _)| *revision == watching.seen) {
                        Some((_, events)) => events.push(event),
                        None => watching.ready.push_back((watching.seen, vec![event])),
                    }
                }
                Ok(())
            }
            _ => {
                self.gateway.forget(stream.member);
                watching.stream = None;
                watching.turn = watching.turn.wrapping_add(1);
                Ok(())
            }
        }
    }

    /// Opens a watch for the events after the last received event. If no member accepts the watch, returns after a
    /// pause.
    async fn begin(&self, watching: &mut Watching) -> Result<(), StoreError> {
        let prefix = self.address.row(&watching.prefix);
        let end = end_of(&prefix);
        // From the last event itself, whose repetition is left out: etcd 3.4 can leave out the end of a row at the revision at
        // which it compacted, and refuses every revision before.
        let request = watch(prefix, end, watching.seen.max(1));
        let Ok(mut stream) = self.gateway.stream(watching.turn, WATCH, &request).await else {
            watching.turn = watching.turn.wrapping_add(1);
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        };
        let Ok(created) = stream.next::<WatchResponse>(SILENCE).await else {
            watching.turn = watching.turn.wrapping_add(1);
            return Ok(());
        };
        if !watching.is_checked && created.header.revision.0 < watching.seen {
            // A member may be behind others.
            match self.newest().await {
                Ok(newest) if newest.0 < watching.seen => return Err(StoreError::NotYet { newest }),
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
        watching.is_checked = true;
        watching.stream = Some(stream);
        Ok(())
    }

    /// Removes complete revisions from the watch, and returns their changes: about `most` changes, or all changes if
    /// there are fewer. Stops before a revision with a row that cannot be read.
    ///
    /// # Errors
    /// The error of [`content::read`], if a row of the first revision cannot be read.
    fn take(&self, watching: &mut Watching, most: usize) -> Result<Changes, StoreError> {
        let mut changes: Vec<Changed> = Vec::new();
        while changes.len() < most.max(1)
            && let Some((revision, events)) = watching.ready.pop_front()
        {
            match events.iter().map(|event| self.changed(event)).collect::<Result<Vec<_>, _>>() {
                Ok(of_revision) => changes.extend(of_revision),
                Err(error) if changes.is_empty() => return Err(error),
                // The next call returns the error.
                Err(_) => {
                    watching.ready.push_front((revision, events));
                    break;
                }
            }
            watching.after = Revision(revision);
        }
        Ok(Changes { changes, through: watching.after })
    }

    /// Decodes an event.
    ///
    /// # Errors
    /// The error of [`content::read`].
    fn changed(&self, Event { kind, kv }: &Event) -> Result<Changed, StoreError> {
        let entry = match kind.as_deref() {
            Some("DELETE") => None,
            _ => Some(content::read(kv, &self.address, self.sealer.as_ref())?),
        };
        Ok(Changed { key: self.address.key(&kv.key.0), revision: Revision(kv.mod_revision.0), entry })
    }
}

#[cfg(test)]
mod tests;
