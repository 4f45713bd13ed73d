//! Keys, and chains of certificates: a packet whose origin is not proven is refused, and the error names the reason.

use tegmen_base::crypto::RustCrypto;
use tegmen_base::hex::from_hex;
use tegmen_ndn::certificate::{Certificate, CertificateError, Refusal, Validity};
use tegmen_ndn::signature::{DigestSha256, Signer};
use tegmen_ndn::{Component, Data, MAX_HEAD, Name, ReceivedData};
use tegmen_ndn_host::client::name_bytes;
use tegmen_ndn_host::keys::{Key, KeyError, KeyKind, Subject};
use tegmen_ndn_host::trust::{MAX_CHAIN, Trust, TrustError, Verdict};

const NOW: u64 = 1_800_000_000;
const VALIDITY: Validity = Validity { not_before: NOW - 1000, not_after: NOW + 1000 };

fn crypto() -> RustCrypto {
    RustCrypto::new([5; 32])
}

/// Returns a key whose identifier and secret depend on `seed`.
fn key(seed: u8, identity: &str, kind: KeyKind) -> Key {
    let identity = name_bytes(identity).unwrap();
    Key::generate(&mut RustCrypto::new([seed; 32]), &Name::of_checked(&identity), kind).unwrap()
}

/// Returns a certificate for `subject` that `issuer` signs. The KeyLocator of the certificate is the name of the
/// issuer's key.
fn certify(issuer: &Key, subject: &Key, validity: Validity) -> Vec<u8> {
    certify_as(issuer, &issuer.name(), subject, validity)
}

fn certify_as(issuer: &Key, locator: &Name<'_>, subject: &Key, validity: Validity) -> Vec<u8> {
    let subject = Subject {
        key_name: subject.name(),
        public_key: subject.public_key(),
        issuer: Component::generic(b"test"),
        version: 7,
    };
    issuer.certify(&mut crypto(), *locator, &subject, validity).unwrap()
}

fn packet(name: &str, signer: &impl Signer<RustCrypto>) -> Vec<u8> {
    let name = name_bytes(name).unwrap();
    let mut storage = vec![0; 1000];
    let mut frame = tegmen_base::buf::Frame::new(&mut storage, MAX_HEAD);
    let data = Data { name: Name::of_checked(&name), content: Some(b"21.5"), ..Data::default() };
    data.write(&mut crypto(), signer, &mut frame).unwrap();
    frame.bytes().to_vec()
}

fn signed(name: &str, key: &Key) -> Vec<u8> {
    packet(name, &key.signer(key.name()))
}

fn trust(anchor: Vec<u8>) -> Trust {
    Trust::new(&mut crypto(), vec![anchor], None, NOW).unwrap()
}

/// Verifies a packet. When the verification needs a certificate, takes it from `certificates`.
fn verify_at(trust: &mut Trust, packet: &[u8], certificates: &[Vec<u8>], now: u64) -> Result<(), TrustError> {
    let received = ReceivedData::parse(packet).unwrap();
    loop {
        let Verdict::Needs(locator) = trust.verify(&mut crypto(), &received, now)? else { return Ok(()) };
        let locator = Name::of_checked(&locator);
        let fits = |packet: &&Vec<u8>| locator.is_prefix_of(&ReceivedData::parse(packet).unwrap().data.name);
        let found = certificates.iter().find(fits).ok_or_else(|| TrustError::NotKnown(locator.to_string()))?;
        trust.offer(&locator, found.clone())?;
    }
}

fn verify(trust: &mut Trust, packet: &[u8], certificates: &[Vec<u8>]) -> Result<(), TrustError> {
    verify_at(trust, packet, certificates, NOW)
}

#[test]
fn a_private_key_is_written_and_read_again() {
    for kind in [KeyKind::P256, KeyKind::Ed25519] {
        let key = key(1, "/house", kind);
        let wire = key.to_packet(&mut crypto()).unwrap();
        let read = Key::parse(&mut crypto(), &wire).unwrap();
        assert_eq!((read.name(), read.kind(), read.public_key()), (key.name(), kind, key.public_key()));
        for place in 0..wire.len() {
            let mut changed = wire.to_vec();
            changed[place] ^= 1;
            assert!(Key::parse(&mut crypto(), &changed).is_err(), "{place}");
        }
    }
}

#[test]
fn keys_that_ndnd_made_are_read() {
    // ndnd sec keygen /alice ed25519, and ndnd sec keygen /alice ecc secp256r1, of version 1.5.3.
    let ed25519 = "06b007160805616c69636508034b4559080852634b107deb8b7a14031801091530302e020100300506032b657004220420c3\
        ad0b1e09d9af3d95bfc66b92473684fe3582297f19b54b8de161d62e340e95161d1b01051c1807160805616c69636508034b\
        4559080852634b107deb8b7a1740d5a88b68e70c38cd58ee2dfe1adb1dcb1c7f03aaa1f03c4bb3cd83ae259905d94346954e\
        a668e0f8b64bc6c2223c4ab95b8b55b62154f46397db61879dae6b01";
    let p256 = "06fd010007160805616c69636508034b4559080858f25f8501355c931403180109157930770201010420af1e5dfadcc2ee1b\
        d8409b3daeb3335da06fe398bbc7941221aadf1d9cc956c0a00a06082a8648ce3d030107a14403420004ebbc9a0180cabe19\
        5c35ed27bd076f762482c4d48d607b3f129fb1de82ed3eea4b9d3928c1dfc4e21ca4c0a81eb984f9b799d0bf0c5d4ffd314d\
        bdb14df2b85a161d1b01031c1807160805616c69636508034b4559080858f25f8501355c9317473045022100866d2cefe1ef\
        d8c492982e43732161a20c9863b622158c7febeab00170406f0a0220713c0c1cc3966e29d543973ced8cd57740c817a162e1\
        177d5c9e8bf0b4320531";
    for (digits, kind) in [(ed25519, KeyKind::Ed25519), (p256, KeyKind::P256)] {
        let wire = from_hex(digits).unwrap();
        let key = Key::parse(&mut crypto(), &wire).unwrap();
        assert_eq!((key.kind(), key.name().prefix(1).as_bytes()), (kind, &name_bytes("/alice").unwrap()[..]));
        let written = key.to_packet(&mut crypto()).unwrap();
        let (ours, theirs) = (ReceivedData::parse(&written).unwrap(), ReceivedData::parse(&wire).unwrap());
        assert_eq!((ours.data, ours.signed.info), (theirs.data, theirs.signed.info));
        // ndnd makes signatures of ECDSA with a random number.
        assert!(kind == KeyKind::P256 || written[..] == wire);
    }
}

#[test]
fn a_certificate_is_no_private_key() {
    let key = key(1, "/house", KeyKind::P256);
    let certificate = certify(&key, &key, VALIDITY);
    assert_eq!(Key::parse(&mut crypto(), &certificate).err(), Some(KeyError::ContentType));
    assert!(key.is_of(&Certificate::parse(&certificate).unwrap()));
}

#[test]
fn a_chain_of_both_kinds_of_keys_is_verified() {
    let root = key(1, "/house", KeyKind::P256);
    let floor = key(2, "/house/floor", KeyKind::Ed25519);
    let sensor = key(3, "/house/floor/temp", KeyKind::P256);
    let certificates = [certify(&root, &floor, VALIDITY), certify(&floor, &sensor, VALIDITY)];
    let mut trust = trust(certify(&root, &root, VALIDITY));
    let wire = signed("/house/floor/temp/now", &sensor);
    verify(&mut trust, &wire, &certificates).unwrap();
    // The certificates are kept.
    verify(&mut trust, &wire, &[]).unwrap();
    // A packet that the anchor signed needs no further certificate.
    verify(&mut trust, &signed("/house/x", &root), &[]).unwrap();
}

#[test]
fn a_key_of_nobody_is_refused() {
    let (root, other) = (key(1, "/house", KeyKind::P256), key(2, "/house", KeyKind::P256));
    let mut trust = trust(certify(&root, &root, VALIDITY));
    let wire = signed("/house/temp", &other);
    assert!(matches!(verify(&mut trust, &wire, &[]), Err(TrustError::NotKnown(_))));
    // KeyLocator to itself: the certificate of the unknown key signs itself.
    let certificates = [certify(&other, &other, VALIDITY)];
    assert!(matches!(verify(&mut trust, &wire, &certificates), Err(TrustError::SelfSigned(_))));
}

#[test]
fn a_packet_without_a_key_is_refused() {
    let root = key(1, "/house", KeyKind::P256);
    let mut trust = trust(certify(&root, &root, VALIDITY));
    assert!(matches!(verify(&mut trust, &packet("/house/temp", &DigestSha256), &[]), Err(TrustError::NoKey(_))));
}

#[test]
fn a_forged_signature_is_refused_with_the_name_of_the_anchor() {
    let (root, other) = (key(1, "/house", KeyKind::P256), key(2, "/house", KeyKind::P256));
    let mut trust = trust(certify(&root, &root, VALIDITY));
    // Another key that uses the name of the root.
    let wire = packet("/house/temp", &other.signer(root.name()));
    assert!(matches!(verify(&mut trust, &wire, &[]), Err(TrustError::Refused(_, _, Refusal::Signature))));
}

#[test]
fn a_forged_certificate_in_the_chain_is_refused_and_fetched_again() {
    let (root, sensor) = (key(1, "/house", KeyKind::P256), key(2, "/house/temp", KeyKind::Ed25519));
    let other = key(3, "/house", KeyKind::P256);
    let mut trust = trust(certify(&root, &root, VALIDITY));
    let wire = signed("/house/temp/now", &sensor);
    let forged = certify_as(&other, &root.name(), &sensor, VALIDITY);
    assert!(matches!(verify(&mut trust, &wire, &[forged]), Err(TrustError::Refused(_, _, Refusal::Signature))));
    verify(&mut trust, &wire, &[certify(&root, &sensor, VALIDITY)]).unwrap();
}

#[test]
fn a_certificate_of_a_wrong_key_is_fetched_again() {
    let (root, sensor) = (key(1, "/house", KeyKind::P256), key(2, "/house/temp", KeyKind::Ed25519));
    let other = key(3, "/house/temp", KeyKind::Ed25519);
    let mut trust = trust(certify(&root, &root, VALIDITY));
    let wire = signed("/house/temp/now", &sensor);
    // The public key of another one below the name of the key, which the root did not sign.
    let subject = Subject {
        key_name: sensor.name(),
        public_key: other.public_key(),
        issuer: Component::generic(b"test"),
        version: 7,
    };
    let forged = other.certify(&mut crypto(), root.name(), &subject, VALIDITY).unwrap();
    assert!(matches!(verify(&mut trust, &wire, &[forged]), Err(TrustError::Refused(_, _, Refusal::Signature))));
    verify(&mut trust, &wire, &[certify(&root, &sensor, VALIDITY)]).unwrap();
    // A verified one is kept, whatever a forged packet of its name has for a signature.
    let forged = packet("/house/temp/now", &other.signer(sensor.name()));
    assert!(matches!(verify(&mut trust, &forged, &[]), Err(TrustError::Refused(_, _, Refusal::Signature))));
    verify(&mut trust, &wire, &[]).unwrap();
}

#[test]
fn an_expired_certificate_is_refused_also_when_it_was_verified_before() {
    let (root, sensor) = (key(1, "/house", KeyKind::P256), key(2, "/house/temp", KeyKind::Ed25519));
    let long = Validity { not_after: NOW + 5000, ..VALIDITY };
    let wire = signed("/house/temp/now", &sensor);
    // The certificate of the sensor ends, then that of the anchor.
    for (of_root, of_sensor) in [(long, VALIDITY), (VALIDITY, long)] {
        let mut trust = trust(certify(&root, &root, of_root));
        let certificates = [certify(&root, &sensor, of_sensor)];
        verify(&mut trust, &wire, &certificates).unwrap();
        verify_at(&mut trust, &wire, &[], NOW + 1000).unwrap();
        let late = verify_at(&mut trust, &wire, &certificates, NOW + 1001);
        assert!(matches!(late, Err(TrustError::Refused(_, _, Refusal::Expired))), "{late:?}");
        let early = verify_at(&mut trust, &wire, &certificates, NOW - 1001);
        assert!(matches!(early, Err(TrustError::Refused(_, _, Refusal::NotYetValid))), "{early:?}");
    }
}

#[test]
fn a_loop_of_certificates_is_refused() {
    let root = key(1, "/house", KeyKind::P256);
    let (one, two) = (key(2, "/house/x", KeyKind::Ed25519), key(3, "/house/x", KeyKind::Ed25519));
    let certificates = [certify(&two, &one, VALIDITY), certify(&one, &two, VALIDITY)];
    let mut trust = trust(certify(&root, &root, VALIDITY));
    assert!(matches!(verify(&mut trust, &signed("/house/x/now", &one), &certificates), Err(TrustError::Loop(_))));
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    let keys: Vec<Key> = (1..=MAX_CHAIN as u8 + 2).map(|seed| key(seed, "/house", KeyKind::Ed25519)).collect();
    let certificates: Vec<_> = keys.windows(2).map(|pair| certify(&pair[0], &pair[1], VALIDITY)).collect();
    let mut trust = trust(certify(&keys[0], &keys[0], VALIDITY));
    let at_end = signed("/house/x", &keys[MAX_CHAIN + 1]);
    assert!(matches!(verify(&mut trust, &at_end, &certificates), Err(TrustError::TooLong(_))));
    let before = signed("/house/x", &keys[MAX_CHAIN]);
    verify(&mut trust, &before, &certificates).unwrap();
}

#[test]
fn a_key_whose_name_does_not_fit_is_refused() {
    let (root, sensor) = (key(1, "/house", KeyKind::P256), key(2, "/house/temp", KeyKind::Ed25519));
    let certificates = [certify(&root, &sensor, VALIDITY)];
    let mut trust = trust(certify(&root, &root, VALIDITY));
    for name in ["/house/door", "/house", "/"] {
        let refused = verify(&mut trust, &signed(name, &sensor), &certificates);
        assert!(matches!(refused, Err(TrustError::Rule(..))), "{name}: {refused:?}");
    }
    // A certificate for an identity that the issuer does not own.
    let other = key(3, "/office/temp", KeyKind::Ed25519);
    let certificates = [certify(&root, &other, VALIDITY)];
    assert!(matches!(verify(&mut trust, &signed("/office/temp/x", &other), &certificates), Err(TrustError::Rule(..))));
}

#[test]
fn a_packet_that_is_no_certificate_ends_the_chain() {
    let (root, sensor) = (key(1, "/house", KeyKind::P256), key(2, "/house/temp", KeyKind::Ed25519));
    let mut trust = trust(certify(&root, &root, VALIDITY));
    let name = [sensor.name().as_bytes(), &name_bytes("/test/v=7").unwrap()].concat();
    let wire = signed(&Name::of_checked(&name).to_string(), &root);
    let refused = verify(&mut trust, &signed("/house/temp/now", &sensor), &[wire]);
    assert!(matches!(refused, Err(TrustError::Certificate(_, CertificateError::ContentType))), "{refused:?}");
    // The certificate of another key.
    let (certificate, sensor) = (certify(&root, &root, VALIDITY), sensor.name());
    assert!(matches!(trust.offer(&sensor, certificate), Err(TrustError::Certificate(_, CertificateError::Name))));
}

#[test]
fn an_anchor_that_is_expired_or_forged_or_none_is_refused() {
    let (root, other) = (key(1, "/house", KeyKind::P256), key(2, "/house", KeyKind::P256));
    let new = |anchor, now| Trust::new(&mut crypto(), vec![anchor], None, now).map(drop);
    let good = certify(&root, &root, VALIDITY);
    assert!(new(good.clone(), NOW).is_ok());
    assert!(matches!(new(good.clone(), NOW + 1001), Err(TrustError::AnchorRefused(_, Refusal::Expired))));
    assert!(matches!(new(good, NOW - 1001), Err(TrustError::AnchorRefused(_, Refusal::NotYetValid))));
    let forged = certify_as(&other, &root.name(), &root, VALIDITY);
    assert!(matches!(new(forged, NOW), Err(TrustError::AnchorRefused(_, Refusal::Signature))));
    assert!(matches!(new(b"\x06\x00".to_vec(), NOW), Err(TrustError::Anchor(_))));
    // A certificate that another key signs may be an anchor while it is valid.
    let issued = certify(&other, &root, VALIDITY);
    assert!(new(issued.clone(), NOW).is_ok());
    assert!(matches!(new(issued, NOW + 1001), Err(TrustError::AnchorRefused(_, Refusal::Expired))));
}
