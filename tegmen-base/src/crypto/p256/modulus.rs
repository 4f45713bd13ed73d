//! Arithmetic modulo the prime of the field and modulo the order of the curve (NIST SP 800-186, section 3.2.1.3), by
//! the method of Montgomery: each product is divided by 2^256. No branch and no address depends on an operand.

use zeroize::optimization_barrier;

/// A number below 2^256, the lowest word first.
pub(super) type Words = [u32; 8];

/// Space for intermediate results, which may be above the modulus.
pub(super) struct Wide {
    /// Space for a product. Its lower half is zero between two products, because a reduction sets it to zero.
    product: [Words; 2],
    difference: Words,
}

impl Wide {
    /// A space of zeros.
    pub(super) const ZERO: Self = Self { product: [[0; 8]; 2], difference: [0; 8] };

    /// Returns eight words of the product, beginning with word `i`, and all words that are higher than these eight.
    #[inline(always)]
    fn eight_from(&mut self, i: usize) -> Option<(&mut Words, &mut [u32])> {
        self.product.as_flattened_mut().get_mut(i..)?.split_first_chunk_mut()
    }

    /// Writes `a - b` to the space for a difference. Returns the difference, and true if it is not negative.
    pub(super) fn difference(&mut self, a: &Words, b: &Words) -> (&Words, bool) {
        let is_positive = difference(&mut self.difference, a, b) == 1;
        (&self.difference, is_positive)
    }
}

/// A prime between 2^255 and 2^256, with the constants for multiplications modulo this prime.
pub(super) struct Modulus {
    /// The prime, lowest word first.
    pub(super) words: Words,
    /// 2^512 modulo the prime. [`Self::multiply`] divides each product by 2^256. So with this constant as a factor, it
    /// multiplies the other factor by 2^256.
    pub(super) square: Words,
    /// The number -1 divided by the prime, modulo 2^32.
    inverse: u32,
}

/// The prime of the field: 2^256 - 2^224 + 2^192 + 2^96 - 1.
pub(super) static P: Modulus = Modulus {
    words: [0xffff_ffff, 0xffff_ffff, 0xffff_ffff, 0, 0, 0, 1, 0xffff_ffff],
    square: [3, 0, 0xffff_ffff, 0xffff_fffb, 0xffff_fffe, 0xffff_ffff, 0xffff_fffd, 4],
    inverse: 1,
};

/// The order of the curve secp256r1: the number of its points.
pub(super) static N: Modulus = Modulus {
    words: [0xfc63_2551, 0xf3b9_cac2, 0xa717_9e84, 0xbce6_faad, 0xffff_ffff, 0xffff_ffff, 0, 0xffff_ffff],
    square: [0xbe79_eea2, 0x8324_4c95, 0x49bd_6fa6, 0x4699_799c, 0x2b6b_ec59, 0x2845_b239, 0xf3d9_5620, 0x66e1_2d94],
    inverse: 0xee00_bc4f,
};

/// The number 1.
pub(super) static ONE: Words = [1, 0, 0, 0, 0, 0, 0, 0];

/// A public exponent: the number in `words` minus `less`. `less` is at most the lowest word of the number, so the
/// subtraction has no borrow.
pub(super) struct Exponent<'a> {
    pub(super) words: &'a Words,
    pub(super) less: u32,
    /// The index of the highest bit of the exponent.
    pub(super) top: usize,
}

impl Modulus {
    /// Replaces `a` by the remainder of `a · b / 2^256` modulo the modulus. At least one of `a` and `b` must be below
    /// the modulus.
    #[inline(never)]
    pub(super) fn multiply(&self, wide: &mut Wide, a: &mut Words, b: &Words) {
        let above = self.product(wide, a, b);
        self.finish(wide, above, a);
    }

    /// Replaces `a` by the remainder of `a + b` modulo the modulus. `a` and `b` must be below the modulus.
    #[inline(never)]
    pub(super) fn add(&self, wide: &mut Wide, a: &mut Words, b: &Words) {
        let above = sum(wide, a, b);
        self.finish(wide, above, a);
    }

    /// Writes to `a` the number `2^256 / x` for `base = x · 2^256`, by Fermat's little theorem. For zero, the result
    /// is zero.
    #[inline(never)]
    pub(super) fn invert(&self, wide: &mut Wide, base: &Words, a: &mut Words) {
        // The exponent is the prime less 2.
        self.power(wide, base, &Exponent { words: &self.words, less: 2, top: 255 }, a);
    }

    /// Writes to `a` the number `x^exponent · 2^256` for `base = x · 2^256`. The exponent is public, so a branch on its
    /// bits does not depend on a secret.
    pub(super) fn power(&self, wide: &mut Wide, base: &Words, exponent: &Exponent<'_>, a: &mut Words) {
        *a = *base;
        for i in (0..exponent.top).rev() {
            let above = self.product(wide, a, a);
            self.finish(wide, above, a);
            let less = if i < 32 { exponent.less } else { 0 };
            let word = exponent.words.get(i >> 5).map_or(0, |word| word.wrapping_sub(less));
            if word >> (i & 31) & 1 == 1 {
                self.multiply(wide, a, base);
            }
        }
    }

    /// Writes `a · b / 2^256` to the upper half of the space for a product. The result may be too large by one modulus,
    /// so it may have a ninth word, 0 or 1. Returns this ninth word.
    #[inline(never)]
    pub(super) fn product(&self, wide: &mut Wide, a: &Words, b: &Words) -> u32 {
        for (i, b) in (0_usize..8).step_by(2).zip(b.as_chunks().0) {
            if let Some((sum, [w8, w9, ..])) = wide.eight_from(i) {
                [*w8, *w9] = two_words(rows(sum, a, b));
            }
        }
        let mut carry = false;
        // Only the prime of the field has the value 1 in `inverse`.
        if self.inverse == 1 {
            for i in 0..8 {
                if let Some((sum, [w8, ..])) = wide.eight_from(i) {
                    (*w8, carry) = w8.carrying_add(row_of_p(sum), carry);
                }
            }
            return carry.into();
        }
        for i in (0..8).step_by(2) {
            if let Some((sum, [w8, w9, ..])) = wide.eight_from(i) {
                let [top8, top9] = two_words(rows(sum, &self.words, &self.factors(sum)));
                (*w8, carry) = w8.carrying_add(top8, carry);
                (*w9, carry) = w9.carrying_add(top9, carry);
            }
        }
        carry.into()
    }

    /// Returns a number `f` of 64 bits as two words. If `f` times the modulus is added to the given number, the two
    /// lowest words of the sum are zero.
    #[inline(always)]
    fn factors(&self, [s0, s1, ..]: &Words) -> [u32; 2] {
        let [n0, n1, ..] = &self.words;
        let m0 = s0.wrapping_mul(self.inverse);
        let (_, carry) = m0.carrying_mul(*n0, *s0);
        let m1 = s1.wrapping_add(carry).wrapping_add(m0.wrapping_mul(*n1)).wrapping_mul(self.inverse);
        [m0, m1]
    }

    /// Takes the number in the upper half of `wide`, whose ninth word is `above`. Subtracts the modulus if the number
    /// is not below the modulus. Writes the result to `to`.
    #[inline(never)]
    pub(super) fn finish(&self, wide: &mut Wide, above: u32, to: &mut Words) {
        let Wide { product: [_, high], difference: low } = wide;
        let is_positive = difference(low, high, &self.words);
        self.fix(low, is_positive | above, to);
    }

    /// Corrects the result of a [`difference`]. Writes `from` to `to` if `is_positive` is 1, and `from` plus the
    /// modulus if `is_positive` is 0.
    #[inline(never)]
    pub(super) fn fix(&self, from: &Words, is_positive: u32, to: &mut Words) {
        let mask = is_positive.wrapping_sub(1);
        optimization_barrier(&mask);
        add(to, from, &self.words, |word| word & mask, |a, b| a.overflowing_add(b & mask));
    }
}

/// Returns the two words of a number, the lowest first.
#[inline(always)]
const fn two_words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// Adds `a · b` to `sum`. `sum` keeps the eight lowest words of the result. Returns the other two words, the ninth and
/// the tenth, as one number.
#[inline(never)]
fn rows(sum: &mut Words, a: &Words, [b0, b1]: &[u32; 2]) -> u64 {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sum;
    let [a0, a1, a2, a3, a4, a5, a6, a7] = a;
    let (mut c0, mut c1) = (0, 0);
    let mut add = |sum: &mut u32, a: &u32, before: &u32| {
        let word;
        (word, c0) = a.carrying_mul_add(*b0, *sum, c0);
        (*sum, c1) = before.carrying_mul_add(*b1, word, c1);
    };
    // The additions are not in a loop, because a loop would take half as long again.
    add(s0, a0, &0);
    add(s1, a1, a0);
    add(s2, a2, a1);
    add(s3, a3, a2);
    add(s4, a4, a3);
    add(s5, a5, a4);
    add(s6, a6, a5);
    add(s7, a7, a6);
    let (w8, w9) = a7.carrying_mul_add(*b1, c0, c1);
    u64::from(w9) << 32 | u64::from(w8)
}

/// Multiplies the prime of the field by the lowest word of `sum`, and adds the product to `sum`. Needs no
/// multiplication instruction. The lowest word of `sum` becomes zero. Returns the ninth word of the result, because
/// `sum` has space only for eight words.
#[inline(always)]
fn row_of_p(sum: &mut Words) -> u32 {
    // The first three words of the prime move the lowest word to the fourth place.
    let [s0, _, _, s3, s4, s5, s6, s7] = sum;
    let factor = core::mem::take(s0);
    let mut carry;
    (*s3, carry) = s3.overflowing_add(factor);
    (*s4, carry) = s4.carrying_add(0, carry);
    (*s5, carry) = s5.carrying_add(0, carry);
    (*s6, carry) = s6.carrying_add(factor, carry);
    // The highest word is 2^32 - 1. The sum stays below 2^64.
    let factor = u64::from(factor);
    let top = (factor << 32).wrapping_sub(factor).wrapping_add((*s7).into()).wrapping_add(carry.into());
    *s7 = top as u32;
    (top >> 32) as u32
}

/// Writes `a + b` to the upper half of `wide`. Returns the ninth word of the sum, 0 or 1.
#[inline(never)]
pub(super) fn sum(Wide { product: [_, high], .. }: &mut Wide, a: &Words, b: &Words) -> u32 {
    add(high, a, b, |word| word, u32::overflowing_add)
}

/// Writes `a - b` to `to`. Returns 0 if the difference is negative, and 1 otherwise.
#[inline(never)]
pub(super) fn difference(to: &mut Words, a: &Words, b: &Words) -> u32 {
    // Adds the complement of `b`, because the code for a chain of borrows would be twice as long.
    add(to, a, b, |word| !word, |a, b| (a.wrapping_sub(b), a >= b))
}

/// Writes the sum of `a`, `b` and a carry to `to`. `first` adds the lowest words of `a` and `b`, and returns the first
/// carry. Each other word of `b` is replaced by the result of `change` before the addition. Returns the ninth word of
/// the sum, 0 or 1.
#[inline(always)]
fn add(
    to: &mut Words,
    a: &Words,
    b: &Words,
    change: impl Fn(u32) -> u32,
    first: impl Fn(u32, u32) -> (u32, bool),
) -> u32 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = to;
    let [a0, a1, a2, a3, a4, a5, a6, a7] = a;
    let [b0, b1, b2, b3, b4, b5, b6, b7] = b;
    let mut carry;
    (*t0, carry) = first(*a0, *b0);
    let mut add = |to: &mut u32, a: &u32, b: &u32| (*to, carry) = a.carrying_add(change(*b), carry);
    add(t1, a1, b1);
    add(t2, a2, b2);
    add(t3, a3, b3);
    add(t4, a4, b4);
    add(t5, a5, b5);
    add(t6, a6, b6);
    add(t7, a7, b7);
    carry.into()
}

/// Reads a number whose highest byte comes first.
#[inline(never)]
pub(super) fn read(to: &mut Words, bytes: &[u8; 32]) {
    for (word, bytes) in to.iter_mut().rev().zip(bytes.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
}

/// Writes a number, with the highest byte first.
#[inline(never)]
pub(super) fn write(bytes: &mut [u8; 32], from: &Words) {
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(from.iter().rev()) {
        *bytes = word.to_be_bytes();
    }
}

/// Returns true if the number is not 0 and is below the modulus. The time depends only on the result.
#[inline(never)]
pub(super) fn is_within(number: &Words, modulus: &Modulus, wide: &mut Wide) -> bool {
    let any = number.iter().fold(0, |any, word| any | word);
    !wide.difference(number, &modulus.words).1 && any != 0
}

/// Replaces a number by its remainder modulo the order of the curve, which is above 2^255.
#[inline(never)]
pub(super) fn reduce(number: &mut Words, wide: &mut Wide) {
    let Wide { product: [_, high], .. } = wide;
    *high = *number;
    N.finish(wide, 0, number);
}
