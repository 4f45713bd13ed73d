//! The table of the waiting requests of a session, and the queue of the requests that are not sent yet, because the
//! server has not answered NSTART earlier requests. Each request has one entry in the table, which is called its place.
//! The index of the entry identifies the place.

use super::{ClientError, Response};
use std::collections::VecDeque;
use std::task::Waker;
use tegmen::coap::RequestId;
use tegmen::time::Instant;

/// Maximum number of unread responses and notifications of one request. A further response replaces the oldest unread
/// one.
const MAX_UNREAD: usize = 64;

/// The result of a request.
pub(super) enum Arrived {
    Response(Response),
    /// The request failed with this error. For example, the session ended, or the client cannot accept the response.
    Refused(ClientError),
    /// The server did not acknowledge the request, or did not respond in time.
    Unanswered,
}

/// The table entry of one request, and of the future that waits for its response.
pub(super) struct Place {
    is_taken: bool,
    /// The id of the request; `None` before the request is sent.
    pub(super) request: Option<RequestId>,
    /// True if the request was sent, and no message of the server was received for it yet (RFC 7252, section 4.7).
    is_outstanding: bool,
    /// True for the entry of a handshake, which has no request but receives network errors.
    pub(super) listens: bool,
    /// True if the request has to be sent again under other OSCORE keys.
    pub(super) again: bool,
    /// True if another client protected the request with OSCORE. The response is then passed to that client unopened.
    pub(super) is_forwarded: bool,
    pub(super) arrived: VecDeque<Arrived>,
    waker: Option<Waker>,
    /// The time at which the future is woken, if no response wakes it before.
    pub(super) wake_at: Instant,
}

impl Place {
    const fn new() -> Self {
        Self {
            is_taken: false,
            request: None,
            is_outstanding: false,
            listens: false,
            again: false,
            is_forwarded: false,
            arrived: VecDeque::new(),
            waker: None,
            wake_at: Instant::NEVER,
        }
    }

    pub(super) fn push(&mut self, arrived: Arrived) {
        if self.arrived.len() >= MAX_UNREAD {
            self.arrived.pop_front();
        }
        self.arrived.push_back(arrived);
    }

    fn wake(&mut self) {
        self.wake_at = Instant::NEVER;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The table of the waiting requests of a session. A freed entry keeps its memory for the next request.
#[derive(Default)]
pub(super) struct Places {
    all: Vec<Place>,
    free: Vec<usize>,
    /// The indices of the requests that were not sent yet, in order of arrival. These requests wait until they may be
    /// sent.
    queue: VecDeque<usize>,
    outstanding: usize,
}

impl Places {
    pub(super) fn take(&mut self) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.all.push(Place::new());
            self.all.len() - 1
        });
        if let Some(place) = self.all.get_mut(at) {
            place.is_taken = true;
        }
        at
    }

    /// Frees the index `at`. Returns the id of its request; `None` if the request was not sent.
    pub(super) fn give_back(&mut self, at: usize) -> Option<RequestId> {
        let request = self.forget_request(at);
        self.leave_queue(at);
        if let Some(place) = self.all.get_mut(at) {
            place.arrived.clear();
            (place.is_taken, place.listens, place.again, place.is_forwarded) = (false, false, false, false);
            (place.waker, place.wake_at) = (None, Instant::NEVER);
            self.free.push(at);
        }
        request
    }

    pub(super) fn get(&mut self, at: usize) -> Option<&mut Place> {
        self.all.get_mut(at)
    }

    /// Removes the request with the index `at`, after its exchange has ended. The index remains taken. Returns the id
    /// of the request; `None` if the request was not sent.
    pub(super) fn forget_request(&mut self, at: usize) -> Option<RequestId> {
        self.answered(at);
        self.get(at)?.request.take()
    }

    pub(super) fn find(&self, request: RequestId) -> Option<usize> {
        self.all.iter().position(|place| place.request == Some(request))
    }

    /// Returns the number of requests for which no message was received yet.
    pub(super) const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Notes that the request with the index `at` was sent.
    pub(super) fn sent(&mut self, at: usize, request: RequestId) {
        if let Some(place) = self.all.get_mut(at) {
            (place.request, place.is_outstanding) = (Some(request), true);
            self.outstanding += 1;
        }
    }

    /// Notes that a message was received for the request with the index `at`, or that the request was given up. Wakes
    /// the first request in the queue.
    pub(super) fn answered(&mut self, at: usize) {
        if let Some(place) = self.all.get_mut(at)
            && std::mem::take(&mut place.is_outstanding)
        {
            self.outstanding -= 1;
            self.wake_first();
        }
    }

    /// True if no other request is in front of the request with the index `at` in the queue.
    pub(super) fn is_turn(&self, at: usize) -> bool {
        self.queue.front().is_none_or(|first| *first == at)
    }

    /// Adds the request with the index `at` at the end of the queue, unless the queue already contains it. Returns
    /// false if the queue contains `most` other requests.
    pub(super) fn queue(&mut self, at: usize, most: usize) -> bool {
        if self.queue.contains(&at) {
            return true;
        }
        if self.queue.len() >= most {
            return false;
        }
        self.queue.push_back(at);
        true
    }

    /// Removes the request with the index `at` from the queue, and wakes the first of the remaining requests.
    pub(super) fn leave_queue(&mut self, at: usize) {
        if let Some(index) = self.queue.iter().position(|each| *each == at) {
            self.queue.remove(index);
            self.wake_first();
        }
    }

    /// Wakes the first request of the queue.
    pub(super) fn wake_first(&mut self) {
        if let Some(first) = self.queue.front()
            && let Some(place) = self.all.get_mut(*first)
        {
            place.wake();
        }
    }

    /// Stores the waker of the future that waits for the request with the index `at`. The future is woken at `wake_at`
    /// at the latest.
    pub(super) fn watch(&mut self, at: usize, waker: &Waker, wake_at: Instant) {
        let Some(place) = self.all.get_mut(at) else { return };
        place.wake_at = wake_at;
        match &mut place.waker {
            Some(kept) => kept.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Adds a result to the request with the index `at`, and wakes the future that waits for it.
    pub(super) fn deliver(&mut self, at: usize, arrived: Arrived) {
        self.answered(at);
        if let Some(place) = self.all.get_mut(at) {
            place.push(arrived);
            place.wake();
        }
    }

    /// Wakes each future whose waiting time has ended.
    pub(super) fn wake_due(&mut self, now: Instant) {
        self.all.iter_mut().filter(|place| place.wake_at <= now).for_each(Place::wake);
    }

    /// Wakes all waiting futures.
    pub(super) fn wake_all(&mut self) {
        self.all.iter_mut().for_each(Place::wake);
    }

    /// Returns the earliest time at which a future has to be woken.
    pub(super) fn next_wake(&self) -> Instant {
        self.all.iter().map(|place| place.wake_at).min().unwrap_or(Instant::NEVER)
    }

    /// Ends each sent request, and a waiting handshake, with `error`.
    pub(super) fn refuse_all(&mut self, error: impl Fn() -> ClientError) {
        for at in 0..self.all.len() {
            if self.all.get(at).is_some_and(|place| place.is_taken && (place.request.is_some() || place.listens)) {
                self.deliver(at, Arrived::Refused(error()));
            }
        }
    }

    /// Ends each sent request with `error`, because the session of the request has ended. Requests in the queue were
    /// not sent yet, and wait for the next session.
    pub(super) fn end_all(&mut self, error: impl Fn() -> ClientError) {
        for at in 0..self.all.len() {
            if self.forget_request(at).is_some() {
                self.deliver(at, Arrived::Refused(error()));
            }
        }
        self.wake_all();
    }
}
