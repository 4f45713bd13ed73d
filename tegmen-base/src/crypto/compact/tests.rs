//! The two forms of AES and SHA-256 give the same results.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn both_forms_encrypt_a_block_equally(key: [u8; KEY_LEN], block: [u8; BLOCK_LEN]) {
        let mut rounds = [[0; 4]; 11];
        let schedule = Schedule::expand(&key, &mut rounds);
        let (mut fast, mut small) = (Block(block), Block(block));
        fast::encrypt(schedule.0, &mut fast);
        small::encrypt(schedule.0, &mut small);
        prop_assert_eq!(fast.0, small.0);
    }

    #[test]
    fn both_forms_substitute_bytes_equally(a: u32, b: u32, c: u32, d: u32) {
        prop_assert_eq!(fast::substitute(a, b, c, d), small::substitute(a, b, c, d));
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
    let key = *b"\x2b\x7e\x15\x16\x28\xae\xd2\xa6\xab\xf7\x15\x88\x09\xcf\x4f\x3c";
    let plain = *b"\x32\x43\xf6\xa8\x88\x5a\x30\x8d\x31\x31\x98\xa2\xe0\x37\x07\x34";
    let cipher = *b"\x39\x25\x84\x1d\x02\xdc\x09\xfb\xdc\x11\x85\x97\x19\x6a\x0b\x32";
    for encrypt in [fast::encrypt, small::encrypt] {
        let (mut rounds, mut block) = ([[0; 4]; 11], Block(plain));
        encrypt(Schedule::expand(&key, &mut rounds).0, &mut block);
        assert_eq!(block.0, cipher);
    }
}
