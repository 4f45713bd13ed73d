//! Counts repeated events of one kind from one network, so that the log can leave them out.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Time in which the log writes at most one line for a kind of event and a network prefix.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum number of pairs of an event kind and a network prefix that are counted separately. For all further pairs,
/// the events of one kind share one line of the log per second.
const TOLD_APART: usize = 1024;

/// A network prefix: /24 of IPv4, or /56 of IPv6. The value `Other` replaces the prefix if there are too many pairs of
/// an event kind and a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Prefix {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Other,
}

impl Prefix {
    pub(super) fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(Ipv4Addr::from_bits(ip.to_bits() & (!0 << 8))),
            IpAddr::V6(ip) => Self::V6(Ipv6Addr::from_bits(ip.to_bits() & (!0 << 72))),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => write!(f, "{ip}/24"),
            Self::V6(ip) => write!(f, "{ip}/56"),
            Self::Other => write!(f, "other networks"),
        }
    }
}

struct Repeat {
    /// The time at which the log wrote the last line about an event of one kind from one network prefix.
    written: Instant,
    /// The number of events of the same kind from the same network prefix that came after this line. The log left out
    /// these events.
    more: u64,
}

/// Counts of the events that the log left out, one for each pair of an event kind and a network prefix. The number of
/// pairs is limited.
#[derive(Default)]
pub(super) struct Repeats(HashMap<(&'static str, Prefix), Repeat>);

impl Repeats {
    /// Counts an event. Returns `None` if the log must leave out the event. If the log must write the event, returns
    /// how many events of its kind and prefix were left out since the log wrote the previous line for them.
    pub(super) fn take(&mut self, kind: &'static str, prefix: Prefix, now: Instant) -> Option<u64> {
        let known = self.0.len() < TOLD_APART || self.0.contains_key(&(kind, prefix));
        let key = (kind, if known { prefix } else { Prefix::Other });
        match self.0.get_mut(&key) {
            Some(repeat) if now.saturating_duration_since(repeat.written) < EVERY => {
                repeat.more += 1;
                None
            }
            Some(repeat) => {
                repeat.written = now;
                Some(std::mem::take(&mut repeat.more))
            }
            None => {
                self.0.insert(key, Repeat { written: now, more: 0 });
                Some(0)
            }
        }
    }

    /// Returns the counts of events that were left out, each with its kind and prefix, and sets these counts to 0.
    /// Omits each kind and prefix for which the log wrote a line within the last second. At the end of the program,
    /// `now` is `None`: then all counts are returned. Removes the entries of events that were not repeated.
    pub(super) fn due(&mut self, now: Option<Instant>) -> Vec<(&'static str, Prefix, u64)> {
        let mut due = Vec::new();
        self.0.retain(|(kind, prefix), repeat| {
            if now.is_some_and(|now| now.saturating_duration_since(repeat.written) < EVERY) {
                return true;
            }
            if repeat.more > 0 {
                due.push((*kind, *prefix, std::mem::take(&mut repeat.more)));
                repeat.written = now.unwrap_or(repeat.written);
                return true;
            }
            false
        });
        due
    }
}

#[cfg(test)]
mod tests;
