//! The crypto providers of the core, checked with published test vectors.

#[path = "vectors/checks.rs"]
mod checks;

use checks::{CAVP_CASES, Count, RFC_3610_CASES, WYCHEPROOF_CCM_CASES};
use tegmen::crypto::Compact;
#[cfg(feature = "rustcrypto")]
use tegmen::crypto::RustCrypto;

/// True for the lengths that `Compact` supports: all lengths of RFC 3610.
fn all(nonce: usize, tag: usize) -> bool {
    (7..=13).contains(&nonce) && (4..=16).contains(&tag) && tag.is_multiple_of(2)
}

#[test]
fn rustcrypto_agrees_with_every_gcm_vector() {
    checks::wycheproof_aes_gcm(&mut RustCrypto::new([0; 32]));
}

#[test]
fn rustcrypto_agrees_with_every_chacha20_poly1305_vector() {
    checks::wycheproof_chacha20_poly1305(&mut RustCrypto::new([0; 32]));
}

#[test]
fn rustcrypto_agrees_with_every_cbc_vector() {
    checks::wycheproof_aes_cbc(&mut RustCrypto::new([0; 32]));
}

#[test]
fn rustcrypto_agrees_with_every_vector_of_hmac_with_sha1() {
    assert_eq!(checks::wycheproof_hmac_sha1::<RustCrypto>(), 170);
}

#[test]
fn compact_agrees_with_every_ccm_vector() {
    let crypto = &mut Compact::new([0; 32]);
    assert_eq!(checks::cavp(crypto, all), Count { run: CAVP_CASES, refused: 0 });
    assert_eq!(checks::rfc_3610(crypto, all), Count { run: RFC_3610_CASES, refused: 0 });
    let wycheproof = checks::wycheproof_ccm(crypto, all);
    assert_eq!(wycheproof, Count { run: WYCHEPROOF_CCM_CASES - 22, refused: 22 });
    checks::ccm_lengths(crypto);
    checks::ccm_too_long(crypto);
}

#[test]
fn compact_agrees_with_every_hash_vector() {
    checks::sha256::<Compact>();
    checks::hmac::<Compact>();
    assert_eq!(checks::wycheproof_hmac::<Compact>(), 174);
    checks::generator(Compact::new);
}

#[cfg(feature = "rustcrypto")]
#[test]
fn rustcrypto_agrees_with_every_ccm_vector_of_its_lengths() {
    let crypto = &mut RustCrypto::new([0; 32]);
    let some = |nonce, tag| matches!((nonce, tag), (12 | 13, 8 | 16));
    assert_eq!(checks::cavp(crypto, some), Count { run: 680, refused: CAVP_CASES - 680 });
    assert_eq!(checks::rfc_3610(crypto, some), Count { run: 12, refused: RFC_3610_CASES - 12 });
    let wycheproof = checks::wycheproof_ccm(crypto, some);
    assert_eq!(wycheproof, Count { run: 92, refused: WYCHEPROOF_CCM_CASES - 92 });
    checks::ccm_lengths(crypto);
    checks::ccm_too_long(crypto);
}

#[cfg(feature = "rustcrypto")]
#[test]
fn rustcrypto_agrees_with_every_hash_vector() {
    checks::sha256::<RustCrypto>();
    checks::hmac::<RustCrypto>();
    assert_eq!(checks::wycheproof_hmac::<RustCrypto>(), 174);
    checks::generator(RustCrypto::new);
}
