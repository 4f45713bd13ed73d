//! Converts between bytes and base64url (RFC 4648, section 5).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the bytes in base64url (RFC 4648, section 5), without padding.
pub fn to_base64url(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

/// Returns the bytes that a text in base64url denotes, with or without padding, or `None` if the text is not valid.
pub fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::new();
    for chunk in text.chunks(4) {
        let mut bits = 0u32;
        for byte in chunk {
            bits = bits << 6 | ALPHABET.iter().position(|letter| letter == byte)? as u32;
        }
        bits <<= 6 * (4 - chunk.len());
        if chunk.len() == 1 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
