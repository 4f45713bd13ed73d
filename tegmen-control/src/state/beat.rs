//! Measures how old the view of this server is, if several servers change the store. The view is the copy of the store
//! in memory.
//!
//! The server writes one row, the beat, every second. All transactions have one order, and the watch of the store
//! delivers them in this order. So when the watch delivers a beat, the view has every change that was acknowledged
//! before the write of the beat began. The view counts as current for the duration of a lease, which begins at the
//! start of that write.

use super::view::View;
use super::{Event, Watcher, rows};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tegmen_store::store::answer::Answer;
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// The time between the beginnings of two beats. A beat is a write by which the server checks that its view is current.
const EVERY: Duration = Duration::from_secs(1);
/// The pause after a beat that the store did not accept. A beat is a write by which the server checks that its view is
/// current.
const PAUSE: Duration = Duration::from_millis(250);

/// The view, which is the copy of the store in memory, and the function that receives the events of the state.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) view: &'a Mutex<View>,
    pub(super) watcher: &'a Watcher,
}

impl<'a> Around<'a> {
    fn view(self) -> MutexGuard<'a, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beat: a write that the server makes every second, to check that its view has all changes of the store.
pub(super) struct Beat<S> {
    store: S,
    pub(super) step: Step,
    /// True if the last beat failed.
    has_failed: bool,
    /// True if the watcher has received [`Event::Ended`], and not [`Event::Renewed`] since then.
    has_ended: bool,
}

/// The progress of a beat: a write by which the server checks that its view (its copy of the store) is current.
pub(super) enum Step {
    /// No write is in progress. The next one begins at this time.
    Rests(Instant),
    /// The server waits for the store to acknowledge the write. The values are the time at which the write began, the
    /// revision of the view at that time, and the pending answer.
    Commits(Instant, Revision, Answer<Revision>),
    /// The store has acknowledged the write, and the server waits until its view (its copy of the store in memory)
    /// contains the write. The values are the time at which the write began, and the revision of the write.
    Travels(Instant, Revision),
}

/// The error that the store was replaced by another one, or has returned to an earlier state. The store then gives a
/// new write no higher revision than that of the view, which is the copy of the store in memory.
pub(super) struct WentBack;

impl<S: Store> Beat<S> {
    /// Makes a [`Beat`], which writes to `store` every second, to check that the view (the copy of the store in memory)
    /// is current. Returns `None` if no other server changes the store: the view is then always current.
    pub(super) fn on(store: &S) -> Option<Self> {
        let step = Step::Rests(Instant::now());
        store.is_shared().then(|| Self { store: store.clone(), step, has_failed: false, has_ended: false })
    }

    /// Begins or continues the regular write to the store, and does each step that is possible without waiting. Returns
    /// the time at which the caller must call this function again. If the store answers before this time, it wakes
    /// `cx`, and the caller must call at once.
    ///
    /// # Errors
    /// [`WentBack`] if the store returned to an earlier state.
    pub(super) fn turn(&mut self, around: Around<'_>, cx: &mut Context<'_>) -> Result<Instant, WentBack> {
        loop {
            let now = Instant::now();
            self.step = match &mut self.step {
                Step::Rests(until) if *until > now => break,
                Step::Rests(_) => {
                    let beat = Transaction::default().put(rows::BEAT, Value::Plain(Vec::new()));
                    Step::Commits(now, around.view().at(), self.store.commit(beat))
                }
                Step::Commits(began, before, answer) => match Pin::new(answer).poll(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(revision)) if revision <= *before => return Err(WentBack),
                    Poll::Ready(Ok(revision)) => Step::Travels(*began, revision),
                    Poll::Ready(Err(error)) => {
                        self.fail(around, &error);
                        Step::Rests(later(now, PAUSE))
                    }
                },
                Step::Travels(began, revision) if around.view().at() >= *revision => {
                    self.has_failed = false;
                    around.view().renew(*began);
                    Step::Rests(later(*began, EVERY))
                }
                Step::Travels(..) => break,
            };
        }
        Ok(self.report(around))
    }

    fn fail(&mut self, around: Around<'_>, error: &StoreError) {
        if !self.has_failed {
            (around.watcher)(Event::Unavailable(error));
        }
        self.has_failed = true;
    }

    /// Sends an event to the watcher if the view no longer counts as current, or counts as current again. Returns the
    /// time at which the caller must call [`Self::turn`] again.
    fn report(&mut self, around: Around<'_>) -> Instant {
        let now = Instant::now();
        let has_ended = !around.view().is_current_at(now);
        if has_ended != self.has_ended {
            (around.watcher)(if has_ended { Event::Ended } else { Event::Renewed });
            self.has_ended = has_ended;
        }
        match &self.step {
            Step::Rests(until) => *until,
            Step::Commits(..) | Step::Travels(..) => later(now, EVERY),
        }
    }
}

fn later(time: Instant, by: Duration) -> Instant {
    time.checked_add(by).unwrap_or(time)
}
