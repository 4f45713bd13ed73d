//! The context of a call.

use crate::counters::Counters;
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
