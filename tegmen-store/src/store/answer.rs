//! The results of calls of a store. A result arrives after the call has returned. A thread can block until the result
//! arrives, and a task of any asynchronous runtime can await it.

use super::StoreError;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The future result of a call of a store. A task awaits it, a thread calls [`Self::wait`]. Dropping the answer does
/// not cancel the call.
#[must_use = "the result of the call is unknown before its answer"]
pub struct Answer<T>(Arc<Shared<T>>);

/// The sending half of an [`Answer`]. A driver keeps the promise until it knows the result. If the driver drops the
/// promise without a result, the answer is [`StoreError::Unavailable`].
pub struct Promise<T>(Option<Arc<Shared<T>>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

enum State<T> {
    Waiting(Option<Waker>),
    Ready(Result<T, StoreError>),
    Taken,
}

/// Returns a promise and its answer.
pub fn promise<T>() -> (Promise<T>, Answer<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::Waiting(None)), ready: Condvar::new() });
    (Promise(Some(shared.clone())), Answer(shared))
}

impl<T> Answer<T> {
    /// Returns an answer that already has this result.
    pub fn of(result: Result<T, StoreError>) -> Self {
        Self(Arc::new(Shared { state: Mutex::new(State::Ready(result)), ready: Condvar::new() }))
    }

    /// Blocks the thread until the result arrives, and returns the result.
    ///
    /// # Errors
    /// The [`StoreError`] of the call.
    pub fn wait(self) -> Result<T, StoreError> {
        let mut state = self.0.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Ready(result) => return result,
                State::Taken => return Err(StoreError::taken()),
                waiting @ State::Waiting(_) => *state = waiting,
            }
            state = self.0.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            State::Taken => Poll::Ready(Err(StoreError::taken())),
            State::Waiting(_) => {
                *state = State::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> Promise<T> {
    /// Sends the result to the answer.
    pub fn answer(mut self, result: Result<T, StoreError>) {
        if let Some(shared) = self.0.take() {
            shared.answer(result);
        }
    }

    /// Returns true if the [`Answer`] still exists, and false if it was dropped.
    pub fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.answer(Err(StoreError::closed()));
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, result: Result<T, StoreError>) {
        let before = std::mem::replace(&mut *self.lock(), State::Ready(result));
        self.ready.notify_one();
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}
