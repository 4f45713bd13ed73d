//! The CoAP state of one peer: its exchanges, its transfers, and its observations.

use super::oscore_exchange::OscoreExchange;
use super::transfer::{Share, Transfers};
use crate::exchange_pool::ExchangePool;
use std::sync::{Arc, Mutex, PoisonError};
use tegmen::coap::observe::Observation;
use tegmen::coap::{Exchanges, Probing, RequestId};
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

/// Kept only for peers that have sent a message.
pub(super) type Attached = Option<Box<CoapPeer>>;

/// The most observations of one peer.
pub(super) const MAX_OBSERVATIONS: usize = 16;

pub(super) struct CoapPeer {
    pub(super) exchanges: PeerExchanges,
    forgotten: Forgotten,
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
    pub(super) fn new(now: Instant, random: [u8; 10], forgotten: Forgotten) -> Self {
        let [a, b, echo @ ..] = random;
        Self {
            exchanges: Exchanges::new(u16::from_ne_bytes([a, b])),
            forgotten,
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

    /// True if a notification can be sent now.
    pub(super) fn has_news(&self, pool: &ExchangePool) -> bool {
        self.exchanges.outstanding(pool) == 0 && self.observations.iter().any(|observed| observed.is_due())
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

impl Drop for CoapPeer {
    fn drop(&mut self) {
        let exchanges = std::mem::take(&mut self.exchanges);
        self.forgotten.0.lock().unwrap_or_else(PoisonError::into_inner).push(exchanges);
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
