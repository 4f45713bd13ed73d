use super::*;

#[test]
fn base64url_is_that_of_rfc_4648() {
    for (bytes, text) in [(&b""[..], ""), (b"f", "Zg"), (b"fo", "Zm8"), (b"foo", "Zm9v"), (&[0xff, 0xfe], "__4")] {
        assert_eq!(to_base64url(bytes), text);
        assert_eq!(from_base64url(text).unwrap(), bytes);
    }
    assert_eq!((from_base64url("Z"), from_base64url("Z*")), (None, None));
}
