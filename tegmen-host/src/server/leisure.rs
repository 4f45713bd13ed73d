//! Responses to requests to a group. Each response waits for a random time, so that the members do not all answer at
//! once (RFC 7252, section 8.2).

use std::collections::BTreeMap;
use tegmen::address::Path;
use tegmen::time::{Duration, Instant};

/// Responses that wait at once; more are not sent.
const MAX_WAITING: usize = 1024;

type Datagram = (Path, Box<[u8]>);

/// The responses of a shard.
#[derive(Default)]
pub(super) struct Leisure {
    /// By the time at which each goes, and the order in which they came.
    waiting: BTreeMap<(Instant, u64), Datagram>,
    count: u64,
}

impl Leisure {
    /// Keeps a datagram for a time between now and `leisure`, chosen by `random`.
    pub(super) fn keep(&mut self, now: Instant, leisure: Duration, random: u32, path: Path, datagram: &[u8]) {
        if self.waiting.len() < MAX_WAITING {
            let micros = (leisure.as_micros() as u64 * u64::from(random)) >> 32;
            self.count += 1;
            self.waiting.insert((now.after(Duration::from_micros(micros)), self.count), (path, datagram.into()));
        }
    }

    /// When the next one goes.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// One that is to go now.
    pub(super) fn take(&mut self, now: Instant) -> Option<Datagram> {
        let first = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}
