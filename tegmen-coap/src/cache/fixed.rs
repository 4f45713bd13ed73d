//! The memory of a cache as an array.

use super::{CacheStorage, Stored};
use tegmen_base::buf::copy;
use tegmen_base::time::Instant;

/// The memory of a cache for `N` responses. A response and its key have at most `LEN` bytes. If there is no space,
/// the response that was not used for the longest time is removed.
#[derive(Debug)]
pub struct FixedCache<const N: usize, const LEN: usize> {
    places: [Option<Place<LEN>>; N],
    /// The number of times that [`find`](CacheStorage::find) was called. It serves as a clock for the last use of a
    /// response.
    uses: u32,
}

#[derive(Debug)]
struct Place<const LEN: usize> {
    /// The key, followed by the response.
    bytes: [u8; LEN],
    key: usize,
    end: usize,
    resource: usize,
    until: Instant,
    used: u32,
}

impl<const LEN: usize> Place<LEN> {
    fn key(&self) -> &[u8] {
        self.bytes.get(..self.key).unwrap_or(&[])
    }

    fn is_of(&self, resource: &[u8]) -> bool {
        self.bytes.get(..self.resource) == Some(resource)
    }
}

impl<const N: usize, const LEN: usize> Default for FixedCache<N, LEN> {
    fn default() -> Self {
        Self { places: [const { None }; N], uses: 0 }
    }
}

impl<const N: usize, const LEN: usize> CacheStorage for FixedCache<N, LEN> {
    type Owner = ();

    fn find(&mut self, key: &[u8]) -> Option<Stored<'_>> {
        self.uses = self.uses.wrapping_add(1);
        let place = self.places.iter_mut().flatten().find(|place| place.key() == key)?;
        place.used = self.uses;
        Some(Stored { response: place.bytes.get(place.key..place.end)?, until: place.until })
    }

    fn put(&mut self, key: &[u8], resource: usize, (): (), stored: Stored<'_>) -> bool {
        self.remove(key);
        let end = key.len().saturating_add(stored.response.len());
        if end > LEN || resource > key.len() {
            return false;
        }
        let uses = self.uses;
        let idle = |place: &Option<Place<LEN>>| place.as_ref().map_or(u32::MAX, |place| uses.wrapping_sub(place.used));
        let Some(free) = self.places.iter_mut().max_by_key(|place| idle(place)) else { return false };
        let mut place = Place { bytes: [0; LEN], key: key.len(), end, resource, until: stored.until, used: uses };
        let _ = copy(&mut place.bytes, key);
        let _ = copy(place.bytes.get_mut(key.len()..).unwrap_or(&mut []), stored.response);
        *free = Some(place);
        true
    }

    fn remove(&mut self, key: &[u8]) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|place| place.key() == key) {
                *place = None;
            }
        }
    }

    fn remove_resource(&mut self, resource: &[u8]) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|place| place.is_of(resource)) {
                *place = None;
            }
        }
    }
}
