//! The attempts of users to log in with a password.

use crate::failures::Failures;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Seconds for which an address is remembered after a user logged in from it.
const REMEMBERED: u64 = 30 * 24 * 3600;
/// Maximum number of pairs of user and address that are remembered. For a further pair, the oldest pair is removed.
const PAIRS: usize = 4096;

/// The numbers of failed logins, and the addresses from which users logged in successfully.
#[derive(Default)]
pub(crate) struct Attempts {
    /// For each name of a user, the number of failed logins with a wrong password.
    pub(crate) failures: Failures<String>,
    /// The time of the last successful login in seconds since 1970, by user and address.
    known: Mutex<HashMap<(String, IpAddr), u64>>,
}

impl Attempts {
    /// Returns true if too many wrong passwords for this user arrived. Always returns false for an address from which
    /// the user logged in before, so that other people cannot lock the user out. The server still limits the failures
    /// of each address.
    pub(crate) fn are_refused(&self, name: &str, address: IpAddr, now: u64) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.get(&(name.to_owned(), address)).is_some_and(|at| now.saturating_sub(*at) < REMEMBERED);
        !is_known && self.failures.is_refused(&name.to_owned(), now)
    }

    /// Remembers the address of a successful login.
    pub(crate) fn add_login(&self, name: &str, address: IpAddr, now: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (name.to_owned(), address);
        if known.len() >= PAIRS && !known.contains_key(&pair) {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(pair, _)| pair.clone());
            oldest.map(|oldest| known.remove(&oldest));
        }
        known.insert(pair, now);
    }
}
