//! The context of a call: clock, crypto provider and counters. An [`Environment`] keeps the last two between calls.

pub use crate::counters::{Counters, Discard};
use crate::time::Instant;

/// The context of every call: the clock, the crypto provider with its random generator, and the counters.
pub struct Cx<'c, C> {
    /// The time.
    pub now: Instant,
    /// Ciphers, hashes, randomness.
    pub crypto: &'c mut C,
    /// Counts what the endpoint drops and does.
    pub counters: &'c mut Counters,
}

/// The crypto provider and the counters of an endpoint or a node. Its owner keeps them beside it, and lends them to each
/// call.
pub struct Environment<C> {
    /// Ciphers, hashes, randomness.
    pub crypto: C,
    /// Counts what the endpoint drops and does.
    pub counters: Counters,
}

impl<C> Environment<C> {
    /// An environment with this provider, whose counters are zero.
    pub const fn new(crypto: C) -> Self {
        Self { crypto, counters: Counters::new() }
    }

    /// Returns the context of a call at the time `now`.
    #[inline]
    pub const fn at(&mut self, now: Instant) -> Cx<'_, C> {
        Cx { now, crypto: &mut self.crypto, counters: &mut self.counters }
    }
}
