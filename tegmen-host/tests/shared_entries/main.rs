//! A proxy between members of groups, who send deterministic requests of Group OSCORE: what they share, and what nobody else learns.
//!
//! The members are those of the library, with sockets of their own. Each attack first succeeds against a mutant.

mod learns;
mod rights;
mod world;

use world::{Origin, Person, open_proxy};

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
