//! The queue of future events: a heap that is sorted by time. Events of the same microsecond are in the order
//! in which they were planned.

use super::Micros;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A clear channel assessment of `node` ends. The node has a counter that increases when a medium access or a wait
    /// for an acknowledgement ends. `turn` is the value of this counter when the assessment was planned. The event is
    /// ignored if the counter has increased since then.
    Assessed { node: u32, turn: u32 },
    /// The radio of `node` has finished its change from receiving to sending.
    TurnedAround { node: u32 },
    /// The last bit of a frame was sent. `slot` is the index of the frame's slot on the air.
    FrameEnds { slot: u32 },
    /// The maximum time for which `node` waits for an acknowledgement is over. The node has a counter that increases
    /// when a medium access or a wait for an acknowledgement ends. `turn` is the value of this counter when the wait
    /// began. The event is ignored if the counter has increased since then.
    AcknowledgementMissing { node: u32, turn: u32 },
    /// From now on `node` may send its next frame.
    Ready { node: u32 },
    /// An alarm that `node` set. `token` is the value that the node gave when it set the alarm.
    Alarm { node: u32, token: u64 },
}

#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    planned: u64,
}

impl Queue {
    pub(super) fn plan(&mut self, at: Micros, event: Event) {
        self.heap.push(Reverse((at, self.planned, event)));
        self.planned += 1;
    }

    /// Removes and returns the next event. Returns `None` if the next event is later than `end`.
    pub(super) fn take(&mut self, end: Micros) -> Option<(Micros, Event)> {
        if self.heap.peek()?.0.0 > end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests;
