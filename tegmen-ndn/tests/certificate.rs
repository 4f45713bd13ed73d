//! Tests that certificates can be read again after they are written, and that a certificate is refused if it does not
//! prove the origin of a packet.

use proptest::prelude::*;
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::{RustCrypto, curves, ed25519};
use tegmen_base::secret::Secret;
use tegmen_ndn::certificate::{
    self, Certificate, CertificateError, ED25519_PREFIX, PublicKey, Refusal, Validity, identity_of, parse_time,
    time_bytes,
};
use tegmen_ndn::signature::{DigestSha256, Ed25519, KeyLocator, Sha256WithEcdsa, SignatureInfo, Signer};
use tegmen_ndn::tlv::Type;
use tegmen_ndn::{ContentType, Data, Error, MAX_HEAD, Name, ReceivedData, WriteError, write_uri};

const VALIDITY: Validity = Validity { not_before: 1_000_000_000, not_after: 2_000_000_000 };
const NOW: u64 = 1_500_000_000;
const SECRET: [u8; 32] = [0x42; 32];

fn crypto() -> RustCrypto {
    RustCrypto::new([7; 32])
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = [0; 1000];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out).unwrap();
    out.written().to_vec()
}

fn ed25519_info(secret: &[u8; 32]) -> Vec<u8> {
    [&ED25519_PREFIX[..], &ed25519::public_key_of(secret)].concat()
}

fn certificate_bytes(text: &str, info: &[u8], signer: &impl Signer<RustCrypto>) -> Result<Vec<u8>, WriteError> {
    let (name, mut storage) = (name(text), vec![0; 2000]);
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    certificate::write(&mut crypto(), &Name::of_checked(&name), info, VALIDITY, signer, &mut frame)?;
    Ok(frame.bytes().to_vec())
}

fn packet_bytes(data: &Data<'_>, signer: &impl Signer<RustCrypto>) -> Vec<u8> {
    let mut storage = vec![0; 2000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    data.write(&mut crypto(), signer, &mut frame).unwrap();
    frame.bytes().to_vec()
}

/// Makes a certificate with this name for an Ed25519 key. The same key, `/house/KEY/1`, signs the certificate.
fn house(text: &str) -> Vec<u8> {
    let (key, locator) = (Secret::new(SECRET), name("/house/KEY/1"));
    let signer = Ed25519 { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    certificate_bytes(text, &ed25519_info(&SECRET), &signer).unwrap()
}

/// Makes a Data packet with this KeyLocator, signed by the key of [`house`].
fn signed(locator: &str) -> Vec<u8> {
    let (key, locator, name) = (Secret::new(SECRET), name(locator), name("/house/temp"));
    let signer = Ed25519 { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    packet_bytes(&Data { name: Name::of_checked(&name), content: Some(b"21.5"), ..Data::default() }, &signer)
}

#[test]
fn a_self_signed_certificate_of_ed25519_is_read_again_and_verifies_itself() {
    let wire = house("/house/KEY/1/self/v=7");
    let certificate = Certificate::parse(&wire).unwrap();
    assert_eq!(certificate.name().as_bytes(), name("/house/KEY/1/self/v=7"));
    assert_eq!(certificate.key_name().as_bytes(), name("/house/KEY/1"));
    assert_eq!(certificate.identity().as_bytes(), name("/house"));
    assert_eq!(certificate.validity, VALIDITY);
    assert!(certificate.is_self_signed());
    assert_eq!(certificate.verify(&mut crypto(), &certificate.received, NOW), Ok(()));
}

#[test]
fn a_certificate_of_ecdsa_verifies_a_packet_of_its_key() {
    let (key, locator) = (Secret::new(SECRET), name("/house/KEY/1"));
    let signer = Sha256WithEcdsa { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    let info = curves::public_key_of(&SECRET).unwrap();
    let wire = certificate_bytes("/house/KEY/1/self/v=7", &info, &signer).unwrap();
    let certificate = Certificate::parse(&wire).unwrap();
    assert_eq!(certificate.public_key, PublicKey::P256(&info));
    let packet = packet_bytes(&Data::default(), &signer);
    let packet = ReceivedData::parse(&packet).unwrap();
    assert_eq!(certificate.verify(&mut crypto(), &packet, NOW), Ok(()));
}

#[test]
fn a_certificate_of_another_issuer_is_not_self_signed() {
    let other = house("/house/temp/KEY/2/house/v=7");
    let certificate = Certificate::parse(&other).unwrap();
    assert!(!certificate.is_self_signed());
    assert_eq!(certificate.verify(&mut crypto(), &certificate.received, NOW), Err(Refusal::OtherKey));
    let issuer = house("/house/KEY/1/self/v=7");
    assert_eq!(Certificate::parse(&issuer).unwrap().verify(&mut crypto(), &certificate.received, NOW), Ok(()));
}

#[test]
fn a_packet_may_name_the_key_or_a_certificate_of_it() {
    let wire = house("/house/KEY/1/self/v=7");
    let certificate = Certificate::parse(&wire).unwrap();
    for (locator, wanted) in [
        ("/house/KEY/1", Ok(())),
        ("/house/KEY/1/self", Ok(())),
        ("/house/KEY/1/self/v=7", Ok(())),
        ("/house/KEY/1/other/v=9", Ok(())),
        ("/house/KEY/2", Err(Refusal::OtherKey)),
        ("/house/KEY", Err(Refusal::OtherKey)),
        ("/house", Err(Refusal::OtherKey)),
        ("/", Err(Refusal::OtherKey)),
    ] {
        let packet = signed(locator);
        let packet = ReceivedData::parse(&packet).unwrap();
        assert_eq!(certificate.verify(&mut crypto(), &packet, NOW), wanted, "{locator}");
    }
}

#[test]
fn a_packet_without_a_name_of_a_key_is_refused() {
    let wire = house("/house/KEY/1/self/v=7");
    let certificate = Certificate::parse(&wire).unwrap();
    let key = Secret::new(SECRET);
    let digest = Ed25519 { key: &key, locator: KeyLocator::Digest(&[1; 32]) };
    for packet in [packet_bytes(&Data::default(), &DigestSha256), packet_bytes(&Data::default(), &digest)] {
        let packet = ReceivedData::parse(&packet).unwrap();
        assert_eq!(certificate.verify(&mut crypto(), &packet, NOW), Err(Refusal::OtherKey));
    }
}

#[test]
fn an_expired_certificate_and_one_that_is_not_valid_yet_verify_nothing() {
    let (wire, packet) = (house("/house/KEY/1/self/v=7"), signed("/house/KEY/1"));
    let (certificate, packet) = (Certificate::parse(&wire).unwrap(), ReceivedData::parse(&packet).unwrap());
    for (now, wanted) in [
        (VALIDITY.not_before - 1, Err(Refusal::NotYetValid)),
        (VALIDITY.not_before, Ok(())),
        (VALIDITY.not_after, Ok(())),
        (VALIDITY.not_after + 1, Err(Refusal::Expired)),
    ] {
        assert_eq!(certificate.verify(&mut crypto(), &packet, now), wanted, "{now}");
    }
}

#[test]
fn a_forged_signature_is_refused() {
    let wire = house("/house/KEY/1/self/v=7");
    let certificate = Certificate::parse(&wire).unwrap();
    let mut packet = signed("/house/KEY/1");
    *packet.last_mut().unwrap() ^= 1;
    let forged = ReceivedData::parse(&packet).unwrap();
    assert_eq!(certificate.verify(&mut crypto(), &forged, NOW), Err(Refusal::Signature));
    // Another key that uses the same name.
    let (key, locator) = (Secret::new([9; 32]), name("/house/KEY/1"));
    let other = Ed25519 { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    let packet = packet_bytes(&Data::default(), &other);
    let packet = ReceivedData::parse(&packet).unwrap();
    assert_eq!(certificate.verify(&mut crypto(), &packet, NOW), Err(Refusal::Signature));
}

#[test]
fn a_content_that_is_no_public_key_is_no_certificate() {
    let (key, locator) = (Secret::new(SECRET), name("/house/KEY/1"));
    let signer = Ed25519 { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    let p256 = curves::public_key_of(&SECRET).unwrap();
    let mut compressed = p256;
    compressed[26] = 2;
    let good = ed25519_info(&SECRET);
    for info in [&b""[..], b"no key", &good[..43], &[&good[..], &[0]].concat(), &p256[..90], &compressed] {
        let wire = certificate_bytes("/house/KEY/1/self/v=7", info, &signer).unwrap();
        assert_eq!(Certificate::parse(&wire).unwrap_err(), CertificateError::PublicKey);
    }
}

#[test]
fn a_point_that_is_not_on_the_curve_verifies_nothing() {
    let (key, locator) = (Secret::new(SECRET), name("/house/KEY/1"));
    let signer = Sha256WithEcdsa { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    let mut info = curves::public_key_of(&SECRET).unwrap();
    info[90] ^= 1;
    let wire = certificate_bytes("/house/KEY/1/self/v=7", &info, &signer).unwrap();
    let certificate = Certificate::parse(&wire).unwrap();
    assert_eq!(certificate.verify(&mut crypto(), &certificate.received, NOW), Err(Refusal::Signature));
}

#[test]
fn a_name_without_the_parts_of_a_key_is_no_certificate() {
    for text in [
        "/house",
        "/house/KEY/1",
        "/KEY/1/self",
        "/house/key/1/self/v=7",
        "/house/32=KEY/1/self/v=7",
        "/KEY/1/self/v=7/x",
    ] {
        assert_eq!(Certificate::parse(&house(text)).unwrap_err(), CertificateError::Name, "{text}");
    }
    assert_eq!(Certificate::parse(&house("/KEY/1/self/v=7")).unwrap().identity(), Name::default());
    assert_eq!(identity_of(&Name::of_checked(&name("/house/KEY"))), None);
}

#[test]
fn a_packet_of_another_kind_or_without_a_validity_is_no_certificate() {
    let (info, text) = (ed25519_info(&SECRET), name("/house/KEY/1/self/v=7"));
    let (key, locator) = (Secret::new(SECRET), name("/house/KEY/1"));
    let signer = Ed25519 { key: &key, locator: KeyLocator::Name(Name::of_checked(&locator)) };
    let mut data = Data { name: Name::of_checked(&text), content: Some(&info), ..Data::default() };
    assert_eq!(Certificate::parse(&packet_bytes(&data, &signer)).unwrap_err(), CertificateError::ContentType);
    data.content_type = Some(ContentType::KEY);
    assert_eq!(Certificate::parse(&packet_bytes(&data, &signer)).unwrap_err(), CertificateError::Validity);
    assert_eq!(Certificate::parse(b"\x05\x00").unwrap_err(), CertificateError::Packet(Error::Missing(Type::DATA)));
}

#[test]
fn a_digest_signs_no_certificate() {
    let written = certificate_bytes("/house/KEY/1/self/v=7", &ed25519_info(&SECRET), &DigestSha256);
    assert_eq!(written, Err(WriteError::Unsupported));
}

#[test]
fn a_time_that_is_none_is_refused() {
    for (text, wanted) in [
        ("19700101T000000", Some(0)),
        ("20261129T061336", Some(1_795_932_816)),
        ("20000229T235959", Some(951_868_799)),
        ("99991231T235959", Some(Validity::MAX_TIME)),
        ("19691231T235959", None),
        ("20250229T000000", None),
        ("21000229T000000", None),
        ("20251301T000000", None),
        ("20250001T000000", None),
        ("20250100T000000", None),
        ("20250132T000000", None),
        ("20250101T240000", None),
        ("20250101T006000", None),
        ("20250101T000060", None),
        ("20250101 000000", None),
        ("20250101T00000", None),
        ("20250101T0000000", None),
        ("2025+101T000000", None),
        ("", None),
    ] {
        assert_eq!(parse_time(text.as_bytes()), wanted, "{text}");
    }
    assert_eq!(&time_bytes(u64::MAX), b"99991231T235959");
    let wire = house("/house/KEY/1/self/v=7");
    let place = wire.windows(2).position(|bytes| bytes == b"T0").unwrap();
    let mut changed = wire;
    changed[place] = b'X';
    assert_eq!(Certificate::parse(&changed).unwrap_err(), CertificateError::Packet(Error::Time));
}

proptest! {
    #[test]
    fn a_written_time_is_read_again(time in 0..=Validity::MAX_TIME) {
        prop_assert_eq!(parse_time(&time_bytes(time)), Some(time));
    }

    #[test]
    fn a_changed_byte_of_a_certificate_is_noticed(place in any::<prop::sample::Index>(), bits in 1u8..) {
        let mut wire = house("/house/KEY/1/self/v=7");
        let place = place.index(wire.len());
        wire[place] ^= bits;
        let verified = Certificate::parse(&wire).is_ok_and(|certificate| {
            certificate.verify(&mut crypto(), &certificate.received, NOW).is_ok()
        });
        prop_assert!(!verified);
    }

    #[test]
    fn a_changed_certificate_verifies_nothing_after_its_end(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut wire = house("/house/KEY/1/self/v=7");
        for (place, byte) in changes {
            let place = place.index(wire.len());
            wire[place] = byte;
        }
        if let Ok(certificate) = Certificate::parse(&wire) {
            let validity = certificate.validity;
            prop_assert_eq!(Validity::parse(&validity.to_bytes()), Ok(validity));
            prop_assert!(certificate.identity().is_prefix_of(&certificate.key_name()));
            let late = certificate.verify(&mut crypto(), &certificate.received, validity.not_after + 1);
            prop_assert!(late.is_err());
        }
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused_in_order(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Certificate::parse(&bytes).is_err());
    }

    #[test]
    fn a_description_of_a_signature_with_a_validity_is_read_again(before in 0..=Validity::MAX_TIME, after in 0..=Validity::MAX_TIME) {
        struct Described([u8; Validity::LEN]);
        impl Signer<RustCrypto> for Described {
            fn info(&self) -> SignatureInfo<'_> {
                SignatureInfo { validity: Some(&self.0), ..Signer::<RustCrypto>::info(&DigestSha256) }
            }
            fn sign(&self, crypto: &mut RustCrypto, message: &[&[u8]], out: &mut [u8; 72]) -> Result<usize, tegmen_base::crypto::Unsupported> {
                DigestSha256.sign(crypto, message, out)
            }
        }
        let validity = Validity { not_before: before, not_after: after };
        let wire = packet_bytes(&Data::default(), &Described(validity.to_bytes()));
        let received = ReceivedData::parse(&wire).unwrap();
        prop_assert_eq!(received.signed.info.validity.map(Validity::parse), Some(Ok(validity)));
        prop_assert!(received.signed.verify(&mut crypto(), &DigestSha256).is_ok());
    }
}
