//! One round of an observation of a group: the time from one registration to the next registration with the same token.

use super::Response;
use super::observation::digest;
use crate::clock;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen::node::Observation;
use tegmen::time::Instant;

/// The minimum time between two registrations. All members respond to each registration, so the client does not
/// register more often even if the Max-Age of a response is short. But if
/// [`ObserveMembers::alive`](super::ObserveMembers::alive) is shorter than this minimum, the client registers again
/// after the time `alive`.
const SHORTEST: Duration = Duration::from_secs(60);

/// The state of a round, which begins when a registration is sent to all members.
pub(super) struct Round {
    /// The digest of the last representation of each member.
    last: HashMap<SocketAddr, [u8; 32]>,
    /// The time until which members respond to the registration. If a response before this time repeats the known
    /// representation of a member, the application does not receive the response.
    end: Instant,
    /// The earliest time of the next registration. `latest` is the latest time.
    earliest: Instant,
    latest: Instant,
    /// The earliest time at which the Max-Age of a response has passed.
    stale: Instant,
    random: u8,
}

impl Round {
    /// Returns a round of an observation of a group. The client sends the registration to all members now. Members
    /// respond within `wait`. The client sends the next registration after `alive` at the latest. If the next
    /// registration is sent because the Max-Age of a response has passed, `random` delays it by up to ten seconds.
    pub(super) fn new(wait: Duration, alive: Option<Duration>, [random]: [u8; 1]) -> Self {
        let now = clock::now();
        let latest = alive.map_or(Instant::NEVER, |alive| now.after(alive));
        let earliest = latest.min(now.after(SHORTEST));
        Self { last: HashMap::new(), end: now.after(wait), earliest, latest, stale: Instant::NEVER, random }
    }

    /// Returns the round `next`, which also knows the representations that members sent in earlier rounds.
    pub(super) fn followed_by(self, next: Self) -> Self {
        Self { last: self.last, ..next }
    }

    /// True if it is time for the next registration. If no member has responded, this is at the time `earliest`, before
    /// which the client must not register again.
    pub(super) fn is_over(&self) -> bool {
        let stale = if self.stale == Instant::NEVER { self.earliest } else { self.stale.max(self.earliest) };
        clock::now() >= stale.min(self.latest)
    }

    /// Takes a response of a member. Returns false if the application must not receive the response: it came before the
    /// time `end`, until which members respond to the registration, and it repeats the last representation of this
    /// member.
    pub(super) fn is_news(&mut self, from: SocketAddr, response: &Response) -> bool {
        let (now, mut state) = (clock::now(), Observation::default());
        state.on_response(now, response.code, |number| response.option(number), self.random);
        self.stale = self.stale.min(state.refresh_at());
        let is_repeated = self.last.insert(from, digest(response)) == Some(digest(response));
        !is_repeated || now >= self.end
    }
}
