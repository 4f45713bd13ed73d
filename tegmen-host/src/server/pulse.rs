//! The question whether a server answers.

use super::ending::Ending;
use super::{Command, Notifier};
use tokio::sync::{mpsc, watch};

/// A handle to ask the shards of a server whether they answer. It can be cloned and used from any thread.
#[derive(Clone)]
pub struct Pulse {
    pub(super) shards: Notifier,
    pub(super) ending: watch::Receiver<Ending>,
}

impl Pulse {
    /// Asks each shard. Returns true when all have answered, and false if one has ended. The [totals](super::Counts::totals) are then
    /// not older than this call. Of a server that drains, shards without work end before the others, and one that answers is enough.
    /// A shard that is stuck never answers, so limit the time of this call.
    pub async fn beats(&self) -> bool {
        let (sender, mut answers) = mpsc::unbounded_channel();
        for shard in &*self.shards.shards {
            shard.send(Command::Pulse(sender.clone()));
        }
        drop(sender);
        let mut answered = 0;
        while let Some(()) = answers.recv().await {
            answered += 1;
        }
        let drains = matches!(*self.ending.borrow(), Ending::Drained { .. });
        answered == self.shards.shards.len() || drains && answered > 0
    }
}
