use super::*;

#[test]
fn a_virtual_host_has_a_name_and_an_origin() {
    let host: VirtualHost = "Sensor.Example=coap://[2001:db8:0::1]:7".parse().unwrap();
    assert_eq!(host.name(), "sensor.example");
    let route = host.route().unwrap();
    assert_eq!((route.host, route.port, route.name), ("2001:db8::1", 7, Some("sensor.example")));
    let named: VirtualHost = "a=coaps://Origin.Example".parse().unwrap();
    let route = named.route().unwrap();
    assert_eq!((route.host, route.port, route.name), ("origin.example", 5684, None));
    let own: VirtualHost = "gateway.example=".parse().unwrap();
    assert!(own.route().is_none());
}

#[test]
fn other_texts_are_no_virtual_hosts() {
    for text in [
        "",
        "a",
        "=coap://b",
        "a b=coap://c",
        "a/b=coap://c",
        "192.0.2.1=coap://b",
        "::1=coap://b",
        "a=coap://b/c",
        "a=http://b",
        "a=b",
    ] {
        assert!(text.parse::<VirtualHost>().is_err(), "{text}");
    }
}
