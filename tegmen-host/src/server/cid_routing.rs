//! Routing of datagrams to the shard of their session. The kernel distributes datagrams to the shards by the address of
//! the client, but this address may change in a session with connection ids. The first byte of a connection id names
//! the shard that issued it.

use crate::prefix::Shares;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tegmen::address::Path;
use tegmen::dtls::ContentType;
use tokio::sync::mpsc;

/// A datagram that another shard received.
pub(super) struct Passed {
    pub(super) path: Path,
    pub(super) datagram: Box<[u8]>,
}

/// Maximum number of datagrams that wait for a shard. This limits the memory that an attacker can fill with datagrams
/// whose connection ids name the shard.
pub(super) const WAITING: usize = 1024;

/// Maximum number of datagrams of one network prefix in the queues of all shards together.
const OF_ONE_PREFIX: u32 = WAITING as u32 / 8;

/// The offset of the connection id in a record.
const ID_AT: usize = 11;

/// The queues to the other shards.
pub(super) struct CidRouting {
    number: usize,
    shards: Vec<mpsc::Sender<Passed>>,
    /// The number of waiting datagrams of each network prefix.
    waiting: Arc<Shares>,
    /// The number of datagrams that were passed to other shards.
    pub(super) passed: u64,
    /// The number of datagrams for other shards that were dropped, because a queue was full, or because a network
    /// prefix had its maximum number of waiting datagrams.
    pub(super) dropped: u64,
}

impl CidRouting {
    /// Returns the routing of shard `number`. `waiting` counts the datagrams in the queues of all shards.
    pub(super) const fn new(number: usize, shards: Vec<mpsc::Sender<Passed>>, waiting: Arc<Shares>) -> Self {
        Self { number, shards, waiting, passed: 0, dropped: 0 }
    }

    /// Stops passing datagrams to other shards, and closes this shard's end of all queues. When all shards have called
    /// this function, the queues are closed. Each shard then knows that no further datagram comes from another shard.
    pub(super) fn end(&mut self) {
        self.shards.clear();
    }

    /// Notes that this shard has taken a datagram from its queue.
    pub(super) fn taken(&self, path: &Path) {
        self.waiting.give_back(prefix_of(path));
    }

    /// Passes a datagram to another shard, if its first record has a connection id that the other shard issued. Returns
    /// true in this case, even if the datagram is dropped because the queue is full. Do not call this for a datagram
    /// that another shard passed to this shard.
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
