//! Observations whose registrations OSCORE protects. The proxy forwards the registrations and the notifications,
//! although it has no keys (RFC 8613, section 4.1.3.5).
//!
//! Each registration has a different ciphertext, so each becomes a separate observation at the origin. The proxy cannot
//! protect a message, so it sends no message of its own for an observation: it does not register again, and does not
//! cancel. When no client observes the resource any more, the proxy forgets the observation, and rejects the next
//! notification with a Reset (RFC 7641, section 3.6).

use super::answer::Answer;
use super::entry::Entry;
use super::forwarded::Upstream;
use super::memory::Owner;
use crate::server::Responder;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tegmen::coap::Token;
use tegmen::identity::{Identity, Principal};
use tokio::sync::mpsc::{self, error::SendError};

/// Maximum number of messages of a client that wait for the first response of one observation: the registration, and
/// its repetitions.
const MOST_WAITERS: usize = 4;

/// The sender of a registration. No other client can join the observation of this registration, or end it with a
/// message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Client {
    remote: SocketAddr,
    principal: Principal,
}

impl Client {
    pub(super) const fn new(remote: SocketAddr, identity: &Identity) -> Self {
        Self { remote, principal: identity.principal }
    }

    /// Returns the owner under which the limits count the observations of this client: its identity, or its address if
    /// it proved no identity.
    pub(super) const fn owner(&self, identity: &Identity) -> Owner {
        Owner::new(identity, Some(self.remote.ip()))
    }
}

/// A request that ends an observation.
pub(super) struct Cancellation {
    pub(super) upstream: Upstream,
    pub(super) responder: Responder,
    pub(super) entry: Entry,
}

/// The newest response of an observation.
#[derive(Clone)]
pub(super) struct Newest {
    pub(super) answer: Arc<Answer>,
    /// True if no notification follows this response.
    pub(super) is_last: bool,
}

/// An observation at an origin.
struct Watch {
    client: Client,
    token: Token,
    owner: Owner,
    /// The length in bytes of the first part of the cache key, which names the resource.
    resource: usize,
    /// The responders with which the proxy answers the registration and its repetitions when the first response of the
    /// origin arrives.
    waiters: Vec<Responder>,
    newest: Option<Newest>,
    /// A channel that passes cancellations to the task that follows the observation. The task ends when this value is
    /// dropped.
    cancellations: mpsc::UnboundedSender<Cancellation>,
}

/// The result of a registration.
pub(super) enum Registration {
    /// The observation begins. The first value is its cache key. The second value receives the cancellations, for the
    /// task that follows the observation.
    Begins(Arc<[u8]>, mpsc::UnboundedReceiver<Cancellation>),
    /// The same client has already sent the same bytes. The new message waits for the first response, too.
    Joined,
    /// The same client has already sent the same bytes, and the origin has responded. The caller must send the newest
    /// response through this responder.
    Known(Responder, Newest),
}

/// All observations that a proxy forwards and that OSCORE protects between client and origin.
#[derive(Default)]
pub(super) struct Protected {
    /// The observations, each with the cache key of its registration. The cache key contains the ciphertext of the
    /// registration.
    watches: HashMap<Arc<[u8]>, Watch>,
}

impl Protected {
    pub(super) fn len(&self) -> usize {
        self.watches.len()
    }

    /// True if the proxy must not accept a registration with this cache key, but only forward it, so that the origin
    /// refuses it. This is the case if another client has sent the same bytes, if the origin has already sent the last
    /// response of the observation, or if too many repetitions of the registration wait for the first response. The
    /// registration is then a replay, or a repetition that comes too late.
    pub(super) fn is_replay(&self, key: &[u8], client: Client) -> bool {
        self.watches.get(key).is_some_and(|watch| {
            let is_over = watch.newest.as_ref().is_some_and(|newest| newest.is_last);
            is_over || watch.client != client || watch.waiters.len() >= MOST_WAITERS
        })
    }

    /// True if a registration with this key repeats an earlier registration, or if `owner` has fewer than `most`
    /// observations.
    pub(super) fn has_space(&self, key: &[u8], owner: Owner, most: usize) -> bool {
        let of_owner = || self.watches.values().filter(|watch| watch.owner == owner).count();
        self.watches.contains_key(key) || of_owner() < most
    }

    /// Takes a registration that is not a replay, and for which there is space. The registration replaces an
    /// observation of the same client with the same token (RFC 7641, section 4.1), if the first response of that
    /// observation has come. `resource` is the length in bytes of the part of the key that names the resource.
    pub(super) fn register(
        &mut self,
        key: &[u8],
        (client, token, owner): (Client, Token, Owner),
        (resource, responder): (usize, Responder),
    ) -> Registration {
        if let Some(watch) = self.watches.get_mut(key) {
            return match &watch.newest {
                Some(newest) => Registration::Known(responder, newest.clone()),
                None => {
                    watch.waiters.push(responder);
                    Registration::Joined
                }
            };
        }
        self.watches.retain(|_, watch| watch.newest.is_none() || !watch.is_of(client, &token));
        let (cancellations, received) = mpsc::unbounded_channel();
        let key: Arc<[u8]> = key.into();
        let watch = Watch { client, token, owner, resource, waiters: vec![responder], newest: None, cancellations };
        self.watches.insert(key.clone(), watch);
        Registration::Begins(key, received)
    }

    /// True if this client has an observation of this resource that it registered with this token. `resource` is the
    /// first part of a cache key.
    pub(super) fn has(&self, client: Client, token: &Token, resource: &[u8]) -> bool {
        self.find(client, token, resource).is_some()
    }

    fn find(&self, client: Client, token: &Token, resource: &[u8]) -> Option<&Watch> {
        let is_it = |(key, watch): &(&Arc<[u8]>, &Watch)| {
            watch.is_of(client, token) && key.get(..watch.resource) == Some(resource)
        };
        self.watches.iter().find(is_it).map(|(_, watch)| watch)
    }

    /// Passes a cancellation to the observation that [`Self::has`] finds. Returns the cancellation if the client
    /// has no such observation. If the caller drops it, after it has unlocked the state, the client receives 5.00.
    #[must_use = "the drop of a cancellation locks the state"]
    pub(super) fn cancel(
        &self,
        (client, token): (Client, &Token),
        resource: &[u8],
        cancellation: Cancellation,
    ) -> Option<Cancellation> {
        match self.find(client, token, resource) {
            // The task receives until it has taken the observation out of the table.
            Some(watch) => watch.cancellations.send(cancellation).err().map(|SendError(unsent)| unsent),
            None => Some(cancellation),
        }
    }

    /// Returns the newest response of an observation, which is sent as a notification.
    pub(super) fn newest(&self, key: &[u8]) -> Option<Newest> {
        self.watches.get(key)?.newest.clone()
    }

    /// Takes a response of the origin. Returns the responders that wait for it.
    pub(super) fn on_response(&mut self, key: &Arc<[u8]>, newest: Newest) -> Vec<Responder> {
        if !self.is_same(key) {
            return Vec::new();
        }
        let Some(watch) = self.watches.get_mut(key) else { return Vec::new() };
        watch.newest = Some(newest);
        std::mem::take(&mut watch.waiters)
    }

    /// Ends an observation. Returns the responders that still wait for its first response.
    pub(super) fn end(&mut self, key: &Arc<[u8]>) -> Vec<Responder> {
        let watch = if self.is_same(key) { self.watches.remove(key) } else { None };
        watch.map(|watch| watch.waiters).unwrap_or_default()
    }

    /// True if the table still has the observation for which [`Registration::Begins`] returned `key`, and no later
    /// observation has replaced it.
    fn is_same(&self, key: &Arc<[u8]>) -> bool {
        self.watches.get_key_value(key).is_some_and(|(own, _)| Arc::ptr_eq(own, key))
    }
}

impl Watch {
    fn is_of(&self, client: Client, token: &Token) -> bool {
        self.client == client && self.token == *token
    }
}
