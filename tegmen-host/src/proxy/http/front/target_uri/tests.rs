use super::*;

fn uri(path: &str, query: Option<&str>) -> String {
    Target::read(path, query).unwrap().uri
}

fn status(path: &str) -> u16 {
    Target::read(path, None).unwrap_err().status.as_u16()
}

#[test]
fn the_uri_stands_behind_the_base_as_it_is() {
    assert_eq!(uri("/hc/coap://s.example/light", None), "coap://s.example/light");
    assert_eq!(
        uri("/hc/coaps://s.example:61616/a%20b/c", Some("x=1&y=%26")),
        "coaps://s.example:61616/a%20b/c?x=1&y=%26"
    );
    assert_eq!(uri("/hc/COAP://s.example", None), "coap://s.example");
}

#[test]
fn a_client_may_collapse_two_slashes() {
    assert_eq!(uri("/hc/coap:/s.example:5683/light", Some("on")), "coap://s.example:5683/light?on");
}

#[test]
fn a_target_that_is_wholly_encoded_is_decoded_once() {
    assert_eq!(uri("/hc/coap%3A%2F%2F10.0.0.1%3A5683%2Fa%2520b%3Fq%3D1", None), "coap://10.0.0.1:5683/a%20b?q=1");
    assert_eq!(uri("/hc/coap%3a%2f%2fs.example%2flight", Some("on")), "coap://s.example/light?on");
}

#[test]
fn brackets_of_an_address_are_encoded_in_the_path_and_not_in_the_target() {
    assert_eq!(uri("/hc/coap://%5B2001:db8::1%5d:5683/light", Some("on")), "coap://[2001:db8::1]:5683/light?on");
    // Only those of the authority.
    assert_eq!(uri("/hc/coap://s.example/%5Ba%5D", None), "coap://s.example/%5Ba%5D");
}

#[test]
fn a_target_that_is_none_is_refused() {
    for path in [
        "/hc/",
        "/hc/s.example/light",
        "/hc/http://s.example/",
        "/hc/coap",
        "/hc/coap:",
        "/hc/coap:s.example",
        "/hc/coap://",
        "/hc/coap:///light",
        "/hc/coap://user@s.example/",
        "/hc/coap://s.example:0/",
        "/hc/coap://s.example:99999/",
        "/hc/coap://2001:db8::1/",
        "/hc/coap://s.example/%zz",
        "/hc/coap%3A%2F%2Fs.example%2F%FF",
        "/hc/coap%3A%2F%2Fs.example%2Fa%23b",
        "/hc/%",
    ] {
        assert_eq!(status(path), 400, "{path}");
    }
    assert_eq!(status(&format!("/hc/coap://s.example/{}", "a".repeat(256))), 400);
    assert_eq!(status(&format!("/hc/coap://s.example{}", "/aaaaaaaaa".repeat(110))), 414);
    assert_eq!(status("/"), 404);
    assert_eq!(status("/hc"), 404);
}

proptest::proptest! {
    #[test]
    fn any_path_gives_a_target_or_a_refusal(path in "/(hc/)?(coaps?)?(:|%3A)?/{0,3}\\PC{0,40}", query in "\\PC{0,20}") {
        if let Ok(target) = Target::read(&path, Some(&query)) {
            assert!(Uri::parse(&target.uri).is_ok());
        }
    }
}
