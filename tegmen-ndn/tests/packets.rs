//! Tests that packets can be read again after they are written, and that bytes that are not a packet are refused.

use proptest::collection::vec;
use proptest::prelude::*;
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::hash::HmacKey;
use tegmen_base::crypto::{Crypto as _, DIGEST_LEN, NamedGroup, P256_PREFIX, RustCrypto, digest, ed25519};
use tegmen_base::secret::Secret;
use tegmen_ndn::signature::{
    DigestSha256, EcdsaPublicKey, Ed25519, Ed25519PublicKey, HmacWithSha256, KeyLocator, Sha256WithEcdsa,
    SignatureInfo, SignatureType, Signer, Verifier,
};
use tegmen_ndn::tlv::{self, Elements, Type};
use tegmen_ndn::{
    Component, ContentType, Data, Error, Interest, MAX_HEAD, Name, Names, ReceivedData, ReceivedInterest, UriError,
    WriteError, write_uri, write_with_nonce,
};

fn crypto() -> RustCrypto {
    RustCrypto::new([7; 32])
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = [0; 1000];
    let mut out = Writer::new(&mut bytes);
    write_uri(text, &mut out).unwrap();
    out.written().to_vec()
}

fn element(kind: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; value.len() + 20];
    let mut out = Writer::new(&mut bytes);
    tlv::write(&mut out, Type(kind), value).unwrap();
    out.written().to_vec()
}

fn interest_bytes(interest: &Interest<'_>) -> Vec<u8> {
    let mut storage = vec![0; 12_000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    interest.write::<RustCrypto>(&mut frame).unwrap();
    frame.bytes().to_vec()
}

fn data_bytes(data: &Data<'_>, signer: &impl Signer<RustCrypto>) -> Vec<u8> {
    let mut storage = vec![0; 12_000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    data.write(&mut crypto(), signer, &mut frame).unwrap();
    frame.bytes().to_vec()
}

fn component_strategy() -> impl Strategy<Value = (u32, Vec<u8>)> {
    prop_oneof![
        4 => (Just(8u32), vec(any::<u8>(), 0..40)),
        1 => (3u32..=0xffff, vec(any::<u8>(), 0..300)),
        1 => (Just(1u32), vec(any::<u8>(), 32)),
        1 => (prop_oneof![Just(50u32), Just(52), Just(54), Just(56), Just(58)], any::<u64>().prop_map(|number| {
            tlv::integer_bytes(number, &mut [0; 8]).to_vec()
        })),
    ]
}

fn name_strategy() -> impl Strategy<Value = Vec<u8>> {
    vec(component_strategy(), 1..6)
        .prop_map(|components| components.iter().flat_map(|(kind, value)| element(*kind, value)).collect())
}

proptest! {
    #[test]
    fn a_written_interest_is_read_again(
        name in name_strategy(),
        hint in proptest::option::of(vec(name_strategy(), 1..3)),
        (can_be_prefix, must_be_fresh) in any::<(bool, bool)>(),
        nonce in any::<Option<[u8; 4]>>(),
        lifetime in any::<Option<u64>>(),
        hop_limit in any::<Option<u8>>(),
        parameters in proptest::option::of(vec(any::<u8>(), 0..600)),
    ) {
        let hint: Option<Vec<u8>> = hint.map(|names| names.iter().flat_map(|name| element(7, name)).collect());
        let hint = hint.as_ref().map(|hint| Names::parse(hint).unwrap());
        let name = Name::parse(&name).unwrap();
        let interest = Interest { name, can_be_prefix, must_be_fresh, hint, nonce, lifetime, hop_limit, parameters: parameters.as_deref() };
        let wire = interest_bytes(&interest);
        let received = ReceivedInterest::parse(&wire).unwrap();
        prop_assert!(received.has_valid_digest::<RustCrypto>());
        let read = received.interest;
        prop_assert_eq!(read.name.prefix(name.len()), name);
        prop_assert_eq!(read.name.len(), name.len() + usize::from(parameters.is_some()));
        prop_assert_eq!(Interest { name, ..read }, interest);
        for end in 0..wire.len() {
            prop_assert!(ReceivedInterest::parse(&wire[..end]).is_err());
        }
    }

    #[test]
    fn a_written_data_packet_is_read_again(
        name in name_strategy(),
        content_type in any::<Option<u64>>(),
        freshness in any::<Option<u64>>(),
        last in proptest::option::of(component_strategy()),
        content in proptest::option::of(vec(any::<u8>(), 0..600)),
    ) {
        let name = Name::parse(&name).unwrap();
        let final_block = last.as_ref().map(|(kind, value)| Component { kind: Type(*kind), value });
        let data = Data { name, content_type: content_type.map(ContentType), freshness, final_block, content: content.as_deref() };
        let wire = data_bytes(&data, &DigestSha256);
        let received = ReceivedData::parse(&wire).unwrap();
        prop_assert_eq!(received.data, data);
        prop_assert!(received.signed.verify(&mut crypto(), &DigestSha256).is_ok());
        prop_assert_eq!(received.implicit_digest::<RustCrypto>(), digest::<RustCrypto, DIGEST_LEN>(&[&wire]));
        for end in 0..wire.len() {
            prop_assert!(ReceivedData::parse(&wire[..end]).is_err());
        }
    }

    #[test]
    fn a_changed_bit_is_noticed(name in name_strategy(), content in vec(any::<u8>(), 0..100), bit in any::<prop::sample::Index>()) {
        let data = Data { name: Name::parse(&name).unwrap(), content: Some(&content), ..Data::default() };
        let wire = data_bytes(&data, &DigestSha256);
        let mut changed = wire.clone();
        let bit = bit.index(wire.len() * 8);
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Ok(received) = ReceivedData::parse(&changed) {
            prop_assert!(received.signed.verify(&mut crypto(), &DigestSha256).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = ReceivedInterest::parse(&bytes);
        let _ = ReceivedData::parse(&bytes);
        let _ = ReceivedInterest::parse(&element(5, &bytes));
        let _ = ReceivedData::parse(&element(6, &bytes));
        let _ = Name::parse(&bytes);
    }

    #[test]
    fn the_text_of_a_name_is_read_again(bytes in name_strategy()) {
        let read = Name::parse(&bytes).unwrap();
        prop_assert_eq!(name(&read.to_string()), bytes.clone());
        prop_assert_eq!(name(&format!("ndn:{read}/")), bytes);
    }

    #[test]
    fn any_text_is_a_name_or_refused(text in "[a-z0-9%=./~ é]{0,40}") {
        let mut bytes = [0; 200];
        let mut out = Writer::new(&mut bytes);
        if write_uri(&text, &mut out).is_ok() {
            let read = Name::parse(out.written()).unwrap();
            prop_assert_eq!(name(&read.to_string()), out.written());
        }
    }

    #[test]
    fn the_order_of_names_is_total(one in name_strategy(), two in name_strategy()) {
        let (one, two) = (Name::parse(&one).unwrap(), Name::parse(&two).unwrap());
        prop_assert_eq!(one.cmp(&two), two.cmp(&one).reverse());
        prop_assert_eq!(one == two, one.cmp(&two).is_eq());
        prop_assert_eq!(one.is_prefix_of(&two), two.prefix(one.len()) == one && one.len() <= two.len());
        if one != two && one.is_prefix_of(&two) {
            prop_assert!(one < two);
        }
    }

    #[test]
    fn numbers_take_as_few_bytes_as_possible(number in any::<u64>(), kind in 1u32.., len in 0usize..70_000) {
        let mut bytes = [0; 8];
        let shortest = tlv::integer_bytes(number, &mut bytes);
        prop_assert_eq!(tlv::integer(shortest, Type::VERSION), Ok(number));
        prop_assert!(shortest.len() == 1 || number >= 1 << (4 * shortest.len()));
        let wire = element(kind, &vec![0; len]);
        prop_assert_eq!(wire.len(), tlv::element_len(Type(kind), len));
        prop_assert_eq!(tlv::only(&wire, Type(kind)).map(<[u8]>::len), Ok(len));
    }
}

#[test]
fn a_nonce_is_inserted_at_its_place() {
    let name = name("/a");
    let interest = Interest {
        name: Name::parse(&name).unwrap(),
        can_be_prefix: true,
        lifetime: Some(9),
        parameters: Some(b"on"),
        ..Interest::default()
    };
    let with_nonce = interest_bytes(&Interest { nonce: Some([1, 2, 3, 4]), ..interest });
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    write_with_nonce(&interest_bytes(&interest), [1, 2, 3, 4], &mut frame).unwrap();
    assert_eq!(frame.bytes(), with_nonce);
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    assert_eq!(write_with_nonce(b"", [0; 4], &mut frame), Err(WriteError::Name));
}

#[test]
fn texts_of_names_are_those_of_the_conventions() {
    let digits = "01".repeat(32);
    let texts = [
        "/".into(),
        "/house/temp/v=7/seg=0".into(),
        "/%C3%A9/a%20b/.../....".into(),
        "/off=1024/t=1700000000000000/seq=18446744073709551615".into(),
        "/32=metadata/300=x".into(),
        format!("/a/sha256digest={digits}"),
        format!("/a/params-sha256={digits}"),
    ];
    for text in texts {
        assert_eq!(Name::parse(&name(&text)).unwrap().to_string(), text);
    }
    // A version that is not in as few bytes as possible, and one without a number, have the text of any other type.
    for (value, text) in [(&[0, 7][..], "/54=%00%07"), (&[1, 2, 3], "/54=%01%02%03")] {
        assert_eq!(Name::parse(&element(54, value)).unwrap().to_string(), text);
    }
    let refused = [
        ("/a//b", UriError::Empty),
        ("/%4", UriError::Hexadecimal),
        ("/%zz", UriError::Hexadecimal),
        ("/sha256digest=00", UriError::Hexadecimal),
        ("/0=a", UriError::Type),
        ("/1=a", UriError::Type),
        ("/65536=a", UriError::Type),
        ("/what=a", UriError::Type),
        ("/v=seven", UriError::Number),
    ];
    for (text, error) in refused {
        assert_eq!(write_uri(text, &mut Writer::new(&mut [0; 100])), Err(error), "{text}");
    }
    assert_eq!(write_uri("/much/too/long", &mut Writer::new(&mut [0; 5])), Err(UriError::Full));
}

#[test]
fn names_have_the_canonical_order() {
    let ordered = ["/", "/a", "/a/a", "/b", "/aa", "/9=a", "/v=1"];
    for pair in ordered.windows(2) {
        let (one, two) = (name(pair[0]), name(pair[1]));
        assert!(Name::parse(&one).unwrap() < Name::parse(&two).unwrap(), "{pair:?}");
    }
}

/// Parses an Interest that has the name `/a` and then these elements.
fn interest_with(elements: &[Vec<u8>]) -> Result<(), Error> {
    let value = [element(7, &name("/a")), elements.concat()].concat();
    ReceivedInterest::parse(&element(5, &value)).map(|_| ())
}

#[test]
fn elements_that_are_unknown_repeated_or_out_of_order_are_refused_if_they_are_critical() {
    let nonce = element(10, b"1234");
    let lifetime = element(12, &[9]);
    assert_eq!(interest_with(&[nonce.clone(), lifetime.clone()]), Ok(()));
    for kind in [3, 31, 99, 253, 0x1_0001] {
        assert_eq!(interest_with(&[nonce.clone(), element(kind, b"x")]), Err(Error::Critical(Type(kind))));
    }
    for kind in [100, 254, 0x1_0000] {
        assert_eq!(interest_with(&[element(kind, b"x"), nonce.clone(), element(kind, b"")]), Ok(()), "{kind}");
    }
    assert_eq!(interest_with(&[nonce.clone(), nonce.clone()]), Err(Error::Critical(Type::NONCE)));
    assert_eq!(interest_with(&[lifetime, nonce.clone()]), Err(Error::Critical(Type::NONCE)));
    // HopLimit is not critical, so one at a wrong place is no HopLimit.
    let wire = element(5, &[element(7, &name("/a")), element(34, &[1]), nonce, element(34, &[2])].concat());
    assert!(matches!(ReceivedInterest::parse(&wire), Err(Error::Critical(Type::NONCE))));
    let wire = element(5, &[element(7, &name("/a")), element(34, &[1]), element(34, &[2])].concat());
    assert_eq!(ReceivedInterest::parse(&wire).unwrap().interest.hop_limit, Some(1));
    // No element precedes the name.
    let wire = element(5, &[element(100, b""), element(7, &name("/a"))].concat());
    assert_eq!(ReceivedInterest::parse(&wire).err(), Some(Error::Missing(Type::NAME)));
}

#[test]
fn values_of_a_wrong_length_are_refused() {
    for (kind, value) in [(33, &[0][..]), (18, &[0]), (10, &[0; 3]), (12, &[0; 3]), (34, &[0; 2]), (34, &[])] {
        assert_eq!(interest_with(&[element(kind, value)]), Err(Error::Length(Type(kind))), "{kind}");
    }
    assert_eq!(Name::parse(&element(1, &[0; 31])), Err(Error::Length(Type::IMPLICIT_DIGEST)));
    assert_eq!(Name::parse(&element(0x1_0000, &[0; 31])), Err(Error::Type));
    // A type of 0, and lengths that are not as short as possible.
    for bytes in [
        &[0, 0][..],
        &[253, 0, 8, 0],
        &[8, 253, 0, 1, 0],
        &[8, 254, 0, 0, 0, 1, 0],
        &[8, 255, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    ] {
        assert!(matches!(Name::parse(bytes), Err(Error::Type | Error::NotShortest)), "{bytes:?}");
    }
    // A length beyond every buffer.
    assert_eq!(Name::parse(&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255]), Err(Error::Truncated));
    assert_eq!(Elements::of(&[8, 9, 1]).count(), 1, "nothing is read after an error");
    let wire = interest_bytes(&Interest { name: Name::parse(&name("/a")).unwrap(), ..Interest::default() });
    assert_eq!(ReceivedInterest::parse(&[&wire[..], &[0]].concat()).err(), Some(Error::Trailing));
}

#[test]
fn the_name_of_an_interest_fits_its_parameters() {
    let digits = "00".repeat(32);
    let with_digest = element(7, &name(&format!("/a/params-sha256={digits}")));
    let twice = element(7, &name(&format!("/a/params-sha256={digits}/params-sha256={digits}")));
    let parameters = element(36, b"");
    for (elements, error) in [
        (vec![element(7, b"")], Error::Name),
        (vec![with_digest.clone()], Error::Name),
        (vec![element(7, &name("/a")), parameters.clone()], Error::Name),
        (vec![twice, parameters.clone()], Error::Name),
        (
            vec![with_digest.clone(), parameters.clone(), element(44, &[27, 1, 0])],
            Error::Missing(Type::INTEREST_SIGNATURE_VALUE),
        ),
        (
            vec![with_digest.clone(), parameters.clone(), element(46, &[0; 32])],
            Error::Missing(Type::INTEREST_SIGNATURE_INFO),
        ),
    ] {
        assert_eq!(ReceivedInterest::parse(&element(5, &elements.concat())).err(), Some(error));
    }
    let wire = element(5, &[with_digest, parameters].concat());
    assert!(!ReceivedInterest::parse(&wire).unwrap().has_valid_digest::<RustCrypto>(), "the digest is wrong");

    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    assert_eq!(Interest::default().write::<RustCrypto>(&mut frame), Err(WriteError::Name));
    let named = name(&format!("/a/params-sha256={digits}"));
    let interest = Interest { name: Name::parse(&named).unwrap(), parameters: Some(b""), ..Interest::default() };
    assert_eq!(interest.write::<RustCrypto>(&mut frame), Err(WriteError::Name));
    let interest =
        Interest { name: Name::parse(&named[..3]).unwrap(), parameters: Some(&[0; 200]), ..Interest::default() };
    assert_eq!(interest.write::<RustCrypto>(&mut frame), Err(WriteError::Full));
    assert!(frame.is_empty());
}

/// Signs a Data packet and an Interest with `signer`. `verifier` must accept both signatures, and `other` must refuse
/// both.
fn sign_and_verify(
    signer: &impl Signer<RustCrypto>,
    verifier: &impl Verifier<RustCrypto>,
    other: &impl Verifier<RustCrypto>,
) {
    let bytes = name("/house/temp");
    let name = Name::parse(&bytes).unwrap();
    let wire = data_bytes(&Data { name, content: Some(b"21.5"), ..Data::default() }, signer);
    let received = ReceivedData::parse(&wire).unwrap();
    assert_eq!(received.signed.info, signer.info());
    received.signed.verify(&mut crypto(), verifier).unwrap();
    received.signed.verify(&mut crypto(), other).unwrap_err();

    let info =
        SignatureInfo { nonce: Some(b"nonce"), time: Some(1_700_000_000_000), sequence: Some(300), ..signer.info() };
    for parameters in [None, Some(&b"on"[..])] {
        let mut storage = [0; 600];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let interest = Interest { name, parameters, nonce: Some([1; 4]), ..Interest::default() };
        interest.write_signed(&mut crypto(), signer, &info, &mut frame).unwrap();
        let mut wire = frame.bytes().to_vec();
        let received = ReceivedInterest::parse(&wire).unwrap();
        assert!(received.has_valid_digest::<RustCrypto>());
        assert_eq!(received.interest.parameters, Some(parameters.unwrap_or(b"")));
        let signed = received.signed.unwrap();
        assert_eq!(signed.info, info);
        signed.verify(&mut crypto(), verifier).unwrap();
        signed.verify(&mut crypto(), other).unwrap_err();
        // The Nonce is not signed, so that forwarders may change it.
        let place = wire.windows(6).position(|bytes| bytes == [10, 4, 1, 1, 1, 1]).unwrap();
        wire[place + 2] = 9;
        ReceivedInterest::parse(&wire).unwrap().signed.unwrap().verify(&mut crypto(), verifier).unwrap();
        // The last byte of the name before the digest is.
        let place = wire.windows(4).position(|bytes| bytes == b"temp").unwrap();
        wire[place] = b'T';
        ReceivedInterest::parse(&wire).unwrap().signed.unwrap().verify(&mut crypto(), verifier).unwrap_err();
    }
}

#[test]
fn each_signature_is_verified_by_its_key_alone() {
    let bytes = name("/house/KEY/1");
    let locator = KeyLocator::Name(Name::parse(&bytes).unwrap());
    let short = KeyLocator::Digest(&[1]);
    let hmac = HmacKey::new::<RustCrypto>(&[b"key"]);
    let other_hmac = HmacKey::new::<RustCrypto>(&[b"another"]);
    sign_and_verify(&DigestSha256, &DigestSha256, &hmac);
    sign_and_verify(&HmacWithSha256 { key: &hmac, locator: short }, &hmac, &other_hmac);
    sign_and_verify(&HmacWithSha256 { key: &hmac, locator }, &hmac, &DigestSha256);

    let key = Secret::new([3; 32]);
    let public = Ed25519PublicKey(ed25519::public_key_of(key.expose()));
    let other = Ed25519PublicKey(ed25519::public_key_of(&[4; 32]));
    sign_and_verify(&Ed25519 { key: &key, locator }, &public, &other);

    let ecdsa_key = |crypto: &mut RustCrypto| {
        let (mut private, mut share) = (Secret::zeroed(), [0; 65]);
        crypto.key_pair(NamedGroup::SECP256R1, private.expose_mut(), &mut share).unwrap();
        (private, [&P256_PREFIX[..], &share].concat())
    };
    let mut crypto = crypto();
    let ((private, public), (_, another)) = (ecdsa_key(&mut crypto), ecdsa_key(&mut crypto));
    let (verifier, other) = (EcdsaPublicKey(&public), EcdsaPublicKey(&another));
    sign_and_verify(&Sha256WithEcdsa { key: &private, locator }, &verifier, &other);
    // A key never verifies a signature of another kind.
    sign_and_verify(&Sha256WithEcdsa { key: &private, locator: short }, &verifier, &Ed25519PublicKey([9; 32]));
}

#[test]
fn a_key_locator_with_a_name_and_a_digest_is_refused() {
    let locator = [element(7, &name("/a")), element(29, b"1")].concat();
    for (locator, expected) in [
        (locator, Err(Error::Critical(Type::KEY_DIGEST))),
        (Vec::new(), Ok(None)),
        (element(29, b"1"), Ok(Some(KeyLocator::Digest(b"1")))),
    ] {
        let info = element(22, &[element(27, &[4]), element(28, &locator)].concat());
        let wire = element(6, &[element(7, &name("/a")), info, element(23, &[0; 32])].concat());
        let read = ReceivedData::parse(&wire);
        assert_eq!(read.as_ref().map(|received| received.signed.info.key).map_err(|error| *error), expected);
        assert!(read.is_err() || read.unwrap().signed.info.kind == SignatureType::HMAC_WITH_SHA256);
    }
}
