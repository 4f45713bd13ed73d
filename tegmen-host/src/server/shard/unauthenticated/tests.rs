use super::*;
use crate::server::coap_peer::Observed;
use crate::server::transfer::Ledger;
use crate::slab::Capacity;
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::coap::observe::Observation;
use tegmen::coap::{PeerExchanges as _, Token};
use tegmen::dtls::Rank;
use tegmen::endpoint::{NewPeer, Phase};
use tegmen::identity::Protection;
use tegmen::time::Instant;

fn is_remembered(table: &mut Table, peer: PeerId) -> bool {
    table.attached(peer).is_some_and(|attached| attached.coap_peer().is_some())
}

#[test]
fn strangers_are_bounded_and_who_observes_goes_last() {
    let (mut table, mut unauthenticated) = (Table::new(Capacity::default()), Unauthenticated::new(10));
    let ledger = Ledger::new(100);
    let mut all = Vec::new();
    for port in 0..1000 {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port)).into();
        let path = Path { local: at(5683), remote: at(port) };
        let (rank, phase, protection) = (Rank::Stranger, Phase::Established, Protection::Plain);
        let new = NewPeer { path: &path, rank, phase, protection, with_handshake: false };
        let id = table.insert(&new).unwrap().id;
        let attached = table.attached(id).unwrap();
        attached.begin(Instant::from_micros(0), |_| {});
        let coap_peer = attached.coap_peer().unwrap();
        if port < 3 {
            coap_peer.observations.push(Observed {
                oscore: None,
                observation: Observation::new(Token::new(b"t"), 1),
                request: Box::default(),
                path: "n".into(),
                changed: false,
                pending: None,
                message_id: None,
                _share: ledger.share(1).unwrap(),
            });
        }
        unauthenticated.add(&mut table, id);
        all.push(id);
        let remembered = all.iter().filter(|id| is_remembered(&mut table, **id)).count();
        assert!(remembered <= 20, "{remembered}");
    }
    assert!(all[..3].iter().all(|id| is_remembered(&mut table, *id)), "who observes");
    assert!(is_remembered(&mut table, all[999]), "who came last");
}
