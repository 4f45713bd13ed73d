//! Session identities that were accepted, each once.

use super::SessionIdentity;
use hashbrown::HashTable;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
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
    hash: u64,
    identity: Box<str>,
    subscriber: Arc<str>,
    until: Instant,
    /// The hash of the access token of the session.
    token: Option<Box<[u8]>>,
    /// True if a store has the identity, or is about to: see [`Accepted::bind`].
    is_bound: bool,
    /// True if the identity was taken back: it is in no place.
    is_gone: bool,
}

impl Entry {
    fn shown(&self) -> AcceptedIdentity<'_> {
        let Self { identity, subscriber, until, token, .. } = self;
        AcceptedIdentity { identity, subscriber, until: *until, token: token.as_deref() }
    }
}

/// The place of an entry in the table: the hash of its identity, which moves without a look at the identity, and its number.
struct Place {
    hash: u64,
    number: u64,
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
    /// In the order in which they end, which is that of their acceptance.
    entries: VecDeque<Entry>,
    /// The number of the first of them. Each has the number after that of the previous one.
    first: u64,
    places: HashTable<Place>,
    hasher: RandomState,
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
        Self {
            bounds,
            entries: VecDeque::new(),
            first: 0,
            places: HashTable::new(),
            hasher: RandomState::new(),
            each: HashMap::new(),
        }
    }

    /// Forgets the identities that ended, and checks that one more identity of this subscriber fits.
    ///
    /// # Errors
    /// [`NotAccepted::Full`] or [`NotAccepted::TooMany`].
    pub fn has_room(&mut self, subscriber: &str, now: Instant) -> Result<(), NotAccepted> {
        self.forget(now);
        if self.places.len() >= self.bounds.identities {
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
        let hash = self.hash(identity.as_str());
        if let Some(entry) = self.find(hash, identity.as_str()) {
            return Err(if *entry.subscriber == *subscriber { NotAccepted::Used } else { NotAccepted::OfAnother });
        }
        if self.places.len() >= self.bounds.identities {
            return Err(NotAccepted::Full);
        }
        let subscriber = self.count_up(subscriber, self.bounds.each).ok_or(NotAccepted::TooMany)?;
        self.insert((hash, identity), subscriber, now.after(self.bounds.lifetime), None, false);
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
        let hash = self.hash(identity.as_str());
        match self.find_mut(hash, identity.as_str()) {
            None => {
                self.remember(identity, subscriber, until, token.map(Into::into));
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
        self.find(self.hash(identity), identity).is_some()
    }

    /// Returns an identity that this subscriber has and that did not end.
    pub fn of_subscriber(&self, identity: &str, subscriber: &str, now: Instant) -> Option<AcceptedIdentity<'_>> {
        let entry = self.find(self.hash(identity), identity)?;
        (*entry.subscriber == *subscriber && now < entry.until).then(|| entry.shown())
    }

    /// Remembers the hash of the access token of an identity.
    pub(crate) fn set_token(&mut self, identity: &str, token: &[u8]) {
        if let Some(entry) = self.find_mut(self.hash(identity), identity) {
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
        let hash = self.hash(identity.as_str());
        if self.find(hash, identity.as_str()).is_none()
            && let Some(subscriber) = self.count_up(subscriber, usize::MAX)
        {
            self.insert((hash, identity), subscriber, until, token, true);
        }
    }

    fn hash(&self, identity: &str) -> u64 {
        self.hasher.hash_one(identity)
    }

    fn place_of(&self, hash: u64, identity: &str) -> Option<&Place> {
        self.places.find(hash, |place| {
            place.hash == hash && self.entry(place.number).is_some_and(|entry| *entry.identity == *identity)
        })
    }

    /// The position of the entry of this number.
    fn position(&self, number: u64) -> usize {
        usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX)
    }

    fn entry(&self, number: u64) -> Option<&Entry> {
        self.entries.get(self.position(number))
    }

    fn find(&self, hash: u64, identity: &str) -> Option<&Entry> {
        self.entry(self.place_of(hash, identity)?.number)
    }

    fn find_mut(&mut self, hash: u64, identity: &str) -> Option<&mut Entry> {
        let position = self.position(self.place_of(hash, identity)?.number);
        self.entries.get_mut(position)
    }

    fn insert(
        &mut self,
        (hash, identity): (u64, SessionIdentity<'_>),
        subscriber: Arc<str>,
        until: Instant,
        token: Option<Box<[u8]>>,
        is_bound: bool,
    ) {
        let number = self.first.wrapping_add(self.entries.len() as u64);
        self.places.insert_unique(hash, Place { hash, number }, |place| place.hash);
        let identity = identity.as_str().into();
        self.entries.push_back(Entry { hash, identity, subscriber, until, token, is_bound, is_gone: false });
    }

    /// Forgets an identity whose key was given to nobody.
    pub(crate) fn take_back(&mut self, identity: &str) {
        let hash = self.hash(identity);
        let Some(number) = self.place_of(hash, identity).map(|place| place.number) else { return };
        self.vacate(hash, number);
        let position = self.position(number);
        if let Some(entry) = self.entries.get_mut(position) {
            entry.is_gone = true;
            let subscriber = Arc::clone(&entry.subscriber);
            self.count_down(&subscriber);
        }
    }

    fn vacate(&mut self, hash: u64, number: u64) {
        if let Ok(place) = self.places.find_entry(hash, |place| place.number == number) {
            place.remove();
        }
    }

    /// Counts one more identity of a subscriber, whose name it returns; `None` if that has as many already.
    fn count_up(&mut self, subscriber: &str, most: usize) -> Option<Arc<str>> {
        if let Some(Each { name, count }) = self.each.get_mut(subscriber) {
            if *count >= most {
                return None;
            }
            *count = count.saturating_add(1);
            return Some(Arc::clone(name));
        }
        let name: Arc<str> = subscriber.into();
        self.each.insert(Arc::clone(&name), Each { name: Arc::clone(&name), count: 1 });
        Some(name)
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
        self.entries.iter().filter(|entry| !entry.is_gone).map(Entry::shown)
    }

    /// Identities that are remembered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn forget(&mut self, now: Instant) {
        while let Some(Entry { hash, subscriber, is_gone, .. }) = self.entries.pop_front_if(|entry| entry.until <= now)
        {
            let number = self.first;
            self.first = number.wrapping_add(1);
            if !is_gone {
                self.vacate(hash, number);
                self.count_down(&subscriber);
            }
        }
    }
}
