//! The thread that applies the changes of the store to the view.

use super::rows;
use super::view::View;
use super::{Event, StateFault, Watcher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use tegmen_store::store::Changes;
use tegmen_store::store::answer::{Answer, Promise, promise};
use tegmen_store::{Revision, Store, StoreError};

/// Changes that are asked for at once, rounded up to whole revisions.
const MOST: usize = 256;
/// The pause after the store was not available.
const PAUSE: Duration = Duration::from_millis(500);

/// The state that the thread and its owner share.
pub(super) struct Shared {
    pub(super) view: Mutex<View>,
    waiting: Mutex<Vec<(Revision, Promise<()>)>>,
    stop: AtomicBool,
    watcher: Watcher,
}

/// The thread. It ends when this is dropped.
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
    /// Returns when the view has the changes of this revision.
    pub(super) fn reached(&self, revision: Revision) -> Answer<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.view.lock().unwrap_or_else(PoisonError::into_inner).at() >= revision {
            return Answer::of(Ok(()));
        }
        let (promise, answer) = promise();
        // Without a thread that follows, the promise is dropped, and the answer is an error.
        if !self.stop.load(Ordering::Acquire) {
            waiting.push((revision, promise));
        }
        answer
    }

    /// Takes everything from the view, which missed changes: it decides on nothing. Calls that wait for it fail.
    fn lose(&self) {
        self.stop.store(true, Ordering::Release);
        self.view.lock().unwrap_or_else(PoisonError::into_inner).lose();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn follow(&self, store: &impl Store) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut after = self.view.lock().unwrap_or_else(PoisonError::into_inner).at();
        while let Some(changes) = self.wait(store.changes(rows::ALL.as_bytes(), after, MOST), &waker) {
            match changes {
                Ok(changes) => {
                    after = changes.through;
                    self.apply(&changes);
                }
                Err(StoreError::Compacted { .. }) => {
                    self.lose();
                    (self.watcher)(Event::Lost);
                    return;
                }
                Err(error) => {
                    (self.watcher)(Event::Unavailable(&error));
                    std::thread::park_timeout(PAUSE);
                }
            }
        }
    }

    fn apply(&self, changes: &Changes) {
        let (faults, concerned) = {
            let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Waits for an answer; `None` if the owner ends the thread.
    fn wait<T>(&self, answer: Answer<T>, waker: &Waker) -> Option<Result<T, StoreError>> {
        let mut answer = pin!(answer);
        loop {
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            match answer.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(result) => return Some(result),
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

/// Wakes a thread that waits for an answer.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
