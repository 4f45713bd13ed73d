use super::*;
use crate::server::coap_peer::{CoapPeer, Forgotten, Observed};
use crate::server::transfer::Ledger;
use crate::slab::Capacity;
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::coap::Token;
use tegmen::coap::observe::Observation;
use tegmen::dtls::association::Rank;
use tegmen::endpoint::{NewPeer, Phase};
use tegmen::identity::Protection;
use tegmen::time::Instant;

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
        let mut coap_peer = Box::new(CoapPeer::new(Instant::from_micros(0), [0; 10], Forgotten::default()));
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
        *table.attached(id).unwrap() = Some(coap_peer);
        unauthenticated.add(&mut table, id);
        all.push(id);
        let remembered = all.iter().filter(|id| matches!(table.attached(**id), Some(Some(_)))).count();
        assert!(remembered <= 20, "{remembered}");
    }
    assert!(all[..3].iter().all(|id| matches!(table.attached(*id), Some(Some(_)))), "who observes");
    assert!(matches!(table.attached(all[999]), Some(Some(_))), "who came last");
}
