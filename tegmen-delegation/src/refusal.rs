//! The reasons for which a device refuses sessions.

/// The reason why a device refuses a session. The peer gets the same alert in all cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The ticket is not authentic: it was made up, changed, or sealed for another device.
    Unknown,
    /// The ticket belongs to another epoch.
    Epoch,
    /// The server revoked the connection.
    Revoked,
    /// The delegation ended.
    Expired,
    /// The peer authenticated itself at a time more than 60 seconds ahead.
    Early,
    /// The device does not know the time yet.
    NoTime,
}

/// The number of sessions that were refused since the start, by reason, up to 65,535 each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refusals(pub [u16; 6]);

impl Refusals {
    /// The number for a reason.
    pub const fn of(&self, reason: Refused) -> u16 {
        let [unknown, epoch, revoked, expired, early, no_time] = self.0;
        match reason {
            Refused::Unknown => unknown,
            Refused::Epoch => epoch,
            Refused::Revoked => revoked,
            Refused::Expired => expired,
            Refused::Early => early,
            Refused::NoTime => no_time,
        }
    }

    pub(crate) fn count(&mut self, reason: Refused) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count = count.saturating_add(1);
        }
    }
}
