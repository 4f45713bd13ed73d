//! Responses to requests to a group. Each response waits for a random time, so that the members do not all respond at
//! the same time (RFC 7252, section 8.2).

use super::per_peer::PerPeer;
use tegmen::buf::{Frame, Full};
use tegmen::identity::PeerId;
use tegmen::node;
use tegmen::time::{Duration, Instant};

/// Maximum number of waiting responses. Further responses are not sent.
const MAX_WAITING: usize = 1024;

/// The waiting responses of a shard.
pub(super) struct Leisure {
    waiting: PerPeer<Vec<(Instant, Box<[u8]>)>>,
    count: usize,
    longest: Duration,
}

impl Leisure {
    /// Returns an empty list of responses, each of which waits for at most `longest`.
    pub(super) fn new(longest: Duration) -> Self {
        Self { waiting: PerPeer::default(), count: 0, longest }
    }

    /// Sets the maximum time for which a response waits.
    pub(super) const fn set_longest(&mut self, longest: Duration) {
        self.longest = longest;
    }

    /// Removes the responses to peers that no longer exist.
    pub(super) fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        self.waiting.retain(|peer, _| is_there(*peer));
        self.count = self.waiting.values().map(Vec::len).sum();
    }
}

impl node::Leisure for Leisure {
    fn longest(&self) -> Duration {
        self.longest
    }

    fn keep(&mut self, at: Instant, peer: PeerId, message: &[u8]) -> Result<(), Full> {
        if self.count >= MAX_WAITING {
            return Err(Full);
        }
        self.count += 1;
        self.waiting.entry(peer).or_default().push((at, message.into()));
        Ok(())
    }

    fn next(&self, peer: PeerId) -> Instant {
        let own = self.waiting.get(&peer).into_iter().flatten();
        own.map(|(at, _)| *at).min().unwrap_or(Instant::NEVER)
    }

    fn take(&mut self, now: Instant, peer: PeerId, frame: &mut Frame<'_>) {
        let Some(own) = self.waiting.get_mut(&peer) else { return };
        let Some(due) = own.iter().position(|(at, _)| *at <= now) else { return };
        let (_, message) = own.remove(due);
        self.count -= 1;
        if own.is_empty() {
            self.waiting.remove(&peer);
        }
        // A message that does not fit is not sent.
        let _ = frame.append(&message);
    }
}
