//! The memory of a node for the clients that observe its resources (RFC 7641, section 4.1).

use crate::buf::{Frame, Full};
use crate::coap::observe::Observation;
use crate::coap::{MessageRef, RequestId, Token};
use crate::identity::{PeerId, Principal};
use crate::time::Instant;
use core::convert::Infallible;

/// A client that observes a resource: an entry in the list of observers. `X` is the type of a request that OSCORE
/// opened: see [`Oscore::Exchange`](super::Oscore::Exchange). `G` is the type of the registration of a member of a
/// protected group: see [`Groups::Registration`](super::Groups::Registration).
#[derive(Clone, Copy, Debug)]
pub struct Observer<X = Infallible, G = Infallible> {
    /// The peer of the client.
    pub peer: PeerId,
    /// The token of the registration, and the number of the last notification.
    pub observation: Observation,
    /// True if the representation is newer than the last notification.
    pub changed: bool,
    /// The confirmable notification that is not acknowledged yet.
    pub pending: Option<RequestId>,
    /// True if the response to the registration, or the last notification, is deferred and not sent yet. The handler
    /// deferred it, or the policy has not decided.
    pub deferred: bool,
    /// The decision of the policy on the next notification, if the policy decided later.
    pub decision: Option<bool>,
    /// The Message ID of the last notification, if the notification was not confirmable.
    pub message_id: Option<u16>,
    /// The registration as OSCORE opened it, and the owner of its context. It protects each notification.
    pub exchange: Option<(X, Principal)>,
    /// The registration of a member, if it was sent to a protected group.
    pub registration: Option<G>,
}

impl<X, G> Observer<X, G> {
    /// Creates the entry of a client that got the response to its registration. The response carried `number` in its
    /// Observe option.
    pub const fn new(peer: PeerId, token: Token, number: u32) -> Self {
        let observation = Observation::new(token, number);
        let (changed, pending, deferred, decision) = (false, None, false, None);
        let (message_id, exchange, registration) = (None, None, None);
        Self { peer, observation, changed, pending, deferred, decision, message_id, exchange, registration }
    }

    /// True if this is the entry of the given registration. `owner` is the owner of the OSCORE context that protects
    /// the message. So neither a plaintext message nor the owner of another context can change a registration that
    /// OSCORE protects.
    pub(super) fn is_of(&self, peer: PeerId, token: &[u8], owner: Option<Principal>) -> bool {
        let own = self.exchange.as_ref().map(|(_, owner)| *owner);
        own == owner && self.peer == peer && self.observation.token.as_bytes() == token
    }
}

/// The observers of all resources of a node. Each observer is stored with the request that registered it.
pub trait Observers<X = Infallible, G = Infallible> {
    /// Maximum number of observers.
    const PLACES: usize;

    /// Returns the maximum number of consecutive notifications that are not confirmable. With 0, each notification is
    /// confirmable.
    fn unconfirmed(&self) -> u8;

    /// True if there is no space for another observer.
    fn is_full(&self) -> bool;

    /// Returns the number after which the notifications of a registration to a group begin. A client drops a
    /// notification if its number is below the numbers of a registration that has ended in this node (RFC 7641,
    /// section 4.4). So the number increases with the clock, in steps of 2^14 microseconds. With more than 61
    /// notifications a second, the numbers of notifications would overtake this number. An owner whose clock begins
    /// again after a restart must return the number of another clock.
    fn first_number(&self, now: Instant) -> u32 {
        (now.as_micros() >> 14) as u32
    }

    /// Adds an observer, and stores the request that registered it. Members of protected groups get at most half of
    /// the places.
    ///
    /// # Errors
    /// [`Full`] if there is no space for the observer or for its request.
    fn insert(&mut self, observer: Observer<X, G>, request: &MessageRef<'_>) -> Result<(), Full>;

    /// True if `is_it` returns true for an observer of this peer.
    fn any(&self, peer: PeerId, is_it: impl FnMut(&Observer<X, G>) -> bool) -> bool;

    /// Returns an observer of this peer for which `is_it` returns true, and its request. The search begins after the
    /// observer that was returned last, so that all observers get their turn.
    fn find(
        &mut self,
        peer: PeerId,
        is_it: impl FnMut(&Observer<X, G>) -> bool,
    ) -> Option<(&mut Observer<X, G>, &[u8])>;

    /// Marks the observers of the resource at `path` as changed, and calls `on_change` with the peer of each. Slashes
    /// separate the segments of `path`, which has no leading slash.
    fn mark(&mut self, path: &str, on_change: impl FnMut(PeerId));

    /// Removes the observers of this peer for which `is_it` returns true.
    fn remove(&mut self, peer: PeerId, is_it: impl FnMut(&Observer<X, G>) -> bool);

    /// Removes the observers for whose peers `is_there` returns false.
    fn retain_peers(&mut self, is_there: impl FnMut(PeerId) -> bool);
}

/// The memory of a node whose resources cannot be observed.
impl<X, G> Observers<X, G> for () {
    const PLACES: usize = 0;

    #[inline]
    fn unconfirmed(&self) -> u8 {
        0
    }

    #[inline]
    fn is_full(&self) -> bool {
        true
    }

    #[inline]
    fn insert(&mut self, _: Observer<X, G>, _: &MessageRef<'_>) -> Result<(), Full> {
        Err(Full)
    }

    #[inline]
    fn any(&self, _: PeerId, _: impl FnMut(&Observer<X, G>) -> bool) -> bool {
        false
    }

    #[inline]
    fn find(&mut self, _: PeerId, _: impl FnMut(&Observer<X, G>) -> bool) -> Option<(&mut Observer<X, G>, &[u8])> {
        None
    }

    #[inline]
    fn mark(&mut self, _: &str, _: impl FnMut(PeerId)) {}

    #[inline]
    fn remove(&mut self, _: PeerId, _: impl FnMut(&Observer<X, G>) -> bool) {}

    #[inline]
    fn retain_peers(&mut self, _: impl FnMut(PeerId) -> bool) {}
}

/// Memory for at most `N` observers, each with a request of at most `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct ObserverArray<const N: usize, const BYTES: usize, X = Infallible, G = Infallible> {
    places: [Place<BYTES, X, G>; N],
    unconfirmed: u8,
    /// The place at which the next search begins.
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place<const BYTES: usize, X, G> {
    observer: Option<Observer<X, G>>,
    len: u16,
    bytes: [u8; BYTES],
}

impl<const BYTES: usize, X, G> Place<BYTES, X, G> {
    fn is(&self, peer: PeerId, mut is_it: impl FnMut(&Observer<X, G>) -> bool) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.peer == peer && is_it(observer))
    }
}

impl<const N: usize, const BYTES: usize, X, G> ObserverArray<N, BYTES, X, G> {
    /// Creates an empty list of observers. At most `unconfirmed` notifications in a row are not confirmable.
    pub const fn with_unconfirmed(unconfirmed: u8) -> Self {
        let places = [const { Place { observer: None, len: 0, bytes: [0; BYTES] } }; N];
        Self { places, unconfirmed, next: 0 }
    }
}

impl<const N: usize, const BYTES: usize, X, G> Default for ObserverArray<N, BYTES, X, G> {
    /// Creates an empty list of observers. Each notification is confirmable.
    fn default() -> Self {
        Self::with_unconfirmed(0)
    }
}

impl<const N: usize, const BYTES: usize, X: Copy, G: Copy> Observers<X, G> for ObserverArray<N, BYTES, X, G> {
    const PLACES: usize = N;

    fn unconfirmed(&self) -> u8 {
        self.unconfirmed
    }

    fn is_full(&self) -> bool {
        self.places.iter().all(|place| place.observer.is_some())
    }

    fn insert(&mut self, observer: Observer<X, G>, request: &MessageRef<'_>) -> Result<(), Full> {
        let of_members = self.places.iter().filter(|place| place.observer.is_some_and(|it| it.registration.is_some()));
        if observer.registration.is_some() && of_members.count() >= N.div_ceil(2) {
            return Err(Full);
        }
        let place = self.places.iter_mut().find(|place| place.observer.is_none()).ok_or(Full)?;
        let mut frame = Frame::new(&mut place.bytes, 0);
        request.write(&mut frame).map_err(|_| Full)?;
        place.len = frame.len() as u16;
        place.observer = Some(observer);
        Ok(())
    }

    fn any(&self, peer: PeerId, mut is_it: impl FnMut(&Observer<X, G>) -> bool) -> bool {
        self.places.iter().any(|place| place.is(peer, &mut is_it))
    }

    fn find(
        &mut self,
        peer: PeerId,
        mut is_it: impl FnMut(&Observer<X, G>) -> bool,
    ) -> Option<(&mut Observer<X, G>, &[u8])> {
        let behind = self.places.iter().skip(self.next).position(|place| place.is(peer, &mut is_it));
        let found = match behind {
            Some(behind) => self.next.saturating_add(behind),
            None => self.places.iter().position(|place| place.is(peer, &mut is_it))?,
        };
        self.next = found.saturating_add(1);
        let Place { observer, len, bytes } = self.places.get_mut(found)?;
        Some((observer.as_mut()?, bytes.get(..usize::from(*len))?))
    }

    fn mark(&mut self, path: &str, mut on_change: impl FnMut(PeerId)) {
        for Place { observer, len, bytes } in &mut self.places {
            let request = bytes.get(..usize::from(*len)).map(MessageRef::parse);
            if let (Some(observer), Some(Ok(request))) = (observer, request)
                && request.path_is(path)
            {
                observer.changed = true;
                on_change(observer.peer);
            }
        }
    }

    fn remove(&mut self, peer: PeerId, mut is_it: impl FnMut(&Observer<X, G>) -> bool) {
        self.places.iter_mut().filter(|place| place.is(peer, &mut is_it)).for_each(|place| place.observer = None);
    }

    fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        for place in &mut self.places {
            place.observer = place.observer.filter(|observer| is_there(observer.peer));
        }
    }
}
