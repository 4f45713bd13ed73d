//! The record of the conversations between the server and a device.

use tegmen_delegation::Status;

/// The result of the conversations with a device since the server started. In a conversation, the server sends the
/// requests that wait for the device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Contact {
    /// The time of the last successful conversation, in seconds since 1970; `None` if there was none.
    pub heard: Option<u64>,
    /// The state of the device at the time of the last successful conversation; `None` if there was none.
    pub status: Option<Status>,
    /// The failures since the last successful conversation; `None` if there were no failures.
    pub unreachable: Option<Unreachable>,
}

/// The failed conversations with a device that does not answer, or that refuses a request of the server. The server
/// contacts the device again at intervals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// The time of the first failed conversation since the last successful one, in seconds since 1970.
    pub since: u64,
    /// The number of failed conversations since the last successful one.
    pub attempts: u32,
    /// The reason why the last conversation failed.
    pub why: String,
}

impl Contact {
    /// Records a successful conversation. Returns true if the conversation before it failed.
    pub(super) fn heard(&mut self, now: u64, status: Status) -> bool {
        (self.heard, self.status) = (Some(now), Some(status));
        self.unreachable.take().is_some()
    }

    /// Records a failed conversation. Returns true if it is the first failed conversation since the last successful
    /// one.
    pub(super) fn missed(&mut self, now: u64, why: String) -> bool {
        let is_first = self.unreachable.is_none();
        let unreachable = self.unreachable.get_or_insert(Unreachable { since: now, attempts: 0, why: String::new() });
        unreachable.attempts = unreachable.attempts.saturating_add(1);
        unreachable.why = why;
        is_first
    }
}
