//! The sources of messages.

use super::oscore_exchange::OscoreExchange;
use std::net::SocketAddr;
use tegmen::coap::MessageRef;
use tegmen::identity::{Identity, PeerId, Protection};
use tegmen::time::Instant;

/// The sender of a message, and the time at which it arrived.
pub(super) struct Source {
    pub(super) now: Instant,
    pub(super) peer: PeerId,
    pub(super) identity: Identity,
    pub(super) remote: SocketAddr,
    /// True if that may be a replay: the window of its session was lost.
    pub(super) unverified: bool,
    /// True if it says it to a group.
    pub(super) to_group: bool,
    /// Set if OSCORE protects the message.
    pub(super) oscore: Option<OscoreExchange>,
}

impl Source {
    /// Identifies a transfer, so that two senders behind one address have separate ones.
    pub(super) fn operation(&self, message: &MessageRef<'_>) -> u64 {
        let sender = u64::from(self.identity.principal.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        message.operation() ^ sender
    }

    /// Returns the sender as the context of `oscore` authenticates it.
    pub(super) fn under(&self, oscore: &OscoreExchange) -> Self {
        let identity = Identity { principal: oscore.context.principal(), protection: Protection::Oscore };
        Self { identity, oscore: Some(oscore.clone()), ..*self }
    }
}
