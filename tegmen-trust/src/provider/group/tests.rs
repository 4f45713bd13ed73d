use super::*;
use tegmen::crypto::RustCrypto;

fn public(curve: Curve, private: &[u8; 32]) -> MemberKey {
    match curve {
        Curve::Ed25519 => MemberKey::Ed25519(ed25519::public_key_of(private)),
        Curve::P256 => {
            let mut point = [0; MAX_PUBLIC_LEN];
            Group::Secp256r1.public_key(&Secret::new(*private), &mut point).unwrap();
            MemberKey::P256(point)
        }
        Curve::X25519 => {
            let mut point = [0; MAX_PUBLIC_LEN];
            Group::X25519.public_key(&Secret::new(*private), &mut point).unwrap();
            MemberKey::X25519(*point.first_chunk().unwrap())
        }
    }
}

/// The two providers use different libraries, which share no code for these operations.
#[test]
fn both_providers_sign_verify_and_agree_alike() {
    let (mut host, mut software) = (HostCrypto::from_os().unwrap(), RustCrypto::new([1; 32]));
    let (ours, theirs) = ([3; 32], [5; 32]);
    let message: [&[u8]; 3] = [b"a message", b"", b" in parts"];
    for curve in [Curve::Ed25519, Curve::P256] {
        let key = public(curve, &ours);
        for private in [&ours, &theirs, &ours] {
            let made = host.sign_message(curve, private, &message).unwrap();
            let is_ours = private == &ours;
            assert_eq!(software.verify_message(&key, &[b"a message in parts"], &made).is_ok(), is_ours);
            assert_eq!(host.verify_message(&key, &message, &made).is_ok(), is_ours);
        }
        let mut made = software.sign_message(curve, &ours, &message).unwrap();
        assert!(host.verify_message(&key, &message, &made).is_ok());
        made[7] ^= 1;
        assert_eq!(host.verify_message(&key, &message, &made), Err(NotAuthentic));
    }
    for curve in [Curve::Ed25519, Curve::P256, Curve::X25519] {
        let (mut of_host, mut of_software) = ([0; 32], [0; 32]);
        host.validate(&public(curve, &ours)).unwrap();
        host.agree_static(&ours, &public(curve, &theirs), &mut of_host).unwrap();
        software.agree_static(&theirs, &public(curve, &ours), &mut of_software).unwrap();
        assert_eq!(of_host, of_software);
    }
}

#[test]
fn keys_that_are_not_valid_are_refused() {
    let mut host = HostCrypto::from_os().unwrap();
    let of = |first: u8| {
        let mut bytes = [0; 32];
        bytes[0] = first;
        bytes
    };
    let mut not_on_the_curve = [7; MAX_PUBLIC_LEN];
    not_on_the_curve[0] = 4;
    let invalid = [
        MemberKey::Ed25519(of(1)),
        MemberKey::Ed25519(of(0)),
        MemberKey::Ed25519(of(2)),
        MemberKey::X25519(of(0)),
        MemberKey::X25519(of(1)),
        MemberKey::P256(not_on_the_curve),
    ];
    for key in invalid {
        assert_eq!(host.validate(&key), Err(NotAuthentic), "{key:?}");
    }
}
