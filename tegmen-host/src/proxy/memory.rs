//! The memory of a cache of responses, with a limit in bytes for all responses and for the responses of each client.

use crate::hash::Keys;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tegmen::coap::cache::{CacheStorage, Stored};
use tegmen::identity::{Identity, Principal};
use tegmen::time::Instant;

/// Bytes of a stored response in addition to its payload and its cache key.
const OVERHEAD: usize = 256;
/// The index that marks the end of a chain. A chain is a doubly linked list of stored responses.
const NONE: u32 = u32::MAX;

/// The client that caused a response to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Owner {
    /// A client with a proved identity.
    Principal(u32),
    /// The IP address of a client without a proved identity; `None` if the address is not known.
    Address(Option<IpAddr>),
}

impl Owner {
    pub(super) const fn new(identity: &Identity, address: Option<IpAddr>) -> Self {
        match identity.principal {
            Principal::NOBODY => Self::Address(address),
            Principal(number) => Self::Principal(number),
        }
    }
}

/// The maximum numbers of bytes of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) each: usize,
}

/// Stored responses. If there is no space, the response that was not used for the longest time is removed. If the
/// responses that one client caused reach the limit of one client, the oldest of these responses is removed.
pub(super) struct Memory {
    bounds: Bounds,
    bytes: usize,
    places: Vec<Option<Place>>,
    free: Vec<u32>,
    by_key: HashMap<Arc<[u8]>, u32, Keys>,
    /// The chain (doubly linked list) of all stored responses in the order of their last use.
    used: Chain,
    owners: HashMap<Owner, Share, Keys>,
    resources: HashMap<Box<[u8]>, Chain, Keys>,
}

struct Place {
    key: Arc<[u8]>,
    resource: usize,
    owner: Owner,
    response: Box<[u8]>,
    until: Instant,
    /// The neighbours of this stored response in the three chains (linked lists) that it belongs to. Each [`Kind`] of
    /// chain has one element.
    links: [Links; 3],
}

impl Place {
    const fn bytes(key: usize, response: usize) -> usize {
        key.saturating_add(response).saturating_add(OVERHEAD)
    }

    fn len(&self) -> usize {
        Self::bytes(self.key.len(), self.response.len())
    }
}

/// The three kinds of chains (doubly linked lists) that each stored response belongs to: the chain of all responses in
/// the order of their last use, the chain of the responses that one client requested, and the chain of the responses
/// for one resource.
#[derive(Clone, Copy)]
enum Kind {
    Used,
    Owner,
    Resource,
}

/// A chain (a doubly linked list) of stored responses: the indexes of its oldest and of its newest response in
/// `Memory::places`.
#[derive(Clone, Copy)]
struct Chain {
    oldest: u32,
    newest: u32,
}

impl Chain {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE };
}

/// The indexes of the two neighbours of a stored response in one chain (a doubly linked list); [`NONE`] if there is no
/// neighbour.
#[derive(Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

/// The total number of bytes of the stored responses that one client requested, and the chain (linked list) of these
/// responses.
struct Share {
    bytes: usize,
    chain: Chain,
}

impl Memory {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            bytes: 0,
            places: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::default(),
            used: Chain::EMPTY,
            owners: HashMap::default(),
            resources: HashMap::default(),
        }
    }

    /// Returns the number of stored responses.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the number of bytes of the stored responses.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn links(&mut self, at: u32, kind: Kind) -> Option<&mut Links> {
        let place = self.places.get_mut(at as usize)?.as_mut()?;
        place.links.get_mut(kind as usize)
    }

    /// Adds a stored response to a chain (a linked list), as the newest response of the chain.
    fn join(&mut self, chain: &mut Chain, at: u32, kind: Kind) {
        let older = chain.newest;
        if let Some(links) = self.links(at, kind) {
            *links = Links { older, newer: NONE };
        }
        match self.links(older, kind) {
            Some(links) => links.newer = at,
            None => chain.oldest = at,
        }
        chain.newest = at;
    }

    /// Removes a stored response from a chain (a linked list).
    fn leave(&mut self, chain: &mut Chain, at: u32, kind: Kind) {
        let Some(Links { older, newer }) = self.links(at, kind).copied() else { return };
        match self.links(older, kind) {
            Some(links) => links.newer = newer,
            None => chain.oldest = newer,
        }
        match self.links(newer, kind) {
            Some(links) => links.older = older,
            None => chain.newest = older,
        }
    }

    /// Makes a stored response the newest one of the chain (linked list) `used`, because the response was used now.
    fn use_now(&mut self, at: u32) {
        let mut used = self.used;
        if used.newest != at {
            self.leave(&mut used, at, Kind::Used);
            self.join(&mut used, at, Kind::Used);
            self.used = used;
        }
    }

    fn forget(&mut self, at: u32) {
        let Some((owner, key, resource)) = self.places.get(at as usize).and_then(|place| {
            let place = place.as_ref()?;
            Some((place.owner, place.key.clone(), place.resource))
        }) else {
            return;
        };
        let mut used = self.used;
        self.leave(&mut used, at, Kind::Used);
        self.used = used;
        if let Some(mut share) = self.owners.remove(&owner) {
            self.leave(&mut share.chain, at, Kind::Owner);
            share.bytes = share.bytes.saturating_sub(self.len_of(at));
            if share.chain.oldest != NONE {
                self.owners.insert(owner, share);
            }
        }
        let resource = key.get(..resource).unwrap_or(&[]);
        if let Some((name, mut chain)) = self.resources.remove_entry(resource) {
            self.leave(&mut chain, at, Kind::Resource);
            if chain.oldest != NONE {
                self.resources.insert(name, chain);
            }
        }
        self.by_key.remove(&key);
        self.bytes = self.bytes.saturating_sub(self.len_of(at));
        if let Some(place) = self.places.get_mut(at as usize) {
            *place = None;
            self.free.push(at);
        }
    }

    fn len_of(&self, at: u32) -> usize {
        self.places.get(at as usize).and_then(Option::as_ref).map_or(0, Place::len)
    }

    /// Frees space for a response of `len` bytes that this client causes. First removes the oldest responses of this
    /// client, until `len` bytes fit within the limit of one client. Then removes the responses that were not used for
    /// the longest time, until `len` bytes fit within the limit of all responses. Returns false if one of the limits is
    /// less than `len`.
    fn make_space(&mut self, owner: Owner, len: usize) -> bool {
        let Bounds { all, each } = self.bounds;
        if len > each.min(all) {
            return false;
        }
        while let Some(share) = self.owners.get(&owner).filter(|share| share.bytes.saturating_add(len) > each) {
            self.forget(share.chain.oldest);
        }
        while self.bytes.saturating_add(len) > all && self.used.oldest != NONE {
            self.forget(self.used.oldest);
        }
        true
    }
}

impl CacheStorage for Memory {
    type Owner = Owner;

    fn find(&mut self, key: &[u8]) -> Option<Stored<'_>> {
        let at = *self.by_key.get(key)?;
        self.use_now(at);
        let place = self.places.get(at as usize)?.as_ref()?;
        Some(Stored { response: &place.response, until: place.until })
    }

    fn put(&mut self, key: &[u8], resource: usize, owner: Owner, stored: Stored<'_>) -> bool {
        let response: Box<[u8]> = stored.response.into();
        self.remove(key);
        let len = Place::bytes(key.len(), response.len());
        if !self.make_space(owner, len) {
            return false;
        }
        let key: Arc<[u8]> = key.into();
        let links = [Links { older: NONE, newer: NONE }; 3];
        let place = Some(Place { key: key.clone(), resource, owner, response, until: stored.until, links });
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(free) = self.places.get_mut(at as usize) {
                    *free = place;
                }
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        let mut used = self.used;
        self.join(&mut used, at, Kind::Used);
        self.used = used;
        let mut share = self.owners.remove(&owner).unwrap_or(Share { bytes: 0, chain: Chain::EMPTY });
        self.join(&mut share.chain, at, Kind::Owner);
        share.bytes += len;
        self.owners.insert(owner, share);
        let name = key.get(..resource).unwrap_or(&[]);
        let (name, mut chain) = self.resources.remove_entry(name).unwrap_or_else(|| (name.into(), Chain::EMPTY));
        self.join(&mut chain, at, Kind::Resource);
        self.resources.insert(name, chain);
        self.by_key.insert(key, at);
        self.bytes += len;
        true
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(at) = self.by_key.get(key) {
            self.forget(*at);
        }
    }

    fn remove_resource(&mut self, resource: &[u8]) {
        while let Some(Chain { oldest, .. }) = self.resources.get(resource).copied() {
            self.forget(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
