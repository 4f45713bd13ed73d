use super::*;
use std::collections::HashSet;

#[test]
fn each_bit_of_a_value_and_its_length_change_the_hash() {
    let keys = Keys::default();
    let mut seen = HashSet::new();
    for len in 0..80 {
        let mut bytes = vec![0; len];
        assert!(seen.insert(keys.of_bytes(&bytes)), "{len} zeros");
        for bit in 0..8 * len {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(keys.of_bytes(&bytes)), "bit {bit} of {len} bytes");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn other_keys_give_other_hashes() {
    let [one, other] = [Keys::default(), Keys::default()];
    assert_ne!(one.of_bytes(b"value"), other.of_bytes(b"value"));
    assert_ne!(one.hash_one(7_u64), other.hash_one(7_u64));
    assert_ne!(one.of_words(1, 2), other.of_words(1, 2));
}

#[test]
fn a_value_and_a_clone_of_its_keys_give_the_same_hash() {
    let keys = Keys::default();
    let value = (7_u8, Some(std::net::IpAddr::from([10, 0, 0, 1])), "text");
    assert_eq!(keys.hash_one(value), keys.clone().hash_one(value));
}

#[test]
fn hashes_of_consecutive_numbers_fill_the_lowest_and_the_highest_bits() {
    let keys = Keys::default();
    let hashes: Vec<_> = (0..4096_u64).map(|number| keys.hash_one(number)).collect();
    for shift in [0, 57] {
        let mut counts = [0_u32; 128];
        hashes.iter().for_each(|hash| counts[(hash >> shift & 127) as usize] += 1);
        // 32 are expected. With random hashes, one of the 128 counts is outside of these limits in one of 10^9 runs.
        assert!(counts.iter().all(|count| (2..=96).contains(count)), "{counts:?}");
    }
}
