//! Tests the provider of hosts with the same vectors as the providers of the core.

#[path = "../../tegmen/tests/vectors/checks.rs"]
mod checks;

use checks::{CAVP_CASES, Count, RFC_3610_CASES, WYCHEPROOF_CCM_CASES};
use tegmen_trust::provider::HostCrypto;

#[test]
fn the_host_agrees_with_every_gcm_vector() {
    checks::wycheproof_aes_gcm(&mut HostCrypto::new([0; 32], 16));
}

#[test]
fn the_host_agrees_with_every_chacha20_poly1305_vector() {
    checks::wycheproof_chacha20_poly1305(&mut HostCrypto::new([0; 32], 16));
}

#[test]
fn the_host_agrees_with_every_cbc_vector() {
    checks::wycheproof_aes_cbc(&mut HostCrypto::new([0; 32], 16));
}

#[test]
fn the_hosts_provider_agrees_with_every_vector_of_hmac_with_sha1() {
    assert_eq!(checks::wycheproof_hmac_sha1::<HostCrypto>(), 170);
}

#[test]
fn the_host_agrees_with_every_ccm_vector() {
    let all = |nonce: usize, tag: usize| (7..=13).contains(&nonce) && (4..=16).contains(&tag) && tag.is_multiple_of(2);
    let crypto = &mut HostCrypto::new([0; 32], 16);
    assert_eq!(checks::cavp(crypto, all), Count { run: CAVP_CASES, refused: 0 });
    assert_eq!(checks::rfc_3610(crypto, all), Count { run: RFC_3610_CASES, refused: 0 });
    let wycheproof = checks::wycheproof_ccm(crypto, all);
    assert_eq!(wycheproof, Count { run: WYCHEPROOF_CCM_CASES - 22, refused: 22 });
    checks::ccm_lengths(crypto);
    checks::ccm_too_long(crypto);
}

#[test]
fn the_host_agrees_with_every_hash_vector() {
    checks::sha256::<HostCrypto>();
    checks::hmac::<HostCrypto>();
    assert_eq!(checks::wycheproof_hmac::<HostCrypto>(), 174);
    checks::generator(|seed| HostCrypto::new(seed, 16));
}
