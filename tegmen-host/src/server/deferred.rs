//! Requests whose response is deferred.

use super::bodies::Share;
use super::oscore::OscoreExchange;
use super::reply::Reply;
use std::collections::HashMap;
use tegmen::coap::Code;
use tegmen::identity::PeerId;
use tegmen::node::Deferred;
use tegmen::time::Instant;

/// The requests of a shard that wait for their response, by the number of their responder or authorization.
#[derive(Default)]
pub(super) struct Deferrals {
    open: HashMap<u64, DeferredRequest>,
    /// Responses and decisions that there is no space to act upon yet.
    waiting: Vec<(DeferredRequest, Outcome)>,
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

    /// True if the request of this number waits for the decision of the policy.
    pub(super) fn is_undecided(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|request| request.is_undecided)
    }

    /// Forgets the requests of peers that are gone.
    pub(super) fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        self.open.retain(|_, request| is_there(request.deferred.peer));
        self.waiting.retain(|(request, _)| is_there(request.deferred.peer));
    }

    /// Returns the numbers of the requests that came at `before` or earlier.
    pub(super) fn overdue(&self, before: Instant) -> Vec<u64> {
        self.open.iter().filter(|(_, request)| request.at <= before).map(|(number, _)| *number).collect()
    }

    /// Keeps a response or a decision until there is space for it.
    pub(super) fn postpone(&mut self, request: DeferredRequest, outcome: Outcome) {
        self.waiting.push((request, outcome));
    }

    /// Takes the responses and decisions that waited, except those on requests that came at `before` or earlier.
    pub(super) fn take_waiting(&mut self, before: Instant) -> Vec<(DeferredRequest, Outcome)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(request, _)| request.at > before);
        waiting
    }
}

/// The end of a deferral.
pub(crate) enum Outcome {
    Response(Reply),
    /// The sender may make the request, or not.
    Decision(bool),
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
    /// The policy has not decided yet.
    pub(super) is_undecided: bool,
    /// The message of a request that is undecided, and its bytes in the ledger of bodies.
    pub(super) copy: Option<(Vec<u8>, Share)>,
}
