//! The decision of a device on a session: its list of refused connections, its time, and the counts of refusals.

use crate::refusal::{Refusals, Refused};
use crate::ticket::Delegation;
use tegmen::time::Instant;

/// Seconds by which the clock of a server may be ahead of the time that the device knows.
const TOLERANCE: u32 = 60;

/// The list of refused connections has at most `REFUSED` places.
#[derive(Debug)]
pub(crate) struct Admission<const REFUSED: usize> {
    refused: [u32; REFUSED],
    len: usize,
    /// Places of the list that the memory holds, too.
    kept_len: usize,
    /// The time of the server, and when the device learned it.
    time: Option<(u32, Instant)>,
    refusals: Refusals,
}

impl<const REFUSED: usize> Admission<REFUSED> {
    /// Returns `None` if there are more connections than places.
    pub(crate) fn new(stored: &[u32]) -> Option<Self> {
        let mut refused = [0; REFUSED];
        let len = stored.len();
        refused.get_mut(..len)?.copy_from_slice(stored);
        Some(Self { refused, len, kept_len: len, time: None, refusals: Refusals::default() })
    }

    pub(crate) const fn set_time(&mut self, now: Instant, seconds: u32) {
        self.time = Some((seconds, now));
    }

    /// Empties the list.
    pub(crate) const fn clear(&mut self) {
        (self.len, self.kept_len) = (0, 0);
    }

    /// The refused connections.
    pub(crate) fn refused(&self) -> &[u32] {
        self.refused.get(..self.len).unwrap_or(&[])
    }

    /// Adds a connection to the list, if it is not there. Returns false if the list is full.
    pub(crate) fn refuse(&mut self, number: u32) -> bool {
        if self.refused().contains(&number) {
            return true;
        }
        let Some(place) = self.refused.get_mut(self.len) else { return false };
        *place = number;
        self.len = self.len.saturating_add(1);
        true
    }

    /// Keeps the connections that the memory does not hold yet.
    pub(crate) fn keep<E>(&mut self, mut keep: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        while let Some(number) = self.refused().get(self.kept_len) {
            keep(*number)?;
            self.kept_len = self.kept_len.saturating_add(1);
        }
        Ok(())
    }

    pub(crate) const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Admits a session, or counts the reason why not.
    pub(crate) fn admit(&mut self, now: Instant, delegation: &Delegation) -> Result<(), Refused> {
        self.check(now, delegation).map_err(|reason| self.count(reason))
    }

    /// Counts a refused session.
    pub(crate) fn count(&mut self, reason: Refused) -> Refused {
        self.refusals.count(reason);
        reason
    }

    fn check(&self, now: Instant, delegation: &Delegation) -> Result<(), Refused> {
        let connection = delegation.connection().ok_or(Refused::Unknown)?;
        if self.refused().contains(&connection.number) {
            return Err(Refused::Revoked);
        }
        let (time, learned) = self.time.ok_or(Refused::NoTime)?;
        let time = time.saturating_add(seconds(now, learned));
        let since = delegation.session.since.ok_or(Refused::Unknown)?;
        if since > time.saturating_add(TOLERANCE) {
            return Err(Refused::Early);
        }
        if delegation.expires <= time {
            return Err(Refused::Expired);
        }
        Ok(())
    }
}

/// Seconds between two points of the clock, without a division.
fn seconds(now: Instant, earlier: Instant) -> u32 {
    let units = now.coarse().saturating_sub(earlier.coarse());
    // A unit has 1.048576 seconds.
    let scaled = u64::from(units).wrapping_mul(17_592_187) >> 24;
    scaled.try_into().unwrap_or(u32::MAX)
}
