//! Observing a resource (RFC 7641): the number of a notification, and the order of two notifications.

use super::message::Token;
use tegmen_base::time::{Duration, Instant};

/// Value of the Observe option that registers.
pub const REGISTER: u32 = 0;
/// Value of the Observe option that deregisters.
pub const DEREGISTER: u32 = 1;
/// A notification that comes this long after another is newer, whatever its number (RFC 7641, section 3.4).
const FRESH_AFTER: Duration = Duration::from_secs(128);
const NUMBER_MASK: u32 = 0xff_ffff;

/// The order of the notifications of one observation, at the client (RFC 7641, section 3.4).
#[derive(Clone, Copy, Debug)]
pub struct Order {
    number: u32,
    at: Instant,
}

impl Order {
    /// Begins with the response to the registration.
    pub const fn new(number: u32, at: Instant) -> Self {
        Self { number: number & NUMBER_MASK, at }
    }

    /// True if a notification that arrives now is newer than those before; then it is the one to compare with.
    pub fn is_newer(&mut self, number: u32, now: Instant) -> bool {
        let ahead = number.wrapping_sub(self.number) & NUMBER_MASK;
        let newer = ahead != 0 && ahead < 1 << 23 || now.since(self.at) > FRESH_AFTER;
        if newer {
            *self = Self::new(number, now);
        }
        newer
    }

    /// True if a response is not late, of a server whose last response is `last`: `None` if that had no Observe option, as this one has
    /// none if `number` is `None`. A server that lets nobody observe responds once; what follows is a repetition.
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
    /// The token of the registration, which every notification carries.
    pub token: Token,
    number: u32,
    unconfirmed: u8,
}

impl Observation {
    /// A registration whose response carries `number`. If it renews an older one, that must be newer than all before.
    pub const fn new(token: Token, number: u32) -> Self {
        Self { token, number: number & NUMBER_MASK, unconfirmed: 0 }
    }

    /// The Observe option of what was sent last, 24 bits.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The Observe option of the next notification. One notification is made for each change at most, so 2^23 of them
    /// take longer than the 128 seconds in which a client compares numbers.
    pub const fn next(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1) & NUMBER_MASK;
        self.number
    }

    /// True if the next notification must be confirmable: after `most` notifications that were not. Only an
    /// acknowledgement shows that the client still exists (RFC 7641, section 4.5).
    pub const fn confirm(&mut self, most: u8) -> bool {
        let confirm = self.unconfirmed >= most;
        self.unconfirmed = if confirm { 0 } else { self.unconfirmed.wrapping_add(1) };
        confirm
    }
}

#[cfg(test)]
mod tests;
