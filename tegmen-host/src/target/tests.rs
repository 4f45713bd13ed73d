use super::*;
use tegmen::coap::MessageType;
use tegmen::identity::{Identity, Principal, Protection};

/// Returns a request with these options, which must be in order.
fn message(options: &[(OptionNumber, &[u8])]) -> Vec<u8> {
    let mut storage = [0; LONGEST];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, &[2]).unwrap();
    options.iter().for_each(|(number, value)| builder.option(*number, value).unwrap());
    frame.bytes().to_vec()
}

fn by_uri(uri: &str) -> Vec<u8> {
    message(&[(OptionNumber::PROXY_URI, uri.as_bytes())])
}

/// Returns the path of a request in the form that policy, observers and log use.
fn path_of(request: &[u8]) -> String {
    let mut path = "before".to_owned();
    VirtualHosts::default().read_path(&MessageRef::parse(request).unwrap(), &mut path).unwrap();
    path
}

#[test]
fn both_forms_of_a_target_have_the_same_path() {
    let parts = [
        (OptionNumber::URI_HOST, &b"Sensor.Example"[..]),
        (OptionNumber::URI_PORT, &5700_u16.to_be_bytes()),
        (OptionNumber::URI_PATH, b"a"),
        (OptionNumber::URI_PATH, b"b"),
        (OptionNumber::URI_QUERY, b"unit=C"),
        (OptionNumber::PROXY_SCHEME, b"coap"),
    ];
    assert_eq!(path_of(&message(&parts)), "proxy/coap/sensor.example:5700/a/b");
    assert_eq!(path_of(&by_uri("coap://SENSOR.example:5700/a/b?unit=C")), "proxy/coap/sensor.example:5700/a/b");
    assert_eq!(path_of(&by_uri("coaps://[2001:DB8:0::1]/")), "proxy/coaps/[2001:db8::1]:5684");
    assert_eq!(path_of(&by_uri("coap://192.0.2.1")), "proxy/coap/192.0.2.1:5683");
    // A request that names no target keeps its path, also one with a scheme and without a host.
    assert_eq!(path_of(&message(&parts[2..4])), "a/b");
    assert_eq!(path_of(&message(&[parts[2], parts[5]])), "a");
}

#[test]
fn a_target_that_is_not_valid_is_refused() {
    let refused = |request: &[u8]| {
        VirtualHosts::default().named(&MessageRef::parse(request).unwrap()).unwrap().map(|_| ()).unwrap_err()
    };
    for uri in ["coap+ws://example/", "coap+tcp://example/", "ftp://x"] {
        assert_eq!(refused(&by_uri(uri)), Code::PROXYING_NOT_SUPPORTED, "{uri}");
    }
    // A group, also behind an IPv4 address that is written as one of IPv6.
    for uri in ["coap://224.0.1.187/", "coap://[ff02::fd]/", "coap://[::ffff:224.0.1.187]/", "coap://255.255.255.255/"]
    {
        assert_eq!(refused(&by_uri(uri)), Code::PROXYING_NOT_SUPPORTED, "{uri}");
    }
    for uri in ["no-uri", "coap:", "coap://", "coap://[::1", "coap://[fe80::1%25eth0]/", "coap://a:99999/"] {
        assert_eq!(refused(&by_uri(uri)), Code::BAD_REQUEST, "{uri}");
    }
    for host in [&b"a/b"[..], b"a b", b"a%2fb", b"::g", b"\xff", b""] {
        let request = message(&[(OptionNumber::URI_HOST, host), (OptionNumber::PROXY_SCHEME, b"coap")]);
        assert_eq!(refused(&request), Code::BAD_REQUEST, "{host:?}");
    }
    let port_0 = message(&[
        (OptionNumber::URI_HOST, b"a"),
        (OptionNumber::URI_PORT, &[]),
        (OptionNumber::PROXY_SCHEME, b"coap"),
    ]);
    assert_eq!(refused(&port_0), Code::BAD_REQUEST);
    // The policy is asked about the proxy as a whole.
    assert_eq!(path_of(&by_uri("ftp://example/")), PREFIX);
}

/// Checks that a right to a path of this server is not a right to the same path of another server.
#[test]
fn a_policy_sees_the_path_of_a_target_and_not_the_path_in_the_request() {
    let seen = |request: &[u8]| {
        let message = MessageRef::parse(request).unwrap();
        let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
        let mut path = String::new();
        let decided = VirtualHosts::default().decide_on(&Request::new(message, identity), |shown| {
            request_uri::read(&shown.message, &mut path).unwrap();
            let left = [OptionNumber::PROXY_URI, OptionNumber::PROXY_SCHEME, OptionNumber::URI_HOST];
            assert!(left.iter().all(|number| shown.message.option(*number).is_none()));
            Some(true)
        });
        assert_eq!(decided, Some(true));
        path
    };
    assert_eq!(seen(&by_uri("coap://other/temp")), "proxy/coap/other:5683/temp");
    let parts = [
        (OptionNumber::URI_HOST, &b"other"[..]),
        (OptionNumber::URI_PATH, b"temp"),
        (OptionNumber::PROXY_SCHEME, b"coaps"),
    ];
    assert_eq!(seen(&message(&parts)), "proxy/coaps/other:5684/temp");
    assert_eq!(seen(&message(&parts[1..2])), "temp");
    assert_eq!(seen(&by_uri("ftp://other/temp")), PREFIX);
}

#[test]
fn a_virtual_host_has_paths_of_its_own() {
    let hosts = VirtualHosts::except(["gateway.example".to_owned()]);
    let path_of = |options: &[(OptionNumber, &[u8])]| {
        let (request, mut path) = (message(options), String::new());
        hosts.read_path(&MessageRef::parse(&request).unwrap(), &mut path).unwrap();
        path
    };
    let path = (OptionNumber::URI_PATH, &b"temp"[..]);
    for (host, expected) in [
        (&b"Sensor.Example"[..], "proxy/host/sensor.example/temp"),
        (b"GATEWAY.example", "temp"),
        (b"192.0.2.1", "temp"),
        (b"[2001:db8::1]", "temp"),
        (b"a/b", PREFIX),
        (b"", PREFIX),
    ] {
        assert_eq!(path_of(&[(OptionNumber::URI_HOST, host), path]), expected);
    }
    assert_eq!(path_of(&[path]), "temp");
    let forward = [(OptionNumber::URI_HOST, &b"a"[..]), path, (OptionNumber::PROXY_SCHEME, b"coap")];
    assert_eq!(path_of(&forward), "proxy/coap/a:5683/temp");
}

#[cfg(feature = "http")]
#[test]
fn an_http_server_is_a_target_with_paths_of_its_own() {
    assert_eq!(path_of(&by_uri("HTTP://Api.Example/a%20b?c")), "proxy/http/api.example:80/a b");
    let parts = [(OptionNumber::URI_HOST, &b"a"[..]), (OptionNumber::PROXY_SCHEME, b"http")];
    assert_eq!(path_of(&message(&parts)), "proxy/http/a:80");
    assert_eq!(path_of(&by_uri("https://a/b")), "proxy/https/a:443/b");
}
