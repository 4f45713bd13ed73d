//! The check that a server answers.

use super::ending::Ending;
use super::{Command, Notifier};
use tokio::sync::{mpsc, watch};

/// A handle that checks if the shards of a server answer. It can be cloned and used from any thread.
#[derive(Clone)]
pub struct Pulse {
    pub(super) shards: Notifier,
    pub(super) ending: watch::Receiver<Ending>,
}

impl Pulse {
    /// Sends a question to each shard. Returns true when all shards have answered, and false if a shard has ended. If
    /// the result is true, the [totals](super::Counts::totals) are not older than this call. While
    /// [`Server::drain`](super::Server::drain) ends a server, shards without work end before the others. During this
    /// time the result is true when at least one shard has answered. A blocked shard never answers, so set a time limit
    /// for this call.
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
