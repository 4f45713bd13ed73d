use super::*;
use crate::uri::Scheme;

fn allows(pattern: &str, scheme: Scheme, host: &str, port: u16) -> bool {
    pattern.parse::<Pattern>().unwrap().allows(TargetScheme::Coap(scheme), host, port)
}

#[test]
fn a_pattern_without_a_port_has_the_default_one() {
    assert!(allows("coap://Sensor.local", Scheme::Coap, "sensor.local", 5683));
    assert!(allows("coaps://sensor.local/", Scheme::Coaps, "sensor.local", 5684));
    assert!(!allows("coap://sensor.local", Scheme::Coap, "sensor.local", 5684));
    assert!(!allows("coap://sensor.local", Scheme::Coaps, "sensor.local", 5683));
}

#[test]
fn a_star_stands_for_names_below_hosts_or_ports() {
    assert!(allows("coap://*.example.org", Scheme::Coap, "a.b.example.org", 5683));
    for host in ["example.org", "badexample.org", ".example.org", "example.org.evil"] {
        assert!(!allows("coap://*.example.org", Scheme::Coap, host, 5683), "{host}");
    }
    assert!(allows("coap://*:*", Scheme::Coap, "2001:db8::1", 99));
    assert!(allows("coap://[2001:db8::1]:*", Scheme::Coap, "2001:db8::1", 99));
    assert!(!allows("coap://[2001:db8::1]:*", Scheme::Coap, "2001:db8::2", 99));
}

#[test]
fn other_texts_are_no_patterns() {
    for text in [
        "",
        "sensor.local",
        "ftp://a",
        "coap://",
        "coap://a:0",
        "coap://a:x",
        "coap://a/b",
        "coap://*a",
        "coap://a*",
        "coap://[x]",
        "coap://u@a",
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
}

#[test]
fn a_pattern_is_written_as_it_is_read() {
    for text in ["coap://sensor.local:5683", "coaps://*.example.org:1", "coap://*:*", "coap://[2001:db8::1]:7"] {
        assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
    }
}

#[cfg(feature = "http")]
#[test]
fn a_pattern_of_http_servers_allows_no_server_of_coap() {
    let pattern: Pattern = "http://*.example.org".parse().unwrap();
    assert_eq!(pattern.to_string(), "http://*.example.org:80");
    assert!(pattern.allows(TargetScheme::Http, "a.example.org", 80));
    assert!(!pattern.allows(TargetScheme::Http, "a.example.org", 8080));
    assert!(!pattern.allows(TargetScheme::Coap(Scheme::Coap), "a.example.org", 80));
}
