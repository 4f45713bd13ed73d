//! Times in one byte (RFC 9139, section 7, and RFC 5497). The high five bits of the byte are the exponent, and the low
//! three bits are the mantissa.

/// The exponent of the largest times.
const MAX_EXPONENT: u32 = 31;

/// Returns the one-byte code of a time. If no code represents exactly `millis` milliseconds, returns the code of the
/// next shorter time. Times above four years get the code of the largest time.
pub const fn time_code(millis: u64) -> u8 {
    // A division of 64 bits takes long. A time that has more than 32 bits loses its lowest eight bits, which do not
    // change its code.
    let (millis, lost) = if millis >> 32 == 0 { (millis as u32, 0) } else { (bits_8_to_40(millis), 8) };
    // The time in units of 125/32 milliseconds. A unit is the time with the mantissa 1 and the exponent 0.
    let units = (millis / 125).wrapping_mul(32).wrapping_add((millis % 125).wrapping_mul(32) / 125);
    if units < 16 {
        return (units / 2) as u8;
    }
    let exponent = 28u32.wrapping_sub(units.leading_zeros());
    let mantissa = (units >> exponent).wrapping_sub(8);
    let exponent = exponent.wrapping_add(lost);
    if exponent > MAX_EXPONENT { u8::MAX } else { (exponent << 3 | mantissa) as u8 }
}

/// Returns the time without its lowest eight bits, or the largest number if more than 32 bits remain.
const fn bits_8_to_40(millis: u64) -> u32 {
    if millis >> 40 == 0 { (millis >> 8) as u32 } else { u32::MAX }
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
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
const fn scaled(code: u8) -> u64 {
    let (mantissa, exponent) = (code as u64 & 7, code as u32 >> 3);
    let units =
        if exponent == 0 { mantissa.wrapping_mul(2) } else { mantissa.wrapping_add(8) << (exponent & MAX_EXPONENT) };
    units.wrapping_mul(125)
}
