//! One round of an observation of a group: the time from one registration to the next one with the same token.

use super::Response;
use super::observation::digest;
use crate::clock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tegmen::node::Observation;
use tegmen::time::Instant;

/// The minimum time between two registrations, because all members respond to each registration. If the settings have a
/// shorter time, the shorter time applies. A short Max-Age of a response does not shorten the interval.
const SHORTEST: Duration = Duration::from_secs(60);

/// The state after a registration was sent to all members.
pub(super) struct Round {
    /// The digest of the last representation of each member.
    last: HashMap<IpAddr, [u8; 32]>,
    /// The time until which members respond to the registration. A representation that a member repeats until then is
    /// no news.
    end: Instant,
    /// The earliest time of the next registration. `latest` is the latest time.
    earliest: Instant,
    latest: Instant,
    /// The time at which the Max-Age of a response has passed.
    stale: Instant,
    random: u8,
}

impl Round {
    /// Returns a round that begins now. Members respond within `wait`, and the next registration is sent after `alive`
    /// at the latest. `random` spreads its time over ten seconds.
    pub(super) fn new(wait: Duration, alive: Option<Duration>, [random]: [u8; 1]) -> Self {
        let now = clock::now();
        let latest = alive.map_or(Instant::NEVER, |alive| now.after(alive));
        let earliest = latest.min(now.after(SHORTEST));
        Self { last: HashMap::new(), end: now.after(wait), earliest, latest, stale: Instant::NEVER, random }
    }

    /// Returns the next round. Representations of the earlier round count as known.
    pub(super) fn followed_by(self, next: Self) -> Self {
        Self { last: self.last, ..next }
    }

    /// True if it is time for the next registration. Without any response this is the case after the minimum time.
    pub(super) fn is_over(&self) -> bool {
        let stale = if self.stale == Instant::NEVER { self.earliest } else { self.stale.max(self.earliest) };
        clock::now() >= stale.min(self.latest)
    }

    /// Takes a response of a member. Returns false if the response only repeats the known representation after a
    /// registration.
    pub(super) fn is_news(&mut self, from: IpAddr, response: &Response) -> bool {
        let (now, mut state) = (clock::now(), Observation::default());
        state.on_response(now, response.code, |number| response.option(number), self.random);
        self.stale = self.stale.min(state.refresh_at());
        let is_repeated = self.last.insert(from, digest(response)) == Some(digest(response));
        !is_repeated || now >= self.end
    }
}
