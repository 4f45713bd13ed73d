//! The estimated number of clients that take part in a group observation
//! (draft-ietf-core-observe-multicast-notifications-14, section 7).
//!
//! A notification with the Feedback-Divider option Q asks each client to register again with the probability 2^-Q. After
//! a time the server computes the number of clients from the number of these confirmations.

use std::time::Duration;
use tegmen::time::Instant;

/// The time between two questions. Without a change of the representation there is no notification, and no question.
const EVERY: Duration = Duration::from_secs(600);
/// The time within which confirmations count (MAX_CONFIRMATION_WAIT, section 7.3.2).
const WAIT: Duration = Duration::from_secs(452);
/// The number of confirmations that the server would like to get (M, section 7.3.1).
const WANTED: u32 = 8;
/// The divisor of the estimated number of clients after a question without a confirmation.
const SILENT: u32 = 8;

/// The estimated number of clients.
pub(super) struct ObserverCount {
    count: u32,
    /// The earliest time of the next question.
    next: Instant,
    asked: Option<Asked>,
    /// True if nobody confirmed after the last question.
    is_silent: bool,
}

/// A question that waits for confirmations.
struct Asked {
    divider: u8,
    /// The estimated number of clients at the time of the question. It is N of section 7.3.1, except that it can be 0:
    /// with 1 in place of 0, a single client that confirms would never count.
    before: u32,
    confirmations: u32,
    until: Instant,
}

impl ObserverCount {
    /// Returns the count of a group observation that begins.
    pub(super) const fn new(now: Instant) -> Self {
        Self { count: 0, next: now.after(EVERY), asked: None, is_silent: false }
    }

    /// Counts a client that registers.
    pub(super) const fn on_registration(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Counts a client that registers again because of the Feedback-Divider option.
    pub(super) const fn on_confirmation(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.confirmations = asked.confirmations.saturating_add(1);
        }
    }

    /// Returns the value of the Feedback-Divider option of a notification that is sent now; `None` if the notification
    /// asks nothing.
    pub(super) fn ask(&mut self, now: Instant) -> Option<u8> {
        if self.asked.is_some() || now < self.next {
            return None;
        }
        let before = self.count;
        let divider = before.max(1).div_ceil(WANTED).next_power_of_two().trailing_zeros() as u8;
        self.asked = Some(Asked { divider, before, confirmations: 0, until: now.after(WAIT) });
        Some(divider)
    }

    /// Computes the new number of clients, if the time for confirmations has passed (section 7.3.3, with the dampener
    /// 1). Returns true if the group observation has to end, because no client confirmed after two questions to all
    /// clients.
    ///
    /// If no client confirmed, the number only becomes smaller, because the question may be lost. With the number 0, the
    /// next question would ask all clients at once.
    pub(super) fn conclude(&mut self, now: Instant) -> bool {
        let Some(asked) = self.asked.take_if(|asked| now >= asked.until) else { return false };
        let feedback = match asked.confirmations {
            0 => asked.before / SILENT,
            confirmations => confirmations.saturating_mul(1 << asked.divider.min(31)),
        };
        self.count = self.count.saturating_add(feedback).saturating_sub(asked.before);
        // A single lost confirmation does not end an observation with few clients.
        let (was_silent, is_silent) = (self.is_silent, self.count == 0);
        self.is_silent = is_silent;
        self.next = if asked.confirmations == 0 { now } else { now.after(EVERY) };
        was_silent && is_silent
    }
}

#[cfg(test)]
mod tests;
