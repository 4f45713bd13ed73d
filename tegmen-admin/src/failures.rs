//! The limit of failed authentications. After too many failures the server refuses a client for some time, without
//! reading its credential.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Maximum number of failures of one address or name in one window of time.
pub(crate) const MOST: u32 = 10;
/// Length of a window of time in seconds. A window begins with the first failure of an address or name.
const WINDOW: u64 = 60;
/// Maximum number of addresses or names for which failures are counted. Before a further address or name is added, the
/// address or name whose window of time began first is removed.
const REMEMBERED: usize = 4096;

/// The failures by address or by name. Each value is the beginning of the window in seconds since 1970, and the number
/// of failures in the window.
pub(crate) struct Failures<K>(Mutex<HashMap<K, (u64, u32)>>);

impl<K> Default for Failures<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Failures<K> {
    /// Returns true if `by` had too many failures in the window that contains `now`.
    pub(crate) fn is_refused(&self, by: &K, now: u64) -> bool {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(by).is_some_and(|(since, count)| *count >= MOST && now.saturating_sub(*since) < WINDOW)
    }

    /// Counts a failure of `by` at `now`.
    pub(crate) fn add(&self, by: K, now: u64) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= REMEMBERED && !failures.contains_key(&by) {
            let oldest = failures.iter().min_by_key(|(_, (since, _))| *since).map(|(by, _)| by.clone());
            oldest.map(|oldest| failures.remove(&oldest));
        }
        let entry = failures.entry(by).or_insert((now, 0));
        if now.saturating_sub(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }
}
