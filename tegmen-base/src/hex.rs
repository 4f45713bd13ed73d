//! Converts between bytes and hexadecimal digits.

#[cfg(feature = "std")]
use std::string::String;
#[cfg(feature = "std")]
use std::vec::Vec;

/// Returns the two lower-case hexadecimal digits of a byte, as ASCII.
pub const fn digits(byte: u8) -> [u8; 2] {
    const fn digit(value: u8) -> u8 {
        if value < 10 { b'0' | value } else { (b'a' - 10).wrapping_add(value) }
    }
    [digit(byte >> 4), digit(byte & 15)]
}

/// Returns the bytes that hexadecimal digits denote, or `None` if `text` has other characters or an odd length.
#[cfg(feature = "std")]
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|&[high, low]| u8::try_from(value(high)? << 4 | value(low)?).ok()).collect()
}

/// Returns the hexadecimal digits of bytes.
#[cfg(feature = "std")]
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for [high, low] in bytes.iter().map(|byte| digits(*byte)) {
        text.push(char::from(high));
        text.push(char::from(low));
    }
    text
}
