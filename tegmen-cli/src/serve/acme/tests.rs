//! Tests of the certificate chains of an authority.

use super::only_certificates;

#[test]
fn a_chain_with_anything_else_than_certificates_is_refused() {
    let part = |label: &str| format!("-----BEGIN{label}-----\nAAAA\n-----END{label}-----\n");
    let certificate = part(" CERTIFICATE");
    assert_eq!(only_certificates(&format!("{certificate}\n{certificate}")), Ok(()));
    for other in [" PRIVATE KEY", " EC PRIVATE KEY", " CERTIFICATE REQUEST", " X", "CERTIFICATE"] {
        for chain in [[part(other), certificate.clone()], [certificate.clone(), part(other)]] {
            let error = only_certificates(&chain.concat()).unwrap_err();
            assert!(error.contains(&format!("{:?}", other.trim())), "{error}");
        }
    }
    assert!(only_certificates(&format!("{certificate}-----BEGIN")).is_err());
    let long = only_certificates(&part(&format!(" \u{1b}[31m{}", "A".repeat(9000)))).unwrap_err();
    assert!(long.len() < 120 && !long.contains('\u{1b}'), "{long}");
}
