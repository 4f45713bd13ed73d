//! OSCORE contexts on which a server and its clients agreed while the server runs. They exist only in memory. A request
//! names such a context in the same way as a context in a file.
//!
//! A client and the server agree on a context by EDHOC, or when the client posts an access token (RFC 9203). An
//! attacker that recorded such a post can repeat it. The server then makes a context whose keys neither the client nor
//! the attacker knows. Therefore a new context from a token does not replace the other contexts of its client at once.
//! The new context replaces the others when it opens its first request.

use super::{ContextFile, SharedContext, StoredContext};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tegmen::identity::Principal;

/// Maximum number of contexts on which the server and one peer agreed by EDHOC. A further context replaces the oldest
/// context of this peer.
const MOST_OF_A_PEER: usize = 8;
/// Maximum number of unused contexts from tokens of one client. A context is unused until it opens its first request. A
/// further unused context replaces the oldest of them.
const MOST_UNUSED: usize = 4;
/// The lifetime of a context on which a peer agreed by EDHOC. Afterwards the server no longer knows the context, so the
/// peer has to agree on new keys.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The first index of a context on which the server and a client agreed. Contexts that are stored in files have lower
/// indices.
const FIRST_PLACE: u32 = 1 << 31;

/// The contexts on which a server and its clients agreed. Clones refer to the same contexts.
#[derive(Clone, Default)]
pub struct AgreedContexts(Arc<Mutex<Known>>);

/// The client with which the server agreed on a context.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Peer {
    /// A client that proved its identity in EDHOC.
    Proved(Principal),
    /// A client that posted tokens, with the name in these tokens.
    Client(String),
}

#[derive(Default)]
struct Known {
    /// The Recipient IDs of the contexts that are stored in files.
    reserved: HashSet<Vec<u8>>,
    /// The contexts by their Recipient IDs.
    by_id: HashMap<Vec<u8>, Entry>,
    by_place: HashMap<u32, SharedContext>,
    /// The contexts of each peer, the oldest first.
    of_peer: HashMap<Peer, VecDeque<Vec<u8>>>,
    places: u32,
}

struct Entry {
    /// The time at which the context expires.
    until: Instant,
    peer: Peer,
    context: SharedContext,
}

impl AgreedContexts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the Recipient IDs of the contexts that are stored in files. No context on which the server and a client
    /// agree gets one of these IDs.
    pub(super) fn reserve<'i>(&self, ids: impl Iterator<Item = &'i Vec<u8>>) {
        self.known().reserved.extend(ids.cloned());
    }

    /// Returns the context with this Recipient ID.
    pub(super) fn find(&self, recipient_id: &[u8]) -> Option<SharedContext> {
        let known = self.known();
        let entry = known.by_id.get(recipient_id)?;
        (Instant::now() < entry.until).then(|| entry.context.clone())
    }

    /// Returns the context with this index ([`SharedContext::place`]).
    pub(super) fn at(&self, place: u32) -> Option<SharedContext> {
        self.known().by_place.get(&place).cloned()
    }

    /// Returns the number of Recipient IDs that are in use.
    pub(crate) fn len(&self) -> usize {
        let known = self.known();
        known.by_id.len() + known.reserved.len()
    }

    /// True if a context has this Recipient ID.
    pub(crate) fn has(&self, recipient_id: &[u8]) -> bool {
        self.known().has(recipient_id)
    }

    /// Adds the context of a peer that proved its identity. If the peer then has too many contexts, its oldest context
    /// is removed. Returns false if another context has the same Recipient ID.
    pub(crate) fn take(&self, stored: StoredContext, name: &str, principal: Principal) -> bool {
        let recipient_id = stored.context.recipient_id().to_vec();
        let mut known = self.known();
        if known.has(&recipient_id) {
            return false;
        }
        let context = SharedContext::new(stored, known.next_place(), name.to_owned(), principal);
        known.add(recipient_id, Entry { until: after(LIFETIME), peer: Peer::Proved(principal), context });
        let ids = known.of_peer.get(&Peer::Proved(principal));
        let oldest = ids.filter(|ids| ids.len() > MOST_OF_A_PEER).and_then(|ids| ids.front().cloned());
        oldest.into_iter().for_each(|oldest| known.remove(&oldest));
        true
    }

    /// Returns a Recipient ID that no context of the server has, and that differs from `other`, the ID of the peer. The
    /// ID has 1, 2 or 4 bytes: the more contexts exist, the longer it is. The ID is a part of the bytes in `random`.
    /// Returns `None` if these bytes contain no free ID.
    pub fn choose(&self, random: &[u8], other: &[u8]) -> Option<Vec<u8>> {
        let known = self.known();
        let len = match known.by_id.len() + known.reserved.len() {
            0..64 => 1,
            64..16_384 => 2,
            _ => 4,
        };
        random.chunks_exact(len).find(|id| *id != other && !known.has(id)).map(<[u8]>::to_vec)
    }

    /// Adds the context of a client that posted a token. The context ends after `lifetime`, the remaining lifetime of
    /// the token. Requests under this context have the principal `principal`. When the context opens its first request,
    /// all other contexts from tokens of this client end. Returns false if another context has the same Recipient ID,
    /// or if the parameters in `file` are not valid.
    pub fn take_of_token(&self, file: &ContextFile, client: &str, principal: Principal, lifetime: Duration) -> bool {
        let Ok(stored) = StoredContext::of_agreed(file) else { return false };
        let peer = Peer::Client(client.to_owned());
        let mut known = self.known();
        if known.has(&file.recipient_id) {
            return false;
        }
        let unused = known.of_peer.get(&peer).into_iter().flatten();
        let unused = unused.filter(|id| known.by_id.get(*id).is_some_and(|entry| entry.context.is_unused()));
        let oldest = unused.clone().next().cloned().filter(|_| unused.count() >= MOST_UNUSED);
        oldest.into_iter().for_each(|oldest| known.remove(&oldest));
        let context = SharedContext::unused(stored, known.next_place(), client.to_owned(), principal);
        known.add(file.recipient_id.clone(), Entry { until: after(lifetime), peer, context });
        true
    }

    /// Ends all other contexts of the client that has `context`. Call this after `context` opened its first request.
    pub(crate) fn replace_others(&self, context: &SharedContext) {
        let recipient_id = context.lock().context.recipient_id().to_vec();
        let mut known = self.known();
        let Some(Entry { peer, .. }) = known.by_id.get(&recipient_id) else { return };
        let others: Vec<_> = known.of_peer.get(peer).into_iter().flatten().cloned().collect();
        others.iter().filter(|id| **id != recipient_id).for_each(|other| known.remove(other));
    }

    /// Sets the remaining lifetime of the contexts of a principal.
    pub fn set_lifetime(&self, principal: Principal, lifetime: Duration) {
        let until = after(lifetime);
        for entry in self.known().by_id.values_mut().filter(|entry| entry.context.principal() == principal) {
            entry.until = until;
        }
    }

    /// Ends the contexts of a principal.
    pub fn remove(&self, principal: Principal) {
        let mut known = self.known();
        let of_principal = known.by_id.iter().filter(|(_, entry)| entry.context.principal() == principal);
        let ids: Vec<_> = of_principal.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| known.remove(id));
    }

    /// Returns the principals that have contexts.
    pub fn principals(&self) -> HashSet<Principal> {
        self.known().by_id.values().map(|entry| entry.context.principal()).collect()
    }
}

impl Known {
    fn has(&self, recipient_id: &[u8]) -> bool {
        self.by_id.contains_key(recipient_id) || self.reserved.contains(recipient_id)
    }

    fn next_place(&mut self) -> u32 {
        let place = FIRST_PLACE | self.places;
        self.places = self.places.wrapping_add(1) & !FIRST_PLACE;
        place
    }

    fn add(&mut self, recipient_id: Vec<u8>, entry: Entry) {
        self.by_place.insert(entry.context.place(), entry.context.clone());
        self.of_peer.entry(entry.peer.clone()).or_default().push_back(recipient_id.clone());
        self.by_id.insert(recipient_id, entry);
    }

    fn remove(&mut self, recipient_id: &[u8]) {
        let Some(Entry { peer, context, .. }) = self.by_id.remove(recipient_id) else { return };
        self.by_place.remove(&context.place());
        if let Some(ids) = self.of_peer.get_mut(&peer) {
            ids.retain(|id| id != recipient_id);
            if ids.is_empty() {
                self.of_peer.remove(&peer);
            }
        }
    }
}

/// Returns the time at which `lifetime` has passed. If the clock cannot represent this time, returns a time a hundred
/// years from now.
fn after(lifetime: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(lifetime).unwrap_or_else(|| now + Duration::from_secs(100 * 365 * 86_400))
}
