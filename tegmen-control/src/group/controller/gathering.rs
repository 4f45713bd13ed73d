//! Lets the admissions of members wait for further members, of all groups of a controller. The members of one group that
//! are admitted together share an epoch, its messages and its signatures, and one write of the rows of the group.
//!
//! Members wait for each other only if many joined a short time ago. In a crowd, each device waits for the admissions of
//! other devices, so this further wait is short. A single device never waits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout_at;

/// Maximum time for which a member waits for further members.
const GATHERING: Duration = Duration::from_millis(50);
/// A member waits no longer if no further member has arrived for this time.
const PAUSE: Duration = Duration::from_millis(4);
/// If fewer members than this wait, are being admitted, or have been admitted in the present crowd, the next member does
/// not wait for further members.
const MANY: usize = 8;
/// If at least this number of members wait, they are admitted immediately.
const MOST_GATHERED: usize = 1024;

/// The members of all groups that wait for their admission.
#[derive(Default)]
pub(super) struct Gathering {
    state: Mutex<State>,
    /// The signal that the waiting members are to be admitted now.
    due: Notify,
}

#[derive(Default)]
struct State {
    /// The number of members that wait. It may be too high after a call was dropped; then some members wait for fewer
    /// others.
    waiting: usize,
    /// The number of members that do not wait any more, and whose admissions have not ended.
    in_progress: usize,
    /// The number of members whose admissions have ended since `in_progress` was 0. If the admissions of several groups
    /// overlap, this number is that of all of them.
    ended: usize,
    /// The number of waiting members that is enough for the next admissions.
    enough: usize,
    /// The time at which a member last arrived, or its admission ended; `None` before the first.
    last: Option<Instant>,
    /// True if a call of [`Gathering::due`] detects that no further member arrives. The other calls need no timer for
    /// this.
    is_watched: bool,
}

impl State {
    /// Adds a member. Returns true if the waiting members are to be admitted now.
    fn add(&mut self, now: Instant) -> bool {
        let is_over = |last: Instant| now.saturating_duration_since(last) > GATHERING;
        if self.waiting == 0 && self.in_progress == 0 && self.last.is_some_and(is_over) {
            self.enough = 0;
        }
        self.waiting = self.waiting.saturating_add(1);
        self.last = Some(now);
        self.waiting == self.enough
    }

    /// Returns the time at which no further member is expected if none arrives before. Returns `None` if the waiting
    /// members are to be admitted now.
    fn pause_end(&self, now: Instant) -> Option<Instant> {
        if self.waiting >= self.enough {
            return None;
        }
        // No further member arrives before the members in progress have their answers.
        let last = self.last.filter(|_| self.in_progress == 0).unwrap_or(now);
        last.checked_add(PAUSE)
    }

    fn begin(&mut self, taken: usize, dropped: usize) {
        self.waiting = self.waiting.saturating_sub(taken.saturating_add(dropped));
        if self.in_progress == 0 {
            self.ended = 0;
        }
        self.in_progress = self.in_progress.saturating_add(taken);
    }

    /// Ends the admissions of `count` members, and sets how many members the next admissions wait for. In a crowd
    /// another member arrives for each admission that ends. Returns true if the waiting members are to be admitted now.
    fn end(&mut self, count: usize, now: Instant) -> bool {
        self.in_progress = self.in_progress.saturating_sub(count);
        self.ended = self.ended.saturating_add(count);
        let expected = self.in_progress.saturating_add(self.ended.max(self.waiting));
        self.enough = if expected < MANY { 0 } else { expected.min(MOST_GATHERED) };
        self.last = Some(now);
        self.waiting >= self.enough
    }
}

impl Gathering {
    /// Adds a member that waits.
    pub(super) fn add(&self) {
        if self.lock().add(Instant::now()) {
            self.due.notify_waiters();
        }
    }

    /// Waits until the waiting members are to be admitted.
    pub(super) async fn due(&self) {
        let Some(end) = Instant::now().checked_add(GATHERING) else { return };
        let mut watch = None;
        loop {
            let due = self.due.notified();
            let until = {
                let (now, mut state) = (Instant::now(), self.lock());
                let Some(pause_end) = state.pause_end(now) else { return };
                if !std::mem::replace(&mut state.is_watched, true) {
                    watch = Some(Watch(self));
                }
                let until = if watch.is_some() { pause_end.min(end) } else { end };
                if until <= now {
                    // The members of other groups have no reason to wait longer.
                    state.enough = 0;
                    drop(state);
                    return self.due.notify_waiters();
                }
                until
            };
            if timeout_at(until.into(), due).await.is_ok() {
                return;
            }
        }
    }

    /// Counts `taken` members, which waited, as in progress until the returned value is dropped. `dropped` is the number
    /// of members that waited, and whose calls were dropped.
    pub(super) fn begin(&self, taken: usize, dropped: usize) -> InProgress<'_> {
        self.lock().begin(taken, dropped);
        InProgress(self, taken)
    }

    /// Lets the calls that admit members to other groups plan their changes first. The caller has planned a change. The
    /// changes then come to the store at the same time, so the store makes them durable together, with fewer writes.
    pub(super) async fn planned(&self) {
        let in_progress = self.lock().in_progress;
        if in_progress > 0 {
            tokio::task::yield_now().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Members whose admissions have not ended.
pub(super) struct InProgress<'g>(&'g Gathering, usize);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        if self.0.lock().end(self.1, Instant::now()) {
            self.0.due.notify_waiters();
        }
    }
}

/// The duty to detect that no further member arrives.
struct Watch<'g>(&'g Gathering);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.lock().is_watched = false;
    }
}

#[cfg(test)]
mod tests;
