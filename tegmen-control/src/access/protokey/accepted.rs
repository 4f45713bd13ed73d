//! Session identities that were accepted, each once.

use super::SessionIdentity;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tegmen_base::time::{Duration, Instant};

/// Bounds of an [`Accepted`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedBounds {
    /// Identities in all.
    pub identities: usize,
    /// Identities for each subscriber.
    pub each: usize,
    /// Time for which an identity is remembered. Afterwards it would be accepted again.
    pub lifetime: Duration,
}

impl Default for AcceptedBounds {
    /// A million identities, 10,000 for each subscriber, a day.
    fn default() -> Self {
        Self { identities: 1_000_000, each: 10_000, lifetime: Duration::from_secs(86_400) }
    }
}

/// The reason why an identity is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAccepted {
    /// The same subscriber has asked for it before.
    Used,
    /// Another subscriber has asked for it before: a peer shows the identity to a second subscriber.
    OfAnother,
    /// The subscriber has as many identities as one may have.
    TooMany,
    /// The table is full.
    Full,
}

struct Entry {
    subscriber: Arc<str>,
    until: Instant,
    /// The hash of the access token of the session.
    token: Option<Box<[u8]>>,
    /// True if a store has the identity, or is about to: see [`Accepted::bind`].
    is_bound: bool,
}

/// An identity that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedIdentity<'a> {
    /// The identity.
    pub identity: &'a str,
    /// The subscriber that has the key.
    pub subscriber: &'a str,
    /// Time until which the identity is remembered.
    pub until: Instant,
    /// The [hash](crate::access::revocation::token_hash) of the access token of the session, if it has one.
    pub token: Option<&'a [u8]>,
}

/// The identities that were accepted. A full table accepts nothing: if it forgot early, a flood could make it accept an
/// identity twice.
pub struct Accepted {
    bounds: AcceptedBounds,
    entries: HashMap<Arc<str>, Entry>,
    /// In the order in which they end, which is that of their acceptance.
    order: VecDeque<(Instant, Arc<str>)>,
    each: HashMap<Arc<str>, Each>,
}

/// The identities of one subscriber.
struct Each {
    name: Arc<str>,
    count: usize,
}

impl Accepted {
    /// An empty table.
    pub fn new(bounds: AcceptedBounds) -> Self {
        Self { bounds, entries: HashMap::new(), order: VecDeque::new(), each: HashMap::new() }
    }

    /// Forgets what ended, and checks that one more identity of this subscriber fits.
    ///
    /// # Errors
    /// [`NotAccepted::Full`] or [`NotAccepted::TooMany`].
    pub fn has_room(&mut self, subscriber: &str, now: Instant) -> Result<(), NotAccepted> {
        self.forget(now);
        if self.entries.len() >= self.bounds.identities {
            return Err(NotAccepted::Full);
        }
        match self.each.get(subscriber) {
            Some(Each { count, .. }) if *count >= self.bounds.each => Err(NotAccepted::TooMany),
            _ => Ok(()),
        }
    }

    /// Accepts an identity for this subscriber, once.
    ///
    /// # Errors
    /// [`NotAccepted`] with the reason.
    pub fn accept(&mut self, identity: SessionIdentity<'_>, subscriber: &str, now: Instant) -> Result<(), NotAccepted> {
        self.forget(now);
        if let Some(entry) = self.entries.get(identity.as_str()) {
            return Err(if *entry.subscriber == *subscriber { NotAccepted::Used } else { NotAccepted::OfAnother });
        }
        self.has_room(subscriber, now)?;
        self.insert(identity, subscriber, now.after(self.bounds.lifetime), None, false);
        Ok(())
    }

    /// Notes that an identity goes to the store now, in the name of this subscriber, which happens once. One that is not in the
    /// table is remembered until this time.
    ///
    /// # Errors
    /// [`NotAccepted::Used`] or [`NotAccepted::OfAnother`] if the store has the identity, or is about to.
    pub(crate) fn bind(
        &mut self,
        identity: SessionIdentity<'_>,
        subscriber: &str,
        until: Instant,
        token: Option<&[u8]>,
    ) -> Result<(), NotAccepted> {
        match self.entries.get_mut(identity.as_str()) {
            None => {
                self.insert(identity, subscriber, until, token.map(Into::into), true);
                Ok(())
            }
            Some(entry) if *entry.subscriber != *subscriber => Err(NotAccepted::OfAnother),
            Some(Entry { is_bound: is_bound @ false, .. }) => {
                *is_bound = true;
                Ok(())
            }
            Some(_) => Err(NotAccepted::Used),
        }
    }

    /// True if this identity is remembered.
    pub(crate) fn has(&self, identity: &str) -> bool {
        self.entries.contains_key(identity)
    }

    /// Remembers the hash of the access token of an identity.
    pub(crate) fn set_token(&mut self, identity: &str, token: &[u8]) {
        if let Some(entry) = self.entries.get_mut(identity) {
            entry.token = Some(token.into());
        }
    }

    /// Remembers an identity that a store holds, until this time. The bounds do not apply: an identity that was forgotten
    /// would be accepted again. Identities that are loaded together are passed in the order in which they end.
    pub fn remember(
        &mut self,
        identity: SessionIdentity<'_>,
        subscriber: &str,
        until: Instant,
        token: Option<Box<[u8]>>,
    ) {
        if !self.has(identity.as_str()) {
            self.insert(identity, subscriber, until, token, true);
        }
    }

    fn insert(
        &mut self,
        identity: SessionIdentity<'_>,
        subscriber: &str,
        until: Instant,
        token: Option<Box<[u8]>>,
        is_bound: bool,
    ) {
        let subscriber = match self.each.get_mut(subscriber) {
            Some(Each { name, count }) => {
                *count = count.saturating_add(1);
                Arc::clone(name)
            }
            None => {
                let name: Arc<str> = subscriber.into();
                self.each.insert(Arc::clone(&name), Each { name: Arc::clone(&name), count: 1 });
                name
            }
        };
        let identity: Arc<str> = identity.as_str().into();
        self.entries.insert(Arc::clone(&identity), Entry { subscriber, until, token, is_bound });
        self.order.push_back((until, identity));
    }

    /// Forgets an identity whose key was given to nobody.
    pub(crate) fn take_back(&mut self, identity: &str) {
        if let Some(entry) = self.entries.remove(identity) {
            self.count_down(&entry.subscriber);
        }
    }

    fn count_down(&mut self, subscriber: &str) {
        if let Some(Each { count, .. }) = self.each.get_mut(subscriber) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.each.remove(subscriber);
            }
        }
    }

    /// The time for which an identity is remembered.
    pub const fn lifetime(&self) -> Duration {
        self.bounds.lifetime
    }

    /// The identities that are remembered.
    pub fn iter(&self) -> impl Iterator<Item = AcceptedIdentity<'_>> {
        self.entries.iter().map(|(identity, Entry { subscriber, until, token, .. })| AcceptedIdentity {
            identity,
            subscriber,
            until: *until,
            token: token.as_deref(),
        })
    }

    /// Identities that are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn forget(&mut self, now: Instant) {
        while let Some((until, identity)) = self.order.pop_front_if(|(until, _)| *until <= now) {
            // One that was taken back has no entry, or a later one if it was accepted again.
            if self.entries.get(&identity).is_some_and(|entry| entry.until <= until)
                && let Some(Entry { subscriber, .. }) = self.entries.remove(&identity)
            {
                self.count_down(&subscriber);
            }
        }
    }
}
