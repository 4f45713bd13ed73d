//! Peers without protection that CoAP remembers something of. Whoever forges addresses must not fill the memory with them.

use super::shard::Table;
use tegmen::endpoint::{PeerId, Peers as _};

/// In the order in which they came; some are forgotten meanwhile.
pub(super) struct Strangers {
    peers: Vec<PeerId>,
    max: usize,
}

impl Strangers {
    pub(super) const fn new(max: usize) -> Self {
        Self { peers: Vec::new(), max }
    }

    /// One more. At twice as many as are wanted all but so many are forgotten: those first that observe nothing, and of
    /// these those that came first.
    pub(super) fn add(&mut self, table: &mut Table, peer: PeerId) {
        self.peers.push(peer);
        if self.peers.len() <= 2 * self.max {
            return;
        }
        self.peers.retain(|peer| matches!(table.attached(*peer), Some(Some(_))));
        for even_observers in [false, true] {
            let mut too_many = self.peers.len().saturating_sub(self.max);
            self.peers.retain(|peer| {
                let Some(attached) = table.attached(*peer).filter(|_| too_many > 0) else { return true };
                if !even_observers && attached.as_ref().is_some_and(|talk| !talk.observations.is_empty()) {
                    return true;
                }
                *attached = None;
                too_many -= 1;
                false
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::talk::{Observed, Talk};
    use super::super::transfer::Ledger;
    use super::*;
    use crate::slab::Capacity;
    use std::net::SocketAddr;
    use tegmen::coap::Token;
    use tegmen::coap::observe::Observation;
    use tegmen::endpoint::{NewPeer, Path, Phase, Protection, Rank};
    use tegmen::time::Instant;

    #[test]
    fn strangers_are_bounded_and_who_observes_goes_last() {
        let (mut table, mut strangers) = (Table::new(Capacity::default()), Strangers::new(10));
        let ledger = Ledger::new(100);
        let mut all = Vec::new();
        for port in 0..1000 {
            let at = |port| SocketAddr::from(([10, 0, 0, 1], port)).into();
            let path = Path { local: at(5683), remote: at(port) };
            let (rank, phase, protection) = (Rank::Stranger, Phase::Established, Protection::Plain);
            let new = NewPeer { path: &path, rank, phase, protection, with_handshake: false };
            let id = table.insert(&new).unwrap().id;
            let mut talk = Box::new(Talk::new(Instant::from_micros(0), [0; 10]));
            if port < 3 {
                talk.observations.push(Observed {
                    object: None,
                    observation: Observation::new(Token::new(b"t"), 1),
                    request: Box::default(),
                    path: "n".into(),
                    changed: false,
                    pending: None,
                    message_id: None,
                    _share: ledger.share(1).unwrap(),
                });
            }
            *table.attached(id).unwrap() = Some(talk);
            strangers.add(&mut table, id);
            all.push(id);
            let remembered = all.iter().filter(|id| matches!(table.attached(**id), Some(Some(_)))).count();
            assert!(remembered <= 20, "{remembered}");
        }
        assert!(all[..3].iter().all(|id| matches!(table.attached(*id), Some(Some(_)))), "who observes");
        assert!(matches!(table.attached(all[999]), Some(Some(_))), "who came last");
    }
}
