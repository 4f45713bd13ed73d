//! Tests path validation against PKITS, NIST's test suite for RFC 5280. Each case must have the result that the
//! document of PKITS expects, unless the case needs a feature that the verifier does not support.

use rustls_pki_types::pem::{PemObject as _, SectionKind};
use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};
use tegmen_trust::x509::{Purpose, Settings, Trust, Verifier};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/pkits/");

/// 1 June 2020 in seconds since 1970. The certificates are valid from 2010 to 2030.
const NOW: u64 = 1_590_969_600;

/// The cases about features that the verifier does not support: the section, the numbers of the cases in this section,
/// and the feature. The verifier must refuse each invalid path of these cases, but its reason may differ from the
/// reason in the document. It may also refuse the valid paths.
const SKIPPED: &[(&str, std::ops::RangeInclusive<u32>, &str)] = &[
    ("4.1", 4..=6, "DSA"),
    ("4.2", 3..=3, "a notBefore in 1950: times begin in 1970"),
    ("4.3", 3..=6, "names are compared byte by byte, not by case and blanks; unique identifiers are not supported"),
    ("4.3", 10..=11, "names are compared byte by byte, not across string types"),
    ("4.4", 19..=21, "a CRL is to be signed by the key that signed the certificate"),
    ("4.5", 1..=8, "a CRL is to be signed by the key that signed the certificate, also while a CA changes its key"),
    ("4.6", 6..=6, "an end entity that is a CA is refused"),
    ("4.6", 8..=8, "an end entity that is a CA is refused"),
    ("4.6", 10..=10, "an end entity that is a CA is refused"),
    ("4.6", 12..=12, "an end entity that is a CA is refused"),
    ("4.6", 14..=14, "an end entity that is a CA is refused"),
    ("4.6", 15..=17, "self-issued certificates count for the length of a path"),
    ("4.13", 1..=20, "name constraints on directory names: a CA that has them is refused"),
    ("4.13", 21..=29, "name constraints on mail addresses: a CA that has them is refused"),
    ("4.13", 34..=37, "name constraints on URIs: a CA that has them is refused"),
    ("4.14", 1..=9, "CRLs of distribution points that are named by a directory name"),
    ("4.14", 11..=14, "CRLs for a kind of certificates, without the name of a distribution point"),
    ("4.14", 15..=21, "CRLs for some reasons of revocation"),
    ("4.14", 22..=35, "indirect CRLs"),
    ("4.15", 1..=10, "delta CRLs"),
];

/// The number of cases in sections 4.8 to 4.12. The data of these cases is not in `vectors`. Certificate policies are
/// not processed. A certificate with a critical constraint on policies is refused.
const POLICIES: u32 = 20 + 8 + 14 + 11 + 10;

/// Returns the PEM blocks of a file, decoded to DER. The key of each block in the map is the line before the block.
fn named(file: &str) -> HashMap<String, Vec<u8>> {
    let text = std::fs::read_to_string(format!("{DATA}{file}")).unwrap();
    let (mut out, mut name) = (HashMap::new(), String::new());
    let mut block = String::new();
    for line in text.lines() {
        if line.starts_with("-----BEGIN") || !block.is_empty() {
            block += line;
            block.push('\n');
            if line.starts_with("-----END") {
                let (_, der) = <(SectionKind, Vec<u8>)>::from_pem_slice(block.as_bytes()).unwrap();
                assert!(out.insert(name.clone(), der).is_none());
                block.clear();
            }
        } else {
            name = line.to_owned();
        }
    }
    out
}

#[test]
fn every_case_of_pkits_is_as_expected_or_skipped_for_a_reason() {
    let (certificates, crls) = (named("certificates.pem"), named("crls.pem"));
    let cases = std::fs::read_to_string(format!("{DATA}cases.txt")).unwrap();
    let (mut expected, mut skipped, mut wrong) = (0, POLICIES, Vec::new());
    for case in cases.lines() {
        let [head, path, lists] = case.split(" : ").collect::<Vec<_>>()[..] else { panic!("{case}") };
        let [number, result, end_entity] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{case}") };
        let mut chain = Vec::new();
        for name in [end_entity].into_iter().chain(path.split_whitespace()) {
            let der = &certificates[name];
            chain.extend(&(der.len() as u32).to_be_bytes()[1..]);
            chain.extend(der);
        }
        let mut trust = Trust::default();
        trust.add_anchors(&certificates["TrustAnchorRootCertificate"]).unwrap();
        // A list that cannot be loaded is an error of the configuration; then no peer is accepted.
        let loaded = lists.split_whitespace().try_for_each(|name| trust.add_crls(&crls[name]).map(|_| ()));
        let verifier = Verifier::new(trust, Settings { max_certificates: 8, ..Settings::default() });
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        let verdict = verifier.verify(&chain, Purpose::Client, None, now);
        let believed = loaded.is_ok() && verdict.is_ok();
        let (section, within) = number.rsplit_once('.').unwrap();
        let within: u32 = within.parse().unwrap();
        match SKIPPED.iter().find(|(skip, numbers, _)| *skip == section && numbers.contains(&within)) {
            None if believed == (result == "valid") => expected += 1,
            Some(_) if !believed || result == "valid" => skipped += 1,
            _ => wrong.push(format!("{number} {end_entity}: {loaded:?} {verdict:?}")),
        }
    }
    for (section, numbers, why) in SKIPPED {
        println!("skipped: {section}.{} to {section}.{}: {why}", numbers.start(), numbers.end());
    }
    println!("skipped: 4.8 to 4.12: certificate policies");
    println!("{expected} as expected, {skipped} skipped");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!((expected, skipped), (55, 169));
}
