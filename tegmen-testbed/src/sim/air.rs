//! The air: the frames that are being sent, the nodes that hear each frame, and the effect of interference.
//!
//! A listening radio locks on to a frame when it finds the preamble of the frame. It then receives this frame to its
//! end, even if other frames begin meanwhile. Each frame that begins or ends divides the reception into parts, because
//! the interference changes. Bit errors are random in each part, according to the interference.

use super::links::Links;
use super::mac::State;
use super::radio::{BUSY_DBM, LOCK_SINR, NOISE_DBM, airtime, milliwatts, survival};
use super::random::{Purpose, Stream};
use super::{Captured, Event, Micros, Network, NodeId};
use std::sync::Arc;
use tegmen_lowpan::frame::Header;

pub(super) struct Air {
    /// The frames on the air. Each frame has a slot; a slot without a frame is `None`.
    slots: Vec<Option<Flying>>,
    flying: usize,
    noise: f64,
    busy: f64,
    audiences: Vec<Box<[u32]>>,
    receivers: Vec<Receiver>,
    /// The random streams that decide the bit errors at each receiver. They are stored apart from [`Receiver`], because
    /// the simulation examines all receivers for every frame, but needs random bit errors for few of them.
    errors: Vec<Stream>,
    weather: Weather,
}

struct Flying {
    from: NodeId,
    header: Header,
    psdu: Arc<[u8]>,
    /// The node to which the frame is addressed; `None` for a broadcast or an acknowledgement.
    to: Option<NodeId>,
}

/// The receiving part of a node's radio.
struct Receiver {
    /// The virtual time in microseconds from which the receiver can lock on to a frame. It cannot lock on while the
    /// radio sends, or changes between receiving and sending.
    listens_from: Micros,
    lock: Option<Lock>,
}

struct Lock {
    slot: usize,
    /// The virtual time in microseconds up to which the simulator has drawn the bit errors of the frame.
    judged: Micros,
    intact: bool,
}

impl Air {
    pub(super) fn new(seed: u64, links: &Links) -> Self {
        let nodes = links.nodes();
        let audience = |node| links.audience(node).map(|heard| heard as u32).collect();
        Self {
            slots: Vec::new(),
            flying: 0,
            noise: milliwatts(NOISE_DBM),
            busy: milliwatts(BUSY_DBM),
            audiences: (0..nodes).map(audience).collect(),
            receivers: (0..nodes).map(|_| Receiver { listens_from: 0, lock: None }).collect(),
            errors: (0..nodes).map(|node| Stream::new(seed, node, Purpose::BitErrors)).collect(),
            weather: Weather::new(seed, links),
        }
    }

    /// Turns the receiver of `node` off, until [`Self::listen`] is called.
    pub(super) fn deafen(&mut self, node: NodeId) {
        self.receivers[node].listens_from = Micros::MAX;
        self.receivers[node].lock = None;
    }

    /// Lets the receiver of `node` lock on to frames from the time `from` on.
    pub(super) fn listen(&mut self, node: NodeId, from: Micros) {
        self.receivers[node].listens_from = from;
    }

    /// Returns the time from which the receiver of `node` can lock on to a frame.
    pub(super) fn listens_from(&self, node: NodeId) -> Micros {
        self.receivers[node].listens_from
    }

    /// Returns the sum of the power at `node` of all frames on the air. `without` is an index of `slots`. The frame at
    /// this index is left out.
    fn power(&self, links: &Links, node: NodeId, without: usize) -> f64 {
        let others = self.slots.iter().enumerate().filter(|(slot, _)| *slot != without);
        others.filter_map(|(_, flying)| flying.as_ref()).map(|flying| links.power(flying.from, node)).sum()
    }

    /// Decides whether the frame that `node` receives got bit errors in the time since the last decision.
    fn judge(&mut self, links: &Links, now: Micros, node: NodeId) {
        let Some(lock) = &self.receivers[node].lock else { return };
        let (slot, judged) = (lock.slot, lock.judged);
        let Some(flying) = self.slots.get(slot).and_then(Option::as_ref) else { return };
        if flying.to.is_some_and(|to| to != node) {
            return; // a frame for another node only keeps the receiver busy
        }
        let sinr = links.power(flying.from, node) / (self.noise + self.power(links, node, slot));
        // If fewer than one frame in ten million would get a bit error, no random number is used.
        let spoiled = sinr < CLEAN_SINR
            && self.errors[node].unit() >= survival(sinr, ((now - judged) * BITS_PER_MILLISECOND).div_ceil(1000));
        if let Some(lock) = &mut self.receivers[node].lock {
            lock.judged = now;
            lock.intact &= !spoiled;
        }
    }
}

impl Network {
    /// Returns true if the channel is busy for `node`: its radio receives a frame, or detects enough energy.
    pub(super) fn is_busy(&self, node: NodeId) -> bool {
        self.air.receivers[node].lock.is_some()
            || (self.air.flying > 0 && self.air.power(&self.links, node, usize::MAX) >= self.air.busy)
    }

    /// Puts a frame on the air. Radios that can receive it lock on to it.
    pub(super) fn launch(&mut self, from: NodeId, header: Header, psdu: Arc<[u8]>, to: Option<NodeId>) {
        let (now, air, links) = (self.now, &mut self.air, &self.links);
        let lonely = air.flying == 0;
        if !lonely {
            // The new frame changes the interference. So the previous part of the reception ends at all nodes that
            // receive a frame.
            let audience = std::mem::take(&mut air.audiences[from]);
            audience.iter().for_each(|node| air.judge(links, now, *node as usize));
            air.audiences[from] = audience;
        }
        let duration = airtime(psdu.len());
        let slot = air.slots.iter().position(Option::is_none).unwrap_or(air.slots.len());
        for node in &air.audiences[from] {
            let node = *node as usize;
            let receiver = &air.receivers[node];
            if receiver.lock.is_some() || receiver.listens_from > now {
                continue;
            }
            let interference = if lonely { 0.0 } else { air.power(links, node, usize::MAX) };
            if links.power(from, node) / (air.noise + interference) > LOCK_SINR {
                air.receivers[node].lock = Some(Lock { slot, judged: now, intact: true });
            }
        }
        if let Some(capture) = &mut self.capture {
            capture.push(Captured { at: now, from, psdu: psdu.to_vec() });
        }
        let flying = Some(Flying { from, header, psdu, to });
        match air.slots.get_mut(slot) {
            Some(place) => *place = flying,
            None => air.slots.push(flying),
        }
        air.flying += 1;
        let activity = &mut self.stations[from].activity;
        activity.frames += 1;
        activity.sending += duration;
        self.queue.plan(now + duration, Event::FrameEnds { slot: slot as u32 });
    }

    /// Ends the frame in a slot: first for its sender, and then for all nodes that have received it.
    pub(super) fn on_frame_ends(&mut self, slot: usize) {
        let Some(from) = self.air.slots.get(slot).and_then(Option::as_ref).map(|flying| flying.from) else { return };
        let audience = std::mem::take(&mut self.air.audiences[from]);
        // Bit errors are computed for the addressed node. A broadcast frame concerns all nodes, and an acknowledgement
        // concerns the nodes that wait for one. Bit errors are also computed for a node that receives another frame at
        // the same time.
        let alone = self.air.flying == 1;
        let acknowledgement = self.air.slots[slot].as_ref().is_some_and(|flying| flying.header.source.is_empty());
        let mut received: Vec<(NodeId, bool)> = Vec::new();
        for node in audience.iter().map(|node| *node as usize) {
            let Some(lock) = &self.air.receivers[node].lock else { continue };
            if lock.slot != slot {
                if !alone && !self.radio.forgets_interference {
                    self.air.judge(&self.links, self.now, node);
                }
                continue;
            }
            let flying = self.air.slots[slot].as_ref();
            let concerned = match flying.and_then(|flying| flying.to) {
                Some(to) => to == node,
                None => !acknowledgement || self.stations[node].state == State::AwaitsAcknowledgement,
            };
            if concerned {
                self.air.judge(&self.links, self.now, node);
                let intact = self.air.receivers[node].lock.as_ref().is_some_and(|lock| lock.intact);
                received.push((node, intact));
            } else {
                let len = flying.map_or(0, |flying| flying.psdu.len());
                self.stations[node].activity.overhearing += airtime(len);
            }
            self.air.receivers[node].lock = None;
        }
        self.air.audiences[from] = audience;
        let Some(flying) = self.air.slots[slot].take() else { return };
        self.air.flying -= 1;
        self.on_sent(from, &flying.header, flying.psdu.len());
        for (node, intact) in received {
            if intact && !self.air.weather.loses(&self.links, self.now, from, node) {
                self.on_received(node, &flying.header, &flying.psdu);
            }
        }
    }
}

/// The losses of frames on links for another reason than interference.
struct Weather {
    losses: Vec<Stream>,
    links: Vec<Option<Box<Sky>>>,
    nodes: usize,
}

/// The current good or bad period of one link.
struct Sky {
    bad: bool,
    until: Micros,
    times: Stream,
}

impl Weather {
    fn new(seed: u64, links: &Links) -> Self {
        let nodes = links.nodes();
        let sky = |index: usize| {
            let (from, to) = (index / nodes, index % nodes);
            let bursts = links.bursts(from, to)?;
            let mut times = Stream::of_pair(seed, to, from + 1, Purpose::Bursts);
            // At the beginning of the run, the link is in a bad period with the probability that it has in the long
            // run.
            let bad = times.unit() * (bursts.good + bursts.bad) as f64 >= bursts.good as f64;
            let until = span(&mut times, if bad { bursts.bad } else { bursts.good });
            Some(Box::new(Sky { bad, until, times }))
        };
        Self {
            losses: (0..nodes).map(|node| Stream::new(seed, node, Purpose::Loss)).collect(),
            links: (0..nodes * nodes).map(sky).collect(),
            nodes,
        }
    }

    fn loses(&mut self, links: &Links, now: Micros, from: NodeId, to: NodeId) -> bool {
        let mut loss = links.loss(from, to);
        if let (Some(bursts), Some(Some(sky))) = (links.bursts(from, to), self.links.get_mut(from * self.nodes + to)) {
            while sky.until <= now {
                sky.bad = !sky.bad;
                sky.until += span(&mut sky.times, if sky.bad { bursts.bad } else { bursts.good });
            }
            if sky.bad {
                loss = bursts.loss;
            }
        }
        loss > 0.0 && self.losses[to].unit() < loss
    }
}

/// Returns a random duration of at least a microsecond. Its distribution is exponential with this mean.
fn span(times: &mut Stream, mean: Micros) -> Micros {
    (-(1.0 - times.unit()).ln() * mean as f64) as Micros + 1
}

/// Number of bits that are sent in a millisecond, at 250 kbit/s.
const BITS_PER_MILLISECOND: u64 = 250;
/// The ratio of the signal to noise and interference above which bit errors are ignored. At this ratio fewer than one
/// in ten million frames of 127 bytes are lost.
const CLEAN_SINR: f64 = 4.0;
