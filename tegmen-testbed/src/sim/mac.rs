//! The MAC of a station: unslotted CSMA/CA, acknowledgements, retransmissions (IEEE 802.15.4-2006, section 7.5).
//!
//! The states of a station follow each other: Idle -> Contends (a backoff and a channel assessment, which are repeated
//! while the channel is busy) -> TurnsToSend -> Sends -> AwaitsAcknowledgement -> Idle. A received frame that requests
//! an acknowledgement interrupts every state except sending: Acknowledges -> Idle. The medium access that was
//! interrupted then begins again.

use super::radio::{
    ACKNOWLEDGEMENT_WAIT, ASSESSMENT, BACKOFF, LONG_SPACING, SHORT_FRAME_LEN, SHORT_SPACING, TURNAROUND, airtime,
};
use super::random::Stream;
use super::{Activity, Event, Micros, Network, NodeId, Outcome, PAN, Told};
use std::collections::VecDeque;
use std::sync::Arc;
use tegmen_lowpan::frame::{self, Frame, FrameType, Header, LinkAddress};

/// A frame that waits in the queue of its sender.
pub(super) struct Outgoing {
    pub(super) ticket: u64,
    pub(super) header: Header,
    pub(super) psdu: Arc<[u8]>,
    pub(super) to: Option<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle,
    Contends,
    /// The radio changes from receiving to sending, and then sends the first frame in the queue.
    Sends,
    AwaitsAcknowledgement,
    /// The radio changes from receiving to sending, and then sends an acknowledgement with this sequence number.
    Acknowledges(u8),
}

pub(super) struct Station {
    pub(super) address: LinkAddress,
    pub(super) state: State,
    pub(super) sequence: u8,
    pub(super) activity: Activity,
    queue: VecDeque<Outgoing>,
    /// A counter that increases when a medium access or a wait for an acknowledgement ends. The events of a medium
    /// access or of such a wait are planned before they occur. A planned event contains the value that the counter had
    /// at this time. If the counter has increased since then, the event is ignored.
    turn: u32,
    backoffs: u8,
    exponent: u8,
    retries: u8,
    spacing_until: Micros,
    random: Stream,
    /// For each sender from which frames were received, the sequence number of its last frame.
    last: Vec<(LinkAddress, u8)>,
}

impl Station {
    pub(super) fn new(address: LinkAddress, random: Stream, sequence: u8) -> Self {
        Self {
            address,
            state: State::Idle,
            sequence,
            activity: Activity::default(),
            queue: VecDeque::new(),
            turn: 0,
            backoffs: 0,
            exponent: 0,
            retries: 0,
            spacing_until: 0,
            random,
            last: Vec::new(),
        }
    }

    /// Returns true if the frame has the same sequence number as the previous frame from the same sender.
    fn repeats(&mut self, header: &Header) -> bool {
        match self.last.iter_mut().find(|(from, _)| *from == header.source) {
            Some((_, sequence)) => std::mem::replace(sequence, header.sequence) == header.sequence,
            None => {
                self.last.push((header.source, header.sequence));
                false
            }
        }
    }
}

impl Network {
    pub(super) fn enqueue(&mut self, node: NodeId, outgoing: Outgoing) {
        self.stations[node].queue.push_back(outgoing);
        self.on_ready(node);
    }

    /// Begins the medium access for the next frame, if a frame waits and the station is idle.
    pub(super) fn on_ready(&mut self, node: NodeId) {
        let station = &self.stations[node];
        if station.state == State::Idle && !station.queue.is_empty() && self.now >= station.spacing_until {
            self.contend(node);
        }
    }

    /// Begins CSMA/CA for the next frame, as soon as the receiver of the station is on.
    fn contend(&mut self, node: NodeId) {
        let begin = self.now.max(self.air.listens_from(node));
        let exponent = self.radio.min_exponent;
        let station = &mut self.stations[node];
        station.state = State::Contends;
        (station.backoffs, station.exponent) = (0, exponent);
        if self.radio.deaf {
            self.air.deafen(node);
        }
        self.back_off(node, begin);
    }

    fn back_off(&mut self, node: NodeId, begin: Micros) {
        let station = &mut self.stations[node];
        let delay = station.random.below(1 << station.exponent) * BACKOFF;
        let event = Event::Assessed { node: node as u32, turn: station.turn };
        self.queue.plan(begin + delay + ASSESSMENT, event);
    }

    /// Ends a clear channel assessment, which averages the signal over eight symbols. A frame makes the channel busy
    /// only if it is still on the air at the end of the assessment. The average of a frame that ended earlier is
    /// assumed to be too weak.
    pub(super) fn on_assessed(&mut self, node: NodeId, turn: u32) {
        if self.stations[node].turn != turn {
            return;
        }
        let busy = self.is_busy(node);
        let (max_backoffs, max_exponent) = (self.radio.max_backoffs, self.radio.max_exponent);
        let station = &mut self.stations[node];
        if !busy {
            station.turn += 1;
            station.state = State::Sends;
            self.air.deafen(node);
            self.queue.plan(self.now + TURNAROUND, Event::TurnedAround { node: node as u32 });
            return;
        }
        station.backoffs += 1;
        station.exponent = (station.exponent + 1).min(max_exponent);
        if station.backoffs <= max_backoffs {
            self.back_off(node, self.now);
            return;
        }
        station.activity.busy += 1;
        self.finish(node, Outcome::ChannelBusy);
        self.listen_again(node, self.now);
        self.on_ready(node);
    }

    pub(super) fn on_turned_around(&mut self, node: NodeId) {
        match self.stations[node].state {
            State::Acknowledges(sequence) => {
                let header = Header::acknowledgement(sequence);
                let mut out = [0; frame::ACKNOWLEDGEMENT_LEN];
                if let Ok(psdu) = frame::write(&header, &[], &mut out) {
                    self.stations[node].activity.acknowledging += airtime(psdu.len());
                    let psdu = (*psdu).into();
                    self.launch(node, header, psdu, None);
                }
            }
            _ => {
                if let Some(first) = self.stations[node].queue.front() {
                    let (header, psdu, to) = (first.header, first.psdu.clone(), first.to);
                    self.launch(node, header, psdu, to);
                }
            }
        }
    }

    /// Handles the end of a frame that this station sent.
    pub(super) fn on_sent(&mut self, node: NodeId, header: &Header, len: usize) {
        let listens_from = self.now + TURNAROUND;
        self.air.listen(node, listens_from);
        let station = &mut self.stations[node];
        match (header.frame_type, header.acknowledge) {
            (FrameType::Acknowledgement, _) => {
                station.state = State::Idle;
                self.queue.plan(listens_from, Event::Ready { node: node as u32 });
            }
            (FrameType::Data, true) => {
                station.state = State::AwaitsAcknowledgement;
                let event = Event::AcknowledgementMissing { node: node as u32, turn: station.turn };
                self.queue.plan(self.now + ACKNOWLEDGEMENT_WAIT, event);
            }
            (FrameType::Data, false) => {
                self.finish(node, Outcome::Done);
                self.space(node, len);
            }
        }
    }

    /// Handles a received frame without bit errors. It is addressed to this station, or is an acknowledgement.
    pub(super) fn on_received(&mut self, node: NodeId, header: &Header, psdu: &[u8]) {
        let station = &mut self.stations[node];
        if header.frame_type == FrameType::Acknowledgement {
            let Some(awaited) = station.queue.front().filter(|_| station.state == State::AwaitsAcknowledgement) else {
                return;
            };
            station.turn += 1;
            // Another sequence number is a failure (section 7.5.6.4.3).
            if awaited.header.sequence != header.sequence {
                self.retry(node);
                return;
            }
            let len = awaited.psdu.len();
            station.activity.receiving += airtime(psdu.len());
            self.finish(node, Outcome::Done);
            self.space(node, len);
            return;
        }
        if !header.is_for(PAN, &station.address) {
            return;
        }
        station.activity.receiving += airtime(psdu.len());
        if header.acknowledge {
            station.turn += 1;
            // This station will now send an acknowledgement, so it cannot receive the acknowledgement for which it
            // waits.
            if station.state == State::AwaitsAcknowledgement {
                self.count_retry(node);
            }
            self.stations[node].state = State::Acknowledges(header.sequence);
            self.air.deafen(node);
            self.queue.plan(self.now + TURNAROUND, Event::TurnedAround { node: node as u32 });
        }
        if self.stations[node].repeats(header) && self.radio.rejects_duplicates {
            return;
        }
        if let Ok(Frame { payload, .. }) = Frame::parse(psdu) {
            self.told.push_back(Told::Received { node, from: header.source, payload: payload.to_vec() });
        }
    }

    pub(super) fn on_acknowledgement_missing(&mut self, node: NodeId, turn: u32) {
        let station = &mut self.stations[node];
        if station.turn == turn && station.state == State::AwaitsAcknowledgement {
            station.turn += 1;
            self.retry(node);
        }
    }

    /// Sends the first frame of the queue again. If it was sent too often, gives it up and continues with the next
    /// frame.
    fn retry(&mut self, node: NodeId) {
        self.stations[node].state = State::Idle;
        if self.count_retry(node) {
            self.contend(node);
        } else {
            self.on_ready(node);
        }
    }

    /// Counts a failed transmission of a frame. Returns false if the frame was sent too often and is given up.
    fn count_retry(&mut self, node: NodeId) -> bool {
        let max_retries = self.radio.max_retries;
        let station = &mut self.stations[node];
        if station.retries < max_retries {
            station.retries += 1;
            return true;
        }
        station.activity.unacknowledged += 1;
        self.finish(node, Outcome::NoAcknowledgement);
        false
    }

    /// Removes the first frame from the queue, and reports its outcome.
    fn finish(&mut self, node: NodeId, outcome: Outcome) {
        let station = &mut self.stations[node];
        station.state = State::Idle;
        station.retries = 0;
        station.turn += 1;
        if let Some(Outgoing { ticket, .. }) = station.queue.pop_front() {
            self.told.push_back(Told::Sent { node, ticket, outcome });
        }
    }

    /// Keeps the station from sending for a time that depends on the length of the frame which it has sent.
    fn space(&mut self, node: NodeId, len: usize) {
        let until = self.now + if len <= SHORT_FRAME_LEN { SHORT_SPACING } else { LONG_SPACING };
        self.stations[node].spacing_until = until;
        self.queue.plan(until, Event::Ready { node: node as u32 });
    }

    fn listen_again(&mut self, node: NodeId, from: Micros) {
        if self.radio.deaf {
            self.air.listen(node, from);
        }
    }
}
