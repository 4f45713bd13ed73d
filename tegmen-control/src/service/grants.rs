//! Makes the grants of session keys durable, if the server does not share its store with other servers. A thread takes
//! all waiting session identities, makes them durable in one commit, and then writes their lines into the audit log.
//! After this, the thread does the same for the identities that arrived meanwhile.

use super::granted;
use crate::audit::{AuditLog, NotWritten, Record, Records, Then};
use crate::state::{AcceptedSession, ManySessions, State};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tegmen_host::server::Prepared;
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
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    /// The number of grants in `waiting`.
    count: usize,
    /// The number of waiting grants that is enough for the next commit.
    enough: usize,
    /// True from the beginning of a commit until the lines of its grants are durable in the audit log, or until the commit
    /// or the write of the lines has failed.
    in_progress: bool,
    /// An empty batch whose memory is used again.
    spare: Batch,
    closing: bool,
}

impl Queue {
    /// Returns the batch to which the next grant belongs.
    fn last(&mut self) -> &mut Batch {
        let Self { waiting, spare, .. } = self;
        if !waiting.back().is_some_and(|batch| batch.sessions.has_room()) {
            waiting.push_back(std::mem::take(spare));
        }
        waiting.back_mut().unwrap_or(spare)
    }

    /// Returns true if the next commit can begin now.
    const fn is_due(&self) -> bool {
        !self.in_progress && self.count > 0 && (self.closing || self.count >= self.enough)
    }
}

/// The grants that one commit makes durable.
#[derive(Default)]
struct Batch {
    sessions: ManySessions,
    /// The records of the grants for the audit log, and their responses.
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

    /// True if the queue has space for another grant. A server must not accept a session identity for which there is no
    /// space.
    pub(super) fn has_space(&self) -> bool {
        self.shared.lock().count < MOST_WAITING
    }

    /// Adds a grant. `prepare` prepares the response as [`AuditLog::write_then`] describes. The response is sent when
    /// both the session identity and the line of the log are durable, or when storing one of them has failed. `now` is
    /// in seconds since 1970. `message` is the text of the line.
    pub(super) fn push(
        &self,
        session: AcceptedSession,
        now: u64,
        message: String,
        prepare: impl FnOnce(&mut Prepared) -> Option<Then>,
    ) {
        let mut queue = self.shared.lock();
        let batch = queue.last();
        batch.sessions.add(&session);
        batch.records.push_awaited(&granted(session.subscriber, message), prepare);
        batch.now = now;
        queue.count = queue.count.saturating_add(1);
        let begins = queue.is_due() && queue.count == queue.enough.max(1);
        drop(queue);
        if begins {
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
        while let Some(mut batch) = self.next() {
            let count = batch.records.len();
            let shared = Arc::clone(self);
            batch.records.after_last(move || shared.end(count));
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

    /// Waits until the next commit can begin, and returns its grants. Returns `None` if no grant waits and the owner is being
    /// dropped.
    fn next(&self) -> Option<Batch> {
        let mut queue = self.lock();
        while !queue.is_due() {
            if queue.closing && queue.count == 0 {
                return None;
            }
            let gathers = queue.in_progress || queue.enough > 1;
            queue = if gathers {
                let is_early = |queue: &mut Queue| !queue.is_due();
                let (mut queue, waited) =
                    self.changed.wait_timeout_while(queue, GATHERING, is_early).unwrap_or_else(PoisonError::into_inner);
                if waited.timed_out() && !queue.in_progress {
                    queue.enough = 0;
                }
                queue
            } else {
                self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
            };
        }
        queue.in_progress = true;
        let batch = queue.waiting.pop_front()?;
        queue.count = queue.count.saturating_sub(batch.records.len());
        Some(batch)
    }

    /// Ends a commit of `count` grants, whose callers have their results.
    fn end(&self, count: usize) {
        let mut queue = self.lock();
        queue.in_progress = false;
        queue.enough = enough(count, queue.count);
        let begins = queue.is_due() || queue.closing;
        drop(queue);
        if begins {
            self.changed.notify_one();
        }
    }
}

/// Returns the number of waiting grants with which the next commit begins. The last commit had `count` grants, and
/// `waiting` grants came during this commit.
///
/// Many callers send their next request when they have their result. So about `count + waiting` callers send requests,
/// and the next commit begins when three quarters of them wait. The last quarter sends its requests while the commit is
/// in progress. If one commit served all callers, the thread that decides on requests would have nothing to do during the
/// commit. If each commit began at once, it would serve few callers, and a commit costs nearly as much time for few as for
/// many.
fn enough(count: usize, waiting: usize) -> usize {
    let callers = count.saturating_add(waiting);
    if callers < MANY { 0 } else { callers.saturating_sub(callers / 4).min(MOST_GATHERED) }
}

/// Maximum time for which a grant waits for further grants. The time begins after the previous commit in the store.
const GATHERING: Duration = Duration::from_millis(10);
/// Maximum number of grants that wait for a commit. More wait only while a disk does not answer.
const MOST_WAITING: usize = 4096;
/// If the last commit had fewer grants than this, the next grant does not wait for further grants.
const MANY: usize = 8;
/// If at least this number of grants wait, they are committed immediately, without a pause for further grants.
const MOST_GATHERED: usize = 1024;

#[cfg(test)]
mod tests;
