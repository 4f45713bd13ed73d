//! The queue of future events: a heap that is sorted by time. Events of the same microsecond are in the order in which
//! they were planned.

use super::Micros;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A clear channel assessment ends. `turn` belongs to its medium access, which may have ended.
    Assessed { node: u32, turn: u32 },
    /// The radio has turned from receiving to sending.
    TurnedAround { node: u32 },
    /// The last bit of a frame was sent. `slot` is the frame's slot on the air.
    FrameEnds { slot: u32 },
    /// No acknowledgement arrived in time.
    AcknowledgementMissing { node: u32, turn: u32 },
    /// The station can send its next frame.
    Ready { node: u32 },
    /// The alarm of a node.
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

    /// Returns the next event, if it is not later than `end`.
    pub(super) fn take(&mut self, end: Micros) -> Option<(Micros, Event)> {
        if self.heap.peek()?.0.0 > end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests;
