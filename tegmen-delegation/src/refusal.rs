//! The reasons for which a device refuses sessions.

/// The reason why a device refuses a session. The peer gets the same alert for all reasons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The ticket is not authentic: it was forged or changed, or sealed for another device.
    Unknown,
    /// The ticket belongs to another epoch.
    Epoch,
    /// The delegation server revoked the connection.
    Revoked,
    /// The delegation has ended.
    Expired,
    /// The peer authenticated at a time more than 60 seconds after the present time of the device.
    Early,
    /// The device does not know the present time yet.
    NoTime,
}

/// The numbers of sessions that the device refused since its start, one number for each reason. Each number is at most
/// 65,535.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refusals(pub [u16; 6]);

impl Refusals {
    /// Returns the number for a reason.
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
