//! The messages that wait to be sent, in their order and at their time.
//!
//! The messages of a change are sent once in their order, and the messages of later changes of the group follow them. Those of the
//! last change are then sent again, each time after twice the wait of the time before, until the repetitions are over or another
//! change is made. Groups take turns.

use super::rekeying::{Outgoing, Rekeying};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Changes of one group whose messages wait to be sent for the first time. The members miss the oldest of more changes, and ask
/// the controller for their parameters.
const MOST_CHANGES: usize = 256;

/// Maximum number of bytes of the waiting messages of one group. If there are more, the members miss the oldest changes here too,
/// but never the newest change, which may have a message for each member.
const MOST_BYTES: usize = 8 << 20;

/// Time after which messages are sent again that the system refused.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The times at which messages are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Time between two datagrams of the controller, to whichever groups they go.
    pub interval: Duration,
    /// Number of times that the messages of the last change are sent again; 0 sends them once.
    pub repetitions: u8,
    /// Time before the first repetition. The time before each further one is twice as long.
    pub wait: Duration,
}

impl Default for Pace {
    /// 10 milliseconds, and three repetitions, the first after 2 seconds.
    fn default() -> Self {
        Self { interval: Duration::from_millis(10), repetitions: 3, wait: Duration::from_secs(2) }
    }
}

/// Counts since the outbox was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupCounts {
    /// Epochs that the controller has begun.
    pub epochs: u64,
    /// Datagrams that the system has sent, those of repetitions as well.
    pub messages: u64,
    /// Messages that the system did not send, changes whose messages were not made or were left out, and changes that failed in
    /// the background.
    pub failures: u64,
}

/// The messages that wait to be sent. Its clones are the same outbox.
#[derive(Clone, Default)]
pub struct Outbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// The queue has other work than before.
    changed: Notify,
    epochs: AtomicU64,
    messages: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default)]
struct Queue {
    groups: HashMap<String, Waiting>,
    /// The groups by the time of their next message; those of one time in the order of their turns.
    due: BTreeMap<Turn, String>,
    turns: u64,
}

type Turn = (Instant, u64);

/// The work for one group.
#[derive(Default)]
struct Waiting {
    turn: Option<Turn>,
    /// True if the messages of the last change have to be made from the rows.
    from_rows: bool,
    /// Changes in their order.
    passes: VecDeque<Pass>,
    /// True if a change was dropped since the messages of all changes were sent.
    left_out: bool,
}

impl Waiting {
    fn is_too_much(&self) -> bool {
        let size = || self.passes.iter().map(|pass| pass.size).sum::<usize>();
        self.passes.len() > MOST_CHANGES || self.passes.len() > 1 && size() > MOST_BYTES
    }
}

/// The messages of a change, which are being sent.
struct Pass {
    epoch: u16,
    messages: Vec<Outgoing>,
    /// Bytes of memory of the messages.
    size: usize,
    at: Position,
    /// True if a message to the group was not sent this time.
    has_failed: bool,
    /// Those who wait until all messages were sent once.
    waiting: Vec<oneshot::Sender<()>>,
}

/// The place of a message among those of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Position {
    /// The number of times that all messages were sent.
    round: u8,
    /// The number of messages that were sent this time.
    sent: usize,
}

/// A message to send.
pub(super) struct Due {
    /// The group.
    pub(super) group: String,
    /// The message.
    pub(super) message: Outgoing,
    epoch: u16,
    at: Position,
}

/// The next work of the sender.
pub(super) enum Next {
    /// Send this message, and then call [`Outbox::sent`].
    Message(Due),
    /// Make the messages of the last change of this group from the rows.
    FromRows(String),
    /// Nothing is due before this time, or before the queue changes.
    Nothing(Option<Instant>),
}

impl Outbox {
    /// Returns the counts.
    pub fn counts(&self) -> GroupCounts {
        let Shared { epochs, messages, failures, .. } = &*self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GroupCounts { epochs: read(epochs), messages: read(messages), failures: read(failures) }
    }

    /// Counts a failure.
    pub(super) fn fail(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an epoch.
    pub(super) fn begin_epoch(&self) {
        self.0.epochs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when the queue has changed since the last call.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the messages of a change. They replace the repetitions of an earlier one.
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

    /// Has the messages of the last change made from the rows at this time, and sent.
    pub(super) fn resume(&self, group: &str, at: Instant) {
        let mut queue = self.queue();
        queue.groups.entry(group.to_owned()).or_default().from_rows = true;
        queue.schedule(group, at);
        drop(queue);
        self.0.changed.notify_one();
    }

    /// Forgets the messages of a group that is deleted: a later one of this name has others.
    pub(super) fn forget(&self, group: &str) {
        self.queue().forget(group);
    }

    /// Returns the next work.
    pub(super) fn next(&self, now: Instant) -> Next {
        self.queue().next(now)
    }

    /// Notes that the message of [`Self::next`] was sent, or that the system refused it.
    pub(super) fn sent(&self, due: &Due, is_sent: bool, pace: &Pace, now: Instant) {
        let count = if is_sent { &self.0.messages } else { &self.0.failures };
        count.fetch_add(1, Ordering::Relaxed);
        self.queue().sent(due, is_sent, pace, now);
    }

    /// Returns when the messages of this epoch were sent once, or do not wait to be sent.
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

/// The changes that were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeftOut {
    changes: usize,
    /// True if none was dropped before, since the messages of all changes were sent.
    is_first: bool,
}

impl Queue {
    /// Takes the messages of a change. Returns the oldest changes that were dropped for it.
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

    /// Gives a group its next turn, in the place of another one.
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
        // Another change may have replaced this one meanwhile.
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
