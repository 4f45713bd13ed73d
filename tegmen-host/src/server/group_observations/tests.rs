//! Tests of the selection of the clients that take part in a group observation.

use super::*;
use tegmen::identity::Principal;

fn offers() -> Offers {
    let config = ServerConfig::default().with(|config| {
        let group = "239.255.79.1".parse().unwrap();
        let settings = GroupObservation { path: "a/temp".to_owned(), group, port: 61_616, oscore: None };
        config.group_observations = vec![settings];
    });
    let listen = |text: &str| text.parse::<Listen>().unwrap();
    Offers::new(&config, &[listen("coap://[::]:5683"), listen("coaps://[::]:5684")]).unwrap()
}

fn request(path: &str, query: &str) -> Vec<u8> {
    let mut storage = [0; 100];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"t").unwrap();
    builder.uint(OptionNumber::OBSERVE, REGISTER).unwrap();
    builder.path(path).unwrap();
    if !query.is_empty() {
        builder.option(OptionNumber::URI_QUERY, query.as_bytes()).unwrap();
    }
    frame.bytes().to_vec()
}

#[test]
fn only_a_client_with_the_same_protection_address_and_request_takes_part() {
    let offers = offers();
    let find = |path: &str, query: &str, protection, local: &str| {
        let identity = Identity { principal: Principal::NOBODY, protection };
        let local = local.parse::<SocketAddr>().unwrap().into();
        let request = request(path, query);
        offers.find(path, (&MessageRef::parse(&request).unwrap(), &identity), &local)
    };
    assert_eq!(find("a/temp", "", Protection::Plain, "10.0.0.7:5683"), Some(0));
    assert_eq!(find("a/temp", "", Protection::Plain, "[::ffff:10.0.0.7]:5683"), Some(0));
    assert_eq!(find("a/temp", "unit=F", Protection::Plain, "10.0.0.7:5683"), None);
    assert_eq!(find("a/door", "", Protection::Plain, "10.0.0.7:5683"), None);
    for protection in [Protection::Dtls, Protection::Oscore, Protection::GroupResponse] {
        assert_eq!(find("a/temp", "", protection, "10.0.0.7:5683"), None, "{protection:?}");
    }
    // The port for DTLS, another family, no address, a link-local address, and a group.
    for local in ["10.0.0.7:5684", "[2001:db8::7]:5683", "0.0.0.0:5683", "169.254.0.7:5683", "239.255.79.1:5683"] {
        assert_eq!(find("a/temp", "", Protection::Plain, local), None, "{local}");
    }
}

#[test]
fn a_client_of_a_fifth_address_observes_the_resource_alone() {
    let offers = offers();
    let request = request("a/temp", "");
    let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
    let address = |last: u8| Address::from(SocketAddr::from(([10, 0, 0, last], 5683)));
    let find = |last| offers.find("a/temp", (&MessageRef::parse(&request).unwrap(), &identity), &address(last));
    for last in [1, 2, 3, 4, 1] {
        assert_eq!(find(last), Some(0), "{last}");
    }
    assert_eq!(find(5), None);
    // The group observation for the address 3 has ended.
    offers.all[0].set_started([1, 2, 4].map(address).into_iter());
    assert_eq!(find(5), Some(0));
    assert_eq!(find(3), None);
}
