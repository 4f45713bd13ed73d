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
    for run in 0..200 {
        let keys = Keys::default();
        for (name, hash) in [
            ("hash_one", &(|number| keys.hash_one(number)) as &dyn Fn(u64) -> u64),
            ("of_words, first", &|number| keys.of_words(number, 7)),
            ("of_words, second", &|number| keys.of_words(7, number)),
        ] {
            for shift in [0, 57] {
                let mut counts = [0_u32; 128];
                (0..4096).for_each(|number| counts[(hash(number) >> shift & 127) as usize] += 1);
                // 32 are expected. With random hashes, one count in 10^12 is outside of these limits.
                assert!(counts.iter().all(|count| (2..=96).contains(count)), "run {run}, {name}, {shift}: {counts:?}");
            }
        }
    }
}
