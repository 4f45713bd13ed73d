use super::*;
use std::sync::{Arc, Mutex};

#[test]
fn keys_that_share_a_slot_do_not_share_a_schedule() {
    for entries in [0, 1, 2, 1000] {
        let mut crypto = HostCrypto::new([0; 32], entries);
        assert_eq!(crypto.cache_bytes(), 176 * entries.max(1).next_power_of_two());
        let mut reference = HostCrypto::new([0; 32], 1);
        let aead = HostCrypto::AES_128_CCM;
        for turn in 0..2000_u32 {
            let key = [(turn % 7) as u8; KEY_LEN];
            let mut nonce = [0; 12];
            nonce[..4].copy_from_slice(&(turn % 5).to_le_bytes());
            let (mut body, mut tag) = ([turn as u8; 20], [0; 8]);
            crypto.seal(aead, &key, &nonce, &[], &mut body, &mut tag).unwrap();
            reference.schedules = Schedules::new(1);
            assert_eq!(reference.open(aead, &key, &nonce, &[], &mut body, &tag), Ok(()));
            assert_eq!(body, [turn as u8; 20]);
        }
    }
}

#[test]
fn the_key_log_has_the_lines_of_rfc_9850() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let mut crypto = HostCrypto::new([0; 32], 1);
    crypto.key_log(&[0; 32], &[0; 48]);
    crypto.add_key_log(Box::new(log.clone()));
    crypto.key_log(&[0xa5; 32], &[0x0f; 48]);
    let expected = format!("CLIENT_RANDOM {} {}\n", "a5".repeat(32), "0f".repeat(48));
    assert_eq!(log.0.lock().unwrap().as_slice(), expected.as_bytes());
}

/// The two points with the same x-coordinate give the same secret as the point of the peer (RFC 9528, section 3.7).
#[test]
fn a_point_agrees_by_its_x_coordinate_alone() {
    let mut crypto = HostCrypto::new([1; 32], 1);
    for _ in 0..20 {
        let (mut ours, mut theirs) = ([0; SCALAR_LEN], [0; SCALAR_LEN]);
        let (mut share, mut unused) = ([0; MAX_SHARE], [0; MAX_SHARE]);
        crypto.key_pair(NamedGroup::SECP256R1, &mut ours, &mut unused).unwrap();
        crypto.key_pair(NamedGroup::SECP256R1, &mut theirs, &mut share).unwrap();
        let (mut whole, mut by_x) = ([0; SCALAR_LEN], [1; SCALAR_LEN]);
        crypto.agree(NamedGroup::SECP256R1, &ours, &share, &mut whole).unwrap();
        let x = share[1..33].try_into().unwrap();
        crypto.agree_by_x(&ours, &x, &mut by_x).unwrap();
        assert_eq!(whole, by_x);
    }
    // No point has this coordinate: RFC 9529, section 4, "Error in elliptic curve point".
    let x: [u8; 32] = crate::hex::from_hex("a04e73601df544a70ba7ea1e57030f7d4b4eb7f673924e58d54ca77a5e7d4d4a")
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!(crypto.agree_by_x(&[1; 32], &x, &mut [0; 32]), Err(NotAuthentic));
    // Not below the prime of the field.
    assert_eq!(crypto.agree_by_x(&[1; 32], &[0xff; 32], &mut [0; 32]), Err(NotAuthentic));
}
