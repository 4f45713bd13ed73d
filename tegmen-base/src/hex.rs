//! Bytes as hexadecimal digits.

use std::string::String;
use std::vec::Vec;

/// Bytes from hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|&[high, low]| u8::try_from(value(high)? << 4 | value(low)?).ok()).collect()
}

/// Hexadecimal digits of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16);
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).filter_map(digit).collect()
}
