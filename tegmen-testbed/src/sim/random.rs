//! Random numbers of the simulation. Each node has a separate ChaCha8 stream for each purpose. So an additional node,
//! or an additional random number for one purpose, does not change the other streams.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

/// The purpose of a random number. Each purpose has a separate stream of random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Purpose {
    /// Random numbers for the backoffs of the MAC layer.
    Backoff = 1,
    /// Random numbers for the first sequence number that the MAC layer of each node uses.
    Sequence = 2,
    /// Random numbers for the bit errors in the frames that a node receives.
    BitErrors = 3,
    /// Random numbers that decide which frames a link loses.
    Loss = 4,
    /// Random numbers for the lengths of the good and the bad periods of a link. A link loses more frames in a bad
    /// period.
    Bursts = 5,
    /// Random numbers for the times at which nodes send requests or make readings.
    Traffic = 6,
    /// Random numbers for the keys, nonces and cookies of a node's cryptographic provider.
    Crypto = 7,
    /// Random numbers for the message IDs, tokens and timeouts of CoAP, for the Interests of NDN, and for the delays of
    /// the responses of group members.
    Messages = 8,
    /// Random numbers for the delays of the frames that a node relays to a group.
    Leisure = 9,
    /// Random numbers that decide when a node loses its memory.
    Reboots = 10,
}

/// A stream of random numbers for one node and one purpose.
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// Makes the stream of random numbers that `node` uses for `purpose` in the run with this seed.
    pub fn new(seed: u64, node: usize, purpose: Purpose) -> Self {
        Self::of_pair(seed, node, 0, purpose)
    }

    /// Makes the stream of random numbers that one link uses for `purpose`. The link leads from another node to the
    /// node `node`. `peer` is the number of the other node plus 1.
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
