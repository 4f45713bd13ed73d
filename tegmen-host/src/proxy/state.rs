//! The cache of a proxy, and the requests that wait for origins.

use super::answer::Answer;
use super::memory::{Bounds, Memory, Owner};
use super::protected::Protected;
use crate::hash::Keys;
use crate::server::Responder;
use std::collections::HashMap;
use std::sync::Arc;
use tegmen::coap::MessageRef;
use tegmen::coap::cache::{Cache, CacheStorage as _, Found, Taken};
use tegmen::time::Instant;

/// The counts of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProxyCounts {
    /// The number of requests that were answered from the cache.
    pub hits: u64,
    /// The number of requests to which the cache had no fresh response. Requests that the cache is not allowed to
    /// answer are not counted.
    pub misses: u64,
    /// The number of requests that waited for the response to an earlier, equal request, so that the proxy sent only
    /// one request to the origin.
    pub joined: u64,
    /// The number of stored responses that their origin confirmed to be valid.
    pub revalidated: u64,
    /// The number of requests that the proxy sent to the origin for only one client, because other clients cannot get
    /// the same response. There are two reasons. The first is that the response must not be stored. The second is that
    /// an equal request already waits, but may pass more proxies than the new request (Hop-Limit, RFC 8768).
    pub passed: u64,
    /// The number of requests to origins that failed. The client receives 5.02, 5.03 or 5.04.
    pub failed: u64,
    /// The current number of stored responses.
    pub entries: usize,
    /// Bytes of the stored responses.
    pub bytes: usize,
    /// The current number of requests that wait for an origin.
    pub open: usize,
    /// The current number of observations at origins.
    pub observations: usize,
}

/// The cache, and the requests that wait for origins.
pub(super) struct State {
    cache: Cache<Memory>,
    max_open: usize,
    /// For each cache key, the number of the request to the origin ([`Fetching`]) that is in progress. Further equal
    /// requests may wait for the response to this request.
    by_key: HashMap<Arc<[u8]>, u64, Keys>,
    fetches: HashMap<u64, Fetching, Keys>,
    /// The observation at the origin for each cache key.
    watches: HashMap<Arc<[u8]>, Watch, Keys>,
    /// The observations for which OSCORE protects the registration.
    pub(super) protected: Protected,
    /// The number of the request to an origin ([`Fetching`]) that began last.
    last: u64,
    /// The number of requests in progress for which the response is only for one client.
    apart: usize,
    counts: ProxyCounts,
}

/// A request to an origin, and the clients that wait for its response.
struct Fetching {
    hops: u8,
    waiters: Vec<Waiter>,
}

/// The observation of a resource at its origin. All clients of the proxy that observe this resource share the
/// observation.
struct Watch {
    hops: u8,
    /// The client that began the observation.
    owner: Owner,
    /// The clients that wait for the first response; `None` after the first response came.
    waiters: Option<Vec<Waiter>>,
}

/// The state of the observation that a client requests.
pub(super) enum Watching {
    /// The observation exists, and the origin notifies the proxy.
    Begun,
    /// The proxy waits for the first response of the origin.
    Begins,
    /// There is no observation, and an observation can begin.
    Not,
    /// There is no observation for this request, and no observation can begin.
    Never,
}

/// A client that waits for a response.
pub(super) struct Waiter {
    pub(super) responder: Responder,
    /// The ETags of the representations that the client has.
    pub(super) known: Vec<Vec<u8>>,
}

/// The decision for a request that the cache does not answer. With `Begins` the proxy sends the request to the origin.
/// With `Full` the proxy refuses the request, because too many requests wait.
pub(super) enum Room {
    /// The request waits for the response to an equal request, which the proxy has already sent to the origin. The
    /// value is the number of the earlier request.
    Joins(u64),
    /// No equal request waits, or only an earlier request with a lower Hop-Limit (RFC 8768). The earlier request can get
    /// the response 5.08 although this request reaches the origin. So the proxy sends this request to the origin, and
    /// later equal requests wait for its response.
    Begins,
    /// The proxy sends the request to the origin separately. An equal request already waits, but that earlier request
    /// may pass more proxies than this request (RFC 8768). In a loop of proxies, the earlier request can pass all
    /// proxies and arrive here again as this request. If this request waited for the earlier request, it would wait for
    /// itself.
    Apart,
    Full,
}

/// A request to an origin that has begun.
pub(super) struct Begun {
    pub(super) id: u64,
    pub(super) key: Arc<[u8]>,
}

impl State {
    pub(super) fn new((bounds, max_open): (Bounds, usize)) -> Self {
        Self {
            cache: Cache { storage: Memory::new(bounds) },
            max_open,
            by_key: HashMap::default(),
            fetches: HashMap::default(),
            watches: HashMap::default(),
            protected: Protected::default(),
            last: 0,
            apart: 0,
            counts: ProxyCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> ProxyCounts {
        let memory = &self.cache.storage;
        let observations = self.observations();
        ProxyCounts {
            observations,
            entries: memory.len(),
            bytes: memory.bytes(),
            open: self.fetches.len() + self.apart,
            ..self.counts
        }
    }

    pub(super) fn purge(&mut self, (bounds, _): (Bounds, usize)) {
        self.cache = Cache { storage: Memory::new(bounds) };
        // What is on its way may be stored no more.
        self.by_key.clear();
    }

    pub(super) fn look_up(&mut self, now: Instant, key: &[u8], request: &MessageRef<'_>) -> Found<'_> {
        let found = self.cache.look_up(now, key, request);
        match found {
            Found::Fresh { .. } | Found::Known { .. } => self.counts.hits += 1,
            Found::Stale { .. } | Found::Nothing => self.counts.misses += 1,
        }
        found
    }

    /// Decides how the proxy handles a request that the cache does not answer: see [`Room`]. `key` is the cache key of
    /// the request, and `hops` is the number of further proxies that the request may pass.
    pub(super) fn room(&self, key: &[u8], hops: u8) -> Room {
        let same = self.by_key.get(key).and_then(|id| Some((*id, self.fetches.get(id)?)));
        match same {
            Some((id, fetching)) if hops == fetching.hops => Room::Joins(id),
            Some((_, fetching)) if hops < fetching.hops => Room::Apart,
            _ if self.is_full() => Room::Full,
            _ => Room::Begins,
        }
    }

    fn is_full(&self) -> bool {
        self.fetches.len() + self.apart >= self.max_open
    }

    pub(super) fn join(&mut self, id: u64, waiter: Waiter) {
        self.counts.joined += 1;
        if let Some(fetching) = self.fetches.get_mut(&id) {
            fetching.waiters.push(waiter);
        }
    }

    pub(super) fn begin(&mut self, key: &[u8], hops: u8, waiter: Waiter) -> Begun {
        self.last += 1;
        let (id, key): (u64, Arc<[u8]>) = (self.last, key.into());
        self.by_key.insert(key.clone(), id);
        self.fetches.insert(id, Fetching { hops, waiters: vec![waiter] });
        Begun { id, key }
    }

    /// Returns the state of the observation for a request of the client `owner` that may pass `hops` further proxies.
    pub(super) fn watching(&self, key: &[u8], hops: u8, owner: Owner) -> Watching {
        match self.watches.get(key) {
            Some(Watch { waiters: None, .. }) => Watching::Begun,
            // The first response can be 5.08 for one of two different Hop-Limits, and in a loop it never comes.
            Some(watch) if hops != watch.hops => Watching::Never,
            Some(_) => Watching::Begins,
            None if !self.may_observe() || self.has_its_share(owner) => Watching::Never,
            None => Watching::Not,
        }
    }

    fn observations(&self) -> usize {
        self.watches.len() + self.protected.len()
    }

    /// True if there is space for another observation.
    pub(super) fn may_observe(&self) -> bool {
        self.observations() < self.max_open
    }

    /// True if this client began as many of the shared observations as one client may: an eighth of all observations.
    /// Each query is another observation, and an observation continues as long as any client observes the path.
    fn has_its_share(&self, owner: Owner) -> bool {
        self.watches.values().filter(|watch| watch.owner == owner).count() >= self.max_open.div_ceil(8)
    }

    /// Adds a client to the clients that wait for the first response of an observation. The first client begins the
    /// observation, and is its `owner`.
    pub(super) fn watch(&mut self, key: &[u8], hops: u8, owner: Owner, waiter: Waiter) -> Arc<[u8]> {
        let key: Arc<[u8]> = key.into();
        let watch = self.watches.entry(key.clone()).or_insert(Watch { hops, owner, waiters: Some(Vec::new()) });
        watch.waiters.get_or_insert_default().push(waiter);
        key
    }

    /// Takes a notification of an observation, and stores it if it may be stored. Returns the clients that wait for the
    /// first response.
    pub(super) fn on_notification(
        &mut self,
        now: Instant,
        (key, resource): (&[u8], usize),
        owner: Owner,
        answer: &Answer,
    ) -> Vec<Waiter> {
        let Self { cache, watches, .. } = self;
        answer.store(|head, stored| cache.take(now, (key, resource), owner, (head, stored)) == Taken::Stored);
        watches.get_mut(key).and_then(|watch| watch.waiters.take()).unwrap_or_default()
    }

    /// Ends an observation. Returns the clients that still wait for its first response.
    pub(super) fn end_watch(&mut self, key: &[u8]) -> Vec<Waiter> {
        self.watches.remove(key).and_then(|watch| watch.waiters).unwrap_or_default()
    }

    /// Begins a request to an origin. The response is only for one client. Returns false if too many requests wait.
    pub(super) fn begin_apart(&mut self) -> bool {
        let has_room = !self.is_full();
        self.apart += usize::from(has_room);
        self.counts.passed += u64::from(has_room);
        has_room
    }

    /// Ends a request whose response is only for one client. Removes the stored responses for the resource `changed`.
    /// Responses for this resource that have not arrived yet are not stored.
    pub(super) fn end_apart(&mut self, changed: Option<&[u8]>, failed: bool) {
        self.apart = self.apart.saturating_sub(1);
        self.counts.failed += u64::from(failed);
        if let Some(resource) = changed {
            self.invalidate(resource);
        }
    }

    pub(super) fn invalidate(&mut self, resource: &[u8]) {
        self.cache.storage.remove_resource(resource);
        self.by_key.retain(|key, _| !key.starts_with(resource));
    }

    /// Ends the request `id`, and stores its response if it may be stored. Returns the clients that wait for this
    /// response.
    pub(super) fn end(
        &mut self,
        now: Instant,
        id: u64,
        (key, resource): (&[u8], usize),
        owner: Owner,
        answer: Option<&Answer>,
    ) -> Vec<Waiter> {
        self.counts.failed += u64::from(answer.is_none());
        if self.by_key.get(key) == Some(&id) {
            self.by_key.remove(key);
            if let Some(answer) = answer {
                answer.store(|head, stored| {
                    self.cache.take(now, (key, resource), owner, (head, stored)) == Taken::Stored
                });
            }
        }
        self.fetches.remove(&id).map(|fetching| fetching.waiters).unwrap_or_default()
    }

    /// Takes a 2.03 response to the request `id`, which asked whether the stored response with this ETag is still
    /// valid. Returns the stored response, which is now fresh again, and the clients that wait for it. Returns `None`
    /// if the response is no longer stored.
    pub(super) fn revalidate(
        &mut self,
        now: Instant,
        id: u64,
        (key, resource): (&[u8], usize),
        owner: Owner,
        (etag, valid): (&[u8], &Answer),
    ) -> Option<(Answer, Vec<Waiter>)> {
        let longest = self.cache.storage.find(key)?.response.len();
        let merged = valid.revalidate(longest, |head, frame| {
            self.cache.revalidate(now, (key, resource), owner, (etag, head), frame)
        })?;
        self.counts.revalidated += 1;
        if self.by_key.get(key) == Some(&id) {
            self.by_key.remove(key);
        } else {
            // It changed meanwhile.
            self.cache.storage.remove(key);
        }
        Some((merged, self.fetches.remove(&id).map(|fetching| fetching.waiters).unwrap_or_default()))
    }
}
