//! Compares the verdicts of a mote with the verdicts of a host, which uses `rustls-webpki`. If both accept a path, they
//! return the same key. The mote accepts no path that the host refuses, except a path with a UTCTime before 1970.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SigningKey as _,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen::crypto::Compact;
use tegmen_trust::x509::{Purpose, Settings, Trust, Verifier};
use tegmen_x509::{Anchor, Name, Refusal, Rules, UnixTime};

const NOW: u64 = 1_790_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The time from which the root certificate of the vectors is valid, in seconds since 1970.
const ANCHOR_FROM: u64 = 1_767_225_600;

/// Returns a certificate_list without its outer length.
fn list(certificates: &[&[u8]]) -> Vec<u8> {
    let of = |der: &&[u8]| [&(der.len() as u32).to_be_bytes()[1..], der].concat();
    certificates.iter().flat_map(of).collect()
}

/// One trust anchor, in the form of the host and in the form of the mote.
struct Both {
    host: Verifier,
    name: Vec<u8>,
    public_key: [u8; 91],
}

/// The verdicts of the mote and of the host: the key of an accepted path, or the refusal.
#[derive(Debug)]
struct Verdicts {
    mote: Result<Vec<u8>, Refusal>,
    host: Result<Vec<u8>, tegmen_trust::x509::Refusal>,
}

impl Both {
    fn new(anchor: &[u8]) -> Self {
        let mut trust = Trust::default();
        trust.add_anchors(anchor).expect("an anchor");
        let host = Verifier::new(trust, Settings { cache_entries: 0, ..Settings::default() });
        let parsed = webpki::anchor_from_trusted_cert(&anchor.into()).map(|anchor| anchor.to_owned());
        let parsed = parsed.expect("an anchor");
        // There both stand without the tag and the length of their SEQUENCE, which has less than 128 bytes.
        let wrapped = |value: &[u8]| [&[0x30, value.len() as u8][..], value].concat();
        let public_key = wrapped(&parsed.subject_public_key_info).try_into().expect("a key on secp256r1");
        Self { host, name: wrapped(&parsed.subject), public_key }
    }

    fn verdicts(&self, purpose: Purpose, name: Option<&str>, now: u64, chain: &[u8]) -> Verdicts {
        let anchors = [Anchor { name: &self.name, public_key: &self.public_key }];
        let rules = Rules {
            anchors: &anchors,
            purpose: match purpose {
                Purpose::Client => tegmen_x509::KeyPurpose::Client,
                Purpose::Server | Purpose::EncryptedServer => tegmen_x509::KeyPurpose::Server,
            },
            name: name.map_or(Name::Any, |name| Name::Dns(name.as_bytes())),
            now: Some(UnixTime(now)),
        };
        let mote = rules.verify(&mut Compact::new([1; 32]), chain).map(|end_entity| end_entity.public_key.to_vec());
        let host = self.host.verify(chain, purpose, name, at(now)).map(|verified| verified.spki.to_vec());
        Verdicts { mote, host }
    }
}

impl Verdicts {
    /// True if the mote refuses the path, or if the mote and the host both accept the path and return the same key.
    fn mote_is_no_laxer(&self) -> bool {
        self.mote.is_err() || self.mote.as_ref().ok() == self.host.as_ref().ok()
    }
}

/// Returns the certificates in `vectors/x509` by their names. Motes support these certificates.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let byte = |digits: &str, at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    let line = |line: &'static str| {
        let (name, digits) = line.split_once(' ')?;
        Some((name, (0..digits.len()).step_by(2).map(|at| byte(digits, at)).collect()))
    };
    include_str!("../../vectors/x509/certificates.txt").lines().filter_map(line).collect()
}

#[test]
fn the_vectors_come_out_alike_but_for_what_only_hosts_take() {
    let certificates = vectors();
    let both = Both::new(&certificates["root"]);
    let mut only_hosts = BTreeSet::new();
    let mut believed = 0;
    for case in include_str!("../../vectors/x509/cases.txt").lines() {
        let (asked, names) = case.split_once(" :").expect("four columns");
        let [_, purpose, name, now] = asked.split(' ').collect::<Vec<_>>()[..] else { panic!("{case}") };
        // A host always has a clock, and knows no EUI-64.
        let (Ok(now), false) = (now.parse(), name.starts_with("eui:")) else { continue };
        // Of an anchor a host looks at the dates as well.
        if now < ANCHOR_FROM {
            continue;
        }
        // `rustls-webpki` counts certificates that a CA issued to itself toward pathLenConstraint; RFC 5280 does not.
        if names == " device_of_rolled sub_rolled sub_len_0" {
            continue;
        }
        let purpose = if purpose == "client" { Purpose::Client } else { Purpose::Server };
        let chain: Vec<&[u8]> = names.split_whitespace().map(|name| &certificates[name][..]).collect();
        let verdicts = both.verdicts(purpose, name.strip_prefix("dns:"), now, &list(&chain));
        assert!(verdicts.mote_is_no_laxer(), "{case}: {verdicts:?}");
        believed += u32::from(verdicts.mote.is_ok());
        if let (Err(refusal), Ok(_)) = (verdicts.mote, verdicts.host) {
            only_hosts.insert(format!("{refusal:?}:{names}"));
        }
    }
    let expected = [
        "TooLong: device_of_third third subsub sub",
        "UnsupportedAlgorithm: device_sha384",
        "UnsupportedExtension: device_of_sub constrained",
        "UnsupportedExtension: device_of_sub constrained_softly",
        "UnsupportedKey: device_rsa",
        "WrongIssuer: device_of_subsub sub subsub",
        "WrongName: server",
    ];
    assert_eq!(only_hosts, expected.map(str::to_owned).into());
    assert_eq!(believed, 18);
}

/// All certificates of PKITS are signed with RSA or DSA, so motes refuse each of them for this reason.
#[test]
fn nothing_of_pkits_is_for_motes() {
    let text = include_str!("../../vectors/pkits/certificates.pem");
    let both = Both::new(&ROOT.der);
    let blocks = blocks_of(text);
    assert!(blocks.len() > 200, "{}", blocks.len());
    for der in blocks {
        let refusal = both.verdicts(Purpose::Client, None, 1_300_000_000, &list(&[&der])).mote;
        // Where something else is wrong as well, that may be found first.
        let expected = [Refusal::UnsupportedAlgorithm, Refusal::Malformed];
        assert!(refusal.as_ref().is_err_and(|refusal| expected.contains(refusal)), "{refusal:?}");
    }
}

/// Returns the certificates of a PEM file in DER.
fn blocks_of(text: &str) -> Vec<Vec<u8>> {
    use rustls_pki_types::pem::PemObject as _;
    rustls_pki_types::CertificateDer::pem_slice_iter(text.as_bytes())
        .map(|der| der.expect("a certificate").to_vec())
        .collect()
}

/// A CA or an end entity: its certificate, and its name and key in the form of an issuer.
struct Party {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

static ROOT: LazyLock<Party> = LazyLock::new(|| {
    let mut params = named("Root", NOW - DAY, NOW + DAY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().expect("a key");
    Party { der: params.self_signed(&key).expect("a certificate").der().to_vec(), issuer: Issuer::new(params, key) }
});
/// The key pairs of all certificates. They are generated only once, because the tests are about certificates and not
/// about keys.
static KEYS: LazyLock<Vec<KeyPair>> = LazyLock::new(|| (0..4).map(|_| KeyPair::generate().expect("a key")).collect());

fn named(name: &str, from: u64, until: u64) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.not_before = epoch + Duration::from_secs(from);
    params.not_after = epoch + Duration::from_secs(until);
    params
}

/// The fields of a generated certificate of a path. Most generated certificates are valid.
#[derive(Clone, Debug)]
struct Made {
    starts: i64,
    ends: i64,
    ca: Option<Option<u8>>,
    usages: Vec<KeyUsagePurpose>,
    purposes: Vec<ExtendedKeyUsagePurpose>,
    dns: Vec<&'static str>,
    /// True if the certificate has a critical unknown extension, false if the unknown extension is not critical; `None`
    /// without an unknown extension.
    critical: Option<bool>,
    by_another: bool,
    renamed: bool,
}

fn made(ca: bool) -> impl Strategy<Value = Made> {
    let mostly = |good: i64, bad: i64| prop_oneof![12 => Just(good), 1 => Just(bad)];
    let usages = match ca {
        true => vec![vec![KeyUsagePurpose::KeyCertSign], vec![KeyUsagePurpose::CrlSign]],
        false => vec![vec![KeyUsagePurpose::DigitalSignature], vec![KeyUsagePurpose::KeyAgreement]],
    };
    let (good, bad) = (usages[0].clone(), usages[1].clone());
    let usages = prop_oneof![12 => Just(good), 3 => Just(vec![]), 1 => Just(bad)];
    use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
    let purposes = prop_oneof![
        6 => Just(vec![]),
        4 => Just(vec![ClientAuth]),
        4 => Just(vec![ClientAuth, ServerAuth]),
        1 => Just(vec![ServerAuth]),
        1 => Just(vec![Any]),
    ];
    let constraint = prop_oneof![8 => Just(Some(None)), 3 => (0..3u8).prop_map(|len| Some(Some(len))), 1 => Just(None)];
    let none = prop_oneof![15 => Just(None), 1 => Just(Some(None))];
    let ca = if ca { constraint.boxed() } else { none.boxed() };
    let dns = prop::collection::vec(prop_oneof![Just("a.example"), Just("b.example"), Just("A.EXAMPLE")], 0..3);
    let critical = prop_oneof![10 => Just(None), 2 => Just(Some(false)), 1 => Just(Some(true))];
    let rarely = || prop_oneof![15 => Just(false), 1 => Just(true)];
    (mostly(-1, 1), mostly(1, -1), ca, usages, purposes, dns, critical, rarely(), rarely()).prop_map(
        |(starts, ends, ca, usages, purposes, dns, critical, by_another, renamed)| Made {
            starts,
            ends,
            ca,
            usages,
            purposes,
            dns,
            critical,
            by_another,
            renamed,
        },
    )
}

impl Made {
    fn issue(&self, name: &str, key: usize, issuer: &Issuer<'_, KeyPair>) -> (CertificateParams, Vec<u8>) {
        let moment = |days: i64| NOW.saturating_add_signed(days * DAY as i64);
        let name = if self.renamed { "renamed" } else { name };
        let mut params = named(name, moment(self.starts), moment(self.ends));
        params.is_ca = match self.ca {
            None => IsCa::NoCa,
            Some(None) => IsCa::Ca(BasicConstraints::Unconstrained),
            Some(Some(len)) => IsCa::Ca(BasicConstraints::Constrained(len)),
        };
        params.key_usages = self.usages.clone();
        params.extended_key_usages = self.purposes.clone();
        let names: Vec<String> = self.dns.iter().map(|name| (*name).to_owned()).collect();
        params.subject_alt_names = CertificateParams::new(names).expect("names").subject_alt_names;
        if let Some(critical) = self.critical {
            let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
            extension.set_criticality(critical);
            params.custom_extensions.push(extension);
        }
        let der = params.signed_by(&KEYS[key], issuer).expect("a certificate").der().to_vec();
        (params, der)
    }
}

fn copy(key: &KeyPair) -> KeyPair {
    KeyPair::try_from(key.serialize_der()).expect("the same key")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    /// Generates paths of certificates that CAs issued, and compares the two verdicts. Some of the paths have a fault.
    #[test]
    fn generated_paths_come_out_alike(
        cas in prop::collection::vec(made(true), 0..3),
        end in made(false),
        name in prop_oneof![3 => Just(None), 1 => Just(Some("a.example")), 1 => Just(Some("c.example"))],
        left_out in prop_oneof![12 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
    ) {
        let both = Both::new(&ROOT.der);
        let mut chain = Vec::new();
        let mut issuer = Issuer::new(named("Root", NOW - DAY, NOW + DAY), copy(ROOT.issuer.key()));
        for (level, made) in cas.iter().chain([&end]).enumerate() {
            if made.by_another {
                // Another key of the same name signs.
                issuer = Issuer::new(named(["Root", "CA 0", "CA 1"][level], NOW - DAY, NOW + DAY), copy(&KEYS[3]));
            }
            let name = if level == cas.len() { "end".to_owned() } else { format!("CA {level}") };
            let (params, der) = made.issue(&name, level, &issuer);
            issuer = Issuer::new(params, copy(&KEYS[level]));
            chain.insert(0, der);
        }
        if let Some(at) = left_out && chain.len() > 1 {
            chain.remove(at.index(chain.len()));
        }
        let chain: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let verdicts = both.verdicts(Purpose::Client, name, NOW, &list(&chain));
        // As in the vectors: hosts count certificates that a CA issued to itself toward pathLenConstraint.
        let self_issued = cas.windows(2).any(|pair| pair.iter().all(|made| made.renamed));
        let limited = cas.iter().any(|made| matches!(made.ca, Some(Some(_))));
        if !(self_issued && limited && verdicts.mote.is_ok()) {
            prop_assert_eq!(verdicts.mote.as_ref().ok(), verdicts.host.as_ref().ok(), "{:?}", verdicts);
        }
    }
}

/// Changes bytes of a certificate before a CA signs it. The signature is then valid, so the path can only be refused
/// for its content.
#[test]
fn what_is_changed_before_it_is_signed_is_believed_by_both_or_by_hosts_alone() {
    let believed = Cell::new(0);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let mut runner = TestRunner::new(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() });
    let ran = runner.run(&(made(false), edits), |(end, edits)| {
        let both = Both::new(&ROOT.der);
        let (_, der) = end.issue("end", 0, &ROOT.issuer);
        let mut signed = whole(inside(&der)).to_vec();
        for (at, byte) in edits {
            let at = at.index(signed.len());
            signed[at] = byte;
        }
        let verdicts = both.verdicts(Purpose::Client, None, NOW, &list(&[&sign(&signed)]));
        prop_assert!(verdicts.mote_is_no_laxer() || begins_before_1970(&signed), "{:?}", verdicts);
        believed.set(believed.get() + u32::from(verdicts.mote.is_ok()));
        Ok(())
    });
    ran.unwrap_or_else(|failure| panic!("{failure}"));
    // Other serial numbers and names are as good, so that readings are really compared.
    assert!(believed.get() > 200, "{}", believed.get());
}

/// True if a certificate has a UTCTime of the years 1950 to 1969 (RFC 5280, section 4.1.2.5.1). A mote reads such a
/// time as the year 1970. The library of the host refuses it.
fn begins_before_1970(certificate: &[u8]) -> bool {
    certificate.windows(3).any(|bytes| matches!(bytes, [0x17, 13, b'5' | b'6']))
}

#[test]
fn a_time_before_1970_is_refused_by_hosts_alone() {
    let end = Made {
        starts: -1,
        ends: 1,
        ca: None,
        usages: Vec::new(),
        purposes: Vec::new(),
        dns: Vec::new(),
        critical: None,
        by_another: false,
        renamed: false,
    };
    let (_, der) = end.issue("end", 0, &ROOT.issuer);
    let mut signed = whole(inside(&der)).to_vec();
    let validity = signed.windows(2).position(|bytes| bytes == [0x17, 13]).expect("a UTCTime");
    for (digit, hosts_agree) in [(b'2', true), (b'5', false), (b'6', false), (b'9', true)] {
        signed[validity + 2] = digit;
        let verdicts = Both::new(&ROOT.der).verdicts(Purpose::Client, None, NOW, &list(&[&sign(&signed)]));
        assert!(verdicts.mote.is_ok(), "{verdicts:?}");
        assert_eq!(verdicts.host.is_ok(), hosts_agree, "{verdicts:?}");
    }
}

/// Returns a certificate with this content and the signature of the root.
fn sign(content: &[u8]) -> Vec<u8> {
    let signature = ROOT.issuer.key().sign(content).expect("a signature");
    let algorithm = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let bits = [&[3, signature.len() as u8 + 1, 0][..], &signature].concat();
    let body = [content, &algorithm[..], &bits].concat();
    [&[0x30, 0x82][..], &(body.len() as u16).to_be_bytes(), &body].concat()
}

/// Returns the length of the header of the first element, and the length of its value.
fn header(der: &[u8]) -> (usize, usize) {
    match der[1] {
        0x81 => (3, der[2].into()),
        0x82 => (4, u16::from_be_bytes([der[2], der[3]]).into()),
        short => (2, short.into()),
    }
}

fn inside(der: &[u8]) -> &[u8] {
    &der[header(der).0..]
}

fn whole(der: &[u8]) -> &[u8] {
    let (header, len) = header(der);
    &der[..header + len]
}
