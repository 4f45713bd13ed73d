use super::*;

#[test]
fn an_address_is_read_with_its_scheme_and_port() {
    for (text, shown) in [
        ("coaps://127.0.0.1:0", "coaps://127.0.0.1:0"),
        ("coaps://127.0.0.1", "coaps://127.0.0.1:5684"),
        ("coap://127.0.0.1/", "coap://127.0.0.1:5683"),
        ("coap://[::1]:7000/", "coap://[::1]:7000"),
        ("coaps://[::]", "coaps://[::]:5684"),
    ] {
        assert_eq!(text.parse::<Listen>().unwrap().to_string(), shown);
    }
}

#[test]
fn what_is_no_address_of_a_server_is_refused_with_an_example() {
    for text in
        ["127.0.0.1:5684", "http://127.0.0.1", "coaps://localhost", "coaps://::1", "coap://", "coaps://1.2.3.4:x"]
    {
        let wrong = text.parse::<Listen>().unwrap_err().to_string();
        assert!(wrong.starts_with(text) && wrong.contains("coaps://127.0.0.1:5684"), "{wrong}");
    }
}
