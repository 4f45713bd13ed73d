//! Times in one byte (RFC 9139, section 7, and RFC 5497). The high five bits of the byte are the exponent, and the low
//! three bits are the mantissa.

/// The exponent of the largest times.
const MAX_EXPONENT: u32 = 31;

/// Returns the one-byte code of a time. If no code represents exactly `millis` milliseconds, returns the code of the
/// next shorter time. Times above four years get the code of the largest time.
pub const fn time_code(millis: u64) -> u8 {
    // A larger code represents a longer time, so each bit of the code can be chosen in turn, the highest bit first. The
    // multiplication must not overflow.
    let most = if millis > u64::MAX >> 5 { u64::MAX } else { millis << 5 };
    let (mut code, mut bit) = (0, 0x80);
    while bit != 0 {
        if scaled(code | bit) <= most {
            code |= bit;
        }
        bit >>= 1;
    }
    code
}

/// Returns the time that a one-byte code represents, in milliseconds, rounded down. The time is between 0 and four
/// years.
pub const fn time_value(code: u8) -> u64 {
    scaled(code) >> 5
}

/// Returns true if `code` represents exactly `millis` milliseconds.
pub(super) const fn is_exact(code: u8, millis: u64) -> bool {
    scaled(code) & 31 == 0 && time_value(code) == millis
}

/// Returns the time that a one-byte code represents, in units of 1/32 milliseconds.
const fn scaled(code: u8) -> u64 {
    let (mantissa, exponent) = (code as u64 & 7, code as u32 >> 3);
    let units =
        if exponent == 0 { mantissa.wrapping_mul(2) } else { mantissa.wrapping_add(8) << (exponent & MAX_EXPONENT) };
    units.wrapping_mul(125)
}
