//! Multiples of points: computes the sum of a multiple of the base point and of a multiple of one other point, in one
//! loop.
//!
//! Points are projective, and each addition uses the complete formula of Renes, Costello and Batina ("Complete
//! addition formulas for prime order elliptic curves", EUROCRYPT 2016), so there is no special case. A formula is a
//! table of [`Step`]s over [`Register`]s, which needs less memory than code.

use super::modulus::{Exponent, N, ONE, P, Wide, Words, read, sum};
use crate::crypto::{MAX_SHARE, NotAuthentic};
use zeroize::optimization_barrier;

/// The memory of a computation with points of the curve. It is wiped on drop.
pub(super) struct Machine {
    /// The coordinates of the first point, the coordinates of the second point, and other numbers: see [`Register`].
    registers: [[Words; 3]; 4],
    pub(super) wide: Wide,
}

/// The name of a register of the [`Machine`]. A register holds an element of the field.
#[derive(Clone, Copy)]
enum Register {
    /// The first point, which is the current sum. Its coordinates are `X1 / Z1` and `Y1 / Z1`.
    X1,
    Y1,
    Z1,
    /// The second point, which is added to the first. Its coordinates are `X2 / Z2` and `Y2 / Z2`.
    X2,
    Y2,
    Z2,
    T0,
    T1,
    T2,
    T3,
    T4,
    /// The constant `b` in the equation of the curve, `y² = x³ - 3x + b`.
    B,
}
use Register::{B, T0, T1, T2, T3, T4, X1, X2, Y1, Y2, Z1, Z2};

#[derive(Clone, Copy)]
enum Operation {
    Multiply,
    Add,
    Subtract,
}

/// An operation on two registers. The values are, in this order: the operation, the register of the result, the first
/// operand and the second operand.
struct Step(Operation, Register, Register, Register);

const fn mul(to: Register, a: Register, b: Register) -> Step {
    Step(Operation::Multiply, to, a, b)
}

const fn add(to: Register, a: Register, b: Register) -> Step {
    Step(Operation::Add, to, a, b)
}

const fn sub(to: Register, a: Register, b: Register) -> Step {
    Step(Operation::Subtract, to, a, b)
}

/// Adds the second point to the first (algorithm 4 of Renes, Costello and Batina). Overwrites the second point.
static ADDITION: [Step; 43] = [
    mul(T0, X1, X2),
    mul(T1, Y1, Y2),
    mul(T2, Z1, Z2),
    add(T3, X1, Y1),
    add(T4, X2, Y2),
    mul(T3, T3, T4),
    add(T4, T0, T1),
    sub(T3, T3, T4),
    add(T4, Y1, Z1),
    add(Y2, Y2, Z2),
    mul(T4, T4, Y2),
    add(Y2, T1, T2),
    sub(T4, T4, Y2),
    add(X1, X1, Z1),
    add(X2, X2, Z2),
    mul(X1, X1, X2),
    add(Y1, T0, T2),
    sub(Y1, X1, Y1),
    mul(Z1, B, T2),
    sub(X1, Y1, Z1),
    add(Z1, X1, X1),
    add(X1, X1, Z1),
    sub(Z1, T1, X1),
    add(X1, T1, X1),
    mul(Y1, B, Y1),
    add(T1, T2, T2),
    add(T2, T1, T2),
    sub(Y1, Y1, T2),
    sub(Y1, Y1, T0),
    add(T1, Y1, Y1),
    add(Y1, T1, Y1),
    add(T1, T0, T0),
    add(T0, T1, T0),
    sub(T0, T0, T2),
    mul(T1, T4, Y1),
    mul(T2, T0, Y1),
    mul(Y1, X1, Z1),
    add(Y1, Y1, T2),
    mul(X1, T3, X1),
    sub(X1, X1, T1),
    mul(Z1, T4, Z1),
    mul(T1, T3, T0),
    add(Z1, Z1, T1),
];

/// Doubles the first point (algorithm 6 of Renes, Costello and Batina).
static DOUBLING: [Step; 34] = [
    mul(T0, X1, X1),
    mul(T1, Y1, Y1),
    mul(T2, Z1, Z1),
    mul(T3, X1, Y1),
    add(T3, T3, T3),
    mul(T4, Y1, Z1),
    mul(Z1, X1, Z1),
    add(Z1, Z1, Z1),
    mul(Y1, B, T2),
    sub(Y1, Y1, Z1),
    add(X1, Y1, Y1),
    add(Y1, X1, Y1),
    sub(X1, T1, Y1),
    add(Y1, T1, Y1),
    mul(Y1, X1, Y1),
    mul(X1, X1, T3),
    add(T3, T2, T2),
    add(T2, T2, T3),
    mul(Z1, B, Z1),
    sub(Z1, Z1, T2),
    sub(Z1, Z1, T0),
    add(T3, Z1, Z1),
    add(Z1, Z1, T3),
    add(T3, T0, T0),
    add(T0, T3, T0),
    sub(T0, T0, T2),
    mul(T0, T0, Z1),
    add(Y1, Y1, T0),
    add(T0, T4, T4),
    mul(Z1, T0, Z1),
    sub(X1, X1, Z1),
    mul(Z1, T0, T1),
    add(Z1, Z1, Z1),
    add(Z1, Z1, Z1),
];

/// The exponent of the power that gives a square root in the field: a quarter of (the prime + 1).
static ROOT: Words = [0, 0, 0x4000_0000, 0, 0, 0x4000_0000, 0xc000_0000, 0x3fff_ffff];

/// Inserts the second point, with `Z2` = 1, into the equation of the curve, `y² = x³ - 3x + b`. Writes the right side
/// to `T1`, and the left side minus the right side to `T0`. `T0` is zero if the point is on the curve.
static EQUATION: [Step; 8] = [
    mul(T0, Y2, Y2),
    mul(T1, X2, X2),
    mul(T1, T1, X2),
    sub(T1, T1, X2),
    sub(T1, T1, X2),
    sub(T1, T1, X2),
    add(T1, T1, B),
    sub(T0, T0, T1),
];

impl Machine {
    /// A [`Machine`], the memory of a computation with points, that contains only zeros. Do not move a machine after
    /// its use, so that there is no copy of its secrets.
    pub(super) const ZERO: Self = Self { registers: [[[0; 8]; 3]; 4], wide: Wide::ZERO };

    /// Writes an uncompressed point (SEC 1, section 2.3.4) to `X2` and `Y2`, the registers of the second point. This is
    /// the point that an addition adds to the sum.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the point is not on the curve. The curve has no points of small order.
    #[inline(never)]
    pub(super) fn load(&mut self, share: &[u8]) -> Result<(), NotAuthentic> {
        let [4, coordinates @ ..] = share else { return Err(NotAuthentic) };
        if share.len() != MAX_SHARE {
            return Err(NotAuthentic);
        }
        let Self { registers: [_, [x, y, _], ..], wide } = self;
        for (to, bytes) in [x, y].into_iter().zip(coordinates.as_chunks().0) {
            read(to, bytes);
            if wide.difference(to, &P.words).1 {
                return Err(NotAuthentic);
            }
            P.multiply(wide, to, &P.square);
        }
        self.set_constants();
        self.run(&EQUATION);
        let Self { registers: [_, _, [difference, ..], _], .. } = self;
        if *difference == [0; 8] { Ok(()) } else { Err(NotAuthentic) }
    }

    /// Writes a point with the x-coordinate `bytes` to `X2` and `Y2`, the registers of the second point. The curve has
    /// two points with this x-coordinate; this function uses one of them.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the curve has no point with this x-coordinate.
    #[inline(never)]
    pub(super) fn load_x(&mut self, bytes: &[u8; 32]) -> Result<(), NotAuthentic> {
        let Self { registers: [_, [x, y, _], ..], wide } = self;
        read(x, bytes);
        if wide.difference(x, &P.words).1 {
            return Err(NotAuthentic);
        }
        P.multiply(wide, x, &P.square);
        *y = [0; 8];
        self.set_constants();
        self.run(&EQUATION);
        let Self { registers: [_, [_, y, _], [_, square, _], _], wide } = self;
        P.power(wide, square, &Exponent { words: &ROOT, less: 0, top: 253 }, y);
        // The right side of the equation has no square root for each x coordinate. So the result is checked with the
        // equation.
        self.run(&EQUATION);
        let Self { registers: [_, _, [difference, ..], _], .. } = self;
        if *difference == [0; 8] { Ok(()) } else { Err(NotAuthentic) }
    }

    /// Computes the sum of a multiple of the base point and a multiple of the second point (`X2`, `Y2`). Both factors
    /// are given by their [digits](to_digits).
    ///
    /// `blind` is a random element of the field that is not 0. The computation begins with the point at infinity as
    /// `(0, blind, 0)`, so the projective coordinates of all sums differ from call to call.
    pub(super) fn multiply(&mut self, blind: &Words, base: Option<&Words>, second: Option<&Words>) {
        let mut multiples = const { [[[0; 8]; 3]; 8] };
        if second.is_some() {
            self.fill(&mut multiples);
        }
        // The sum begins with the point at infinity.
        self.set_constants();
        let Self { registers: [[x, y, z], ..], .. } = self;
        *x = [0; 8];
        *y = *blind;
        *z = [0; 8];
        let positions = if second.is_some() { 256 } else { 64 };
        for i in (0..positions).rev() {
            self.run(&DOUBLING);
            if let Some(digits) = second
                && i & 3 == 0
            {
                self.add_entry(&multiples, digit(digits, i, 1));
            }
            if let Some(digits) = base
                && i < 64
            {
                self.add_entry(&BASE, digit(digits, i, 64));
            }
        }
    }

    /// Sets the constant of the curve, and sets `Z2` to 1.
    #[inline(never)]
    fn set_constants(&mut self) {
        let Self { registers: [_, [_, _, z], _, [_, _, b]], .. } = self;
        *z = ONE_OF_P;
        *b = CONSTANT;
    }

    /// Writes the odd multiples of the second point, from 1 to 15, to the table.
    #[inline(never)]
    fn fill(&mut self, multiples: &mut [[Words; 3]; 8]) {
        let Self { registers: [first, second, ..], .. } = self;
        *first = *second;
        self.run(&DOUBLING);
        // Stores twice the point at the position of the last entry, which is computed last.
        let Self { registers: [first, second, ..], .. } = self;
        let [.., twice] = &mut *multiples;
        *twice = *first;
        *first = *second;
        let mut entries = multiples.iter_mut();
        while let Some(entry) = entries.next() {
            let Self { registers: [first, second, ..], .. } = self;
            *entry = *first;
            let Some(twice) = entries.as_slice().last() else { break };
            *second = *twice;
            self.run(&ADDITION);
        }
    }

    /// Adds the table entry for a [`digit`]. Negates the entry if the digit is negative. Reads every entry of the
    /// table.
    #[inline(never)]
    fn add_entry<const LEN: usize>(&mut self, table: &[[Words; LEN]; 8], digit: u32) {
        let negative = (digit >> 3).wrapping_sub(1);
        optimization_barrier(&negative);
        let index = (digit ^ negative) & 7;
        let Self { registers: [_, second, ..], wide } = self;
        second.fill([0; 8]);
        for (i, entry) in (0_u32..).zip(table) {
            let mask = ((i ^ index).wrapping_sub(1) >> 31).wrapping_neg();
            // Otherwise the compiler detects that one entry remains, and reads only this entry.
            optimization_barrier(&mask);
            for (to, word) in second.as_flattened_mut().iter_mut().zip(entry.as_flattened()) {
                *to |= word & mask;
            }
        }
        let [_, y, z] = second;
        if LEN == 2 {
            *z = ONE_OF_P;
        }
        let (negated, _) = wide.difference(&P.words, y);
        for (y, negated) in y.iter_mut().zip(negated) {
            *y ^= (*y ^ *negated) & negative;
        }
        self.run(&ADDITION);
    }

    /// Divides `X1` and `Y1` of the current sum by `Z1`. Returns both coordinates as normal numbers, not in Montgomery
    /// form. The sum must not be the point at infinity.
    #[inline(never)]
    pub(super) fn affine(&mut self) -> (&Words, &Words) {
        let Self { registers: [[x, y, z], _, [inverse, ..], _], wide } = self;
        P.invert(wide, z, inverse);
        for coordinate in [&mut *x, &mut *y] {
            P.multiply(wide, coordinate, inverse);
            P.multiply(wide, coordinate, &ONE);
        }
        (x, y)
    }

    /// Returns true if the first coordinate of the current sum is `x` modulo the order of the curve.
    pub(super) fn has_x(&mut self, x: &mut Words) -> bool {
        let Self { registers: [[x1, _, z1], _, [t0, ..], _], wide } = self;
        if *z1 == [0; 8] {
            return false;
        }
        // Few numbers of the field are above the order, and none is above twice the order.
        for _ in 0..2 {
            *t0 = *x;
            P.multiply(wide, t0, &P.square);
            P.multiply(wide, t0, z1);
            if t0 == x1 {
                return true;
            }
            if wide.difference(x, &P_LESS_N).1 {
                return false;
            }
            P.add(wide, x, &N.words);
        }
        false
    }

    /// Executes the steps of a formula.
    #[inline(never)]
    #[expect(clippy::indexing_slicing, reason = "a register is a place of the array")]
    fn run(&mut self, steps: &[Step]) {
        let Self { registers, wide } = self;
        let registers = registers.as_flattened_mut();
        for &Step(operation, to, a, b) in steps {
            let (a, b) = (&registers[a as usize], &registers[b as usize]);
            let above = match operation {
                Operation::Multiply => P.product(wide, a, b),
                Operation::Add => sum(wide, a, b),
                Operation::Subtract => {
                    let (difference, is_positive) = wide.difference(a, b);
                    P.fix(difference, is_positive.into(), &mut registers[to as usize]);
                    continue;
                }
            };
            P.finish(wide, above, &mut registers[to as usize]);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.registers.as_flattened_mut().fill([0; 8]);
        self.wide = Wide::ZERO;
        optimization_barrier(self);
    }
}

/// Replaces a number below the order by 256 signs. Sign `i` is bit `i` of the result. If the bit is set, 2^i is added;
/// if the bit is clear, 2^i is subtracted. The number is the sum of all these terms. Four signs together make a
/// [`digit`], which is always odd. So no digit is zero.
///
/// The signs of an odd number `k` are the bits of `(k - 1) / 2 + 2^255`. For an even number `k`, the function computes
/// the signs of the order minus `k`, which is odd, and inverts each sign.
#[inline(never)]
pub(super) fn to_digits(number: &mut Words, wide: &mut Wide) {
    let (negated, _) = wide.difference(&N.words, number);
    let [lowest, ..] = number;
    let even = (*lowest & 1).wrapping_sub(1);
    let mut above = 1;
    for (word, negated) in number.iter_mut().zip(negated).rev() {
        let odd = *word ^ ((*word ^ *negated) & even);
        *word = (odd >> 1 | above << 31) ^ even;
        above = odd;
    }
}

/// Returns four of the signs of [`to_digits`] as four bits. The lowest bit is the sign at position `at`, and each
/// further sign is `step` positions higher.
#[inline(never)]
fn digit(digits: &Words, at: usize, step: usize) -> u32 {
    let mut digit = 0;
    let mut at = at;
    for i in 0..4 {
        let word = digits.get(at >> 5).copied().unwrap_or(0);
        digit |= (word >> (at & 31) & 1) << i;
        at = at.wrapping_add(step);
    }
    digit
}

/// The number 1 in Montgomery form: 2^256 modulo the prime of the field.
pub(super) const ONE_OF_P: Words = [1, 0, 0, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff, 0xffff_fffe, 0];

/// The prime of the field minus the order of the curve. If `x` is below this difference, two elements of the field have
/// the remainder `x` modulo the order: `x`, and `x` plus the order.
const P_LESS_N: Words = [0x039c_daae, 0x0c46_353d, 0x58e8_617b, 0x4319_0553, 0, 0, 0, 0];

/// The constant `b` of the curve (NIST SP 800-186, section 3.2.1.3), multiplied by 2^256.
const CONSTANT: Words =
    [0x29c4_bddf, 0xd89c_df62, 0x7884_3090, 0xacf0_05cd, 0xf721_2ed6, 0xe5a2_20ab, 0x0487_4834, 0xdc30_061d];

/// The multiples `2^192 ± 2^128 ± 2^64 ± 1` of the base point. Bits 0, 1 and 2 of the index are the signs of 1, 2^64
/// and 2^128, and a set bit is a plus sign. The coordinates are in Montgomery form: multiplied by 2^256.
static BASE: [[Words; 2]; 8] = [
    [
        [0x6708_44e0, 0x52d8_a7c9, 0xef68_a29d, 0x00e3_3bdc, 0x4bdb_7361, 0x0f3d_2848, 0x91c5_304d, 0x5222_c821],
        [0xdf73_fc25, 0xea6d_2944, 0x0255_c81b, 0xa04c_0f55, 0xefe4_88a8, 0x29ac_dc97, 0x80a5_60de, 0xbe2e_158f],
    ],
    [
        [0x2b13_e673, 0xfc85_11ee, 0xd103_ed24, 0xffc5_8dee, 0xea7e_99b8, 0x1022_523a, 0x4afc_8a17, 0x8f43_ea39],
        [0xc5f3_3d0b, 0x8f4e_2dbc, 0xd0aa_1681, 0x3bc0_99fa, 0x79ff_9df1, 0xffbb_7b41, 0xd58b_57c4, 0x180d_e09d],
    ],
    [
        [0x8bd1_cda5, 0x5643_0752, 0x8e05_eda5, 0x1807_577f, 0x9568_96e9, 0x099c_699b, 0xf1f0_efb5, 0x83d6_093d],
        [0xed97_061c, 0xef5a_f17e, 0x030d_4c3c, 0x35b9_77b8, 0x4922_9439, 0x81fa_75a2, 0xa0b6_d35d, 0xf5a2_2070],
    ],
    [
        [0x74f8_1cf1, 0x814c_5365, 0x0120_065b, 0xe30b_aff7, 0x1513_2621, 0x80ae_1256, 0x36a8_0788, 0x16d2_b8cb],
        [0xecc5_0bca, 0x33d1_4697, 0x17ae_dd21, 0x19a9_dfb0, 0xedc3_f766, 0x523f_bcc7, 0xb2cf_5afd, 0x9c4d_e6dd],
    ],
    [
        [0xcf0d_9f6d, 0x5305_a9e6, 0x81a9_b021, 0x5839_172f, 0x75c6_87cf, 0xcca7_a4dd, 0x844b_e22f, 0x36d5_9b3e],
        [0x111a_53e9, 0xcace_7e62, 0xf063_f3a1, 0x91c8_43d4, 0x0da8_12da, 0xbf77_e5f0, 0x437f_3176, 0x0e64_af9c],
    ],
    [
        [0xcf07_517d, 0xdbd5_68bb, 0xba68_30b9, 0x2f1a_fba2, 0xe6c4_c2a6, 0x15b6_807c, 0xe496_6aef, 0x91c7_eabc],
        [0xd6b2_b6e6, 0x716d_ea1b, 0x19f8_5b4b, 0x248c_43d1, 0x4a31_5e2a, 0x16dc_fd60, 0xc72b_3d0b, 0x15fd_d303],
    ],
    [
        [0x42b7_dfd5, 0xe40b_f9f4, 0x2d93_4f2a, 0x6736_89f3, 0x30a6_f50b, 0x8314_beb4, 0x976e_c64e, 0xd17a_f2bc],
        [0x1ee7_ddf1, 0x39f6_6c4f, 0x68ea_373c, 0x7f68_e18b, 0x53d0_b186, 0x5166_c1f2, 0x7be5_8f14, 0x95dd_a601],
    ],
    [
        [0x4291_3074, 0x0d5a_e356, 0x48a5_42b1, 0x5549_1b27, 0xb310_732a, 0x469c_a665, 0x5f1a_4cc1, 0x2959_1d52],
        [0xb84f_983f, 0xe76f_5b6b, 0x9f5f_84e1, 0xbe7e_ef41, 0x80ba_a189, 0x1200_d496, 0x18ef_332c, 0x6376_551f],
    ],
];
