//! Datagrams for a session of another shard: the kernel spreads them over the shards by their addresses, and the address of
//! a session with connection ids may change. The first byte of an id says which shard gave it.

use tegmen::dtls::ContentType;
use tegmen::endpoint::Path;
use tokio::sync::mpsc;

/// A datagram that came to another shard.
pub(super) struct Passed {
    pub(super) path: Path,
    pub(super) datagram: Box<[u8]>,
}

/// Datagrams that wait for a shard at most; whoever sends ids that name it fills no more memory than that.
pub(super) const WAITING: usize = 1024;

/// Where the connection id begins in a record.
const ID_AT: usize = 11;

/// The way to the other shards.
pub(super) struct Steering {
    pub(super) number: usize,
    pub(super) shards: Vec<mpsc::Sender<Passed>>,
    /// Datagrams that went to other shards.
    pub(super) passed: u64,
    /// Datagrams that should have, and there was no room.
    pub(super) dropped: u64,
}

impl Steering {
    /// Passes a datagram on, if it begins with a record whose id another shard gave. What a shard was passed it keeps.
    pub(super) fn pass(&mut self, path: &Path, datagram: &[u8]) -> bool {
        if self.shards.len() < 2 || datagram.first() != Some(&ContentType::TLS12_CID.0) {
            return false;
        }
        let named = datagram.get(ID_AT).map(|shard| usize::from(*shard)).filter(|shard| *shard != self.number);
        let Some(shard) = named.and_then(|shard| self.shards.get(shard)) else { return false };
        match shard.try_send(Passed { path: *path, datagram: datagram.into() }) {
            Ok(()) => self.passed += 1,
            Err(_) => self.dropped += 1,
        }
        true
    }
}
