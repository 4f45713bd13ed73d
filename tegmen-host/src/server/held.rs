//! The answers of a key store to handshakes. The server holds each answer until a multiple of a fixed interval has
//! passed since the question, so that the delay does not reveal if an identity exists.

use crate::credentials::IdentityKeys;
use std::collections::BTreeMap;
use tegmen::identity::PeerId;
use tegmen::time::Instant;

/// The keys of an identity; `None` if there is no such identity.
pub(super) type Found = Option<IdentityKeys>;

/// The answers of the key store that wait, in the order of the times at which they may be used.
pub(super) struct Held {
    by_time: BTreeMap<(Instant, u64), (PeerId, Found)>,
    held: u64,
    max: usize,
}

impl Held {
    /// Returns an empty list for at most `max` answers.
    pub(super) const fn new(max: usize) -> Self {
        Self { by_time: BTreeMap::new(), held: 0, max }
    }

    /// Holds the answer for the handshake of `peer` until the time `at`. Returns false if the list already has its
    /// maximum length.
    pub(super) fn hold(&mut self, at: Instant, peer: PeerId, found: Found) -> bool {
        if self.by_time.len() >= self.max {
            return false;
        }
        self.held += 1;
        self.by_time.insert((at, self.held), (peer, found));
        true
    }

    /// Returns the time at which the next answer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns an answer that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<(PeerId, Found)> {
        let first = self.by_time.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests;
