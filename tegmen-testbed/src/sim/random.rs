//! Random numbers of the simulation. Each node has a separate ChaCha8 stream for each purpose. So an additional node,
//! or an additional random number for one purpose, does not change the other streams.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

/// The purpose of a random number. Each purpose has a separate stream of random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Backoffs of the MAC.
    Backoff = 1,
    /// The first sequence number of the MAC.
    Sequence = 2,
    /// Bit errors of receptions.
    BitErrors = 3,
    /// Frames that a link loses.
    Loss = 4,
    /// Lengths of the good and the bad periods of a link.
    Bursts = 5,
    /// Times at which nodes make requests or readings.
    Traffic = 6,
    /// The keys, nonces and cookies that the node's cryptographic provider draws at random.
    Crypto = 7,
    /// Message IDs, tokens and timeouts of CoAP.
    Messages = 8,
    /// Delays of the responses of group members, and delays of relayed frames.
    Leisure = 9,
    /// Times at which nodes lose their memory.
    Reboots = 10,
}

/// A stream of random numbers for one node and one purpose.
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// Makes the stream of `node` for `purpose` in the run with this seed.
    pub fn new(seed: u64, node: usize, purpose: Purpose) -> Self {
        Self::of_pair(seed, node, 0, purpose)
    }

    /// Makes the stream of one link for `purpose`. The link leads from another node to the node `node`. `peer` is the
    /// number of the other node plus 1.
    pub(super) fn of_pair(seed: u64, node: usize, peer: usize, purpose: Purpose) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream((purpose as u64) << 48 | (peer as u64) << 24 | node as u64);
        Self(rng)
    }

    /// Returns a random number from 0 to `bound - 1`. `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply and shift: the bias is below 2^-32 for the bounds in use here.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a random number of at least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns 32 random bytes, which are the seed of another generator.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}

#[cfg(test)]
mod tests;
