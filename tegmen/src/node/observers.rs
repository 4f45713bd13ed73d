//! The memory of a node for the clients that observe its resources (RFC 7641, section 4.1).

use crate::buf::{Frame, Full};
use crate::coap::observe::Observation;
use crate::coap::{MessageRef, RequestId, Token};
use crate::identity::{PeerId, Principal};
use crate::time::Instant;
use core::convert::Infallible;

/// A client that observes a resource: an entry in the list of observers. If OSCORE protected the registration, `X`
/// identifies this request in its security context: see [`Oscore::Exchange`](super::Oscore::Exchange). `G` is the data
/// of a member of a protected group: see [`Groups::Registration`](super::Groups::Registration).
#[derive(Clone, Copy, Debug)]
pub struct Observer<X = Infallible, G = Infallible> {
    /// The peer that sent the registration.
    pub peer: PeerId,
    /// The token of the registration, and the Observe number of the last notification.
    pub observation: Observation,
    /// True if the representation has changed after the last notification.
    pub changed: bool,
    /// The request id of the confirmable notification that is not acknowledged yet; `None` if there is no such
    /// notification.
    pub pending: Option<RequestId>,
    /// True if the response to the registration, or the next notification, waits: the handler deferred it, or the
    /// policy has not decided yet.
    pub deferred: bool,
    /// The decision of the policy on the next notification. `None` if the policy decides at once, or has not decided
    /// yet.
    pub decision: Option<bool>,
    /// The Message ID of the last notification; `None` if the last notification was confirmable.
    pub message_id: Option<u16>,
    /// If OSCORE protected the registration: the identity of the registration in the security context, and the owner of
    /// this context. The context protects each notification. Otherwise `None`.
    pub exchange: Option<(X, Principal)>,
    /// The data of a member whose registration was sent to a protected group; `None` for any other registration.
    pub registration: Option<G>,
}

impl<X, G> Observer<X, G> {
    /// Creates the entry of a client whose registration got a response. `number` is the value of the Observe option in
    /// this response.
    pub const fn new(peer: PeerId, token: Token, number: u32) -> Self {
        let observation = Observation::new(token, number);
        let (changed, pending, deferred, decision) = (false, None, false, None);
        let (message_id, exchange, registration) = (None, None, None);
        Self { peer, observation, changed, pending, deferred, decision, message_id, exchange, registration }
    }

    /// True if this entry belongs to the registration of this peer with this token. `owner` is the owner of the OSCORE
    /// context that protects a message about the registration, and must be the owner in the entry. So neither a
    /// plaintext message nor the owner of another context can change a registration that OSCORE protects.
    pub(super) fn is_of(&self, peer: PeerId, token: &[u8], owner: Option<Principal>) -> bool {
        let own = self.exchange.as_ref().map(|(_, owner)| *owner);
        own == owner && self.peer == peer && self.observation.token.as_bytes() == token
    }
}

/// The list of the observers of all resources of a node. The list also stores the request that registered each
/// observer.
pub trait Observers<X = Infallible, G = Infallible> {
    /// Maximum number of observers.
    const PLACES: usize;

    /// Returns the maximum number of consecutive notifications to an observer that are not confirmable. With 0, each
    /// notification is confirmable.
    fn unconfirmed(&self) -> u8;

    /// True if there is no space for another observer.
    fn is_full(&self) -> bool;

    /// Returns the first Observe number for a registration that was sent to a group. A client drops a notification
    /// whose number is below that of an earlier notification (RFC 7641, section 4.4). The earlier notification may
    /// belong to a registration that has already ended in this node. So the first number increases with the clock, in
    /// steps of 2^14 microseconds. This suffices if the node sends at most 61 notifications a second to an observer. If
    /// the clock of the node's owner begins again after a restart, this number must be computed from another clock.
    fn first_number(&self, now: Instant) -> u32 {
        (now.as_micros() >> 14) as u32
    }

    /// Adds an observer, and stores the request that registered it. Members of protected groups get at most half of the
    /// space in the list.
    ///
    /// # Errors
    /// [`Full`] if there is no space for the observer or for its request.
    fn insert(&mut self, observer: Observer<X, G>, request: &MessageRef<'_>) -> Result<(), Full>;

    /// True if the list has an entry of this peer for which `is_it` returns true.
    fn any(&self, peer: PeerId, is_it: impl FnMut(&Observer<X, G>) -> bool) -> bool;

    /// Returns an entry of this peer for which `is_it` returns true, and the request that registered the observer. The
    /// search begins after the entry that was returned last, so that each entry is returned in turn.
    fn find(
        &mut self,
        peer: PeerId,
        is_it: impl FnMut(&Observer<X, G>) -> bool,
    ) -> Option<(&mut Observer<X, G>, &[u8])>;

    /// Marks the observers of the resource at `path` as changed. For each of these observers, calls `on_change` with
    /// the peer of the observer. Slashes separate the segments of `path`, but the path does not begin with a slash.
    fn mark(&mut self, path: &str, on_change: impl FnMut(PeerId));

    /// Removes the entries of this peer for which `is_it` returns true.
    fn remove(&mut self, peer: PeerId, is_it: impl FnMut(&Observer<X, G>) -> bool);

    /// Keeps only the entries of the peers for which `is_there` returns true.
    fn retain_peers(&mut self, is_there: impl FnMut(PeerId) -> bool);
}

/// The list of observers of a node whose resources cannot be observed.
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

/// A list of at most `N` observers, each with a request of at most `BYTES` bytes.
#[derive(Clone, Copy, Debug)]
pub struct ObserverArray<const N: usize, const BYTES: usize, X = Infallible, G = Infallible> {
    places: [Place<BYTES, X, G>; N],
    unconfirmed: u8,
    /// The index in `places` at which the next call of [`Observers::find`] begins its search.
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
    /// Creates an empty list of observers. At most `unconfirmed` consecutive notifications to an observer are not
    /// confirmable.
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
