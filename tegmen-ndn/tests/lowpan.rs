//! Tests of compressed packets. Each packet is restored, and bytes that are not a compressed packet are refused.

use proptest::collection::vec;
use proptest::prelude::*;
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::crypto::hash::HmacKey;
use tegmen_base::crypto::{MAX_SIGNATURE, RustCrypto, Unsupported};
use tegmen_ndn::lowpan::{Context, HEADROOM, HopId, PAGE, compress, decompress, time_code, time_value};
use tegmen_ndn::signature::{DigestSha256, HmacWithSha256, KeyLocator, SignatureInfo, SignatureType, Signer};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, ContentType, Data, Error, Interest, MAX_HEAD, Name, Names, ReceivedData, write_uri};
use tegmen_ndn::{ReceivedInterest, tlv::Elements};

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

fn compressed(packet: &[u8], contexts: &[Context<'_>], hop: Option<(HopId, Name<'_>)>) -> Vec<u8> {
    let mut storage = vec![0; 12_000];
    let mut frame = Frame::new(&mut storage, HEADROOM);
    compress(packet, contexts, hop, &mut frame).unwrap();
    frame.bytes().to_vec()
}

fn restored(
    payload: &[u8],
    contexts: &[Context<'_>],
    interest: Option<Name<'_>>,
) -> Result<(Vec<u8>, Option<HopId>), Error> {
    let mut storage = vec![0; 12_000];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let hop = decompress(payload, contexts, |_| interest, &mut frame)?;
    Ok((frame.bytes().to_vec(), hop))
}

fn secret() -> HmacKey {
    HmacKey::new::<RustCrypto>(&[b"a key of these tests"])
}

fn is_compressed(payload: &[u8]) -> bool {
    payload[1] & 0x10 != 0
}

/// The name and its compressed form are the example of RFC 9139, section 5.2.
#[test]
fn the_name_of_the_rfc_is_compressed_as_there() {
    let name = name("/HAW/Room/481/Humid/99");
    let interest = Interest { name: Name::of_checked(&name), nonce: Some([1, 2, 3, 4]), ..Interest::default() };
    let payload = compressed(&interest_bytes(&interest), &[], None);
    let expected = [&[0x34][..], b"HAWRoom", &[0x35], b"481Humid", &[0x20], b"99"].concat();
    assert_eq!(payload[..4], [PAGE, 0x10, 0, 25]);
    assert_eq!(payload[4..24], expected[..]);
    // The HopLimit that an Interest without one gets, and the Nonce.
    assert_eq!(payload[24..], [255, 1, 2, 3, 4]);
    assert_eq!(payload.len(), 29);
}

#[test]
fn an_even_number_of_components_ends_with_a_zero() {
    let name = name("/HAW/A");
    let interest = Interest { name: Name::of_checked(&name), lifetime: Some(1000), ..Interest::default() };
    let payload = compressed(&interest_bytes(&interest), &[], None);
    assert_eq!(payload, [&[PAGE, 0x10, 0, 8, 0x31][..], b"HAWA", &[0, 255, 0x28]].concat());
}

/// RFC 9139, section 7, gives the ranges of the times.
#[test]
fn times_are_those_of_the_rfc() {
    assert_eq!((time_value(0), time_value(1), time_value(7)), (0, 7, 54));
    assert_eq!((time_value(8), time_value(9)), (62, 70));
    assert_eq!(time_value(255), 125_829_120_000);
    // A second, and the lifetime of an Interest without one.
    assert_eq!((time_value(time_code(1000)), time_value(time_code(4000))), (1000, 4000));
    for code in 0..=255 {
        let value = time_value(code);
        assert!(code == 255 || value < time_value(code + 1));
        // A value is rounded down, so it is below the time of its code if this time has a fraction of a millisecond.
        assert_eq!(time_code(value + 1), code, "the largest time that is not longer than {value} ms and one");
    }
    assert_eq!(time_code(u64::MAX), 255);
    for millis in 0..200_000 {
        assert!(time_value(time_code(millis)) <= millis);
    }
}

#[test]
fn a_data_packet_takes_no_bytes_for_its_types() {
    let name = name("/a/b");
    let data = Data { name: Name::of_checked(&name), content: Some(b"21"), ..Data::default() };
    let packet = data_bytes(&data, &HmacWithSha256 { key: &secret(), locator: KeyLocator::Digest(&[9]) });
    let payload = compressed(&packet, &[], None);
    let head = [PAGE, 0x32, 0, 45, 0x11, b'a', b'b', 0, 2, b'2', b'1', 4, 1, 4, 1, 9, 32];
    assert_eq!(payload[..17], head);
    assert_eq!((packet.len(), payload.len()), (58, 49));
    assert_eq!(restored(&payload, &[], None).unwrap().0, packet);
}

#[test]
fn names_are_shorter_with_contexts_and_hop_ids() {
    let (prefix, whole, key) = (name("/house/floor"), name("/house/floor/room/temp"), name("/house/floor/key"));
    let contexts = [Context { id: 5, prefix: Name::of_checked(&prefix) }];
    let (interest, hop) = (Name::of_checked(&whole), HopId::new(9).unwrap());
    let asked = interest_bytes(&Interest { name: interest, nonce: Some([1, 2, 3, 4]), ..Interest::default() });
    let payload = compressed(&asked, &contexts, Some((hop, interest)));
    assert_eq!(payload[..6], [PAGE, 0x10, 2, 0x89, 5, 15]);
    assert_eq!(restored(&payload, &contexts, None).unwrap().1, Some(hop));
    // With the HopID the name of the Data packet takes one byte, and with the context that of the key takes four less.
    let data = Data { name: interest, content: Some(b"21"), freshness: Some(1000), ..Data::default() };
    let packet =
        data_bytes(&data, &HmacWithSha256 { key: &secret(), locator: KeyLocator::Name(Name::of_checked(&key)) });
    let payload = compressed(&packet, &contexts, Some((hop, interest)));
    let head = [PAGE, 0x30, 2, 0x89, 0x80, 5, 45, 0, 2, b'2', b'1', 6, 1, 4, 0x30, b'k', b'e', b'y', 32];
    assert_eq!(payload[..19], head);
    assert_eq!(restored(&payload, &contexts, Some(interest)).unwrap().0, packet);
    // A longer name keeps its last components.
    let longer = name("/house/floor/room/temp/7");
    let data = Data { name: Name::of_checked(&longer), ..data };
    let packet = data_bytes(&data, &DigestSha256);
    let payload = compressed(&packet, &contexts, Some((hop, interest)));
    assert_eq!(payload[..6], [PAGE, 0x30, 2, 9, 42, 0x10]);
    assert_eq!(restored(&payload, &contexts, Some(interest)).unwrap().0, packet);
}

/// The name of the context has the second place in the list of context identifiers, also if there is no HopID.
#[test]
fn names_are_shorter_with_contexts_and_hop_ids_also_without_a_hop_id() {
    let (prefix, whole, other) = (name("/house"), name("/house/temp"), name("/garden"));
    let contexts = [Context { id: 5, prefix: Name::of_checked(&prefix) }];
    let data = Data { name: Name::of_checked(&whole), content: Some(b"21"), ..Data::default() };
    let packet = data_bytes(&data, &DigestSha256);
    // The neighbour has chosen a HopID for another name, so it cannot replace this one.
    let hop = Some((HopId::new(9).unwrap(), Name::of_checked(&other)));
    for hop in [None, hop] {
        let payload = compressed(&packet, &contexts, hop);
        assert_eq!(payload[..5], [PAGE, 0x30, 2, 0x80, 5]);
        assert_eq!(restored(&payload, &contexts, None).unwrap().0, packet);
        let payload = compressed(&packet, &[], hop);
        assert_eq!(payload[..3], [PAGE, 0x30, 0]);
    }
}

#[test]
fn a_freshness_period_is_the_last_byte() {
    let name = name("/a");
    let data = Data { name: Name::of_checked(&name), content: Some(b"21"), ..Data::default() };
    let without = compressed(&data_bytes(&data, &DigestSha256), &[], None);
    let packet = data_bytes(&Data { freshness: Some(4000), ..data }, &DigestSha256);
    let with = compressed(&packet, &[], None);
    assert_eq!((with.len(), with.last()), (without.len() + 1, Some(&time_code(4000))));
    assert_eq!(restored(&with, &[], None).unwrap().0, packet);
}

#[test]
fn a_hint_or_a_key_whose_name_is_too_long_stays_uncompressed() {
    let (good, fits, long) = (name("/a"), name("/fifteen-letters"), name("/a-component-of-sixteen"));
    for (other, is_short) in [(&fits, true), (&long, false)] {
        let hint = [element(7, &good), element(7, other)].concat();
        let hint = Some(Names::parse(&hint).unwrap());
        let packet = interest_bytes(&Interest { name: Name::of_checked(&good), hint, ..Interest::default() });
        assert_eq!(is_compressed(&compressed(&packet, &[], None)), is_short);
        let key = HmacWithSha256 { key: &secret(), locator: KeyLocator::Name(Name::of_checked(other)) };
        let data = Data { name: Name::of_checked(&good), content: Some(b"21"), ..Data::default() };
        assert_eq!(is_compressed(&compressed(&data_bytes(&data, &key), &[], None)), is_short);
    }
}

#[test]
fn an_unknown_context_or_hop_id_is_refused() {
    let (prefix, whole) = (name("/house"), name("/house/temp"));
    let contexts = [Context { id: 5, prefix: Name::of_checked(&prefix) }];
    let interest = Name::of_checked(&whole);
    let data = Data { name: interest, content: Some(b"21"), ..Data::default() };
    let packet = data_bytes(&data, &DigestSha256);
    let payload = compressed(&packet, &contexts, None);
    assert_eq!(restored(&payload, &[], None).unwrap_err(), Error::Compression);
    let payload = compressed(&packet, &[], Some((HopId::new(1).unwrap(), interest)));
    assert_eq!(restored(&payload, &[], None).unwrap_err(), Error::Compression);
    assert_eq!((HopId::new(0), HopId::new(128)), (None, None));
}

/// The HopID of a Data packet replaces the context of its name, so no receiver knows which bytes a second one means.
#[test]
fn a_context_after_the_hop_id_of_a_data_packet_is_refused() {
    let (prefix, whole) = (name("/house"), name("/house/temp"));
    let contexts = [Context { id: 5, prefix: Name::of_checked(&prefix) }];
    let interest = Name::of_checked(&whole);
    let data = Data { name: interest, content: Some(b"21"), ..Data::default() };
    let packet = data_bytes(&data, &DigestSha256);
    let payload = compressed(&packet, &contexts, Some((HopId::new(1).unwrap(), interest)));
    assert_eq!(payload[..4], [PAGE, 0x30, 2, 1]);
    for id in [5, 99] {
        let mut chained = payload.clone();
        chained.splice(3..4, [0x81, id]);
        assert_eq!(restored(&chained, &contexts, Some(interest)).unwrap_err(), Error::Compression);
    }
    // The same frame with a context that is absent, and one with more CIDs than a packet can use.
    let mut chained = payload.clone();
    chained.splice(3..4, [0x81, 0]);
    assert_eq!(restored(&chained, &contexts, Some(interest)).unwrap().0, packet);
    chained.splice(4..5, [0x80, 0x80, 0]);
    assert_eq!(restored(&chained, &contexts, Some(interest)).unwrap_err(), Error::Compression);
}

/// The sender and the receiver of a Data packet use the same HopID for different names. So the receiver restores a
/// packet with the wrong name, and the signature does not fit this name.
#[test]
fn a_stale_hop_id_spoils_the_signature() {
    let (asked, other) = (name("/house/temp"), name("/house/door"));
    let data = Data { name: Name::of_checked(&asked), content: Some(b"21"), ..Data::default() };
    let secret = secret();
    let key = HmacWithSha256 { key: &secret, locator: KeyLocator::Digest(&[9]) };
    let hop = Some((HopId::new(1).unwrap(), Name::of_checked(&asked)));
    let payload = compressed(&data_bytes(&data, &key), &[], hop);
    let (packet, _) = restored(&payload, &[], Some(Name::of_checked(&other))).unwrap();
    let received = ReceivedData::parse(&packet).unwrap();
    assert_eq!(received.data.name, Name::of_checked(&other));
    assert!(received.signed.verify(&mut crypto(), &secret).is_err());
}

/// The rules of RFC 9139 do not cover the packets of this test.
#[test]
fn other_packets_are_sent_uncompressed() {
    let secret = secret();
    let key = HmacWithSha256 { key: &secret, locator: KeyLocator::Digest(&[9]) };
    let digest = "1".repeat(64);
    let long = name("/a-component-of-sixteen");
    let version = name("/a/v=1");
    let good = name("/a");
    let base = Data { name: Name::of_checked(&good), content: Some(b"21"), ..Data::default() };
    let datas = [
        Data { name: Name::of_checked(&long), ..base },
        Data { name: Name::of_checked(&version), ..base },
        // No code of a time has this value.
        Data { freshness: Some(1001), ..base },
        Data { final_block: Some(Component { kind: Type::SEGMENT, value: &[1] }), ..base },
        Data { content: None, ..base },
    ];
    for data in datas {
        let packet = data_bytes(&data, &key);
        let payload = compressed(&packet, &[], None);
        assert_eq!(payload, [&[PAGE, 0x20][..], &packet].concat());
        assert_eq!(restored(&payload, &[], None).unwrap().0, packet);
    }
    // A number that is longer than necessary would be restored shorter.
    let mut packet = data_bytes(&Data { freshness: Some(0), ..base }, &DigestSha256);
    let place = packet.windows(2).position(|bytes| bytes == [25, 1]).unwrap();
    packet.splice(place + 1..place + 3, [2, 0, 0]);
    packet[1] += 1;
    packet[place - 1] += 1;
    assert!(ReceivedData::parse(&packet).is_ok());
    assert_eq!(compressed(&packet, &[], None), [&[PAGE, 0x20][..], &packet].concat());
    // A signed Interest.
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let interest = Interest { name: Name::of_checked(&good), ..Interest::default() };
    interest.write_signed(&mut crypto(), &key, &Signer::<RustCrypto>::info(&key), &mut frame).unwrap();
    assert_eq!(compressed(frame.bytes(), &[], None), [&[PAGE, 0][..], frame.bytes()].concat());
    // A digest that is not the last component.
    let inner = name(&format!("/sha256digest={digest}/a"));
    let interest = interest_bytes(&Interest { name: Name::of_checked(&inner), ..Interest::default() });
    assert!(!is_compressed(&compressed(&interest, &[], None)));
}

/// A signer that writes this SignatureInfo. Its signature is not valid.
struct Described(SignatureInfo<'static>);

impl Signer<RustCrypto> for Described {
    fn info(&self) -> SignatureInfo<'_> {
        self.0
    }

    fn sign(&self, _: &mut RustCrypto, _: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        out.fill(7);
        Ok(32)
    }
}

#[test]
fn only_a_known_signature_without_optional_elements_is_compressed() {
    let good = name("/a");
    let data = Data { name: Name::of_checked(&good), content: Some(b"21"), ..Data::default() };
    let is_compressed = |info| {
        let packet = data_bytes(&data, &Described(info));
        let payload = compressed(&packet, &[], None);
        assert_eq!(restored(&payload, &[], None).unwrap().0, packet);
        is_compressed(&payload)
    };
    let key = Some(KeyLocator::Digest(&[9]));
    for kind in 0..300 {
        assert_eq!(is_compressed(SignatureInfo::new(SignatureType(kind), None)), kind == 0, "{kind}");
        let has_key = matches!(kind, 1 | 3 | 4 | 5);
        assert_eq!(is_compressed(SignatureInfo::new(SignatureType(kind), key)), has_key, "{kind}");
    }
    let plain = SignatureInfo::new(SignatureType::HMAC_WITH_SHA256, key);
    assert!(is_compressed(plain));
    assert!(!is_compressed(SignatureInfo { nonce: Some(&[1]), ..plain }));
    assert!(!is_compressed(SignatureInfo { time: Some(1), ..plain }));
    assert!(!is_compressed(SignatureInfo { sequence: Some(1), ..plain }));
    assert!(!is_compressed(SignatureInfo { validity: Some(&[1]), ..plain }));
}

#[test]
fn bytes_that_are_no_packet_are_not_compressed() {
    let mut storage = [0; 100];
    for bytes in [&[][..], &[5], &[100, 0], &[5, 0, 0]] {
        let mut frame = Frame::new(&mut storage, HEADROOM);
        assert!(compress(bytes, &[], None, &mut frame).is_err());
        assert!(frame.is_empty());
    }
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => vec(any::<u8>(), 1..16).prop_map(|value| element(8, &value)),
        1 => vec(any::<u8>(), 0..40).prop_map(|value| element(8, &value)),
        1 => vec(any::<u8>(), 32).prop_map(|value| element(1, &value)),
        1 => (3u32..=300, vec(any::<u8>(), 0..8)).prop_map(|(kind, value)| element(kind, &value)),
    ]
}

fn some_name() -> impl Strategy<Value = Vec<u8>> {
    vec(component(), 1..6).prop_map(|components| components.concat())
}

/// Generates times in milliseconds. For some of these times there is a code of one byte that means exactly this time.
fn some_time() -> impl Strategy<Value = u64> {
    prop_oneof![(0u8..=200).prop_map(time_value), 0..100_000u64, any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_data_packet_is_restored_to_the_last_byte(
        name in some_name(),
        (content_type, freshness) in (proptest::option::of(0..70_000u64), proptest::option::of(some_time())),
        last in proptest::option::of(component()),
        content in proptest::option::of(vec(any::<u8>(), 0..300)),
        (kind, key) in (0..3, some_name()),
        (known, hop, cut) in (any::<bool>(), any::<bool>(), 0usize..6),
    ) {
        let final_block = last.as_ref().map(|last| {
            let last = Elements::of(last).next().unwrap().unwrap();
            Component { kind: last.kind, value: last.value }
        });
        let name = Name::parse(&name).unwrap();
        let data = Data { name, content_type: content_type.map(ContentType), freshness, final_block, content: content.as_deref() };
        let packet = match kind {
            0 => data_bytes(&data, &DigestSha256),
            1 => data_bytes(&data, &HmacWithSha256 { key: &secret(), locator: KeyLocator::Digest(&key) }),
            _ => data_bytes(&data, &HmacWithSha256 { key: &secret(), locator: KeyLocator::Name(Name::parse(&key).unwrap()) }),
        };
        let prefix = name.prefix(cut);
        let contexts = [Context { id: 127, prefix }, Context { id: 1, prefix: Name::parse(&key).unwrap().prefix(1) }];
        let contexts = if known { &contexts[..] } else { &[] };
        let hop = hop.then(|| (HopId::new(77).unwrap(), prefix));
        let payload = compressed(&packet, contexts, hop);
        let (read, id) = restored(&payload, contexts, hop.map(|(_, name)| name)).unwrap();
        prop_assert_eq!(&read, &packet);
        prop_assert_eq!(id, None);
        prop_assert!(payload.len() <= packet.len() + 2);
        for end in 0..payload.len() {
            prop_assert!(restored(&payload[..end], contexts, Some(prefix)).is_err());
        }
    }

    #[test]
    fn each_interest_is_restored_with_a_hop_limit_and_a_shorter_lifetime(
        name in some_name(),
        hint in proptest::option::of(vec(some_name(), 1..3)),
        (can_be_prefix, must_be_fresh, hop) in any::<(bool, bool, bool)>(),
        (nonce, hop_limit) in any::<(Option<[u8; 4]>, Option<u8>)>(),
        lifetime in proptest::option::of(some_time()),
        parameters in proptest::option::of(vec(any::<u8>(), 0..300)),
        cut in 0usize..6,
    ) {
        let hint: Option<Vec<u8>> = hint.map(|names| names.iter().flat_map(|name| element(7, name)).collect());
        let hint = hint.as_ref().map(|hint| Names::parse(hint).unwrap());
        let name = Name::parse(&name).unwrap();
        let interest = Interest { name, can_be_prefix, must_be_fresh, hint, nonce, lifetime, hop_limit, parameters: parameters.as_deref() };
        let packet = interest_bytes(&interest);
        let sent = ReceivedInterest::parse(&packet).unwrap().interest;
        let contexts = [Context { id: 3, prefix: name.prefix(cut) }];
        let hop = hop.then(|| (HopId::new(100).unwrap(), name));
        let payload = compressed(&packet, &contexts, hop);
        let (read, id) = restored(&payload, &contexts, None).unwrap();
        if is_compressed(&payload) {
            prop_assert_eq!(id, hop.map(|(id, _)| id));
            let received = ReceivedInterest::parse(&read).unwrap();
            prop_assert!(received.has_valid_digest::<RustCrypto>());
            let expected = Interest {
                hop_limit: Some(hop_limit.unwrap_or(255)),
                lifetime: lifetime.map(|lifetime| time_value(time_code(lifetime))),
                ..sent
            };
            prop_assert_eq!(received.interest, expected);
        } else {
            prop_assert_eq!(&read, &packet);
        }
        for end in 0..payload.len() {
            prop_assert!(restored(&payload[..end], &contexts, None).is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut payload in vec(any::<u8>(), 0..120), first in any::<u8>(), second in any::<u8>()) {
        payload.splice(0..0, [PAGE, first & 0x3f, second & 0x82]);
        let prefix = name("/a/b");
        let contexts = [Context { id: 3, prefix: Name::of_checked(&prefix) }];
        let _ = restored(&payload, &contexts, Some(Name::of_checked(&prefix)));
    }
}
