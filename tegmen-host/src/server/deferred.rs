//! Requests whose response is deferred.

use super::oscore_exchange::OscoreExchange;
use super::source::Source;
use std::collections::HashMap;
use tegmen::coap::{Block, Code, MessageRef, OptionNumber, Token};
use tegmen::identity::PeerId;
use tegmen::time::Instant;

/// The requests of a shard that wait for their response, by the number of their responder.
#[derive(Default)]
pub(super) struct Deferrals {
    last: u64,
    open: HashMap<u64, DeferredRequest>,
}

impl Deferrals {
    /// Keeps a request, and returns the number of its responder.
    pub(super) fn open(&mut self, request: DeferredRequest) -> u64 {
        self.last += 1;
        self.open.insert(self.last, request);
        self.last
    }

    /// Takes the request of a responder; `None` if it has its response.
    pub(super) fn take(&mut self, number: u64) -> Option<DeferredRequest> {
        self.open.remove(&number)
    }

    /// Returns the responders whose requests came at `before` or earlier.
    pub(super) fn overdue(&self, before: Instant) -> Vec<u64> {
        self.open.iter().filter(|(_, request)| request.at <= before).map(|(number, _)| *number).collect()
    }
}

/// Of a request, what its deferred response needs.
pub(super) struct DeferredRequest {
    /// The time at which the request came.
    at: Instant,
    pub(super) peer: PeerId,
    pub(super) token: Token,
    pub(super) operation: u64,
    pub(super) to_group: bool,
    /// The OSCORE exchange that protects the response, if OSCORE protected the request.
    pub(super) oscore: Option<OscoreExchange>,
    pub(super) method: Code,
    /// The path, without a slash in front.
    pub(super) path: String,
    /// The Block2 option.
    pub(super) asked: Option<Block>,
    /// Bytes of the request's body.
    pub(super) received: usize,
}

impl DeferredRequest {
    pub(super) fn new(from: &Source, message: &MessageRef<'_>, path: &str) -> Self {
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        Self {
            at: from.now,
            peer: from.peer,
            token: Token::new(message.token()),
            operation: from.operation(message),
            to_group: from.to_group,
            oscore: from.oscore.clone(),
            method: message.code(),
            path: path.to_owned(),
            asked,
            received: message.payload().len(),
        }
    }
}
