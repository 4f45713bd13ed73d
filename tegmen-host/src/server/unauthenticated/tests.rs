use super::*;
use crate::server::coap_peer::Attached;
use crate::slab::{Capacity, Slab};
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::coap::{MessageRef, PeerExchanges as _, Token};
use tegmen::dtls::Rank;
use tegmen::endpoint::{NewPeer, Phase};
use tegmen::node::{MemberRegistration, Observer};
use tegmen::time::Instant;

type Table = Slab<Attached>;

fn is_remembered(table: &mut Table, peer: PeerId) -> bool {
    table.attached(peer).is_some_and(|attached| attached.coap_peer().is_some())
}

#[test]
fn strangers_are_bounded_and_who_observes_goes_last() {
    let (mut table, mut unauthenticated) = (Table::new(Capacity::default()), Unauthenticated::new(10));
    let mut observers = Observers::<MemberRegistration>::new(std::sync::Arc::default(), 100, 0);
    let mut all = Vec::new();
    for port in 0..1000 {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port)).into();
        let path = Path { local: at(5683), remote: at(port) };
        let (rank, phase, is_session) = (Rank::Stranger, Phase::Established, false);
        let new = NewPeer { path: &path, rank, phase, is_session, with_handshake: false };
        let id = table.insert(&new).unwrap().id;
        table.attached(id).unwrap().begin(Instant::from_micros(0), |_| {});
        if port < 3 {
            let observer = Observer::new(id, Token::new(b"t"), 1);
            observers.insert(observer, &MessageRef::parse(&[0x41, 1, 0, 1, b't', 0xb1, b'n']).unwrap()).unwrap();
        }
        unauthenticated.add(&mut table, &mut observers, id);
        all.push(id);
        let remembered = all.iter().filter(|id| is_remembered(&mut table, **id)).count();
        assert!(remembered <= 20, "{remembered}");
    }
    assert!(all[..3].iter().all(|id| is_remembered(&mut table, *id)), "who observes");
    assert!(is_remembered(&mut table, all[999]), "who came last");
}

/// An entry whose peer leaves the peer table when the entry forgets its exchanges.
#[derive(Default)]
struct Leaving(bool);

impl Forgettable for Leaving {
    const IS_REMOVED: bool = true;

    fn is_remembered(&mut self) -> bool {
        self.0
    }

    fn forget(&mut self) {
        self.0 = false;
    }
}

#[test]
fn peers_in_clear_of_an_endpoint_leave_its_table() {
    let (mut table, mut unauthenticated) = (Slab::<Leaving>::new(Capacity::default()), Unauthenticated::new(10));
    let mut observers = Observers::<MemberRegistration>::new(std::sync::Arc::default(), 100, 0);
    for port in 0..1000 {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port)).into();
        let path = Path { local: at(5683), remote: at(port) };
        let (rank, phase, is_session) = (Rank::Stranger, Phase::Established, false);
        let new = NewPeer { path: &path, rank, phase, is_session, with_handshake: false };
        let id = table.insert(&new).unwrap().id;
        table.attached(id).unwrap().0 = true;
        unauthenticated.add(&mut table, &mut observers, id);
        assert!(table.len() <= 20, "{} peers", table.len());
    }
}
