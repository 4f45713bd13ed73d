//! The registration of a member of a protected group that observes a resource.

use crate::identity::{Identity, SenderId};
use crate::time::{Duration, Instant};
use core::convert::Infallible;

/// The time after which a member has to register again: that within which a server learns that a client is still there (RFC 7641,
/// section 4.5).
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The time in which a registration of an earlier epoch still counts, from the first notification in a new one on.
const IN_NEXT_EPOCH: Duration = Duration::from_secs(5 * 60);
/// The registration of a member of a protected group: see [`Groups::Registration`](super::Groups::Registration).
#[derive(Clone, Copy, Debug)]
pub struct MemberRegistration {
    /// The group, as it is known to the policy, and the SenderID of the registration.
    pub identity: Identity,
    /// The epoch in which the member registered, or the last notification was sent.
    epoch: u16,
    until: Instant,
    /// No notification is sent before.
    pub(super) next: Instant,
}

impl MemberRegistration {
    /// A registration that came now, in this epoch.
    pub(super) fn new(identity: Identity, epoch: u16, now: Instant) -> Self {
        Self { identity, epoch, until: now.after(LIFETIME), next: Instant::AT_ONCE }
    }

    /// Returns the SenderID, if the member may be notified in this epoch.
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

/// A node in no group has no registrations of members.
impl AsMut<MemberRegistration> for Infallible {
    fn as_mut(&mut self) -> &mut MemberRegistration {
        match *self {}
    }
}
