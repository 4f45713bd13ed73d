//! Observing a resource (RFC 7641): the number of a notification, and the order of two notifications.

use super::message::Token;
use tegmen_base::time::{Duration, Instant};

/// Value of the Observe option that registers an observation.
pub const REGISTER: u32 = 0;
/// Value of the Observe option that deregisters an observation.
pub const DEREGISTER: u32 = 1;
/// If more than this time passes between two notifications, the later notification counts as newer, and the numbers of
/// the two notifications are not compared (RFC 7641, section 3.4).
const FRESH_AFTER: Duration = Duration::from_secs(128);
const NUMBER_MASK: u32 = 0xff_ffff;

/// The state with which a client orders the notifications of one observation (RFC 7641, section 3.4).
#[derive(Clone, Copy, Debug)]
pub struct Order {
    number: u32,
    at: Instant,
}

impl Order {
    /// Makes the state after the response to the registration. `number` is the Observe option of this response, and
    /// `at` is the time at which it arrived.
    pub const fn new(number: u32, at: Instant) -> Self {
        Self { number: number & NUMBER_MASK, at }
    }

    /// Returns true if a notification that arrives now is newer than all earlier notifications. Later notifications are
    /// then compared with this notification.
    pub fn is_newer(&mut self, number: u32, now: Instant) -> bool {
        let ahead = number.wrapping_sub(self.number) & NUMBER_MASK;
        let newer = ahead != 0 && ahead < 1 << 23 || now.since(self.at) > FRESH_AFTER;
        if newer {
            *self = Self::new(number, now);
        }
        newer
    }

    /// Returns true if a response counts as newer than the last response of the same server. `last` is the state of the
    /// last response, or `None` if that response had no Observe option. `number` is the Observe option of this
    /// response, or `None` if it has no such option. If both responses have none, returns false: a server that does not
    /// accept the observation sends only one response, so this response is a repetition.
    pub fn follows(last: &mut Option<Self>, number: Option<u32>, now: Instant) -> bool {
        match (last.as_mut(), number) {
            (Some(order), Some(number)) => order.is_newer(number, now),
            (None, None) => false,
            (_, number) => {
                *last = number.map(|number| Self::new(number, now));
                true
            }
        }
    }
}

/// One observation at the server (RFC 7641, section 4).
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The token of the registration, which every notification contains.
    pub token: Token,
    number: u32,
    unconfirmed: u8,
}

impl Observation {
    /// Begins an observation whose first response has the Observe option `number`. If this observation renews an
    /// earlier observation, `number` must be newer than all numbers of the earlier observation.
    pub const fn new(token: Token, number: u32) -> Self {
        Self { token, number: number & NUMBER_MASK, unconfirmed: 0 }
    }

    /// Returns the Observe option of the last sent notification, 24 bits.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the Observe option of the next notification. A client compares the numbers of two notifications only if
    /// the second notification arrives within 128 seconds after the first. The comparison is wrong only after 2^23 or
    /// more notifications in this time. A server does not send that many notifications in 128 seconds, because it sends
    /// at most one for each change of the resource.
    pub const fn next(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1) & NUMBER_MASK;
        self.number
    }

    /// Returns true if the next notification must be confirmable, because `most` non-confirmable notifications
    /// preceded it. Only an acknowledgement shows that the client still exists (RFC 7641, section 4.5).
    pub const fn confirm(&mut self, most: u8) -> bool {
        let confirm = self.unconfirmed >= most;
        self.unconfirmed = if confirm { 0 } else { self.unconfirmed.wrapping_add(1) };
        confirm
    }
}

#[cfg(test)]
mod tests;
