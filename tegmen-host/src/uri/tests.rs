use super::*;
use crate::uri::Scheme;

#[test]
fn uris_are_taken_apart() {
    let uri = Uri::parse("coaps://[fe80::1%25eth0]:61616/a%2fb/c?x=1&y").unwrap();
    assert_eq!(uri.host, "fe80::1%eth0");
    assert_eq!((uri.scheme, uri.port), (Scheme::Coaps, 61616));
    assert_eq!(uri.path, ["a/b", "c"]);
    assert_eq!(uri.query, ["x=1", "y"]);
    assert_eq!(Uri::parse("coap://h").unwrap().port, 5683);
    assert!(Uri::parse("coap://h/").unwrap().path == [""; 0]);
}

#[test]
fn what_is_wrong_is_said() {
    for (text, part) in [
        ("http://h/", "neither coap nor coaps"),
        ("coap:h", "// is missing"),
        ("coap:/h/t", "// is missing"),
        ("h/t", "scheme is missing"),
        ("coap://h/te mp", "a space as %20"),
        ("coap://h/a?b\n", "control character"),
        ("coap://[fe80::1]/", "needs its interface"),
        ("coap://h:0/", "not a number"),
        ("coap://", "host is missing"),
        ("coap://fe80::1/", "brackets"),
        ("coap://h:70000/", "not a number from 1 to 65535"),
        ("coap://h/%zz", "two hexadecimal"),
        ("coap://[::1]5684/", "behind ]"),
        ("coap://[::1].example.org/", "behind ]"),
        ("coap://[example.org]/", "IPv6 address"),
        ("coap://[127.0.0.1]/", "IPv6 address"),
    ] {
        assert!(Uri::parse(text).unwrap_err().to_string().contains(part), "{text}");
    }
}

#[test]
fn a_path_is_shown_as_in_a_uri() {
    assert_eq!(encoded_path("/a b/%é\n:@"), "/a%20b/%25%C3%A9%0A:@");
}
