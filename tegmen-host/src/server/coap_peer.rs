//! The CoAP state of one peer: its exchanges, its transfers, and its observations.

use super::oscore_exchange::OscoreExchange;
use super::transfer::{Share, Transfers};
use crate::exchange_pool::ExchangePool;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap;
use tegmen::coap::observe::Observation;
use tegmen::coap::{EXCHANGE_LIFETIME, Exchanges, Probing, RequestId};
use tegmen::time::Instant;

/// The exchanges of one peer of a server, whose messages lie in the pool of the shard.
pub(super) type PeerExchanges = Exchanges<ExchangePool>;

/// Exchanges of peers that are not remembered any more, and whose place in the pool is not given back yet.
#[derive(Clone, Default)]
pub(super) struct Forgotten(Arc<Mutex<Vec<PeerExchanges>>>);

impl Forgotten {
    /// Gives back what they have in the pool.
    pub(super) fn give_back(&self, pool: &mut ExchangePool) {
        let forgotten = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for mut exchanges in forgotten {
            exchanges.forget(pool);
        }
    }
}

/// The entry of a peer: empty until the peer has sent a message.
#[derive(Default)]
pub(super) struct Attached(Option<Box<Heard>>);

/// A peer that has sent a message.
struct Heard {
    exchanges: PeerExchanges,
    coap_peer: CoapPeer,
}

impl Attached {
    /// Returns the state of the peer, if there is any.
    pub(super) fn coap_peer(&mut self) -> Option<&mut CoapPeer> {
        self.0.as_mut().map(|heard| &mut heard.coap_peer)
    }

    /// Forgets exchanges and state of the peer.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl coap::PeerExchanges for Attached {
    type Storage = ExchangePool;
    type State = CoapPeer;

    #[inline]
    fn exchanges(&mut self) -> Option<&mut PeerExchanges> {
        self.0.as_mut().map(|heard| &mut heard.exchanges)
    }

    #[inline]
    fn with_state(&mut self) -> Option<(&mut PeerExchanges, &mut CoapPeer)> {
        self.0.as_mut().map(|heard| (&mut heard.exchanges, &mut heard.coap_peer))
    }

    #[inline]
    fn begin(&mut self, now: Instant, random: impl FnOnce(&mut [u8])) -> bool {
        if self.0.is_some() {
            return false;
        }
        let mut bytes = [0; 10];
        random(&mut bytes);
        let [a, b, echo @ ..] = bytes;
        let exchanges = Exchanges::new(u16::from_ne_bytes([a, b]));
        self.0 = Some(Box::new(Heard { exchanges, coap_peer: CoapPeer::new(now, echo) }));
        true
    }

    #[inline]
    fn heard(&mut self, now: Instant) {
        if let Some(heard) = &mut self.0 {
            heard.coap_peer.last = now;
            heard.coap_peer.probing.heard();
        }
    }

    fn on_alarm(&mut self, pool: &ExchangePool, now: Instant) -> Option<Instant> {
        let Heard { exchanges, coap_peer } = self.0.as_deref_mut()?;
        coap_peer.transfers.forget(now);
        let quiet_at = coap_peer.last.after(EXCHANGE_LIFETIME);
        match exchanges.next_deadline(pool) {
            Some(_) => Some(quiet_at.max(now.after_millis(1000))),
            // The peer, too, has forgotten all messages by then.
            None if quiet_at <= now && coap_peer.observations.is_empty() => {
                self.forget();
                None
            }
            None if coap_peer.observations.is_empty() => Some(quiet_at),
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

/// The most observations of one peer.
pub(super) const MAX_OBSERVATIONS: usize = 16;

pub(super) struct CoapPeer {
    /// Receives the exchanges when the peer is forgotten.
    pub(super) forgotten: Forgotten,
    pub(super) transfers: Transfers,
    pub(super) observations: Vec<Observed>,
    /// Time of the last message from the peer.
    pub(super) last: Instant,
    /// When it may be sent a notification that is not confirmable.
    pub(super) probing: Probing,
    /// What a peer without protection has to repeat to show that it receives at its address (RFC 9175, section 2.4).
    pub(super) echo: [u8; 8],
    pub(super) verified: bool,
    /// True while the peer stands in the queue of those to be notified.
    pub(super) queued: bool,
    /// Requests since the second began.
    pub(super) second: Instant,
    pub(super) requests: u32,
}

impl CoapPeer {
    fn new(now: Instant, echo: [u8; 8]) -> Self {
        Self {
            forgotten: Forgotten::default(),
            transfers: Transfers::default(),
            observations: Vec::new(),
            last: now,
            probing: Probing::new(),
            echo,
            verified: false,
            queued: false,
            second: now,
            requests: 0,
        }
    }

    /// Marks what observes `path`. True if there is anything.
    pub(super) fn mark(&mut self, path: &str) -> bool {
        let mut any = false;
        for observed in self.observations.iter_mut().filter(|observed| &*observed.path == path) {
            observed.changed = true;
            any = true;
        }
        any
    }

    /// True if something observes `path`.
    pub(super) fn observes(&self, path: &str) -> bool {
        self.observations.iter().any(|observed| &*observed.path == path)
    }

    /// True if there is a notification to send.
    pub(super) fn has_news(&self) -> bool {
        self.observations.iter().any(Observed::is_due)
    }

    /// The peer has acknowledged a notification.
    pub(super) fn on_acknowledged(&mut self, id: RequestId) {
        for observed in self.observations.iter_mut().filter(|observed| observed.pending == Some(id)) {
            observed.pending = None;
        }
    }

    /// The peer does not want notifications any more, or is not there.
    pub(super) fn on_refused(&mut self, id: RequestId) {
        self.observations.retain(|observed| observed.pending != Some(id));
    }

    /// As [`Self::on_refused`], of a notification that was not confirmable.
    pub(super) fn on_rejected(&mut self, message_id: u16) {
        self.observations.retain(|observed| observed.message_id != Some(message_id));
    }

    /// The Observe option of a registration with this token: newer than what an older one was sent.
    pub(super) fn next_number(&self, token: &[u8]) -> u32 {
        let found = self.observations.iter().find(|observed| observed.observation.token.as_bytes() == token);
        found.map_or(0, |observed| observed.observation.number()).wrapping_add(1)
    }

    /// Ends what was registered with this token.
    pub(super) fn deregister(&mut self, token: &[u8]) {
        self.observations.retain(|observed| observed.observation.token.as_bytes() != token);
    }
}

/// A representation that the peer observes.
pub(super) struct Observed {
    pub(super) observation: Observation,
    /// The request that registered: each notification is the response to it.
    pub(super) request: Box<[u8]>,
    /// What protects each notification, if the request protected itself.
    pub(super) oscore: Option<OscoreExchange>,
    /// The path of the request.
    pub(super) path: Arc<str>,
    /// There is something newer than what was sent last.
    pub(super) changed: bool,
    /// The confirmable notification that is not acknowledged yet.
    pub(super) pending: Option<RequestId>,
    /// Of the last notification, if that was not confirmable.
    pub(super) message_id: Option<u16>,
    pub(super) _share: Share,
}

impl Observed {
    pub(super) const fn is_due(&self) -> bool {
        self.changed && self.pending.is_none()
    }
}
