//! Tests the certificates in `vectors/x509` on a mote, without changes and with changed bytes.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tegmen::crypto::{Compact, MAX_SIGNATURE, curves, digest};
use tegmen::dtls::certificates;
use tegmen_x509::{Anchor, EndEntity, KeyPurpose, Name, Path, PublicKey, Refusal, Rules, UnixTime};

static CERTIFICATES: LazyLock<BTreeMap<&str, Vec<u8>>> = LazyLock::new(|| {
    let line = |line: &'static str| line.split_once(' ').map(|(name, digits)| (name, hex(digits)));
    include_str!("../../vectors/x509/certificates.txt").lines().filter_map(line).collect()
});

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Returns the anchor with the subject and the public key of a certificate. The subject of this certificate must be
/// equal to its issuer.
fn anchor(der: &[u8]) -> Anchor<'_> {
    let names: Vec<usize> = (0..der.len() - 4).filter(|at| der[*at..].starts_with(&[0x30, 0x15, 0x31])).collect();
    let key = (0..der.len() - 91).find(|at| der[*at..].starts_with(&[0x30, 0x59, 0x30])).unwrap();
    let public_key: &PublicKey = der[key..key + 91].try_into().unwrap();
    assert_eq!(names.len(), 2);
    Anchor { name: &der[names[1]..names[1] + 0x17], public_key }
}

/// Returns a certificate_list without its outer length.
fn list(certificates: &[&[u8]]) -> Vec<u8> {
    let of = |der: &&[u8]| [&(der.len() as u32).to_be_bytes()[1..], der].concat();
    certificates.iter().flat_map(of).collect()
}

const NOW: Option<UnixTime> = Some(UnixTime(1_790_000_000));

fn verify(purpose: KeyPurpose, name: Name<'_>, now: Option<UnixTime>, list: &[u8]) -> Result<EndEntity, Refusal> {
    let anchors = [anchor(&CERTIFICATES["root"])];
    let rules = Rules { anchors: &anchors, purpose, name, now };
    let verdict = rules.verify(&mut Compact::new([1; 32]), list);
    let each: Vec<&[u8]> = certificates(list).collect();
    // A list that does not parse to its end never comes to be taken one at a time.
    if each.iter().map(|der| der.len() + 3).sum::<usize>() == list.len() && !each.is_empty() {
        assert_eq!(one_at_a_time(&rules, &each), verdict);
    }
    verdict
}

/// Verifies the certificates of a list one at a time, with a [`Path`] that has taken another certificate before.
fn one_at_a_time(rules: &Rules<'_>, certificates: &[&[u8]]) -> Result<EndEntity, Refusal> {
    let (mut path, mut crypto) = (Path::new(rules), Compact::new([1; 32]));
    let _ = path.take(&mut crypto, &CERTIFICATES["device_of_sub"], true, false);
    for (at, der) in certificates.iter().enumerate() {
        let is_last = at + 1 == certificates.len();
        match path.take(&mut crypto, der, at == 0, is_last)? {
            Some(end_entity) => {
                assert!(is_last);
                return Ok(*end_entity);
            }
            None => assert!(!is_last),
        }
    }
    panic!("no verdict with the last certificate")
}

/// Verifies the certificates that a client sends to a server.
fn client(list: &[u8]) -> Result<EndEntity, Refusal> {
    verify(KeyPurpose::Client, Name::Any, NOW, list)
}

fn chain(names: &[&str]) -> Vec<u8> {
    list(&names.iter().map(|name| &CERTIFICATES[name][..]).collect::<Vec<_>>())
}

#[test]
fn every_case_comes_out_as_written() {
    let mut seen = BTreeMap::new();
    for case in include_str!("../../vectors/x509/cases.txt").lines() {
        let (asked, names) = case.split_once(" :").unwrap();
        let [expected, purpose, name, now] = asked.split(' ').collect::<Vec<_>>()[..] else { panic!("{case}") };
        let purpose = if purpose == "client" { KeyPurpose::Client } else { KeyPurpose::Server };
        let name = match name.split_once(':') {
            None => Name::Any,
            Some(("dns", name)) => Name::Dns(name.as_bytes()),
            Some((_, id)) => Name::Eui64(hex(id).try_into().unwrap()),
        };
        let now = now.parse().ok().map(UnixTime);
        let verdict = verify(purpose, name, now, &chain(&names.split_whitespace().collect::<Vec<_>>()));
        let verdict = verdict.map_or_else(|refusal| format!("{refusal:?}"), |_| "Ok".to_owned());
        assert_eq!(verdict, expected, "{case}");
        *seen.entry(expected).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 17, "a case for each refusal, and some for none: {seen:?}");
}

#[test]
fn an_end_entity_is_told_as_its_path_says() {
    let end_entity = client(&chain(&["device_of_sub", "sub_ends"])).unwrap();
    assert_eq!(end_entity.eui64, Some([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]));
    assert_eq!(end_entity.not_after, UnixTime(1_924_991_999), "that of the CA comes first");
    assert!(CERTIFICATES["device_of_sub"].windows(91).any(|bytes| bytes == end_entity.public_key));
    assert_eq!(client(&chain(&["bare"])).unwrap().eui64, None);
    assert_eq!(client(&chain(&["eui_not_leftmost"])).unwrap().eui64, None);
}

#[test]
fn one_certificate_is_held_at_a_time() {
    let anchors = [anchor(&CERTIFICATES["root"])];
    let rules = Rules { anchors: &anchors, purpose: KeyPurpose::Client, name: Name::Any, now: NOW };
    let (mut path, mut crypto) = (Path::new(&rules), Compact::new([1; 32]));
    let mut place = Vec::new();
    let mut add = |name: &str, path: &mut Path<'_>| {
        place.clear();
        place.extend_from_slice(&CERTIFICATES[name]);
        path.add(&mut crypto, &place).map(|end_entity| end_entity.copied())
    };
    assert_eq!(add("device_of_subsub", &mut path), Ok(None));
    assert_eq!(add("subsub", &mut path), Ok(None));
    assert!(matches!(add("sub", &mut path), Ok(Some(_))));
    assert!(size_of::<Path<'_>>() <= 304, "{}", size_of::<Path<'_>>());
}

#[test]
fn several_anchors_of_one_name_are_tried() {
    let anchors = ["impostor", "root"].map(|name| anchor(&CERTIFICATES[name]));
    let rules = Rules { anchors: &anchors, purpose: KeyPurpose::Client, name: Name::Any, now: NOW };
    for name in ["device", "device_of_impostor"] {
        assert!(rules.verify(&mut Compact::new([1; 32]), &chain(&[name])).is_ok(), "{name}");
    }
    assert!(Rules { anchors: &[], ..rules }.verify(&mut Compact::new([1; 32]), &chain(&["device"])).is_err());
}

#[test]
fn no_byte_of_a_path_can_be_changed() {
    let good = chain(&["device_of_sub", "sub"]);
    assert!(client(&good).is_ok());
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(client(&changed).is_err(), "byte {at}");
    }
    for len in 0..good.len() {
        assert!(client(&good[..len]).is_err(), "length {len}");
    }
}

#[test]
fn signatures_have_one_encoding() {
    let device = &CERTIFICATES["device"];
    // The signature is the last element: a BIT STRING of a SEQUENCE of two INTEGERs.
    let at = (0..device.len()).rev().find(|at| {
        device[*at] == 3
            && usize::from(device[*at + 1]) == device.len() - at - 2
            && device[*at + 2..].starts_with(&[0, 0x30])
    });
    let (body, signature) = device.split_at(at.unwrap());
    let r_len = usize::from(signature[6]);
    let (r, s) = (&signature[7..7 + r_len], &signature[9 + r_len..]);
    let with = |numbers: &[u8], behind: &[u8]| {
        let signature = [&[0, 0x30, numbers.len() as u8][..], numbers, behind].concat();
        let mut der = [body, &[3, signature.len() as u8][..], &signature].concat();
        let len = der.len() as u16 - 4;
        der[2..4].copy_from_slice(&len.to_be_bytes());
        client(&list(&[&der]))
    };
    let integer = |number: &[u8]| [&[2, number.len() as u8][..], number].concat();
    let padded = |number: &[u8]| integer(&[&[0][..], number].concat());
    assert!(with(&[integer(r), integer(s)].concat(), &[]).is_ok());
    for numbers in [
        [padded(r), integer(s)].concat(),
        [integer(r), padded(s)].concat(),
        [vec![2, 0x81, r.len() as u8], r.to_vec(), integer(s)].concat(),
        [integer(r), integer(s), integer(&[1])].concat(),
        [integer(&[0]), integer(s)].concat(),
        [integer(r), integer(&[])].concat(),
        [integer(&[1; 33]), integer(s)].concat(),
        integer(r),
    ] {
        assert_eq!(with(&numbers, &[]), Err(Refusal::Malformed));
    }
    assert_eq!(with(&[integer(r), integer(s)].concat(), &[0]), Err(Refusal::Malformed));
    let swapped = with(&[integer(s), integer(r)].concat(), &[]);
    assert_eq!(swapped, Err(Refusal::BadSignature));
}

#[test]
fn an_eui64_has_one_form() {
    let (device, own) = (&CERTIFICATES["device"], "01-23-45-67-89-AB-CD-EF");
    let at = device.windows(own.len()).position(|bytes| bytes == own.as_bytes()).unwrap();
    let named = |text: &str| {
        let mut device = device.clone();
        device[at..at + own.len()].copy_from_slice(text.as_bytes());
        let name = Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        verify(KeyPurpose::Client, name, None, &list(&[&device]))
    };
    assert!(named(own).is_ok());
    // The name is right, but it is not what was signed.
    assert_eq!(named("01-23-45-67-89-ab-cd-ef"), Err(Refusal::BadSignature));
    for other in ["01:23:45:67:89:AB:CD:EF", "01-23-45-67-89-AB-CD-EG", "0123456789ABCDEF-------"] {
        assert_eq!(named(other), Err(Refusal::WrongName), "{other}");
    }
}

/// The parts of a certificate that a CA signs, each with its tag and length. The CA also signs parts that are not
/// valid.
struct Body {
    version: Vec<u8>,
    serial: Vec<u8>,
    algorithm: Vec<u8>,
    validity: Vec<u8>,
    key: Vec<u8>,
    ids: Vec<u8>,
    extensions: Option<Vec<Vec<u8>>>,
    outer_algorithm: Vec<u8>,
    behind: Vec<u8>,
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let len = match value.len() {
        short @ 0..0x80 => vec![short as u8],
        long @ 0x80..0x100 => vec![0x81, long as u8],
        longer => [&[0x82][..], &(longer as u16).to_be_bytes()].concat(),
    };
    [&[tag][..], &len, &value].concat()
}

const ECDSA: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// A key usage extension whose BIT STRING does not even have the byte with the number of unused bits.
const KEY_USAGE: [u8; 11] = [0x30, 9, 6, 3, 0x55, 0x1d, 15, 4, 2, 3, 0];

/// Returns an extension with this value in its OCTET STRING.
fn extension(id: u8, critical: &[u8], value: &[u8]) -> Vec<u8> {
    tlv(0x30, &[&[6, 3, 0x55, 0x1d, id], critical, &tlv(4, &[value])])
}

impl Body {
    fn good() -> Self {
        let time = |text: &str| tlv(0x17, &[text.as_bytes()]);
        Self {
            version: vec![0xa0, 3, 2, 1, 2],
            serial: vec![2, 1, 7],
            algorithm: tlv(0x30, &[&ECDSA]),
            validity: tlv(0x30, &[&time("260101000000Z"), &time("491231235959Z")]),
            key: curves::public_key_of(&[5; 32]).unwrap().to_vec(),
            ids: vec![],
            extensions: Some(vec![extension(15, &[1, 1, 0xff], &[3, 2, 7, 0x80])]),
            outer_algorithm: tlv(0x30, &[&ECDSA]),
            behind: vec![],
        }
    }

    /// Returns the verdict on a certificate with these parts and a valid signature.
    fn verdict(&self) -> Result<EndEntity, Refusal> {
        let key = [9; 32];
        let public_key = curves::public_key_of(&key).unwrap();
        let name = tlv(0x30, &[&tlv(0x31, &[&tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(12, &[b"CA"])])])]);
        let extensions = self.extensions.as_ref().map(|extensions| tlv(0xa3, &[&tlv(0x30, &[&extensions.concat()])]));
        let Self { version, serial, algorithm, validity, key: own, ids, outer_algorithm, behind, .. } = self;
        let body = [version, serial, algorithm, &name, validity, &tlv(0x30, &[]), own, ids].map(Vec::as_slice).concat();
        let signed = tlv(0x30, &[&body, &extensions.unwrap_or_default(), behind]);
        let digest = digest::<Compact, 32>(&[&signed]);
        let mut signature = [0; MAX_SIGNATURE];
        let len = curves::sign(&key, &digest, &mut signature).unwrap();
        let der = tlv(0x30, &[&signed, outer_algorithm, &tlv(3, &[&[0], &signature[..len]])]);
        let anchors = [Anchor { name: &name, public_key: &public_key }];
        let rules = Rules { anchors: &anchors, purpose: KeyPurpose::Client, name: Name::Any, now: NOW };
        rules.verify(&mut Compact::new([1; 32]), &list(&[&der]))
    }
}

#[test]
fn what_a_ca_should_not_write_is_refused_though_it_is_signed() {
    use Refusal::{EndEntityIsCa, Malformed, UnsupportedAlgorithm, UnsupportedExtension, UnsupportedKey, WrongPurpose};
    let good = Body::good;
    assert!(good().verdict().is_ok());
    assert!(Body { extensions: None, ..good() }.verdict().is_ok());
    assert!(Body { serial: [&[2, 20, 1][..], &[0; 19]].concat(), ..good() }.verdict().is_ok());
    for (what, body, refusal) in [
        ("version 1", Body { version: vec![], ..good() }, Malformed),
        ("version 1, written", Body { version: vec![0xa0, 3, 2, 1, 0], ..good() }, Malformed),
        ("version 4", Body { version: vec![0xa0, 3, 2, 1, 3], ..good() }, Malformed),
        ("no serial number", Body { serial: vec![2, 1, 0], ..good() }, Malformed),
        ("a negative one", Body { serial: vec![2, 1, 0x80], ..good() }, Malformed),
        ("a long one", Body { serial: [&[2, 21, 1][..], &[0; 20]].concat(), ..good() }, Malformed),
        ("a parameter", Body { algorithm: tlv(0x30, &[&ECDSA, &[5, 0]]), ..good() }, UnsupportedAlgorithm),
        ("two algorithms", Body { outer_algorithm: tlv(0x30, &[&[6, 1, 1]]), ..good() }, UnsupportedAlgorithm),
        ("one time", Body { validity: tlv(0x30, &[&tlv(0x17, &[b"260101000000Z"])]), ..good() }, Malformed),
        ("a short key", Body { key: good().key[..90].to_vec(), ..good() }, Malformed),
        ("no key", Body { key: tlv(0x30, &[]), ..good() }, UnsupportedKey),
        ("unique ids", Body { ids: vec![0x81, 2, 0, 1], ..good() }, Malformed),
        ("something behind", Body { behind: vec![5, 0], ..good() }, Malformed),
    ] {
        assert_eq!(body.verdict(), Err(refusal), "{what}");
    }
    let usage = || extension(15, &[], &[3, 2, 7, 0x80]);
    for (what, extensions, refusal) in [
        ("an empty list", vec![], Malformed),
        ("the same twice", vec![usage(), usage()], Malformed),
        ("false, written", vec![extension(15, &[1, 1, 0], &[3, 2, 7, 0x80])], Malformed),
        ("a truth of another form", vec![extension(15, &[1, 1, 1], &[3, 2, 7, 0x80])], Malformed),
        ("no usage", vec![KEY_USAGE.to_vec()], Malformed),
        ("something behind the usage", vec![extension(15, &[], &[3, 2, 7, 0x80, 5, 0])], Malformed),
        ("no names", vec![extension(17, &[], &[0x30, 0])], Malformed),
        ("no purposes", vec![extension(37, &[], &[0x30, 0])], Malformed),
        ("a purpose that is a number", vec![extension(37, &[], &[0x30, 3, 2, 1, 2])], Malformed),
        ("another purpose", vec![extension(37, &[], &[0x30, 3, 6, 1, 2])], WrongPurpose),
        ("no CA, written", vec![extension(19, &[], &[0x30, 3, 1, 1, 0])], Malformed),
        ("a length for no CA", vec![extension(19, &[], &[0x30, 3, 2, 1, 0])], Malformed),
        ("a CA", vec![extension(19, &[], &[0x30, 3, 1, 1, 0xff])], EndEntityIsCa),
        ("name constraints", vec![extension(30, &[], &[0x30, 0])], UnsupportedExtension),
        ("an unknown one, critical", vec![extension(99, &[1, 1, 0xff], &[5, 0])], UnsupportedExtension),
    ] {
        let body = Body { extensions: Some(extensions), ..good() };
        assert_eq!(body.verdict(), Err(refusal), "{what}");
    }
    let unknown = vec![extension(99, &[], &[5, 0]), extension(14, &[], &[4, 1, 7]), usage()];
    assert!(Body { extensions: Some(unknown), ..good() }.verdict().is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        prop_assert!(client(&bytes).is_err());
        prop_assert!(client(&list(&[&bytes])).is_err());
    }

    /// A certificate with changed bytes is refused, and the parser never panics.
    #[test]
    fn any_changes_are_refused(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6),
    ) {
        let all: Vec<_> = CERTIFICATES.values().collect();
        let mut der = which.get(&all).to_vec();
        for (at, byte, how) in edits {
            let at = at.index(der.len());
            match how {
                0 => der[at] = byte,
                1 => der.insert(at, byte),
                _ => drop(der.remove(at)),
            }
        }
        let unchanged = CERTIFICATES.values().any(|known| *known == der);
        prop_assert!(unchanged || client(&list(&[&der])).is_err());
    }
}
