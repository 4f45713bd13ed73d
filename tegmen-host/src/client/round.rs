//! The time from one request of an observation of a group to the next one with the same token.

use super::Response;
use super::observation::digest;
use crate::clock;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tegmen::node::Observation;
use tegmen::time::Instant;

/// The shortest time between two requests, unless the owner wants a shorter one: all members respond to each of them, whatever Max-Age of
/// one member is.
const SHORTEST: Duration = Duration::from_secs(60);

/// A request to register was sent to all members.
pub(super) struct Round {
    /// The last representation of each member.
    last: HashMap<IpAddr, [u8; 32]>,
    /// Until then members respond to the request. A representation that is as the last one is no news.
    end: Instant,
    /// The request is not sent again before this time, and at the latest at the other one.
    earliest: Instant,
    latest: Instant,
    /// Max-Age of a response is over.
    stale: Instant,
    random: u8,
}

impl Round {
    /// A round that begins now. Members respond within `wait`; the request is sent again after `alive` at the latest. `random` spreads
    /// the time over ten seconds.
    pub(super) fn new(wait: Duration, alive: Option<Duration>, [random]: [u8; 1]) -> Self {
        let now = clock::now();
        let latest = alive.map_or(Instant::NEVER, |alive| now.after(alive));
        let earliest = latest.min(now.after(SHORTEST));
        Self { last: HashMap::new(), end: now.after(wait), earliest, latest, stale: Instant::NEVER, random }
    }

    /// The round that follows. Representations that came before are no news.
    pub(super) fn followed_by(self, next: Self) -> Self {
        Self { last: self.last, ..next }
    }

    /// True if the request is to be sent again. Without a response that is so after the shortest time.
    pub(super) fn is_over(&self) -> bool {
        let stale = if self.stale == Instant::NEVER { self.earliest } else { self.stale.max(self.earliest) };
        clock::now() >= stale.min(self.latest)
    }

    /// Takes a response of a member. Returns false if it only shows that the member is there, and nothing changed.
    pub(super) fn is_news(&mut self, from: IpAddr, response: &Response) -> bool {
        let (now, mut state) = (clock::now(), Observation::default());
        state.on_response(now, response.code, |number| response.option(number), self.random);
        self.stale = self.stale.min(state.refresh_at());
        let is_repeated = self.last.insert(from, digest(response)) == Some(digest(response));
        !is_repeated || now >= self.end
    }
}
