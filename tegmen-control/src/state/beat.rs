//! Measures how old a view is, if several servers change the store.
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

/// The time between the beginnings of two beats. A beat is one write of the server's row in the shared store.
const EVERY: Duration = Duration::from_secs(1);
/// The pause after a beat that failed, because the store did not accept the write.
const PAUSE: Duration = Duration::from_millis(250);

/// The view whose lease a beat renews, and the function that receives the events.
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

/// The beat of a server: one row that the server writes every second.
pub(super) struct Beat<S> {
    store: S,
    pub(super) step: Step,
    /// True if the last beat failed.
    has_failed: bool,
    /// True if the watcher has received the event that the lease ended.
    has_ended: bool,
}

/// The progress of a beat.
pub(super) enum Step {
    /// No beat is in progress, and the next one begins at this time.
    Rests(Instant),
    /// The write of a beat began at this time, when the view had this revision. The server waits for the answer of the
    /// store.
    Commits(Instant, Revision, Answer<Revision>),
    /// A beat began at this time, and the store wrote it with this revision. The view does not have this revision yet.
    Travels(Instant, Revision),
}

/// The error that the store was replaced by another one, or has returned to an earlier state. The store then has lower
/// revisions than the view.
pub(super) struct WentBack;

impl<S: Store> Beat<S> {
    /// Makes the beat for this store; returns `None` if no other server changes the store.
    pub(super) fn on(store: &S) -> Option<Self> {
        let step = Step::Rests(Instant::now());
        store.is_shared().then(|| Self { store: store.clone(), step, has_failed: false, has_ended: false })
    }

    /// Makes all steps that are possible without waiting. Returns the time at which the caller must call this function
    /// again. If the store answers before this time, it wakes `cx`, and the caller must call at once.
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

    /// Informs the watcher if the lease has ended or was renewed. Returns the time of the next call of [`Self::turn`].
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
