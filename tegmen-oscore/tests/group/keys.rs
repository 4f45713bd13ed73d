//! Parameters, credentials and public keys.

use crate::world::{Context, Group, Recorder, credential, id_of, private_key};
use tegmen_base::crypto::{Curve, MemberKey};
use tegmen_base::secret::Secret;
use tegmen_oscore::group::{Algorithms, BadGroup, GroupParameters, Ourselves, key_of_ccs};
use tegmen_oscore::{Aead, Id};

fn made(group: &Group, id: &[u8], key: Curve, gid: &[u8]) -> Result<Context, BadGroup> {
    let algorithms = group.algorithms;
    let parameters = GroupParameters { master_secret: &[7; 16], master_salt: b"", gid, algorithms };
    let ourselves = Ourselves {
        id: Id::new(id).unwrap(),
        private_key: Secret::new(private_key("client")),
        credential: credential(key, "client"),
        kept: 0,
    };
    Context::new::<Recorder>(&parameters, ourselves, credential(key, "manager"))
}

#[test]
fn parameters_that_give_no_context_are_refused() {
    let group = Group::of(Curve::Ed25519);
    let refused = |id: &[u8], key, gid: &[u8]| made(&group, id, key, gid).err();
    assert_eq!(refused(b"c", Curve::Ed25519, &[1; 16]), None);
    assert_eq!(refused(b"c", Curve::Ed25519, &[1; 17]), Some(BadGroup::GidTooLong));
    assert_eq!(refused(b"c", Curve::P256, b"g"), Some(BadGroup::Credential));
    // The longest ID follows from the shorter nonce (RFC 10021, section 2.2).
    assert_eq!(refused(&[1; 7], Curve::Ed25519, b"g"), None);
    let mut gcm = group;
    gcm.algorithms.group_encryption = Some(Aead::A128Gcm);
    assert_eq!(made(&gcm, &[1; 7], Curve::Ed25519, b"g").err(), Some(BadGroup::IdTooLong { max: 6 }));
    let none = Algorithms { aead: None, group_encryption: None, signature: None, key_agreement: None };
    let other = Algorithms { key_agreement: Some(Curve::P256), ..Algorithms::both(Curve::Ed25519) };
    let half = Algorithms { signature: None, ..Algorithms::both(Curve::Ed25519) };
    let unsigned = Algorithms::both(Curve::X25519);
    for algorithms in [none, other, half, unsigned] {
        let group = Group { algorithms, ..group };
        assert_eq!(made(&group, b"c", Curve::Ed25519, b"g").err(), Some(BadGroup::Algorithms));
    }
}

#[test]
fn a_recipient_that_has_no_valid_credential_or_our_id_is_refused() {
    let context = Group::of(Curve::Ed25519).context("client", 0);
    let refused =
        |id: &str, credential: Vec<u8>| context.recipient(&mut Recorder::new(), id_of(id), credential, None).err();
    assert_eq!(refused("lamp", credential(Curve::Ed25519, "lamp")), None);
    assert_eq!(refused("client", credential(Curve::Ed25519, "lamp")), Some(BadGroup::SameIds));
    assert_eq!(refused("lamp", credential(Curve::P256, "lamp")), Some(BadGroup::Credential));
    assert_eq!(refused("lamp", b"none".to_vec()), Some(BadGroup::Credential));
    let mut long = credential(Curve::Ed25519, "lamp");
    long.resize(512, 0);
    assert_eq!(refused("lamp", long), Some(BadGroup::CredentialTooLong));
}

/// RFC 10021, section 2.5.2.1: a key that is a point of small order is refused. Points with y = 1 and with y = -1 are
/// examples. A key that is no point of the curve is refused too.
#[test]
fn a_member_whose_key_is_not_valid_is_refused() {
    let context = Group::of(Curve::Ed25519).context("client", 0);
    let with_last = |curve: Curve, key: [u8; 32]| {
        let mut invalid = credential(curve, "lamp");
        let at = invalid.len() - key.len();
        invalid[at..].copy_from_slice(&key);
        invalid
    };
    let of = |first: u8, middle: u8, last: u8| {
        let mut bytes = [middle; 32];
        (bytes[0], bytes[31]) = (first, last);
        bytes
    };
    for key in [of(1, 0, 0), of(0xec, 0xff, 0x7f), of(0, 0, 0), of(0, 0, 0x80), of(2, 0, 0)] {
        let refused = context.recipient(&mut Recorder::new(), id_of("lamp"), with_last(Curve::Ed25519, key), None);
        assert_eq!(refused.err(), Some(BadGroup::InvalidKey));
    }
    let context = Group::of(Curve::P256).context("client", 0);
    let refused = context.recipient(&mut Recorder::new(), id_of("lamp"), with_last(Curve::P256, [7; 32]), None);
    assert_eq!(refused.err(), Some(BadGroup::InvalidKey));
}

#[test]
fn the_key_of_a_claims_set_is_read() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let ccs = credential(curve, "lamp");
        let algorithms = Algorithms::both(curve);
        let key = key_of_ccs(&ccs, &algorithms).unwrap();
        assert_eq!(key.curve(), curve);
        for len in 0..ccs.len() {
            assert_eq!(key_of_ccs(&ccs[..len], &algorithms), None, "cut at {len}");
        }
        assert_eq!(key_of_ccs(&[&ccs[..], &[0]].concat(), &algorithms), None);
    }
    let mut x25519 = vec![0xa2, 0x62, b's', b'u', 0x18, 0x2a, 0x08, 0xa1, 0x01, 0xa3, 0x21, 0x58, 0x20];
    x25519.extend_from_slice(&[5; 32]);
    x25519.extend_from_slice(&[0x20, 0x04, 0x01, 0x01]);
    assert_eq!(key_of_ccs(&x25519, &PAIRS_ON_X25519), Some(MemberKey::X25519([5; 32])));
    // A label that comes twice.
    let twice = [&x25519[..9], &[0xa4], &x25519[10..], &[0x20, 0x06]].concat();
    assert_eq!(key_of_ccs(&twice, &PAIRS_ON_X25519), None);
}

/// RFC 9053, sections 2, 6.3.1 and 7: a key has kty, crv and its coordinates, and its type is that of its curve.
#[test]
fn a_key_without_a_part_or_with_the_type_of_another_curve_is_not_read() {
    let (x, y) = ([&[0x21, 0x58, 0x20][..], &[5; 32]].concat(), [&[0x22, 0x58, 0x20][..], &[6; 32]].concat());
    let is_read = |members: &[&[u8]]| {
        let mut all = [Curve::Ed25519, Curve::P256].map(Algorithms::both).into_iter().chain([PAIRS_ON_X25519]);
        all.any(|algorithms| key_of_ccs(&claims_set(members), &algorithms).is_some())
    };
    let okp = [&[0x01, 1][..], &[0x20, 6], &x];
    let ec2 = [&[0x01, 2][..], &[0x20, 1], &x, &y];
    for (whole, kty, curves) in [(&okp[..], 1, &[4, 6][..]), (&ec2, 2, &[1])] {
        assert!(is_read(whole));
        for missing in 0..whole.len() {
            let mut members = whole.to_vec();
            members.remove(missing);
            assert!(!is_read(&members), "kty {kty}, without member {missing}");
        }
        for other in 0..8 {
            let (of_type, of_curve) = ([0x01, other], [0x20, other]);
            let with = |at: usize, member| {
                let mut members = whole.to_vec();
                members[at] = member;
                is_read(&members)
            };
            assert_eq!(with(0, &of_type[..]), other == kty, "kty {other} instead of {kty}");
            assert_eq!(with(1, &of_curve[..]), curves.contains(&other), "kty {kty}, crv {other}");
        }
    }
}

/// Returns a claims set whose key has these members.
fn claims_set(members: &[&[u8]]) -> Vec<u8> {
    [&[0xa1, 0x08, 0xa1, 0x01, 0xa0 | members.len() as u8][..], &members.concat()].concat()
}

/// The algorithms of a group without signatures, whose keys are on X25519.
const PAIRS_ON_X25519: Algorithms = pairs_on(Curve::X25519);

const fn pairs_on(curve: Curve) -> Algorithms {
    Algorithms { group_encryption: None, signature: None, ..Algorithms::both(curve) }
}

/// Returns true if a group with these algorithms accepts a key on `curve` that also has the parameter `limit`.
fn accepts(algorithms: &Algorithms, curve: Curve, limit: &[u8]) -> bool {
    let (x, y) = ([&[0x21, 0x58, 0x20][..], &[5; 32]].concat(), [&[0x22, 0x58, 0x20][..], &[6; 32]].concat());
    let ccs = match curve {
        Curve::P256 => claims_set(&[&[0x01, 2], limit, &[0x20, 1], &x, &y]),
        Curve::Ed25519 => claims_set(&[&[0x01, 1], limit, &[0x20, 6], &x]),
        Curve::X25519 => claims_set(&[&[0x01, 1], limit, &[0x20, 4], &x]),
    };
    key_of_ccs(&ccs, algorithms).is_some()
}

/// RFC 9052, section 7.1, and RFC 9053, sections 2.1, 2.2 and 6.3.1: a key with alg is used only with this algorithm.
#[test]
fn a_key_for_another_algorithm_is_refused() {
    // ES256, EdDSA, ES384, ECDH-ES + HKDF-256, ECDH-SS + HKDF-256, AES-CCM-16-64-128, and "ES256" as text.
    let algs: [&[u8]; 7] = [&[0x26], &[0x27], &[0x38, 34], &[0x38, 24], &[0x38, 26], &[0x0a], b"\x65ES256"];
    let (both, group) =
        (Algorithms::both, |curve| Algorithms { aead: None, key_agreement: None, ..Algorithms::both(curve) });
    for (algorithms, curve, right) in [
        (both(Curve::P256), Curve::P256, 0),
        (group(Curve::P256), Curve::P256, 0),
        (both(Curve::Ed25519), Curve::Ed25519, 1),
        (group(Curve::Ed25519), Curve::Ed25519, 1),
        (pairs_on(Curve::P256), Curve::P256, 4),
        (pairs_on(Curve::Ed25519), Curve::Ed25519, 4),
        (PAIRS_ON_X25519, Curve::X25519, 4),
    ] {
        for (at, alg) in algs.iter().enumerate() {
            let limit = [&[0x03], *alg].concat();
            assert_eq!(accepts(&algorithms, curve, &limit), at == right, "{algorithms:?}, alg {alg:02x?}");
        }
        // A key on another curve is not read, whatever its algorithm is.
        let other = if curve == Curve::P256 { Curve::Ed25519 } else { Curve::P256 };
        assert!(!accepts(&algorithms, other, &[0x03, algs[right][0]]));
    }
}

/// RFC 9053, sections 2.1, 2.2 and 6.3.1: the operations of a public key are verify for signatures, and none for key
/// agreement.
#[test]
fn a_key_for_other_operations_is_refused() {
    for (key_ops, verifies, agrees) in [
        (&[0x81, 2][..], true, false),
        (&[0x82, 1, 2], true, false),
        // A text, as in RFC 9052, section 7.1, "tstr / int".
        (b"\x82\x66verify\x02", true, false),
        (b"\x81\x66verify", false, false),
        (&[0x81, 1], false, false),
        (&[0x82, 7, 8], false, false),
        // The operation 2 in an array in the array is none.
        (&[0x81, 0x81, 2], false, false),
        (&[0x80], false, true),
        // No array.
        (&[0x02], false, false),
        (&[0xa1, 2, 2], false, false),
    ] {
        let limit = [&[0x04], key_ops].concat();
        for curve in [Curve::P256, Curve::Ed25519] {
            assert_eq!(accepts(&Algorithms::both(curve), curve, &limit), verifies, "{curve:?}, {key_ops:02x?}");
            assert_eq!(accepts(&pairs_on(curve), curve, &limit), agrees, "{curve:?}, {key_ops:02x?}");
        }
        assert_eq!(accepts(&PAIRS_ON_X25519, Curve::X25519, &limit), agrees, "{key_ops:02x?}");
    }
}

/// A context refuses a member whose key is limited to another algorithm, and so does its own credential.
#[test]
fn a_member_whose_key_may_not_sign_is_refused() {
    let limited = |name: &str| {
        let mut ccs = credential(Curve::Ed25519, name);
        let key = ccs.windows(4).position(|bytes| bytes == [0xa3, 0x01, 0x01, 0x20]).unwrap();
        ccs[key] = 0xa4;
        // key_ops has only sign.
        ccs.splice(key + 3..key + 3, [0x04, 0x81, 0x01]);
        ccs
    };
    let group = Group::of(Curve::Ed25519);
    let context = group.context("client", 0);
    let refused = context.recipient(&mut Recorder::new(), id_of("lamp"), limited("lamp"), None);
    assert_eq!(refused.err(), Some(BadGroup::Credential));
    let parameters =
        GroupParameters { master_secret: &[7; 16], master_salt: b"", gid: b"g", algorithms: group.algorithms };
    let private_key = Secret::new(private_key("client"));
    let ourselves = Ourselves { id: id_of("client"), private_key, credential: limited("client"), kept: 0 };
    let made = Context::new::<Recorder>(&parameters, ourselves, credential(Curve::Ed25519, "manager"));
    assert_eq!(made.err(), Some(BadGroup::Credential));
}
