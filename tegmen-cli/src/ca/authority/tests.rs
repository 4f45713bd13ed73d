use super::*;

/// A CA refuses a common name of more than 64 bytes (RFC 5280, appendix A.1), so a request with a longer name fails.
#[test]
fn a_request_has_a_name_that_a_certificate_can_have() {
    let private = draw_key(KeyType::P256).unwrap();
    let key = CertificateKey::from(SoftwareKey::from_pem(private.as_bytes()).unwrap()).unwrap();
    assert!(request(&"a".repeat(64), &key).unwrap().starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
    for name in ["", &"a".repeat(65)] {
        assert!(request(name, &key).unwrap_err().message.contains("1 to 64 bytes"), "{name}");
    }
}
