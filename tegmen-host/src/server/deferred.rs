//! Requests whose response is deferred.

use super::oscore::OscoreExchange;
use super::reply::Reply;
use std::collections::HashMap;
use tegmen::coap::Code;
use tegmen::node::Deferred;
use tegmen::time::Instant;

/// The requests of a shard that wait for their response, by the number of their responder.
#[derive(Default)]
pub(super) struct Deferrals {
    open: HashMap<u64, DeferredRequest>,
    /// Responses that there is no space to send yet.
    waiting: Vec<(DeferredRequest, Reply)>,
}

impl Deferrals {
    /// Keeps a request for the responder with this number.
    pub(super) fn open(&mut self, number: u64, request: DeferredRequest) {
        self.open.insert(number, request);
    }

    /// Takes the request of a responder; `None` if it has its response.
    pub(super) fn take(&mut self, number: u64) -> Option<DeferredRequest> {
        self.open.remove(&number)
    }

    /// Returns the responders whose requests came at `before` or earlier.
    pub(super) fn overdue(&self, before: Instant) -> Vec<u64> {
        self.open.iter().filter(|(_, request)| request.at <= before).map(|(number, _)| *number).collect()
    }

    /// Keeps a response until there is space to send it.
    pub(super) fn postpone(&mut self, request: DeferredRequest, reply: Reply) {
        self.waiting.push((request, reply));
    }

    /// Takes the responses that waited, but for those to requests that came at `before` or earlier.
    pub(super) fn take_waiting(&mut self, before: Instant) -> Vec<(DeferredRequest, Reply)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(request, _)| request.at > before);
        waiting
    }
}

/// The parts of a request that its deferred response needs.
pub(super) struct DeferredRequest {
    /// The time at which the request came.
    pub(super) at: Instant,
    pub(super) deferred: Deferred<OscoreExchange>,
    pub(super) method: Code,
    /// The path, without a slash in front.
    pub(super) path: String,
    /// Bytes of the request's body.
    pub(super) received: usize,
}
