//! AES and SHA-256 that take fewer bytes than [`fast`](super::fast), and more instructions. The table of AES is its
//! S-box of 256 bytes, and no loop is unrolled.

use super::{Block, CONSTANTS, KEY_LEN, S_BOX, add, double, later, load};
use zeroize::optimization_barrier;

/// No place, because the round keys are not stored.
pub(super) struct Place;

pub(super) const fn place() -> Place {
    Place
}

/// A key of AES-128. Each encryption of a block computes the round keys again (FIPS 197, section 5.2).
pub(super) struct Schedule<'k>(&'k [u8; KEY_LEN]);

impl<'k> Schedule<'k> {
    pub(super) const fn new(key: &'k [u8; KEY_LEN], _: &mut Place) -> Self {
        Self(key)
    }

    /// Encrypts one block (FIPS 197, section 5.1).
    #[inline(never)]
    pub(super) fn encrypt(&self, block: &mut Block) {
        let mut keys = load(self.0);
        add(&mut block.0, self.0);
        let mut constant = 1;
        for round in 0..ROUNDS {
            let [.., last] = keys;
            let mut before = substitute(last, last, last, last).rotate_right(8) ^ constant;
            constant = double(constant);
            let [mut a, mut b, mut c, mut d] = load(&block.0);
            for (column, key) in block.0.as_chunks_mut().0.iter_mut().zip(&mut keys) {
                *key ^= before;
                before = *key;
                let mut mixed = substitute(a, b, c, d);
                // The last round has no MixColumns.
                if round < ROUNDS - 1 {
                    mixed = mix(mixed);
                }
                *column = (*key ^ mixed).to_le_bytes();
                (a, b, c, d) = (b, c, d, a);
            }
        }
        keys = [0; 4];
        optimization_barrier(&keys);
    }
}

/// Number of rounds of AES-128.
const ROUNDS: usize = 10;

/// Computes MixColumns for one column (FIPS 197, section 5.1.3).
#[inline(always)]
fn mix(column: u32) -> u32 {
    // The doubles of all four bytes at once.
    let twice = (column & 0x7f7f_7f7f) << 1 ^ (column >> 7 & 0x0101_0101).wrapping_mul(0x1b);
    twice ^ (twice ^ column).rotate_right(8) ^ column.rotate_right(16) ^ column.rotate_right(24)
}

/// Computes one column after SubBytes and ShiftRows. Its rows come from the columns `a`, `b`, `c` and `d`, in this
/// order.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
fn substitute(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let byte = |byte: u32| u32::from(S_BOX[usize::from(byte as u8)]);
    byte(a) | byte(b >> 8) << 8 | byte(c >> 16) << 16 | byte(d >> 24) << 24
}

/// Computes one compression of SHA-256 (FIPS 180-4, section 6.2.2).
#[inline(never)]
#[expect(clippy::indexing_slicing, reason = "a remainder of 16 indexes an array of 16")]
pub(super) fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (count, constants) in CONSTANTS.iter().enumerate() {
        if count > 0 {
            for i in 0_usize..16 {
                let word = |ahead: usize| words[i.wrapping_add(ahead) % 16];
                words[i] = later(word(0), word(1), word(9), word(14));
            }
        }
        for (word, constant) in words.iter().zip(constants) {
            let sigma1 = (e ^ (e ^ e.rotate_right(14)).rotate_right(5)).rotate_right(6);
            let sigma0 = (a ^ (a ^ a.rotate_right(9)).rotate_right(11)).rotate_right(2);
            let choice = ((f ^ g) & e) ^ g;
            let majority = ((a ^ b) & c).wrapping_add(a & b);
            let first = h.wrapping_add(*constant).wrapping_add(*word).wrapping_add(choice).wrapping_add(sigma1);
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(majority).wrapping_add(sigma0));
        }
    }
    for (to, with) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *to = to.wrapping_add(with);
    }
}
