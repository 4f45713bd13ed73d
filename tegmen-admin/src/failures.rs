//! The bound of failed authentication: an address that failed often is refused for a while, before its credential is read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Failures of an address in a window.
const MOST: u32 = 10;
/// Seconds of a window.
const WINDOW: u64 = 60;
/// Addresses that are remembered. If there are more, the one whose window began first is forgotten.
const ADDRESSES: usize = 4096;

/// Failures by address: the begin of the window in seconds since 1970, and their number.
#[derive(Default)]
pub(crate) struct Failures(Mutex<HashMap<IpAddr, (u64, u32)>>);

impl Failures {
    /// True if the address failed too often.
    pub(crate) fn is_refused(&self, address: IpAddr, now: u64) -> bool {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&address).is_some_and(|(since, count)| *count >= MOST && now.saturating_sub(*since) < WINDOW)
    }

    /// Counts a failure.
    pub(crate) fn add(&self, address: IpAddr, now: u64) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES && !failures.contains_key(&address) {
            let oldest = failures.iter().min_by_key(|(_, (since, _))| *since).map(|(address, _)| *address);
            oldest.map(|oldest| failures.remove(&oldest));
        }
        let entry = failures.entry(address).or_insert((now, 0));
        if now.saturating_sub(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
    }
}
