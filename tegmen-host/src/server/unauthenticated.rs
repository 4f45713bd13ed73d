//! The peers that use CoAP in clear, and whose CoAP state the server keeps in memory. A limit for the number of these
//! peers prevents an attacker with forged addresses from filling the memory.

use super::coap_peer::Forgettable;
use super::observers::Observers;
use tegmen::endpoint::Peers;
use tegmen::identity::PeerId;
use tegmen::node::Observers as _;

/// Unprotected peers, in the order of their arrival. The list can contain peers that were already forgotten.
pub(crate) struct Unauthenticated {
    peers: Vec<PeerId>,
    max: usize,
}

impl Unauthenticated {
    pub(crate) const fn new(max: usize) -> Self {
        Self { peers: Vec::new(), max }
    }

    /// Adds a peer. If there are then more than twice `max` peers, forgets peers until `max` are left. Forgets the
    /// peers without observations before the others, and older peers before newer ones.
    pub(super) fn add<T: Peers<Attached: Forgettable>, G>(
        &mut self,
        table: &mut T,
        observers: &mut Observers<G>,
        peer: PeerId,
    ) {
        self.peers.push(peer);
        if self.peers.len() <= 2 * self.max {
            return;
        }
        self.peers.retain(|peer| table.attached(*peer).is_some_and(|attached| attached.is_remembered()));
        for even_observers in [false, true] {
            let mut too_many = self.peers.len().saturating_sub(self.max);
            self.peers.retain(|peer| {
                let Some(attached) = table.attached(*peer).filter(|_| too_many > 0) else { return true };
                if !even_observers && observers.any(*peer, |_| true) {
                    return true;
                }
                attached.forget();
                observers.forget(*peer);
                if T::Attached::IS_REMOVED {
                    table.remove(*peer);
                }
                too_many -= 1;
                false
            });
        }
    }
}

#[cfg(test)]
mod tests;
