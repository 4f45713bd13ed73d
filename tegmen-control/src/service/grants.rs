//! Makes the grants of session keys durable, if the server does not share its store with other servers. A thread takes
//! all waiting session identities, makes them durable in one commit, and then writes their lines into the audit log.
//! After this, the thread does the same for the identities that arrived meanwhile.

use crate::audit::{AuditLog, NotWritten, Record, Records, Then};
use crate::state::{AcceptedSession, ManySessions, State};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tegmen_store::Store;
use tokio::runtime::Runtime;

/// The waiting grants, and the thread that makes them durable. When this value is dropped, the thread ends after the
/// last waiting grant.
pub(super) struct Grants {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// The number of grants that the thread has taken from the queue and whose callers have no result yet.
    in_progress: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    /// An empty batch whose memory is used again.
    spare: Batch,
    /// The number of waiting grants at which the thread begins the next commit without waiting for further grants.
    enough: usize,
    closing: bool,
}

/// The grants that one commit makes durable.
#[derive(Default)]
struct Batch {
    sessions: ManySessions,
    /// For each grant, its record for the audit log, and the function to call when the grant is durable or has failed.
    records: Records,
    /// The time of the last grant of the batch, in seconds since 1970.
    now: u64,
}

impl Grants {
    /// Starts the thread that makes grants durable.
    ///
    /// # Errors
    /// The error of the system if it cannot start the thread.
    pub(super) fn start<S: Store>(state: &Arc<State<S>>, audit: &AuditLog) -> std::io::Result<Self> {
        let (shared, state, audit) = (Arc::<Shared>::default(), Arc::clone(state), audit.clone());
        let of_thread = Arc::clone(&shared);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let thread = std::thread::Builder::new().name("tegmen-grants".to_owned());
        let thread = Some(thread.spawn(move || of_thread.run(&runtime, &state, &audit))?);
        Ok(Self { shared, thread })
    }

    /// Adds a grant. `then` is called once on another thread: when both the session identity and the line of the log
    /// are durable, or when storing one of them has failed. `then` must return quickly. `now` is in seconds since 1970.
    pub(super) fn push(&self, session: &AcceptedSession, now: u64, record: &Record, then: Then) {
        let mut queue = self.shared.lock();
        let is_first = queue.waiting.is_empty();
        let last = queue.waiting.pop_back_if(|batch| batch.sessions.has_room());
        let mut batch = last.unwrap_or_else(|| std::mem::take(&mut queue.spare));
        batch.sessions.add(session);
        batch.records.push(record, Some(then));
        batch.now = now;
        let is_full = batch.records.len() == queue.enough;
        queue.waiting.push_back(batch);
        drop(queue);
        if is_first || is_full {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<S: Store>(self: &Arc<Self>, runtime: &Runtime, state: &State<S>, audit: &AuditLog) {
        // The grants that were in flight at the last commit. Each caller whose grant was answered comes again, so the next grant
        // waits for as many others, and one commit serves all of them.
        let mut expected = 0;
        loop {
            let is_idle = |queue: &mut Queue| !queue.closing && queue.waiting.is_empty();
            let mut queue = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
            if expected >= MANY {
                let enough = expected.min(MOST_GATHERED);
                queue.enough = enough;
                let is_small = |queue: &mut Queue| {
                    !queue.closing && queue.waiting.front().is_some_and(|batch| batch.records.len() < enough)
                };
                let gathered = self.changed.wait_timeout_while(queue, GATHERING, is_small);
                queue = gathered.unwrap_or_else(PoisonError::into_inner).0;
            }
            let Some(mut batch) = queue.waiting.pop_front() else { return };
            drop(queue);
            let count = batch.records.len();
            expected = self.in_progress.fetch_add(count, Ordering::Relaxed).saturating_add(count);
            let shared = Arc::clone(self);
            batch.records.after_last(move || {
                shared.in_progress.fetch_sub(count, Ordering::Relaxed);
            });
            match runtime.block_on(state.bind_many(&batch.sessions, batch.now)) {
                Ok(()) => audit.write_all(&mut batch.records),
                Err(error) => {
                    for AcceptedSession { identity, subscriber, .. } in batch.sessions.sessions() {
                        audit.note(Record::refused(
                            &subscriber,
                            "not-stored",
                            &format!("the session {identity}: {error}"),
                        ));
                    }
                    batch.records.answer(&Err(NotWritten::NotStored(error)));
                }
            }
            batch.sessions.clear();
            self.lock().spare = batch;
        }
    }
}

/// Maximum time for which a grant waits for further grants.
const GATHERING: Duration = Duration::from_millis(2);
/// If fewer grants than this are in progress after a commit, the next grant does not wait for further grants.
const MANY: usize = 8;
/// If at least this number of grants wait, they are committed immediately, without a pause for further grants.
const MOST_GATHERED: usize = 256;
