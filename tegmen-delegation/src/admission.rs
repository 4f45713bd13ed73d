//! The decision of a device to admit or to refuse a session. The decision depends on the list of refused connections
//! and on the present time. The device counts the refused sessions.

use crate::refusal::{Refusals, Refused};
use crate::ticket::{Connection, Delegation, STATE_LEN, terms};
use tegmen::time::Instant;

/// Seconds by which the time of authentication in a session may be later than the time that the device knows.
const TOLERANCE: u32 = 60;

/// The value of an unused element in the list of refused connections. No connection has this number.
const FREE: u32 = u32::MAX;

/// The data with which a device decides about sessions. Its list of refused connections has at most `REFUSED` entries.
#[derive(Debug)]
pub(crate) struct Admission<const REFUSED: usize> {
    /// The numbers of the refused connections. Once the list is [loaded](Self::load), all elements after the first
    /// `len` elements contain [`FREE`].
    refused: [u32; REFUSED],
    len: usize,
    /// Number of entries at the beginning of the list that are also in the [`Memory`](crate::Memory) of the device. The
    /// further entries of the list could not be stored yet.
    kept_len: usize,
    /// The time that the server sent, in seconds since 1970, and the instant on the device's own clock at which the
    /// device received this time. `None` until the server has sent its time.
    time: Option<(u32, Instant)>,
    refusals: Refusals,
}

impl<const REFUSED: usize> Admission<REFUSED> {
    /// Returns the state of a device that has just started: it has not [loaded](Self::load) its list of refused
    /// connections yet, and does not know the present time.
    pub(crate) const fn new() -> Self {
        Self { refused: [0; REFUSED], len: 0, kept_len: 0, time: None, refusals: Refusals([0; 6]) }
    }

    /// Replaces the list of refused connections by the list in the persistent [`Memory`](crate::Memory) of the device.
    /// `load` writes the list into the given slice, and returns its length.
    pub(crate) fn load<E>(&mut self, load: impl FnOnce(&mut [u32]) -> Result<usize, E>) -> Result<(), E> {
        self.clear();
        self.len = load(&mut self.refused)?;
        self.kept_len = self.len;
        Ok(())
    }

    pub(crate) const fn set_time(&mut self, now: Instant, seconds: u32) {
        self.time = Some((seconds, now));
    }

    /// Returns the time of the server at `now`, in seconds since 1970. Returns `None` until the server has sent its
    /// time.
    pub(crate) fn time(&self, now: Instant) -> Option<u32> {
        let (time, learned) = self.time?;
        Some(time.saturating_add(seconds(now, learned)))
    }

    /// Removes all connections from the list of refused connections.
    pub(crate) const fn clear(&mut self) {
        (self.refused, self.len, self.kept_len) = ([FREE; REFUSED], 0, 0);
    }

    /// Returns the number of refused connections.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// True if the list of refused connections contains the connection `number`.
    #[inline(never)]
    pub(crate) fn is_refused(&self, number: u32) -> bool {
        // `contains` compares several numbers at once, and needs more code. The number `FREE` counts as refused, so
        // it is never added to the list.
        self.refused.iter().find(|refused| **refused == number || **refused == FREE) == Some(&number)
    }

    /// Adds the connection `number` to the list of refused connections, unless the list contains it already. Returns
    /// false if the list is full.
    pub(crate) fn refuse(&mut self, number: u32) -> bool {
        if self.is_refused(number) {
            return true;
        }
        let Some(place) = self.refused.get_mut(self.len) else { return false };
        *place = number;
        self.len = self.len.wrapping_add(1);
        true
    }

    /// Calls `keep` for each refused connection that the persistent [`Memory`](crate::Memory) of the device does not
    /// contain yet.
    pub(crate) fn keep<E>(&mut self, mut keep: impl FnMut(u32) -> Result<(), E>) -> Result<(), E> {
        while self.kept_len < self.len {
            let Some(number) = self.refused.get(self.kept_len) else { break };
            keep(*number)?;
            self.kept_len = self.kept_len.wrapping_add(1);
        }
        Ok(())
    }

    pub(crate) const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Checks the session with the state `state`. Returns the session if the device admits it. Otherwise counts the
    /// refusal, and returns its reason. If `state` is an error, the caller has already refused the session for this
    /// reason. This function then counts the refusal, and returns the same reason.
    #[inline(never)]
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        state: Result<&[u8; STATE_LEN], Refused>,
    ) -> Result<Delegation, Refused> {
        match state.and_then(|state| self.check(now, state)) {
            Ok(state) => Ok(Delegation::read(state)),
            Err(reason) => {
                self.refusals.count(reason);
                Err(reason)
            }
        }
    }

    fn check<'s>(&self, now: Instant, state: &'s [u8; STATE_LEN]) -> Result<&'s [u8; STATE_LEN], Refused> {
        let (principal, since, expires) = terms(state);
        let connection = Connection::of(principal).ok_or(Refused::Unknown)?;
        if self.is_refused(connection.number) {
            return Err(Refused::Revoked);
        }
        let time = self.time(now).ok_or(Refused::NoTime)?;
        if since > time.saturating_add(TOLERANCE) {
            return Err(Refused::Early);
        }
        if expires <= time {
            return Err(Refused::Expired);
        }
        Ok(state)
    }
}

/// Returns the seconds from `earlier` to `now`. The computation needs no division.
fn seconds(now: Instant, earlier: Instant) -> u32 {
    let units = now.coarse().saturating_sub(earlier.coarse());
    // A unit has 1.048576 seconds.
    let rest = u64::from(units).wrapping_mul(208_632_331) >> 32;
    units.saturating_add(rest as u32)
}
