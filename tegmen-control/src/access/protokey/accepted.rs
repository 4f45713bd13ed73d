//! Session identities that were accepted. A session identity is the PSK identity of a session whose key is derived from
//! a publisher's protokey. Each identity is accepted once.

use super::SessionIdentity;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tegmen_base::time::{Duration, Instant};
use tegmen_host::hash::Keys;
use tegmen_host::index::{Index, Tag};

/// Limits of an [`Accepted`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedBounds {
    /// Maximum number of identities of all subscribers together.
    pub identities: usize,
    /// Maximum number of identities of each subscriber.
    pub each: usize,
    /// The time for which the server remembers an accepted session identity. After this time the server would accept
    /// the same identity again.
    pub lifetime: Duration,
}

impl Default for AcceptedBounds {
    /// Returns the default limits: a million identities in total, 10,000 identities for each subscriber, and a lifetime
    /// of one day.
    fn default() -> Self {
        Self { identities: 1_000_000, each: 10_000, lifetime: Duration::from_secs(86_400) }
    }
}

/// The last number of an entry. With as many entries, the table would take more than 200 GB.
const LAST: u32 = u32::MAX >> 1;

/// The reason why an identity is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAccepted {
    /// The same subscriber has already requested the key for this identity.
    Used,
    /// Another subscriber has already requested the key for this identity. So a peer has shown the identity to two
    /// subscribers.
    OfAnother,
    /// The subscriber already has the maximum number of identities.
    TooMany,
    /// The table of accepted session identities is full.
    Full,
}

struct Entry {
    tag: Tag,
    identity: Text,
    subscriber: Arc<str>,
    until: Instant,
    /// The hash of the access token of the session; `None` if the session has no access token.
    token: Option<Box<[u8]>>,
    /// True if the identity is in a store, or is about to be written to a store: see [`Accepted::bind`].
    is_bound: bool,
    /// True if [`Accepted::take_back`] removed the identity. The entry then waits for its expiry, but the index no longer
    /// has it.
    is_gone: bool,
}

impl Entry {
    fn shown(&self) -> AcceptedIdentity<'_> {
        let Self { identity, subscriber, until, token, .. } = self;
        AcceptedIdentity { identity: identity.as_str(), subscriber, until: *until, token: token.as_deref() }
    }

    fn has(&self, identity: &str) -> bool {
        self.identity.as_bytes() == identity.as_bytes()
    }
}

/// Maximum number of bytes of a [`Text::Short`]. An entry with such a text needs no further memory.
const SHORT: usize = 38;

/// The text of a session identity.
enum Text {
    /// The number of bytes of the text, and an array that begins with these bytes.
    Short(u8, [u8; SHORT]),
    Long(Box<str>),
}

impl Text {
    fn new(text: &str) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short(text.len() as u8, short)
            }
            None => Self::Long(text.into()),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short(len, short) => short.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(text) => text.as_bytes(),
        }
    }

    fn as_str(&self) -> &str {
        // The bytes of a text are a text.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

/// A session identity that is searched soon: see [`Accepted::prefetch`].
#[derive(Clone, Copy)]
pub(crate) struct Prefetched<'t> {
    tag: Tag,
    identity: SessionIdentity<'t>,
}

/// A session identity that the server accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedIdentity<'a> {
    /// The identity.
    pub identity: &'a str,
    /// The subscriber that received the key.
    pub subscriber: &'a str,
    /// The time until which the server remembers the accepted session identity.
    pub until: Instant,
    /// The [hash](crate::access::revocation::token_hash) of the access token of the session, if it has one.
    pub token: Option<&'a [u8]>,
}

/// The table of the session identities that the server accepted. A full table accepts nothing. If a full table removed
/// identities before they expire, an attacker could fill the table, and an identity would be accepted twice.
pub struct Accepted {
    bounds: AcceptedBounds,
    /// The entries, in the order in which they were accepted. They expire in the same order.
    entries: VecDeque<Entry>,
    /// The number of the first entry. Each following entry has the next number. The number 0 follows [`LAST`].
    first: u32,
    /// Contains the number of each entry, under the tag of its identity.
    index: Index,
    keys: Keys,
    each: HashMap<Arc<str>, Each, Keys>,
}

/// The name of a subscriber, and the number of its identities.
struct Each {
    name: Arc<str>,
    count: usize,
}

impl Accepted {
    /// Makes an empty table. It never has more than 2^31 - 1 identities, even if `bounds` allows more.
    pub fn new(bounds: AcceptedBounds) -> Self {
        let bounds = AcceptedBounds { identities: bounds.identities.min(LAST as usize), ..bounds };
        Self {
            bounds,
            entries: VecDeque::new(),
            first: 0,
            index: Index::new(),
            keys: Keys::default(),
            each: HashMap::default(),
        }
    }

    /// Begins to read the memory in which a search for this identity begins. A later search then takes less time, if
    /// the table is large. Returns the identity for [`Self::accept_prefetched`].
    pub(crate) fn prefetch<'t>(&self, identity: SessionIdentity<'t>) -> Prefetched<'t> {
        let tag = self.tag(identity.as_str());
        self.index.prefetch(tag);
        Prefetched { tag, identity }
    }

    /// Removes expired identities, and checks that one more identity of this subscriber fits.
    ///
    /// # Errors
    /// [`NotAccepted::Full`] or [`NotAccepted::TooMany`].
    pub fn has_room(&mut self, subscriber: &str, now: Instant) -> Result<(), NotAccepted> {
        self.forget(now);
        if self.index.len() >= self.bounds.identities {
            return Err(NotAccepted::Full);
        }
        match self.each.get(subscriber) {
            Some(Each { count, .. }) if *count >= self.bounds.each => Err(NotAccepted::TooMany),
            _ => Ok(()),
        }
    }

    /// Accepts an identity for this subscriber. Only one call succeeds for each identity.
    ///
    /// # Errors
    /// [`NotAccepted`] with the reason.
    pub fn accept(&mut self, identity: SessionIdentity<'_>, subscriber: &str, now: Instant) -> Result<(), NotAccepted> {
        self.accept_prefetched(Prefetched { tag: self.tag(identity.as_str()), identity }, subscriber, now)
    }

    /// Accepts an identity as [`Self::accept`] does.
    ///
    /// # Errors
    /// [`NotAccepted`] with the reason.
    pub(crate) fn accept_prefetched(
        &mut self,
        Prefetched { tag, identity }: Prefetched<'_>,
        subscriber: &str,
        now: Instant,
    ) -> Result<(), NotAccepted> {
        self.forget(now);
        if let Some(entry) = self.find(tag, identity.as_str()) {
            return Err(if *entry.subscriber == *subscriber { NotAccepted::Used } else { NotAccepted::OfAnother });
        }
        if self.index.len() >= self.bounds.identities {
            return Err(NotAccepted::Full);
        }
        let subscriber = self.count_up(subscriber, self.bounds.each).ok_or(NotAccepted::TooMany)?;
        self.insert((tag, identity), subscriber, now.after(self.bounds.lifetime), None, false);
        Ok(())
    }

    /// Records that an identity is about to be written to the store for this subscriber. Only one call succeeds for
    /// each identity. If the table does not have the identity yet, it adds the identity, and remembers it until
    /// `until`.
    ///
    /// # Errors
    /// [`NotAccepted::Used`] or [`NotAccepted::OfAnother`] if the store has the identity, or is about to write it.
    pub(crate) fn bind(
        &mut self,
        identity: SessionIdentity<'_>,
        subscriber: &str,
        until: Instant,
        token: Option<&[u8]>,
    ) -> Result<(), NotAccepted> {
        let tag = self.tag(identity.as_str());
        match self.find_mut(tag, identity.as_str()) {
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

    /// Does the same as [`Self::bind`] if this identity was accepted last, for this subscriber, and was not bound yet.
    /// Otherwise changes nothing and returns false. This function needs no search.
    pub(crate) fn bind_last(&mut self, identity: &str, subscriber: &str) -> bool {
        let is_it = |entry: &&mut Entry| {
            !entry.is_bound && !entry.is_gone && entry.has(identity) && *entry.subscriber == *subscriber
        };
        self.entries.back_mut().filter(is_it).map(|entry| entry.is_bound = true).is_some()
    }

    /// Returns true if the table contains this session identity.
    pub(crate) fn has(&self, identity: &str) -> bool {
        self.find(self.tag(identity), identity).is_some()
    }

    /// Returns the entry of this identity if it was accepted for this subscriber and has not expired.
    pub fn of_subscriber(&self, identity: &str, subscriber: &str, now: Instant) -> Option<AcceptedIdentity<'_>> {
        let entry = self.find(self.tag(identity), identity)?;
        (*entry.subscriber == *subscriber && now < entry.until).then(|| entry.shown())
    }

    /// Adds the hash of the access token to an identity.
    pub(crate) fn set_token(&mut self, identity: &str, token: &[u8]) {
        if let Some(entry) = self.find_mut(self.tag(identity), identity) {
            entry.token = Some(token.into());
        }
    }

    /// Adds an identity that a store contains, and remembers it until `until`. This function ignores the limits,
    /// because an identity that is missing in the table would be accepted again. Identities that are loaded together
    /// must be passed in the order in which they expire.
    pub fn remember(
        &mut self,
        identity: SessionIdentity<'_>,
        subscriber: &str,
        until: Instant,
        token: Option<Box<[u8]>>,
    ) {
        let tag = self.tag(identity.as_str());
        if self.find(tag, identity.as_str()).is_none()
            && let Some(subscriber) = self.count_up(subscriber, usize::MAX)
        {
            self.insert((tag, identity), subscriber, until, token, true);
        }
    }

    fn tag(&self, identity: &str) -> Tag {
        Tag::of(self.keys.of_bytes(identity.as_bytes()))
    }

    fn number(&self, tag: Tag, identity: &str) -> Option<u32> {
        self.index.find(tag, |number| self.entry(number).is_some_and(|entry| entry.has(identity)))
    }

    /// Returns the position of the entry with this number.
    const fn position(&self, number: u32) -> usize {
        (number.wrapping_sub(self.first) & LAST) as usize
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(self.position(number))
    }

    fn find(&self, tag: Tag, identity: &str) -> Option<&Entry> {
        self.entry(self.number(tag, identity)?)
    }

    fn find_mut(&mut self, tag: Tag, identity: &str) -> Option<&mut Entry> {
        let position = self.position(self.number(tag, identity)?);
        self.entries.get_mut(position)
    }

    fn insert(
        &mut self,
        (tag, identity): (Tag, SessionIdentity<'_>),
        subscriber: Arc<str>,
        until: Instant,
        token: Option<Box<[u8]>>,
        is_bound: bool,
    ) {
        self.index.insert(tag, self.first.wrapping_add(self.entries.len() as u32) & LAST);
        let identity = Text::new(identity.as_str());
        self.entries.push_back(Entry { tag, identity, subscriber, until, token, is_bound, is_gone: false });
    }

    /// Removes an identity that was accepted, but whose key no peer received.
    pub(crate) fn take_back(&mut self, identity: &str) {
        let tag = self.tag(identity);
        let Some(number) = self.number(tag, identity) else { return };
        self.index.remove(tag, number);
        let position = self.position(number);
        if let Some(entry) = self.entries.get_mut(position) {
            entry.is_gone = true;
            let subscriber = Arc::clone(&entry.subscriber);
            self.count_down(&subscriber);
        }
    }

    /// Counts one more identity of a subscriber, and returns the name of the subscriber. Returns `None` if the
    /// subscriber already has `most` identities.
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

    /// Returns the time for which the server remembers an accepted session identity.
    pub const fn lifetime(&self) -> Duration {
        self.bounds.lifetime
    }

    /// Returns the accepted session identities in the table.
    pub fn iter(&self) -> impl Iterator<Item = AcceptedIdentity<'_>> {
        self.entries.iter().filter(|entry| !entry.is_gone).map(Entry::shown)
    }

    /// Returns the number of session identities in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if the table contains no identity.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    fn forget(&mut self, now: Instant) {
        while let Some(Entry { tag, subscriber, is_gone, .. }) = self.entries.pop_front_if(|entry| entry.until <= now) {
            let number = self.first;
            self.first = number.wrapping_add(1) & LAST;
            if !is_gone {
                self.index.remove(tag, number);
                self.count_down(&subscriber);
            }
        }
    }
}
