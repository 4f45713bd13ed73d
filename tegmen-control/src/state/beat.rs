//! The age of a view whose store other servers change, too.
//!
//! The server writes a row every second, its beat. Transactions have one order, and a watch delivers them in this order. So when
//! the watch delivers a beat, the view has every change that was acknowledged before the beat began. The view counts as current
//! for the time of a lease from that begin on.

use super::view::View;
use super::{Event, Watcher, rows};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tegmen_store::store::answer::Answer;
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// Time from the begin of a beat to the begin of the next one.
const EVERY: Duration = Duration::from_secs(1);
/// The pause after a beat that failed.
const PAUSE: Duration = Duration::from_millis(250);

/// The view of a beat, and the watcher of its events.
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

/// The beat of a server.
pub(super) struct Beat<S> {
    store: S,
    pub(super) step: Step,
    /// True if the last beat failed.
    has_failed: bool,
    /// True if the watcher has the event that the lease ended.
    has_ended: bool,
}

/// The place of a beat on its way.
pub(super) enum Step {
    /// The next beat begins at this time.
    Rests(Instant),
    /// A beat began at this time, when the view had that revision.
    Commits(Instant, Revision, Answer<Revision>),
    /// A beat began at this time, and has this revision, which the view does not have yet.
    Travels(Instant, Revision),
}

/// The store is another one, or has gone back to an earlier state: its revisions are below those that the view has.
pub(super) struct WentBack;

impl<S: Store> Beat<S> {
    /// A beat on this store; `None` if no other server changes it.
    pub(super) fn on(store: &S) -> Option<Self> {
        let step = Step::Rests(Instant::now());
        store.is_shared().then(|| Self { store: store.clone(), step, has_failed: false, has_ended: false })
    }

    /// Takes all steps that need no waiting. Returns the time of the next call; before it, the store wakes the thread.
    ///
    /// # Errors
    /// [`WentBack`].
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

    /// Reports the end of the lease to the watcher, and its renewal. Returns the time of the next call.
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
