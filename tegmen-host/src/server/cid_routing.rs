//! Datagrams for a session of another shard. The kernel distributes datagrams to the shards by their addresses, and
//! the address of a session with connection ids may change. The first byte of an id names the shard that issued it.

use crate::prefix::Shares;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tegmen::address::Path;
use tegmen::dtls::ContentType;
use tokio::sync::mpsc;

/// A datagram that came to another shard.
pub(super) struct Passed {
    pub(super) path: Path,
    pub(super) datagram: Box<[u8]>,
}

/// Maximum number of datagrams that wait for a shard. It limits the memory that senders of ids of that shard can fill.
pub(super) const WAITING: usize = 1024;

/// Maximum number of datagrams of one network prefix in the queues of all shards together.
const OF_ONE_PREFIX: u32 = WAITING as u32 / 8;

/// Where the connection id begins in a record.
const ID_AT: usize = 11;

/// The way to the other shards.
pub(super) struct CidRouting {
    number: usize,
    shards: Vec<mpsc::Sender<Passed>>,
    /// Datagrams of each network prefix that wait for a shard.
    waiting: Arc<Shares>,
    /// Datagrams that went to other shards.
    pub(super) passed: u64,
    /// Datagrams for other shards that were dropped, because a queue was full or their prefix had its maximum.
    pub(super) dropped: u64,
}

impl CidRouting {
    /// Creates the queues from shard `number` to all shards, which share `waiting`.
    pub(super) const fn new(number: usize, shards: Vec<mpsc::Sender<Passed>>, waiting: Arc<Shares>) -> Self {
        Self { number, shards, waiting, passed: 0, dropped: 0 }
    }

    /// Stops passing datagrams on. A shard has received every datagram for it when all other shards have stopped.
    pub(super) fn end(&mut self) {
        self.shards.clear();
    }

    /// Called when this shard has taken a datagram from its queue.
    pub(super) fn taken(&self, path: &Path) {
        self.waiting.give_back(prefix_of(path));
    }

    /// Passes a datagram on if it begins with a record whose id another shard gave, and returns true then, also if it
    /// drops the datagram. A shard never passes on a datagram that it received in this way.
    pub(super) fn pass(&mut self, path: &Path, datagram: &[u8]) -> bool {
        if self.shards.len() < 2 || datagram.first() != Some(&ContentType::TLS12_CID.0) {
            return false;
        }
        let named = datagram.get(ID_AT).map(|shard| usize::from(*shard)).filter(|shard| *shard != self.number);
        let Some(shard) = named.and_then(|shard| self.shards.get(shard)) else { return false };
        let from = prefix_of(path);
        if self.waiting.held(from) >= OF_ONE_PREFIX {
            self.dropped += 1;
            return true;
        }
        // Counts the datagram before the other shard can take it.
        self.waiting.take(from);
        match shard.try_send(Passed { path: *path, datagram: datagram.into() }) {
            Ok(()) => self.passed += 1,
            Err(_) => {
                self.waiting.give_back(from);
                self.dropped += 1;
            }
        }
        true
    }
}

fn prefix_of(path: &Path) -> IpAddr {
    SocketAddr::from(path.remote).ip()
}

#[cfg(test)]
mod tests;
