//! The end of a server: the signal to its shards, and the number of shards that still have requests to answer.

use tokio::sync::watch;
use tokio::time::Instant;

/// The way in which a server ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The server continues.
    No,
    /// The server first sends the responses that are deferred, and ends at the time `by` at the latest.
    Drained { by: Instant },
    /// The server ends at once.
    Now,
}

/// The part of one shard in the number of shards that may still have a request to answer. A shard that ends continues
/// until this number is 0, because a task in its thread may have to respond to a request of another shard. The task of a
/// proxy is such a task.
pub(super) struct Answering {
    shards: watch::Sender<usize>,
    changes: watch::Receiver<usize>,
    is_counted: bool,
}

impl Answering {
    /// Counts a shard in `shards`, the number for the whole server.
    pub(super) fn new(shards: &watch::Sender<usize>) -> Self {
        let mut answering = Self { shards: shards.clone(), changes: shards.subscribe(), is_counted: false };
        answering.set(true);
        answering
    }

    /// Counts this shard, or counts it no longer.
    pub(super) fn set(&mut self, counts: bool) {
        if std::mem::replace(&mut self.is_counted, counts) != counts {
            self.shards.send_modify(|shards| *shards = if counts { *shards + 1 } else { shards.saturating_sub(1) });
        }
    }

    /// True if no shard of the server has a request to answer.
    pub(super) fn is_over(&self) -> bool {
        *self.shards.borrow() == 0
    }

    /// Waits until the number of shards changes.
    pub(super) async fn changed(&mut self) {
        // This value has a sender.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.set(false);
    }
}
