//! The observers of resources in a shard (RFC 7641). One map finds the observations of a peer when a notification is
//! due. Another map finds the peers that observe a path when the resource at this path changes.

use super::command::Whom;
use super::notifier::ObservedPaths;
use super::oscore::OscoreExchange;
use super::per_peer::PerPeer;
use crate::target::VirtualHosts;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen::buf::{Frame, Full};
use tegmen::coap::{Builder, MessageRef, Probing};
use tegmen::endpoint::Peers;
use tegmen::identity::{Identity, PeerId, Protection};
use tegmen::node::{self, MemberRegistration, Observers as _, Pacing};
use tegmen::time::Instant;

/// Maximum number of observations of one peer. If the peer is a proxy that passes on registrations which OSCORE
/// protects, this is the maximum for each client behind the proxy.
pub(super) const MAX_OBSERVATIONS: usize = 16;

type Observer<G> = node::Observer<OscoreExchange, G>;

/// The observers of a shard, and the limits of their non-confirmable notifications. `G` is the registration of a member
/// of a protected group.
pub(crate) struct Observers<G = MemberRegistration> {
    by_peer: PerPeer<Observations<G>>,
    /// The peers that observe each path, in the order of the peer table. When all these peers get a notification, the
    /// memory of the table is read in ascending order.
    by_path: HashMap<Arc<str>, BTreeSet<PeerId>>,
    /// The observed paths, which notifiers in other threads can read.
    paths: Arc<ObservedPaths>,
    /// The number of observations, including those of the members of protected groups. `most` is the maximum of this
    /// number. `of_members` is the number of observations of these members alone, which is at most half of `most`.
    count: usize,
    of_members: usize,
    most: usize,
    unconfirmed: u8,
    /// A buffer for the path of a registration.
    path: String,
    hosts: VirtualHosts,
}

/// The observations of one peer.
struct Observations<G> {
    places: Vec<Place<G>>,
    /// The index of an observation in the list `places`. The next search for a due notification begins at this
    /// observation.
    next: usize,
    probing: Probing,
}

struct Place<G> {
    observer: Observer<G>,
    /// The request that registered the observation. Each notification is a response to this request.
    request: Box<[u8]>,
    path: Arc<str>,
}

impl<G> Default for Observations<G> {
    fn default() -> Self {
        Self { places: Vec::new(), next: 0, probing: Probing::default() }
    }
}

impl<G> Observers<G> {
    /// Returns an empty table for at most `most` observations. At most `unconfirmed` consecutive notifications are
    /// non-confirmable.
    pub(crate) fn new(paths: Arc<ObservedPaths>, most: usize, unconfirmed: u8) -> Self {
        let (by_peer, by_path, path) = (PerPeer::default(), HashMap::new(), String::new());
        let hosts = VirtualHosts::default();
        Self { by_peer, by_path, paths, count: 0, of_members: 0, most, unconfirmed, path, hosts }
    }

    /// Sets the hosts for which the server is a proxy. Observations of the resources of these hosts use paths with the
    /// prefix `proxy`.
    pub(crate) fn with_hosts(self, hosts: VirtualHosts) -> Self {
        Self { hosts, ..self }
    }

    /// Sets the maximum number of consecutive non-confirmable notifications.
    pub(crate) const fn set_unconfirmed(&mut self, unconfirmed: u8) {
        self.unconfirmed = unconfirmed;
    }

    /// Returns the number of observations.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Removes all observations of a peer.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.remove(peer, |_| true);
    }

    /// Marks the observations of a path as changed, for the clients that `whom` selects. Schedules a notification to
    /// each of these clients.
    pub(crate) fn mark_for(&mut self, path: &str, whom: &Whom, peers: &mut impl Peers)
    where
        G: Copy + AsMut<MemberRegistration>,
    {
        for peer in self.by_path.get(path).into_iter().flatten() {
            let Some(observations) = self.by_peer.get_mut(peer) else { continue };
            let Some(entry) = peers.peer(*peer) else { continue };
            let (principal, protection) = (entry.principal(), entry.protection());
            let mut is_any = false;
            for Place { observer, .. } in observations.places.iter_mut().filter(|place| &*place.path == path) {
                let identity = match (observer.exchange, observer.registration) {
                    (_, Some(mut of_member)) => of_member.as_mut().identity,
                    (Some((_, principal)), None) => Identity { principal, protection: Protection::Oscore },
                    (None, None) => Identity { principal, protection },
                };
                let is_chosen = whom(&identity);
                observer.changed |= is_chosen;
                is_any |= is_chosen;
            }
            if is_any {
                peers.schedule(*peer, Instant::AT_ONCE);
            }
        }
    }

    fn paths(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a peer to the observers of the path of a registration. Returns the path.
    fn add_path(&mut self, peer: PeerId) -> Arc<str> {
        if let Some((path, peers)) = self.by_path.get_key_value(self.path.as_str()) {
            let path = path.clone();
            if !peers.contains(&peer)
                && let Some(peers) = self.by_path.get_mut(&path)
            {
                peers.insert(peer);
            }
            return path;
        }
        let path: Arc<str> = self.path.as_str().into();
        self.paths().insert(path.clone());
        self.by_path.insert(path.clone(), BTreeSet::from([peer]));
        path
    }

    /// Removes a peer from the observers of a path.
    fn remove_path(&mut self, peer: PeerId, path: &Arc<str>) {
        let Some(peers) = self.by_path.get_mut(path) else { return };
        peers.remove(&peer);
        if peers.is_empty() {
            self.by_path.remove(path);
            self.paths().remove(path);
        }
    }
}

impl<G> node::Observers<OscoreExchange, G> for Observers<G> {
    const PLACES: usize = usize::MAX;

    fn unconfirmed(&self) -> u8 {
        self.unconfirmed
    }

    /// Returns the Observe value of the first notification of an observation. The value comes from the system time,
    /// because clients compare the values from before and after a restart of the server, and the monotonic clock begins
    /// again with each process.
    fn first_number(&self, _: Instant) -> u32 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since.as_micros() >> 14) as u32
    }

    /// Always returns false, so that the node does not search for observations of removed peers. The shard itself
    /// removes these observations.
    fn is_full(&self) -> bool {
        false
    }

    fn insert(&mut self, observer: Observer<G>, request: &MessageRef<'_>) -> Result<(), Full> {
        let peer = observer.peer;
        let owner = |observer: &Observer<G>| observer.exchange.map(|(_, principal)| principal);
        let is_own = |place: &&Place<G>| owner(&place.observer) == owner(&observer);
        let own = self.by_peer.get(&peer).map_or(0, |all| all.places.iter().filter(is_own).count());
        let is_of_member = observer.registration.is_some();
        if self.count >= self.most || own >= MAX_OBSERVATIONS {
            return Err(Full);
        }
        if is_of_member && self.of_members >= self.most.div_ceil(2) {
            return Err(Full);
        }
        self.hosts.read_path(request, &mut self.path).map_err(|_| Full)?;
        if observer.exchange.is_none() {
            self.hosts.distinguish(request, &mut self.path);
        }
        let path = self.add_path(peer);
        let request = in_clear(request);
        self.by_peer.entry(peer).or_default().places.push(Place { observer, request, path });
        self.count += 1;
        self.of_members += usize::from(is_of_member);
        Ok(())
    }

    #[inline]
    fn any(&self, peer: PeerId, mut is_it: impl FnMut(&Observer<G>) -> bool) -> bool {
        let observations = self.by_peer.get(&peer);
        observations.is_some_and(|observations| observations.places.iter().any(|place| is_it(&place.observer)))
    }

    fn find(&mut self, peer: PeerId, mut is_it: impl FnMut(&Observer<G>) -> bool) -> Option<(&mut Observer<G>, &[u8])> {
        let Observations { places, next, .. } = self.by_peer.get_mut(&peer)?;
        let (before, behind) = places.split_at(places.len().min(*next));
        let found = match behind.iter().position(|place| is_it(&place.observer)) {
            Some(found) => before.len() + found,
            None => before.iter().position(|place| is_it(&place.observer))?,
        };
        *next = found + 1;
        let Place { observer, request, .. } = places.get_mut(found)?;
        Some((observer, request))
    }

    fn mark(&mut self, path: &str, mut on_change: impl FnMut(PeerId)) {
        let Self { by_peer, by_path, .. } = self;
        for peer in by_path.get(path).into_iter().flatten() {
            let Some(observations) = by_peer.get_mut(peer) else { continue };
            for place in observations.places.iter_mut().filter(|place| &*place.path == path) {
                place.observer.changed = true;
            }
            on_change(*peer);
        }
    }

    fn remove(&mut self, peer: PeerId, mut is_it: impl FnMut(&Observer<G>) -> bool) {
        let Some(observations) = self.by_peer.get_mut(&peer) else { return };
        let mut removed = Vec::new();
        observations.places.retain_mut(|place| {
            let is_removed = is_it(&place.observer);
            if is_removed {
                removed.push(place.path.clone());
                self.of_members -= usize::from(place.observer.registration.is_some());
            }
            !is_removed
        });
        self.count -= removed.len();
        removed.retain(|path| observations.places.iter().all(|place| place.path != *path));
        if observations.places.is_empty() {
            self.by_peer.remove(&peer);
        }
        for path in removed {
            self.remove_path(peer, &path);
        }
    }

    fn retain_peers(&mut self, mut is_there: impl FnMut(PeerId) -> bool) {
        let gone: Vec<PeerId> = self.by_peer.keys().copied().filter(|peer| !is_there(*peer)).collect();
        for peer in gone {
            self.forget(peer);
        }
    }
}

impl<G> Pacing for Observers<G> {
    fn sent(&mut self, now: Instant, peer: PeerId, len: usize) {
        if let Some(observations) = self.by_peer.get_mut(&peer) {
            observations.probing.sent(now, len);
        }
    }

    #[inline]
    fn heard(&mut self, peer: PeerId) {
        if let Some(observations) = self.by_peer.get_mut(&peer) {
            observations.probing.heard();
        }
    }

    fn next(&self, peer: PeerId) -> Instant {
        self.by_peer.get(&peer).map_or(Instant::AT_ONCE, |observations| observations.probing.next())
    }
}

/// Returns a copy of a decrypted request, as a message in clear. Each notification is a new response to this copy.
fn in_clear(message: &MessageRef<'_>) -> Box<[u8]> {
    let options: usize = message.options().map(|(_, value)| value.len() + 5).sum();
    let mut storage = vec![0; 4 + 8 + options + 1 + message.payload().len()];
    let mut frame = Frame::new(&mut storage, 0);
    let built = Builder::new(&mut frame, message.message_type(), message.code(), message.message_id(), message.token());
    let _ = built.and_then(|mut builder| {
        message.options().try_for_each(|(number, value)| builder.option(number, value))?;
        builder.payload(message.payload())
    });
    frame.bytes().into()
}
