//! Requests for which the response is deferred. Each shard (a thread of a server with its own sockets) has a list of
//! these requests.

use super::bodies::Share;
use super::command::Release;
use super::oscore::OscoreExchange;
use super::per_peer::PerNumber;
use super::reply::Reply;
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tegmen::address::Address;
use tegmen::coap::{Builder, Code, MessageType, PeerExchanges, empty_message};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::Roles;
use tegmen::endpoint::{Event, Peers};
use tegmen::identity::PeerId;
use tegmen::node::{Deferred, Features, Node, Oscore, SendError};
use tegmen::time::Instant;
use tegmen_accel::prefetch;

/// The requests of a shard that wait for a response or for a decision of the policy. The key of a request is the number
/// of its responder or of its authorization.
#[derive(Default)]
pub(crate) struct Deferrals {
    open: Slab<(u64, DeferredRequest)>,
    /// The place of each request in `open`.
    places: PerNumber<usize>,
    /// True if the owner calls [`Self::take_unacknowledged`] to acknowledge requests after a delay. If false, the node
    /// acknowledges them at once.
    pub(super) acknowledges_later: bool,
    /// The times at which requests have to be acknowledged, the earliest first. The second value is the number of the
    /// request.
    unacknowledged: VecDeque<(Instant, u64)>,
    /// Responses and decisions that cannot be handled yet, because too many messages wait for an acknowledgement.
    waiting: Vec<(DeferredRequest, Outcome)>,
    /// The commands to send prepared responses that are not executed completely.
    releases: VecDeque<Release>,
}

impl Deferrals {
    /// Stores a request for the responder with this number.
    pub(super) fn open(&mut self, number: u64, request: DeferredRequest) {
        if self.acknowledges_later {
            self.unacknowledged.push_back((request.at.after(ACKNOWLEDGE_WITHIN), number));
        }
        let place = self.open.insert((number, request));
        self.places.insert(number, place);
    }

    /// Returns the time at which the next request without a response has to be acknowledged; `None` if there is no such
    /// request.
    pub(super) fn next_acknowledgement(&mut self) -> Option<Instant> {
        while let Some((by, number)) = self.unacknowledged.front() {
            if self.places.contains_key(number) {
                return Some(*by);
            }
            self.unacknowledged.pop_front();
        }
        None
    }

    /// Returns a request that has to be acknowledged at `now`; `None` if no request has to be acknowledged.
    pub(super) fn take_unacknowledged(&mut self, now: Instant) -> Option<&mut DeferredRequest> {
        self.next_acknowledgement().filter(|by| *by <= now)?;
        let (_, number) = self.unacknowledged.pop_front()?;
        let (_, request) = self.open.get_mut(*self.places.get(&number)?)?;
        Some(request)
    }

    /// Removes and returns the request of a responder. Returns `None` if the request already has a response.
    #[inline]
    pub(crate) fn take(&mut self, number: u64) -> Option<DeferredRequest> {
        let place = self.places.remove(&number)?;
        Some(self.open.remove(place).1)
    }

    /// Returns first the time that is `timeout` before `now`, and then the number of each responder whose request came
    /// at or before this time, with an error response for the request.
    pub(crate) fn overdue(&self, now: Instant, timeout: Duration) -> (Instant, Vec<(u64, Reply)>) {
        let before = now.as_micros().checked_sub(timeout.as_micros() as u64).map(Instant::from_micros);
        let late = |request: &DeferredRequest| {
            let seconds = timeout.as_secs_f64();
            let cause = match request.is_undecided {
                true => format!("the policy did not decide within {seconds} s"),
                false => format!("the application did not respond within {seconds} s"),
            };
            Reply::new(Code::SERVICE_UNAVAILABLE).because(cause)
        };
        let is_overdue = |request: &DeferredRequest| before.is_some_and(|before| request.at <= before);
        let open = self.open.iter().map(|(_, open)| open);
        let overdue = open.filter(|(_, request)| is_overdue(request)).map(|(number, request)| (*number, late(request)));
        (before.unwrap_or(Instant::AT_ONCE), overdue.collect())
    }

    /// True if no request waits for its response.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    /// Takes a command to send prepared responses. [`Self::next_released`] then returns these responses.
    pub(crate) fn release(&mut self, release: Release) {
        self.releases.push_back(release);
    }

    /// Returns the number of the next request whose prepared response has to be sent, and the response that replaces
    /// the prepared response if there is one. Returns `None` if no prepared response has to be sent.
    pub(crate) fn next_released(&mut self) -> Option<(u64, Option<Reply>)> {
        loop {
            if let Some(released) = self.releases.front_mut()?.next() {
                return Some(released);
            }
            self.releases.pop_front();
        }
    }

    /// Begins to load the next prepared responses, at most [`PREFETCHED`] of them, and their requests into the cache of
    /// the processor. Calls `prefetch_peer` for the peer of each request. [`Self::next_released`] then returns these
    /// responses. If many requests came after them, the cache no longer has them.
    pub(super) fn prefetch_released(&self, prefetch_peer: impl Fn(PeerId)) {
        let mut next = [None; PREFETCHED];
        let numbers = self.releases.iter().flat_map(|release| release.numbers.iter().cloned().flatten());
        for (place, number) in next.iter_mut().zip(numbers) {
            *place = self.places.get(&number).and_then(|place| self.open.get(*place));
            if let Some(open) = *place {
                prefetch(open);
            }
        }
        for (_, request) in next.into_iter().flatten() {
            prefetch_peer(request.deferred.peer);
            let payload = request.prepared.iter().flat_map(|reply| [reply.payload.first(), reply.payload.last()]);
            payload.flatten().for_each(prefetch);
        }
    }

    /// True if prepared responses have to be sent.
    pub(super) fn has_released(&self) -> bool {
        !self.releases.is_empty()
    }

    /// True if responses or decisions wait, because too many messages wait for an acknowledgement.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes a deferred response into `out`. Returns the peer and the length of the datagram to send. Returns `None`
    /// if nothing has to be sent now. If too many messages wait for an acknowledgement, stores the response for a later
    /// attempt.
    pub(crate) fn respond<P, R, F, C>(
        &mut self,
        node: &mut Node<P, R, F>,
        cx: &mut Cx<'_, C>,
        request: DeferredRequest,
        reply: Reply,
        out: &mut [u8],
    ) -> Option<(PeerId, usize)>
    where
        P: Peers<Attached: PeerExchanges>,
        R: Roles,
        F: Features<Oscore: Oscore<Exchange = OscoreExchange>>,
        C: Crypto,
    {
        let deferred = request.deferred;
        let peer = deferred.peer;
        let write = |builder: &mut Builder<'_, '_>| {
            reply.options.iter().try_for_each(|(number, value)| builder.option(*number, value.as_bytes()))?;
            builder.payload(&reply.payload)
        };
        match node.respond(cx, deferred, reply.code, write, out) {
            Ok(len) => (len > 0).then_some((peer, len)),
            Err((SendError::Busy, deferred)) => {
                self.waiting.push((DeferredRequest { deferred, ..request }, Outcome::Response(reply)));
                None
            }
            Err((error, deferred)) if reply.code.is_success() => {
                // An observer learns that this was the last response, and any client that there is none.
                let cause = format!("the response cannot be sent: {error:?}");
                let request = DeferredRequest { deferred, ..request };
                self.respond(node, cx, request, Reply::new(Code::INTERNAL_SERVER_ERROR).because(cause), out)
            }
            Err(_) => None,
        }
    }

    /// Removes the requests of peers that no longer exist.
    pub(crate) fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        self.open.retain(|_, (number, request)| {
            let stays = is_there(request.deferred.peer);
            if !stays {
                self.places.remove(number);
            }
            stays
        });
        self.waiting.retain(|(request, _)| is_there(request.deferred.peer));
    }

    /// Stores a decision that cannot be handled yet, because too many messages wait for an acknowledgement.
    pub(crate) fn postpone(&mut self, request: DeferredRequest, outcome: Outcome) {
        self.waiting.push((request, outcome));
    }

    /// Removes all waiting responses and decisions, and returns those for requests that came after `before`. Drops the
    /// others.
    pub(crate) fn take_waiting(&mut self, before: Instant) -> Vec<(DeferredRequest, Outcome)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|(request, _)| request.at > before);
        waiting
    }
}

/// Maximum number of prepared responses that one call of [`Deferrals::prefetch_released`] loads into the cache of the
/// processor.
pub(super) const PREFETCHED: usize = 32;

/// The time after which a request with a deferred response is acknowledged. A response within this time is also the
/// acknowledgement, which saves two messages. A client repeats its request after ACK_TIMEOUT, which is 2 s (RFC 7252,
/// section 4.8), and never below 1 s (section 4.8.1). So the acknowledgement has at least 500 ms for its way.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(500);

impl DeferredRequest {
    /// Writes the acknowledgement of the request into `out`. The response is then a separate message (RFC 7252, section
    /// 5.2.2). Returns the event with which the caller must send the acknowledgement, or `None` if the acknowledgement
    /// was already sent.
    pub(super) fn acknowledge<P, R, F, C>(
        &mut self,
        node: &mut Node<P, R, F>,
        cx: &mut Cx<'_, C>,
        out: &mut [u8],
    ) -> Option<Event>
    where
        P: Peers<Attached: PeerExchanges>,
        R: Roles,
        F: Features<Oscore: Oscore<Exchange = OscoreExchange>>,
        C: Crypto,
    {
        let late = self.deferred.late.take()?;
        node.write(cx, self.deferred.peer, out, |cx, attached, pool, frame| {
            let reply = empty_message(MessageType::Acknowledgement, late.message_id);
            if let Some(exchanges) = attached.exchanges()
                && frame.append(&reply).is_ok()
            {
                exchanges.keep_late_reply(pool, cx.now, late, &reply);
            }
        })
    }
}

/// The result for a request that waited: a response of the application, or a decision of the policy.
pub(crate) enum Outcome {
    Response(Reply),
    /// True if the sender may make the request.
    Decision(bool),
}

/// The values of a request that are stored until its deferred response is sent.
pub(crate) struct DeferredRequest {
    /// The time at which the request came.
    pub(crate) at: Instant,
    pub(crate) deferred: Deferred<OscoreExchange>,
    /// The address of the sender; `None` for a notification.
    pub(crate) remote: Option<Address>,
    pub(crate) method: Code,
    /// The path, without a leading slash.
    pub(crate) path: Arc<str>,
    /// Bytes of the request body.
    pub(crate) received: usize,
    /// The length of the request in bytes, if its sender has possibly not proved its address: see
    /// [`super::ServerCoap::verify_addresses`].
    pub(crate) unproven_len: Option<usize>,
    /// True if the policy has not decided on the request yet.
    pub(crate) is_undecided: bool,
    /// A copy of the message of an undecided request, and the [`Share`] that counts the bytes of the copy against the
    /// limit for all bodies of the server; `None` if there is no copy.
    pub(crate) copy: Option<(Vec<u8>, Share)>,
    /// The response, if the application has prepared it.
    pub(crate) prepared: Option<Reply>,
}
