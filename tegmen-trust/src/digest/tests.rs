use super::*;
use crate::provider::HostCrypto;
use tegmen_base::crypto::{DIGEST_LEN, hash};

#[test]
fn both_functions_compute_the_sha_256_of_another_implementation() {
    let bytes: Vec<u8> = (0..200).collect();
    for len in 0..bytes.len() {
        let (first, second) = bytes[..len].split_at(len / 3);
        let expected = hash::digest::<HostCrypto, DIGEST_LEN>(&[&bytes[..len]]);
        assert_eq!(sha256(&bytes[..len]), expected, "{len} bytes");
        assert_eq!(sha256_of(&[first, &[], second]), expected, "{len} bytes in parts");
    }
}
