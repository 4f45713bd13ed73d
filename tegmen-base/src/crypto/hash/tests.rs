use super::*;
use crate::crypto::{Compact, RustCrypto};
use std::vec;
use std::vec::Vec;

/// Checks the PRF of TLS 1.2 with SHA-256 with two vectors: one of the TLS mailing list of the IETF, and one of Mbed
/// TLS.
fn prf<C: Crypto>() {
    let pattern = "1234567890abcdef".repeat(8);
    for (secret, label, seed, expected) in [
        (
            "9bbe436ba940f017b17652849a71db35",
            "test label",
            "a0ba9f936cda311827a6f796ffd5198c",
            "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a6b301791e90d35c9c9a46b4e14baf9af\
             0fa022f7077def17abfd3797c0564bab4fbc91666e9def9b97fce34f796789baa48082d122ee42c5a72e5a5110fff701\
             87347b66",
        ),
        (&pattern[..96], "test tls_prf label", &pattern, "7f9998393198a02c8d731ccc2ef90b2c"),
    ] {
        let (secret, seed, expected) = (hex(secret), hex(seed), hex(expected));
        let key = HmacKey::new::<C>(&[&secret]);
        for cut in 0..=seed.len() {
            let (first, second) = seed.split_at(cut);
            let mut out = vec![0; expected.len()];
            key.prf::<C>(&[label.as_bytes(), first, second], &mut out);
            assert_eq!(out, expected, "seed cut at {cut}");
        }
        for len in 0..expected.len() {
            let mut out = vec![0; len];
            key.prf::<C>(&[label.as_bytes(), &seed], &mut out);
            assert_eq!(out, expected[..len], "{len} bytes");
        }
    }
}

#[test]
fn the_prf_agrees_with_published_vectors_over_every_provider() {
    prf::<Compact>();
    prf::<RustCrypto>();
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
