//! The context of a call: the time, the crypto provider and the counters. An [`Environment`] keeps the crypto provider
//! and the counters between calls.

pub use crate::counters::{Counters, Discard};
use crate::time::Instant;

/// The context of a call: the time, the crypto provider with its random generator, and the counters.
pub struct Cx<'c, C> {
    /// The current time.
    pub now: Instant,
    /// The crypto provider: ciphers, hashes and random bytes.
    pub crypto: &'c mut C,
    /// The counters for events of the endpoint.
    pub counters: &'c mut Counters,
}

/// The crypto provider and the counters of an endpoint or a node. The owner of the endpoint keeps this environment, and
/// creates a context from it for each call.
pub struct Environment<C> {
    /// The crypto provider: ciphers, hashes and random bytes.
    pub crypto: C,
    /// The counters for events of the endpoint.
    pub counters: Counters,
}

impl<C> Environment<C> {
    /// Creates an environment with this crypto provider, and counters that are zero.
    pub const fn new(crypto: C) -> Self {
        Self { crypto, counters: Counters::new() }
    }

    /// Returns the context of a call at the time `now`.
    #[inline]
    pub const fn at(&mut self, now: Instant) -> Cx<'_, C> {
        Cx { now, crypto: &mut self.crypto, counters: &mut self.counters }
    }
}
