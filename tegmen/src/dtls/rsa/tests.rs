use super::*;
use std::vec::Vec;

/// Fault 33 in `tegmen-testbed/faults.toml`: if the block has any error, the result is the random secret.
#[test]
fn a_wrong_block_gives_the_random_secret() {
    let version = [0xfe, 0xfd];
    let random = Secret::new([0xaa; 48]);
    let open = |block: &[u8]| *premaster_secret(block, 256, version, &random).expose();
    let mut right: Vec<u8> = std::vec![1; 256];
    right[..2].copy_from_slice(&[0, 2]);
    right[256 - 49] = 0;
    right[256 - 48..256 - 46].copy_from_slice(&version);
    assert_eq!(open(&right), right[256 - 48..]);
    for at in 0..256 - 46 {
        for bit in 0..8 {
            let mut wrong = right.clone();
            wrong[at] ^= 1 << bit;
            let filler = (2..256 - 49).contains(&at);
            // A byte of the filler is 1: only with its lowest bit away it is zero.
            assert_eq!(open(&wrong) == *random.expose(), !filler || bit == 0, "byte {at}, bit {bit}");
        }
    }
    for len in [0, 1, 48, 49, 58, 255] {
        assert_eq!(open(&right[256 - len..]), *random.expose());
    }
    assert_eq!(*premaster_secret(&right[..255], 255, version, &random).expose(), *random.expose());
}
