//! AES and SHA-256 that take fewer instructions than [`small`](super::small), and more bytes.

use super::{Block, CONSTANTS, KEY_LEN, S_BOX, State, add_key, double, later, load};
use zeroize::optimization_barrier;

/// Returns the place of the round keys, before the expansion of a key. This is a function, because an image would store
/// the bytes of a constant.
#[inline(always)]
pub(super) const fn place() -> [State; 11] {
    [[0, 1, 0, 1]; 11]
}

/// The round keys of AES-128 (FIPS 197, section 5.2), wiped on drop.
pub(super) struct Schedule<'r>(&'r mut [State; 11]);

impl<'r> Schedule<'r> {
    /// Expands the key in place, so that no copy remains on the stack.
    #[inline(never)]
    pub(super) fn new(key: &[u8; KEY_LEN], rounds: &'r mut [State; 11]) -> Self {
        let mut words = load(key);
        let [first, behind @ ..] = &mut *rounds;
        *first = words;
        let mut constant = 1;
        for round in behind {
            let [a, b, c, d] = &mut words;
            *a ^= constant ^ substitute(*d, *d, *d, *d).rotate_right(8);
            *b ^= *a;
            *c ^= *b;
            *d ^= *c;
            constant = double(constant);
            *round = words;
        }
        Self(rounds)
    }

    /// Encrypts one block (FIPS 197, section 5.1).
    #[inline(never)]
    pub(super) fn encrypt(&self, block: &mut Block) {
        let [first, middle @ .., last] = &*self.0;
        let mut state = add_key(load(&block.0), *first);
        for key in middle {
            let [a, b, c, d] = state;
            state = add_key(*key, [mix(a, b, c, d), mix(b, c, d, a), mix(c, d, a, b), mix(d, a, b, c)]);
        }
        let [mut a, mut b, mut c, mut d] = state;
        for (column, key) in block.0.as_chunks_mut().0.iter_mut().zip(last) {
            *column = (key ^ substitute(a, b, c, d)).to_le_bytes();
            (a, b, c, d) = (b, c, d, a);
        }
    }
}

impl Drop for Schedule<'_> {
    fn drop(&mut self) {
        // The wiped value is not zero, because setting all bytes to one value is a function call, which takes twice as
        // long on a mote.
        *self.0 = [[0, 1, 0, 1]; 11];
        optimization_barrier(self.0);
    }
}

/// Computes one column after SubBytes, ShiftRows and MixColumns. Its rows come from the columns `a`, `b`, `c` and
/// `d`, in this order.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
fn mix(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let column = |byte: u32| TABLE[usize::from(byte as u8)];
    column(a).rotate_left(8) ^ column(b >> 8).rotate_left(16) ^ column(c >> 16).rotate_left(24) ^ column(d >> 24)
}

/// Does the same as [`mix`], but without MixColumns.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
fn substitute(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let column = |byte: u32| TABLE[usize::from(byte as u8)];
    // The low byte of a column is the S-box itself.
    column(a) & 0xff | (column(b >> 8) & 0xff) << 8 | (column(c >> 16) & 0xff) << 16 | column(d >> 24) << 24
}

/// The result of SubBytes and MixColumns for each value of a byte in the last row of a column. The results for the
/// other rows are the same words, rotated. The low byte of each word is the S-box.
#[expect(clippy::indexing_slicing, reason = "the compiler computes it, and refuses an index that is too large")]
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let s = S_BOX[byte] as u32;
        let twice = double(s);
        table[byte] = s | s << 8 | (twice ^ s) << 16 | twice << 24;
        byte += 1;
    }
    table
};

/// Computes one compression of SHA-256 (FIPS 180-4, section 6.2.2). Computes the message schedule in steps of sixteen
/// words.
pub(super) fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [[0; 4]; 4];
    for (word, bytes) in words.as_flattened_mut().iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    let before = *state;
    let [now @ .., last] = &CONSTANTS;
    for constants in now {
        rounds(state, &words, constants);
        advance(&mut words);
    }
    rounds(state, &words, last);
    state.iter_mut().zip(&before).for_each(|(to, with)| *to = to.wrapping_add(*with));
}

/// Computes sixteen rounds of SHA-256. In each round, the standard moves the eight variables by one position. This code
/// passes the variables in a rotated order instead, so that no register is copied. After four rounds the variables have
/// the order of the beginning again, except that their two halves are exchanged.
#[inline(never)]
fn rounds(state: &mut [u32; 8], words: &[[u32; 4]; 4], constants: &[u32; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for ([w0, w1, w2, w3], [k0, k1, k2, k3]) in words.iter().zip(constants.as_chunks().0) {
        round(a, b, c, &mut d, e, f, g, &mut h, *w0, *k0);
        round(h, a, b, &mut c, d, e, f, &mut g, *w1, *k1);
        round(g, h, a, &mut b, c, d, e, &mut f, *w2, *k2);
        round(f, g, h, &mut a, b, c, d, &mut e, *w3, *k3);
        (a, b, c, d, e, f, g, h) = (e, f, g, h, a, b, c, d);
    }
    *state = [a, b, c, d, e, f, g, h];
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the eight variables of the standard, a word and a constant")]
fn round(a: u32, b: u32, c: u32, d: &mut u32, e: u32, f: u32, g: u32, h: &mut u32, word: u32, constant: u32) {
    // Sigma1 rotates by 6, 11 and 25, Sigma0 by 2, 13 and 22. Nested, each rotation is part of an instruction on ARM.
    let sigma1 = (e ^ (e ^ e.rotate_right(14)).rotate_right(5)).rotate_right(6);
    let sigma0 = (a ^ (a ^ a.rotate_right(9)).rotate_right(11)).rotate_right(2);
    let choice = ((f ^ g) & e) ^ g;
    let majority = ((a ^ b) & c).wrapping_add(a & b);
    let first = h.wrapping_add(constant).wrapping_add(word).wrapping_add(choice).wrapping_add(sigma1);
    *d = d.wrapping_add(first);
    *h = first.wrapping_add(majority).wrapping_add(sigma0);
}

/// Replaces sixteen words of the message schedule by the next sixteen, four at a time.
#[inline(never)]
#[expect(clippy::indexing_slicing, reason = "a remainder of 4 indexes an array of 4")]
fn advance(words: &mut [[u32; 4]; 4]) {
    for i in 0_usize..4 {
        let [w4, ..] = words[i.wrapping_add(1) % 4];
        let [_, w9, w10, w11] = words[i.wrapping_add(2) % 4];
        let [w12, _, w14, w15] = words[i.wrapping_add(3) % 4];
        let [w0, w1, w2, w3] = &mut words[i];
        *w0 = later(*w0, *w1, w9, w14);
        *w1 = later(*w1, *w2, w10, w15);
        *w2 = later(*w2, *w3, w11, *w0);
        *w3 = later(*w3, w4, w12, *w1);
    }
}
