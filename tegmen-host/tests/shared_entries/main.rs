//! Tests a proxy between members of groups, which send deterministic requests of Group OSCORE. Some tests are about the
//! responses that the members share, and some about the data that the proxy learns.
//!
//! The members use the implementation of the library, and have separate sockets. Each attack is also made against a
//! faulty implementation, where the attack succeeds. So the tests show that they detect the attack.

mod learns;
mod rights;
mod world;

use tegmen::coap::{Code, MessageRef, OptionNumber};
use world::{Line, Member, Origin, Person, get, open_proxy, response_to};

#[test]
fn different_clients_share_an_entry() {
    let origin = Origin::start();
    let (_server, address, proxy) = open_proxy();
    let mut members = ["alice", "carol"].map(|name| Person::new("house", name, address));
    for member in &mut members {
        assert_eq!(member.get(origin.address, "door").unwrap(), "house door 1");
    }
    let counts = proxy.counts();
    assert_eq!((origin.requests(), counts.misses, counts.hits, counts.entries), (1, 1, 1, 1));
    // Clients receive the seconds for which the entry is fresh still, outside; inside is the number that the origin signed.
    let (outside, inside) = members[1].ages.unwrap();
    assert!(outside < 300 && inside == 300, "{outside} {inside}");
    proxy.purge();
    assert_eq!(members[0].get(origin.address, "door").unwrap(), "house door 2");
}

/// The proxy cannot read the method and the path of a request with OSCORE. After such a request any resource of the
/// origin may have changed.
#[test]
fn a_request_that_may_change_the_origin_removes_its_entries() {
    let mut member = Member::new("house", "origin");
    let origin = Origin::answering(move |datagram, count| {
        let message = MessageRef::parse(datagram).unwrap();
        match message.code() {
            Code::POST => Some(response_to(&message, Code::CHANGED, &[(OptionNumber::OSCORE, b"")], b"protected")),
            _ => member.answer(datagram, |path| format!("{path} {count}")),
        }
    });
    let (_server, address, proxy) = open_proxy();
    let mut alice = Person::new("house", "alice", address);
    assert_eq!(alice.get(origin.address, "door").unwrap(), "door 1");
    let (_, mut posted) = Member::new("house", "alice").ask(&get(origin.address, "door"));
    posted[1] = Code::POST.0;
    assert_eq!(MessageRef::parse(&Line::to(address).exchange(&posted)).unwrap().code(), Code::CHANGED);
    assert_eq!((proxy.counts().entries, proxy.counts().passed), (0, 1));
    assert_eq!(alice.get(origin.address, "door").unwrap(), "door 3");
}

#[test]
fn a_protected_response_to_a_request_in_clear_is_a_bad_gateway() {
    let origin = Origin::answering(|datagram, _| {
        let message = MessageRef::parse(datagram).unwrap();
        Some(response_to(&message, Code::CONTENT, &[(OptionNumber::OSCORE, b"")], b"protected"))
    });
    let (_server, address, proxy) = open_proxy();
    let response = Line::to(address).exchange(&get(origin.address, "door"));
    assert_eq!(MessageRef::parse(&response).unwrap().code(), Code::BAD_GATEWAY);
    assert_eq!(proxy.counts().entries, 0);
}
