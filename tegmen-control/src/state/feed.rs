//! The thread that applies the changes of the store to the view, which is the copy of the store in memory.

use super::beat::{Around, Beat, WentBack};
use super::rows;
use super::view::View;
use super::{Event, StateFault, Watcher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use tegmen_store::store::Changes;
use tegmen_store::store::answer::{Answer, Promise, promise};
use tegmen_store::{Revision, Store, StoreError};

/// The number of changes after which the store ends an answer. An answer contains either all changes of a revision or
/// none of them, so it may contain more changes than this number.
const MOST: usize = 256;
/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_millis(500);

/// The data that the thread of a [`Feed`] shares with the owner of the feed.
pub(super) struct Shared {
    view: Mutex<View>,
    waiting: Mutex<Vec<(Revision, Promise<()>)>>,
    stop: AtomicBool,
    watcher: Watcher,
}

/// The thread that applies the changes of the store to the [`View`], which is the copy of the store in memory. The
/// thread ends when this value is dropped.
pub(super) struct Feed {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    pub(super) fn start(store: impl Store, view: View, watcher: Watcher) -> std::io::Result<Self> {
        let stop = AtomicBool::new(false);
        let shared = Arc::new(Shared { view: Mutex::new(view), waiting: Mutex::default(), stop, watcher });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tegmen-access".to_owned());
        let thread = Some(thread.spawn(move || of_thread.follow(&store))?);
        Ok(Self { shared, thread })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Returns the values that a [`Beat`] needs: the view, and the function that receives the events of the state.
    pub(super) const fn around(&self) -> Around<'_> {
        Around { view: &self.view, watcher: &self.watcher }
    }

    pub(super) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an answer that arrives as soon as the view, the copy of the store in memory, contains all changes up to
    /// `revision`.
    pub(super) fn reached(&self, revision: Revision) -> Answer<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.view().at() >= revision {
            return Answer::of(Ok(()));
        }
        let (promise, answer) = promise();
        // Without a thread that follows, the promise is dropped, and the answer is an error.
        if !self.stop.load(Ordering::Acquire) {
            waiting.push((revision, promise));
        }
        answer
    }

    /// Removes the content of the view, because the view missed changes. The view then refuses everything. Calls that
    /// wait for a revision of the view fail.
    fn lose(&self) {
        self.stop.store(true, Ordering::Release);
        self.view().lose();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn follow(&self, store: &impl Store) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut after = self.view().at();
        let mut beat = Beat::on(store);
        loop {
            let changes = store.changes(rows::ALL.as_bytes(), after, MOST);
            match self.wait(changes, &mut beat, &waker) {
                Waited::Answered(Ok(changes)) => {
                    after = changes.through;
                    self.apply(&changes);
                }
                Waited::Stopped => return,
                Waited::WentBack | Waited::Answered(Err(StoreError::Compacted { .. } | StoreError::NotYet { .. })) => {
                    self.lose();
                    (self.watcher)(Event::Lost);
                    return;
                }
                Waited::Answered(Err(error)) => {
                    (self.watcher)(Event::Unavailable(&error));
                    std::thread::park_timeout(PAUSE);
                }
            }
        }
    }

    fn apply(&self, changes: &Changes) {
        let (faults, concerned) = {
            let mut view = self.view();
            (view.apply(&changes.changes, changes.through), view.take_concerned())
        };
        faults.iter().for_each(|fault: &StateFault| (self.watcher)(Event::Fault(fault)));
        if !concerned.is_empty() {
            (self.watcher)(Event::Revocations(&concerned));
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, promise) in waiting.extract_if(.., |(revision, _)| *revision <= changes.through) {
            promise.answer(Ok(()));
        }
    }

    /// Waits for changes from the store. Meanwhile advances `beat`, which writes to the store once a second. By this
    /// write the server checks that its view (its copy of the store in memory) is current.
    fn wait<S: Store>(&self, answer: Answer<Changes>, beat: &mut Option<Beat<S>>, waker: &Waker) -> Waited {
        let mut answer = pin!(answer);
        let mut cx = Context::from_waker(waker);
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Waited::Stopped;
            }
            let next = match beat.as_mut().map(|beat| beat.turn(self.around(), &mut cx)).transpose() {
                Ok(next) => next,
                Err(WentBack) => return Waited::WentBack,
            };
            match (answer.as_mut().poll(&mut cx), next) {
                (Poll::Ready(result), _) => return Waited::Answered(result),
                (Poll::Pending, None) => std::thread::park(),
                (Poll::Pending, Some(next)) => {
                    std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
                }
            }
        }
    }
}

/// The reason why [`Shared::wait`] returns.
enum Waited {
    Answered(Result<Changes, StoreError>),
    /// The owner of the [`Feed`] has dropped it, so the thread must end.
    Stopped,
    WentBack,
}

/// A waker that unparks a thread. The thread is parked while it waits for an answer.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
