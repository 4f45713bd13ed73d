use super::*;

/// No CA issues a certificate for a name that is not a host name, or for one of more than 64 bytes.
#[test]
fn the_name_of_a_device_is_that_of_a_certificate() {
    let config = DeviceConfig {
        tags: Vec::new(),
        address: ([127, 0, 0, 1], 5684).into(),
        scopes: vec![vec!["GET /temp".to_owned()]],
        places: 1,
        lifetime: 60,
    };
    let label = "a".repeat(63);
    let long = format!("{}.{}", "a".repeat(32), "b".repeat(31));
    assert_eq!(long.len(), 64);
    for name in ["lamp", "lamp.example", "1.lamp", "4-2.lamp-1.example", "xn--bcher-kva.example", &label, &long] {
        assert!(config.party(name).is_ok(), "{name}");
    }
    let longer = format!("{long}c");
    let names = [
        "",
        ".",
        "lamp.",
        ".lamp",
        "a..b",
        "Lamp",
        "my_lamp",
        "_coap.lamp",
        "-lamp",
        "lamp-",
        "lamp.-a",
        "lamp.a-",
        "17",
        "192.0.2.7",
        "lamp.1",
        "lampe\u{e9}",
        "a lamp",
        "*.lamp",
        &longer,
    ];
    for name in names {
        let refused = config.party(name).map(|_| ()).expect_err(name);
        assert!(refused.starts_with("the name of a delegated device is a host name"), "{refused}");
    }
}
