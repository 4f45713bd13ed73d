//! The data of an observer that is a member of a group that Axiom protects.

use crate::identity::{Identity, SenderId};
use crate::time::{Duration, Instant};
use core::convert::Infallible;

/// The time after which a member that observes a resource must register again. Within this time, a server must find
/// out whether the client is still interested (RFC 7641, section 4.5).
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a registration of an earlier epoch remains valid. It begins with the first notification in a new
/// epoch.
const IN_NEXT_EPOCH: Duration = Duration::from_secs(5 * 60);
/// The data of an observer that is a member of a protected group: see
/// [`Groups::Registration`](super::Groups::Registration).
#[derive(Clone, Copy, Debug)]
pub struct MemberRegistration {
    /// The identity about which the policy decides. It contains the principal of the group, and the SenderID of the
    /// member.
    pub identity: Identity,
    /// The epoch in which the member registered. After a notification in a later epoch, this field has the later epoch.
    epoch: u16,
    until: Instant,
    /// The time before which no notification is sent.
    pub(super) next: Instant,
}

impl MemberRegistration {
    /// Creates the data for a registration that arrives at the time `now` in this epoch.
    pub(super) fn new(identity: Identity, epoch: u16, now: Instant) -> Self {
        Self { identity, epoch, until: now.after(LIFETIME), next: Instant::AT_ONCE }
    }

    /// Returns the SenderID of the member if it may be notified in this epoch. Returns `None` if its registration has
    /// ended.
    pub(super) fn sender(&mut self, epoch: u16, now: Instant) -> Option<SenderId> {
        if self.epoch != epoch {
            (self.epoch, self.until) = (epoch, self.until.min(now.after(IN_NEXT_EPOCH)));
        }
        self.identity.protection.member().filter(|_| now < self.until)
    }
}

impl AsMut<Self> for MemberRegistration {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// A node that is a member of no group never has an observer that is a member of a group, so `as_mut` is never called.
impl AsMut<MemberRegistration> for Infallible {
    fn as_mut(&mut self) -> &mut MemberRegistration {
        match *self {}
    }
}
