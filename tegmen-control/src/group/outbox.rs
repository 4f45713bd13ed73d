//! The queue of messages that a controller has to send, with their order and their times.
//!
//! The messages of each change of a group are sent once, in the order of the changes. Only the messages of the last
//! change are then repeated. The wait doubles before each repetition. The repetitions end after a fixed number, or when
//! the group changes again. If several groups have messages, the controller sends one message of each group in turn.

use super::rekeying::{Outgoing, Rekeying};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Maximum number of changes of one group that wait to be sent for the first time. If there are more, the oldest
/// changes are dropped. Members then miss the epochs that the dropped changes began, and ask the controller for their
/// parameters.
const MOST_CHANGES: usize = 256;

/// Maximum number of bytes of the waiting messages of one group. If there are more bytes, the oldest changes are
/// dropped. The newest change is never dropped, although it may have a message for each member.
const MOST_BYTES: usize = 8 << 20;

/// The time after which messages are sent again if the system refused to send them.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The times at which the controller sends messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The time between two datagrams of the controller, for all groups together.
    pub interval: Duration,
    /// The number of repetitions of the messages of the last change; with 0 the messages are sent once.
    pub repetitions: u8,
    /// The time between the first transmission of the messages and their first repetition. The time before each further
    /// repetition is twice as long as the time before the previous repetition.
    pub wait: Duration,
}

impl Default for Pace {
    /// Returns 10 milliseconds between datagrams, and three repetitions, the first after 2 seconds.
    fn default() -> Self {
        Self { interval: Duration::from_millis(10), repetitions: 3, wait: Duration::from_secs(2) }
    }
}

/// Counters of events since the outbox was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// The number of epochs that the controller has begun.
    pub epochs: u64,
    /// The number of datagrams that the system has sent, including repetitions.
    pub messages: u64,
    /// The number of failures: messages that the system did not send, changes whose messages were not made or were
    /// dropped, and changes that failed in the background.
    pub failures: u64,
}

/// The queue of messages that wait to be sent. All clones share one queue.
#[derive(Clone, Default)]
pub struct Outbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// The signal that the queue has changed, so that [`Outbox::next`] may return other work.
    changed: Notify,
    epochs: AtomicU64,
    messages: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default)]
struct Queue {
    groups: HashMap<String, Waiting>,
    /// The groups, ordered by the time of their next message. Groups with the same time are in the order in which they
    /// were scheduled.
    due: BTreeMap<Turn, String>,
    turns: u64,
}

type Turn = (Instant, u64);

/// The messages of one group that wait to be sent.
#[derive(Default)]
struct Waiting {
    turn: Option<Turn>,
    /// True if the messages of the last change are not in memory, and must be made from the rows of the group in the
    /// store.
    from_rows: bool,
    /// The changes whose messages still have to be sent, the oldest first.
    passes: VecDeque<Pass>,
    /// True if a change was dropped. The value is false again when all messages of the group have been sent, with their
    /// repetitions.
    left_out: bool,
}

impl Waiting {
    fn is_too_much(&self) -> bool {
        let size = || self.passes.iter().map(|pass| pass.size).sum::<usize>();
        self.passes.len() > MOST_CHANGES || self.passes.len() > 1 && size() > MOST_BYTES
    }
}

/// A change whose messages are being sent.
struct Pass {
    epoch: u16,
    messages: Vec<Outgoing>,
    /// The number of bytes that the messages take in memory.
    size: usize,
    at: Position,
    /// True if the system refused to send a message to the address of the group in the present round. A round sends all
    /// messages of the change once.
    has_failed: bool,
    /// The tasks that are woken when all messages were sent once.
    waiting: Vec<oneshot::Sender<()>>,
}

/// The position of the next message among the messages of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Position {
    /// The number of complete rounds. In a round, the controller sends each message of the change once.
    round: u8,
    /// The number of messages of the change that the controller has sent in the present round.
    sent: usize,
}

/// The next message that the controller sends.
pub(super) struct Due {
    /// The name of the group.
    pub(super) group: String,
    /// The message.
    pub(super) message: Outgoing,
    epoch: u16,
    at: Position,
}

/// The next work of the task that sends the rekey messages in the queue.
pub(super) enum Next {
    /// Send this message, and then call [`Outbox::sent`].
    Message(Due),
    /// Make the messages of the last change of this group from its rows in the store.
    FromRows(String),
    /// There is no work before this time, unless the queue changes. `None` if the queue is empty.
    Nothing(Option<Instant>),
}

impl Outbox {
    /// Returns the counts.
    pub fn counts(&self) -> GroupCounts {
        let Shared { epochs, messages, failures, .. } = &*self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GroupCounts { epochs: read(epochs), messages: read(messages), failures: read(failures) }
    }

    /// Counts one failure.
    pub(super) fn fail(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one epoch that has begun.
    pub(super) fn begin_epoch(&self) {
        self.0.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until the queue has changed since the last call.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the messages of a change. An earlier change whose messages were already sent once is not repeated any more.
    pub(super) fn put(&self, group: &str, rekeying: &Rekeying, now: Instant) {
        let left_out = self.queue().put(group, rekeying, now);
        (0..left_out.changes).for_each(|_| self.fail());
        if left_out.is_first {
            tracing::error!(
                "groups: {group} changes faster than its rekey messages are sent; some members have to ask for their keys: \
                 send them at shorter intervals, or change the group less often"
            );
        }
        self.0.changed.notify_one();
    }

    /// Plans work for the time `at`: the sending task then makes the messages of the last change from the rows of the
    /// group, and sends them.
    pub(super) fn resume(&self, group: &str, at: Instant) {
        let mut queue = self.queue();
        queue.groups.entry(group.to_owned()).or_default().from_rows = true;
        queue.schedule(group, at);
        drop(queue);
        self.0.changed.notify_one();
    }

    /// Removes the messages of a deleted group, because a later group of this name has other messages.
    pub(super) fn forget(&self, group: &str) {
        self.queue().forget(group);
    }

    /// Returns the next work of the task that sends the rekey messages in the queue.
    pub(super) fn next(&self, now: Instant) -> Next {
        self.queue().next(now)
    }

    /// Records that the message that [`Self::next`] returned was sent. With `is_sent` false, records that the system
    /// refused to send it.
    pub(super) fn sent(&self, due: &Due, is_sent: bool, pace: &Pace, now: Instant) {
        let count = if is_sent { &self.0.messages } else { &self.0.failures };
        count.fetch_add(1, Ordering::Relaxed);
        self.queue().sent(due, is_sent, pace, now);
    }

    /// Waits until all messages of this epoch were sent once. Returns immediately if the queue does not contain these
    /// messages, or if they were already sent once.
    pub(super) async fn first_sent(&self, group: &str, epoch: u16) {
        let receiver = {
            let mut queue = self.queue();
            let waiting = queue.groups.get_mut(group);
            let passes = waiting.into_iter().flat_map(|waiting| &mut waiting.passes);
            let Some(pass) = passes.filter(|pass| pass.at.round == 0).find(|pass| pass.epoch == epoch) else { return };
            let (sender, receiver) = oneshot::channel();
            pass.waiting.push(sender);
            receiver
        };
        // A change that is dropped closes the channel.
        let _ = receiver.await;
    }
}

/// The changes whose messages one call of [`Queue::put`] dropped from the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeftOut {
    changes: usize,
    /// True if no earlier call has dropped changes of the group since the queue last contained no message of the group.
    is_first: bool,
}

impl Queue {
    /// Adds the messages of a change. If the limits are exceeded, drops the oldest changes. Returns the number of
    /// dropped changes in a [`LeftOut`].
    fn put(&mut self, group: &str, rekeying: &Rekeying, now: Instant) -> LeftOut {
        let Rekeying { epoch, messages, .. } = rekeying;
        let waiting = self.groups.entry(group.to_owned()).or_default();
        waiting.from_rows = false;
        waiting.passes.retain(|pass| pass.at.round == 0 && pass.epoch != *epoch);
        if !messages.is_empty() {
            let (at, messages) = (Position::default(), messages.clone());
            let size = messages.iter().map(|message| size_of::<Outgoing>().saturating_add(message.bytes.len())).sum();
            waiting.passes.push_back(Pass {
                epoch: *epoch,
                messages,
                size,
                at,
                has_failed: false,
                waiting: Vec::new(),
            });
        }
        let mut changes: usize = 0;
        while waiting.is_too_much() {
            waiting.passes.pop_front();
            changes = changes.saturating_add(1);
        }
        let is_first = changes > 0 && !std::mem::replace(&mut waiting.left_out, true);
        self.schedule(group, now);
        LeftOut { changes, is_first }
    }

    fn forget(&mut self, group: &str) {
        if let Some(turn) = self.groups.remove(group).and_then(|waiting| waiting.turn) {
            self.due.remove(&turn);
        }
    }

    /// Sets the time at which the next message of the group is due. Replaces the time that was set before. If the group
    /// has no messages, removes the group from the queue.
    fn schedule(&mut self, group: &str, at: Instant) {
        let Some(waiting) = self.groups.get_mut(group) else { return };
        if let Some(turn) = waiting.turn.take() {
            self.due.remove(&turn);
        }
        if waiting.passes.is_empty() && !waiting.from_rows {
            self.groups.remove(group);
            return;
        }
        self.turns = self.turns.wrapping_add(1);
        waiting.turn = Some((at, self.turns));
        self.due.insert((at, self.turns), group.to_owned());
    }

    fn next(&mut self, now: Instant) -> Next {
        let Some(first) = self.due.first_entry() else { return Next::Nothing(None) };
        let at = first.key().0;
        if at > now {
            return Next::Nothing(Some(at));
        }
        let group = first.remove();
        let Some(waiting) = self.groups.get_mut(&group) else { return Next::Nothing(Some(now)) };
        waiting.turn = None;
        if std::mem::take(&mut waiting.from_rows) {
            return Next::FromRows(group);
        }
        let due = |pass: &Pass| {
            let message = pass.messages.get(pass.at.sent)?.clone();
            Some(Due { group, message, epoch: pass.epoch, at: pass.at })
        };
        waiting.passes.front().and_then(due).map_or(Next::Nothing(Some(now)), Next::Message)
    }

    fn sent(&mut self, due: &Due, is_sent: bool, pace: &Pace, now: Instant) {
        let Some(waiting) = self.groups.get_mut(&due.group) else { return };
        let has_later = waiting.passes.len() > 1;
        // The change of `due` may have been dropped or replaced while its message was being sent.
        let is_it = |pass: &&mut Pass| (pass.epoch, pass.at) == (due.epoch, due.at);
        let Some(pass) = waiting.passes.front_mut().filter(is_it) else { return };
        pass.has_failed |= due.message.to.ip().is_multicast() && !is_sent;
        pass.at.sent = pass.at.sent.saturating_add(1);
        let mut next = now;
        if pass.at.sent >= pass.messages.len() {
            pass.waiting.clear();
            // While the system refuses a message to the group, all are sent again without an end.
            let has_failed = std::mem::take(&mut pass.has_failed);
            let (is_over, wait) = match has_failed {
                true => (false, pace.wait.max(AFTER_FAILURE)),
                false => (pass.at.round >= pace.repetitions, pace.wait.saturating_mul(1 << pass.at.round.min(16))),
            };
            let round = if has_failed { pass.at.round.max(1) } else { pass.at.round.saturating_add(1) };
            pass.at = Position { round, sent: 0 };
            next = now.checked_add(wait).unwrap_or(now);
            if has_later || is_over {
                waiting.passes.pop_front();
                waiting.left_out &= has_later;
                next = now;
            }
        }
        self.schedule(&due.group, next);
    }
}

#[cfg(test)]
mod tests;
