//! The CoAP state of one peer: its exchanges, and the check of its address.

use crate::credentials::Held;
use crate::exchange_pool::ExchangePool;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap;
use tegmen::coap::{EXCHANGE_LIFETIME, Exchanges, Freshness};
use tegmen::time::{Duration, Instant};

/// The exchanges of one peer of a server. The messages of these exchanges are in the exchange pool of the shard.
type PeerExchanges = Exchanges<ExchangePool>;

/// The exchanges of forgotten peers. The memory of these exchanges in the exchange pool has not been freed yet.
#[derive(Clone, Default)]
pub(crate) struct Forgotten(Arc<Mutex<Vec<PeerExchanges>>>);

impl Forgotten {
    /// Frees the memory that the exchanges of forgotten peers have in the exchange pool.
    pub(crate) fn give_back(&self, pool: &mut ExchangePool) {
        let forgotten = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for mut exchanges in forgotten {
            exchanges.forget(pool);
        }
    }
}

/// The CoAP data in the entry of a peer.
#[derive(Default)]
pub(crate) struct Attached {
    /// The CoAP state of the peer; `None` until the peer sends a message.
    heard: Option<Box<Heard>>,
    /// The reservation of the number that identifies the peer's principal; `None` if there is no reservation. The
    /// credentials give this number to no other principal until the entry is dropped.
    held: Option<Held>,
}

/// The CoAP state of a peer that has sent a message.
struct Heard {
    exchanges: PeerExchanges,
    coap_peer: CoapPeer,
}

/// An entry in the peer table that contains the exchanges of its peer, and that can forget them.
pub(crate) trait Forgettable {
    /// True if a peer whose exchanges are forgotten also leaves the peer table.
    const IS_REMOVED: bool;

    /// Returns true if this entry of the peer table contains exchanges of its peer.
    fn is_remembered(&mut self) -> bool;

    /// Forgets the exchanges and the CoAP state of the peer.
    fn forget(&mut self);
}

impl Forgettable for Attached {
    const IS_REMOVED: bool = false;

    fn is_remembered(&mut self) -> bool {
        self.heard.is_some()
    }

    fn forget(&mut self) {
        self.heard = None;
    }
}

impl Attached {
    /// Stores the reservation of the number that identifies the peer's principal. The credentials give this number to
    /// no other principal until the peer leaves the peer table.
    pub(crate) fn hold(&mut self, held: Option<Held>) {
        self.held = held;
    }

    /// Returns the state of the peer, if there is any.
    pub(crate) fn coap_peer(&mut self) -> Option<&mut CoapPeer> {
        self.heard.as_mut().map(|heard| &mut heard.coap_peer)
    }
}

impl coap::PeerExchanges for Attached {
    type Storage = ExchangePool;
    type State = CoapPeer;
    const VERIFIES: bool = true;

    #[inline]
    fn exchanges(&mut self) -> Option<&mut PeerExchanges> {
        self.heard.as_mut().map(|heard| &mut heard.exchanges)
    }

    #[inline]
    fn with_state(&mut self) -> Option<(&mut PeerExchanges, &mut CoapPeer)> {
        self.heard.as_mut().map(|heard| (&mut heard.exchanges, &mut heard.coap_peer))
    }

    #[inline]
    fn freshness(&mut self) -> Option<&mut Freshness> {
        self.heard.as_mut().map(|heard| &mut heard.coap_peer.freshness)
    }

    #[inline]
    fn begin(&mut self, now: Instant, random: impl FnOnce(&mut [u8])) -> bool {
        if self.heard.is_some() {
            return false;
        }
        let mut bytes = [0; 10];
        random(&mut bytes);
        let [a, b, echo @ ..] = bytes;
        let exchanges = Exchanges::new(u16::from_ne_bytes([a, b]));
        let coap_peer = CoapPeer::new(now, Forgotten::default(), Freshness::new(echo));
        self.heard = Some(Box::new(Heard { exchanges, coap_peer }));
        true
    }

    #[inline]
    fn heard(&mut self, now: Instant) {
        if let Some(heard) = &mut self.heard {
            heard.coap_peer.last = now;
        }
    }

    fn on_alarm(&mut self, pool: &ExchangePool, now: Instant, is_observer: bool) -> Option<Instant> {
        let Heard { exchanges, coap_peer } = self.heard.as_deref_mut()?;
        let quiet_at = coap_peer.last.after(EXCHANGE_LIFETIME);
        match exchanges.next_deadline(pool) {
            Some(_) => Some(quiet_at.max(now.after_millis(1000))),
            // The peer, too, has forgotten all messages by then.
            None if quiet_at <= now && !is_observer => {
                self.forget();
                None
            }
            None if !is_observer => Some(quiet_at),
            None => Some(now.after(EXCHANGE_LIFETIME)),
        }
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let exchanges = std::mem::take(&mut self.exchanges);
        self.coap_peer.forgotten.0.lock().unwrap_or_else(PoisonError::into_inner).push(exchanges);
    }
}

/// The CoAP state of a peer, without its exchanges.
pub(crate) struct CoapPeer {
    /// The list that receives the exchanges when the peer is forgotten.
    pub(crate) forgotten: Forgotten,
    /// The time of the last message from the peer.
    last: Instant,
    pub(crate) freshness: Freshness,
    /// The time at which the current second began. `requests` is the number of requests since then.
    second: Instant,
    requests: u32,
}

impl CoapPeer {
    const fn new(now: Instant, forgotten: Forgotten, freshness: Freshness) -> Self {
        Self { forgotten, last: now, freshness, second: now, requests: 0 }
    }

    /// Counts a request. Returns false if the peer has made more than `per_second` requests in this second; 0 sets no
    /// limit.
    pub(super) fn admits(&mut self, now: Instant, per_second: u32) -> bool {
        if now.since(self.second) >= Duration::from_secs(1) {
            (self.second, self.requests) = (now, 0);
        }
        self.requests = self.requests.saturating_add(1);
        per_second == 0 || self.requests <= per_second
    }
}
