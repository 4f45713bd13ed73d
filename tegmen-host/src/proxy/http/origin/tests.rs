use super::*;

#[test]
fn the_authority_has_brackets_and_no_default_port() {
    let base = |host, port, is_secure| Site { host, port, is_secure }.base();
    assert_eq!(base("2001:db8::1", 80, false), "http://[2001:db8::1]");
    assert_eq!(base("a", 443, false), "http://a:443");
    assert_eq!(base("a", 443, true), "https://a");
}

#[test]
fn an_authority_that_is_no_certificate_is_refused() {
    assert!(connector(&[]).unwrap().is_none());
    assert!(connector(&[b"no certificate".to_vec()]).is_err());
}
