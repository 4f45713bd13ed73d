//! The two forms of AES and SHA-256 give the same results.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn both_forms_encrypt_a_block_equally(key: [u8; KEY_LEN], block: [u8; BLOCK_LEN]) {
        prop_assert_eq!(fast_encrypted(&key, block), small_encrypted(&key, block));
    }

    #[test]
    fn both_forms_hash_a_block_equally(state: [u32; 8], first: [u8; 32], second: [u8; 32]) {
        let mut block = [0; 64];
        block[..32].copy_from_slice(&first);
        block[32..].copy_from_slice(&second);
        let (mut fast, mut small) = (state, state);
        fast::compress(&mut fast, &block);
        small::compress(&mut small, &block);
        prop_assert_eq!(fast, small);
    }
}

/// The example in FIPS 197, appendix B.
#[test]
fn both_forms_encrypt_the_example_of_the_standard() {
    let key = b"\x2b\x7e\x15\x16\x28\xae\xd2\xa6\xab\xf7\x15\x88\x09\xcf\x4f\x3c";
    let plain = *b"\x32\x43\xf6\xa8\x88\x5a\x30\x8d\x31\x31\x98\xa2\xe0\x37\x07\x34";
    let cipher = *b"\x39\x25\x84\x1d\x02\xdc\x09\xfb\xdc\x11\x85\x97\x19\x6a\x0b\x32";
    assert_eq!(fast_encrypted(key, plain), cipher);
    assert_eq!(small_encrypted(key, plain), cipher);
}

fn fast_encrypted(key: &[u8; KEY_LEN], block: [u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
    let (mut place, mut block) = (fast::place(), Block(block));
    fast::Schedule::new(key, &mut place).encrypt(&mut block);
    block.0
}

fn small_encrypted(key: &[u8; KEY_LEN], block: [u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
    let mut block = Block(block);
    small::Schedule::new(key, &mut small::place()).encrypt(&mut block);
    block.0
}
