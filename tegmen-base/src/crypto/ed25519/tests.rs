use super::*;
use crate::crypto::{Compact, Crypto as _, Curve, GroupCrypto as _, MemberKey, NamedGroup, RustCrypto};

fn provider() -> RustCrypto {
    RustCrypto::new([3; 32])
}

fn hex<const N: usize>(text: &str) -> [u8; N] {
    core::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

/// The eight points of small order, and further encodings of these points whose y is not below p.
const SMALL_ORDER: [&str; 8] = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
];

/// RFC 8032, section 7.1, test 3.
#[test]
fn a_signature_of_rfc_8032_is_made_and_verified_in_parts() {
    let private = hex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7");
    let public = hex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025");
    let signature = hex(concat!(
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac",
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    ));
    assert_eq!(public_key_of(&private), public);
    assert_eq!(sign(&private, &[&[0xaf], &[0x82]]), signature);
    assert_eq!(verify(&public, &[&[0xaf, 0x82]], &signature), Ok(()));
    assert_eq!(verify(&public, &[&[0xaf, 0x83]], &signature), Err(NotAuthentic));
}

#[test]
fn two_ends_agree_with_keys_of_ed25519_and_never_with_those_keys_as_they_are() {
    let (ours, theirs) = ([1; 32], [2; 32]);
    let (mut secret, mut same, mut unmapped) = ([0; 32], [0; 32], [0; 32]);
    let key = |private| MemberKey::Ed25519(public_key_of(private));
    provider().agree_static(&ours, &key(&theirs), &mut secret).unwrap();
    provider().agree_static(&theirs, &key(&ours), &mut same).unwrap();
    assert_eq!(secret, same);
    provider().agree(NamedGroup::X25519, &ours, &public_key_of(&theirs), &mut unmapped).unwrap();
    assert_ne!(secret, unmapped);
    // The mapped public key is the one that belongs to the mapped private key (RFC 7748, section 4.1).
    let base = [&[9][..], &[0; 31]].concat();
    let mut u = [0; 32];
    provider().agree(NamedGroup::X25519, private_to_x25519(&theirs).expose(), &base, &mut u).unwrap();
    assert_eq!(public_to_x25519(&public_key_of(&theirs)), Ok(u));
}

#[test]
fn a_point_of_small_order_is_refused() {
    for point in SMALL_ORDER.map(hex) {
        assert_eq!(public_to_x25519(&point), Err(NotAuthentic));
        let key = MemberKey::Ed25519(point);
        assert_eq!(provider().agree_static(&[1; 32], &key, &mut [0; 32]), Err(NotAuthentic));
        assert_eq!(provider().verify_message(&key, &[b"any"], &[0; 64]), Err(NotAuthentic));
    }
    let not_a_point = MemberKey::Ed25519(hex("0200000000000000000000000000000000000000000000000000000000000000"));
    assert_eq!(provider().agree_static(&[1; 32], &not_a_point, &mut [0; 32]), Err(NotAuthentic));
}

#[test]
fn the_providers_sign_and_agree_alike_on_p256() {
    let private = [7; 32];
    let spki = crate::crypto::curves::public_key_of(&private).unwrap();
    let key = MemberKey::P256(*spki.last_chunk().unwrap());
    let message: [&[u8]; 3] = [b"a message", b"", b" in parts"];
    let mut mote = Compact::new([5; 32]);
    for signature in [
        provider().sign_message(Curve::P256, &private, &message).unwrap(),
        mote.sign_message(Curve::P256, &private, &message).unwrap(),
    ] {
        assert_eq!(provider().verify_message(&key, &[b"a message in parts"], &signature), Ok(()));
        assert_eq!(mote.verify_message(&key, &[b"a message in parts"], &signature), Ok(()));
        assert_eq!(mote.verify_message(&key, &[b"another message"], &signature), Err(NotAuthentic));
    }
    let (mut ours, mut theirs) = ([0; 32], [0; 32]);
    provider().agree_static(&private, &key, &mut ours).unwrap();
    mote.agree_static(&private, &key, &mut theirs).unwrap();
    assert_eq!(ours, theirs);
}
