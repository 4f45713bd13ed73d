//! Contexts on which a server and its clients agreed: in memory, found as those in files are.

use super::{SharedContext, StoredContext};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tegmen::identity::Principal;

/// Contexts of one peer; a further one takes the place of its oldest.
const MOST_OF_A_PEER: usize = 8;
/// Age of a context from which it is unknown, so that peers agree on new keys.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The first place of a context: those in files have lower ones.
const FIRST_PLACE: u32 = 1 << 31;

/// Contexts on which both ends agreed. Clones are the same contexts.
#[derive(Clone, Default)]
pub(crate) struct AgreedContexts(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// Recipient IDs of contexts in files.
    reserved: HashSet<Vec<u8>>,
    /// By Recipient ID.
    by_id: HashMap<Vec<u8>, (Instant, SharedContext)>,
    by_place: HashMap<u32, SharedContext>,
    /// The contexts of each peer, the oldest first.
    of_peer: HashMap<Principal, VecDeque<Vec<u8>>>,
    places: u32,
}

impl AgreedContexts {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps Recipient IDs of other contexts free.
    pub(super) fn reserve<'i>(&self, ids: impl Iterator<Item = &'i Vec<u8>>) {
        self.known().reserved.extend(ids.cloned());
    }

    /// Returns the context that is known by this Recipient ID.
    pub(super) fn find(&self, recipient_id: &[u8]) -> Option<SharedContext> {
        let known = self.known();
        let (made, context) = known.by_id.get(recipient_id)?;
        (made.elapsed() < LIFETIME).then(|| context.clone())
    }

    /// Returns the context with this [`SharedContext::place`].
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
        let known = self.known();
        known.by_id.contains_key(recipient_id) || known.reserved.contains(recipient_id)
    }

    /// Takes the context of a peer, in the place of its oldest one if it has many. Returns false if another context has the same
    /// Recipient ID.
    pub(crate) fn take(&self, stored: StoredContext, name: &str, principal: Principal) -> bool {
        let recipient_id = stored.context.recipient_id().to_vec();
        let mut known = self.known();
        if known.by_id.contains_key(&recipient_id) {
            return false;
        }
        let place = FIRST_PLACE | known.places;
        known.places = known.places.wrapping_add(1) & !FIRST_PLACE;
        let context = SharedContext::new(stored, place, name.to_owned(), principal);
        known.by_place.insert(place, context.clone());
        known.by_id.insert(recipient_id.clone(), (Instant::now(), context));
        let ids = known.of_peer.entry(principal).or_default();
        ids.push_back(recipient_id);
        let oldest = if ids.len() > MOST_OF_A_PEER { ids.pop_front() } else { None };
        if let Some((_, context)) = oldest.and_then(|oldest| known.by_id.remove(&oldest)) {
            known.by_place.remove(&context.place());
        }
        true
    }
}
