//! Compares both implementations of this crate with each other and with the crate `ccm`.

use aes::Aes128;
use ccm::Ccm;
use ccm::aead::inout::InOutBuf;
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U8, U12, U13, U16};
use proptest::collection::vec;
use proptest::prelude::*;
use tegmen_accel::{KeySchedule, open, portable, seal};
use tegmen_base::crypto::{NotAuthentic, Unsupported};

/// Returns the ciphertext and the tag that the crate `ccm` computes; `None` if the test has no instance of `ccm` for
/// these lengths.
fn reference(key: &[u8; 16], nonce: &[u8], aad: &[u8], body: &[u8], tag: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    macro_rules! sealed {
        ($tag:ty, $nonce:ty) => {{
            let mut body = body.to_vec();
            let cipher = Ccm::<Aes128, $tag, $nonce>::new(key.into());
            let nonce = nonce.try_into().unwrap();
            let tag = cipher.encrypt_inout_detached(nonce, aad, InOutBuf::from(&mut body[..])).unwrap();
            Some((body, tag.to_vec()))
        }};
    }
    match (nonce.len(), tag) {
        (12, 8) => sealed!(U8, U12),
        (13, 8) => sealed!(U8, U13),
        (12, 16) => sealed!(U16, U12),
        (13, 16) => sealed!(U16, U13),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn all_paths_agree(
        key: [u8; 16],
        nonce in prop_oneof![vec(any::<u8>(), 12), vec(any::<u8>(), 13), vec(any::<u8>(), 7..=13)],
        aad in prop_oneof![vec(any::<u8>(), 0..=16), vec(any::<u8>(), 0..100)],
        plain in prop_oneof![vec(any::<u8>(), 0..=80), vec(any::<u8>(), 0..1500)],
        tag in prop_oneof![Just(8), Just(16), (2_usize..=8).prop_map(|half| 2 * half)],
        forged: prop::sample::Index,
    ) {
        let schedule = KeySchedule::expand(&key);
        let mut sealed = plain.clone();
        let mut made = vec![0; tag];
        prop_assert_eq!(seal(&schedule, &nonce, &aad, &mut sealed, &mut made), Ok(()));

        let mut other = plain.clone();
        let mut other_tag = vec![0; tag];
        let unexpanded = KeySchedule::unexpanded(&key);
        prop_assert_eq!(portable::seal(&unexpanded, &nonce, &aad, &mut other, &mut other_tag), Ok(()));
        prop_assert_eq!((&sealed, &made), (&other, &other_tag));
        if let Some((body, tag)) = reference(&key, &nonce, &aad, &plain, tag) {
            prop_assert_eq!((&sealed, &made), (&body, &tag));
        }

        let mut opened = sealed.clone();
        prop_assert_eq!(open(&schedule, &nonce, &aad, &mut opened, &made), Ok(()));
        prop_assert_eq!(&opened, &plain);
        prop_assert_eq!(portable::open(&unexpanded, &nonce, &aad, &mut other, &made), Ok(()));
        prop_assert_eq!(&other, &plain);

        let at = forged.index(sealed.len() + tag);
        sealed.iter_mut().chain(&mut made).nth(at).into_iter().for_each(|byte| *byte ^= 1 << (at % 8));
        let mut other = sealed.clone();
        prop_assert_eq!(open(&schedule, &nonce, &aad, &mut sealed, &made), Err(NotAuthentic));
        prop_assert_eq!(portable::open(&unexpanded, &nonce, &aad, &mut other, &made), Err(NotAuthentic));
        prop_assert!(sealed.iter().chain(&other).all(|&byte| byte == 0));
    }
}

#[test]
fn a_schedule_keeps_its_key_and_takes_176_bytes() {
    let key = [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];
    assert_eq!(KeySchedule::expand(&key).key(), &key);
    assert_eq!(size_of::<KeySchedule>(), 176);
}

#[test]
fn other_lengths_are_refused_and_change_nothing() {
    let schedule = KeySchedule::expand(&[1; 16]);
    for (nonce, aad, body, tag) in [
        (6, 0, 5, 8),
        (14, 0, 5, 8),
        (12, 0, 5, 2),
        (12, 0, 5, 7),
        (12, 0, 5, 18),
        (12, 0xff00, 5, 8),
        (13, 0, 0x1_0000, 8),
    ] {
        let mut bytes = vec![9; body];
        let (nonce, aad, mut tag) = (vec![0; nonce], vec![0; aad], vec![0; tag]);
        assert_eq!(seal(&schedule, &nonce, &aad, &mut bytes, &mut tag), Err(Unsupported));
        assert_eq!(portable::seal(&schedule, &nonce, &aad, &mut bytes, &mut tag), Err(Unsupported));
        assert_eq!(open(&schedule, &nonce, &aad, &mut bytes, &tag), Err(NotAuthentic));
        assert!(bytes.iter().all(|&byte| byte == 9));
    }
}
