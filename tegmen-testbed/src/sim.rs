//! A radio network in virtual time: IEEE 802.15.4 at 2.4 GHz, unslotted CSMA/CA, in whole microseconds.
//!
//! [`Network`] owns the clock, the air and a station for each node. The caller owns the programs of the nodes:
//!
//! * [`Network::send`] passes a payload to a station, and [`Network::alarm`] sets a timer for a node.
//! * [`Network::next`] lets time pass until the next event that a node receives ([`Told`]).
//!
//! All random numbers come from one ChaCha8 stream for each node and purpose ([`random`]). Events at the same
//! microsecond happen in the order in which they were planned, and no code iterates over a hash map. So the same seed
//! gives the same bytes on every machine. `docs/lab.md` describes how the simulator was compared with ns-3, and where
//! they differ.
mod air;
pub mod links;
mod mac;
mod queue;
pub mod radio;
pub mod random;
#[cfg(test)]
mod tests;

pub use links::{Bursts, Links};
pub use radio::Radio;

use mac::Station;
use queue::{Event, Queue};
use random::{Purpose, Stream};
use std::collections::{BTreeMap, VecDeque};
use tegmen_lowpan::frame::{self, LinkAddress, PanId};

/// A point or a span of virtual time, in microseconds.
pub type Micros = u64;

/// The number of a node, which is its index in the list, from 0.
pub type NodeId = usize;

/// An event that a node receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The node received a data frame.
    Received {
        /// The node.
        node: NodeId,
        /// The sender over this hop.
        from: LinkAddress,
        /// The payload of the frame.
        payload: Vec<u8>,
    },
    /// The transmission of a payload has ended.
    Sent {
        /// The node.
        node: NodeId,
        /// The return value of [`Network::send`].
        ticket: u64,
        /// The result.
        outcome: Outcome,
    },
    /// An alarm that the node set.
    Alarm {
        /// The node.
        node: NodeId,
        /// The value that the node gave when it set the timer.
        token: u64,
    },
}

/// The result of a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The frame was acknowledged, or needed no acknowledgement.
    Done,
    /// No retransmission was acknowledged.
    NoAcknowledgement,
    /// The channel was busy each time.
    ChannelBusy,
}

/// The activity of a station, from which energy and time are computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Number of sent frames, including acknowledgements.
    pub frames: u64,
    /// Time on air as the sender, including preambles.
    pub sending: Micros,
    /// Time on air of sent acknowledgements, which is part of [`Self::sending`].
    pub acknowledging: Micros,
    /// Time on air of the frames for this station that it received completely, including acknowledgements.
    pub receiving: Micros,
    /// Time on air of the frames for other stations that this station received to their end.
    pub overhearing: Micros,
    /// Number of frames that were given up because the channel was busy.
    pub busy: u64,
    /// Number of frames that were given up without acknowledgement.
    pub unacknowledged: u64,
}

/// A captured frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The time at which the first bit was sent.
    pub at: Micros,
    /// The sender of the frame.
    pub from: NodeId,
    /// The frame, including its FCS.
    pub psdu: Vec<u8>,
}

/// The nodes, the air between them, and the clock.
pub struct Network {
    now: Micros,
    radio: Radio,
    links: Links,
    queue: Queue,
    stations: Vec<Station>,
    by_address: BTreeMap<LinkAddress, NodeId>,
    air: air::Air,
    told: VecDeque<Told>,
    next_ticket: u64,
    capture: Option<Vec<Captured>>,
    events: u64,
}

impl Network {
    /// Makes a network of nodes with the addresses 1, 2, ..., with one node for each node of `links`.
    pub fn new(seed: u64, radio: Radio, links: Links) -> Self {
        let address = |node: NodeId| LinkAddress::Short(node as u16 + 1);
        let addresses: Vec<_> = (0..links.nodes()).map(address).collect();
        Self::with_addresses(seed, radio, links, &addresses)
    }

    /// Makes a network of nodes with these addresses.
    ///
    /// # Panics
    /// If there is not one address for each node.
    pub fn with_addresses(seed: u64, radio: Radio, links: Links, addresses: &[LinkAddress]) -> Self {
        assert_eq!(addresses.len(), links.nodes(), "an address for each node");
        let stations = addresses.iter().enumerate().map(|(node, address)| {
            let mut sequence = Stream::new(seed, node, Purpose::Sequence);
            Station::new(*address, Stream::new(seed, node, Purpose::Backoff), sequence.below(256) as u8)
        });
        Self {
            now: 0,
            air: air::Air::new(seed, &links),
            stations: stations.collect(),
            by_address: addresses.iter().enumerate().map(|(node, address)| (*address, node)).collect(),
            radio,
            links,
            queue: Queue::default(),
            told: VecDeque::new(),
            next_ticket: 0,
            capture: None,
            events: 0,
        }
    }

    /// Returns the current time.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// Returns the number of events that happened.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the activity of a node's station up to now.
    pub fn activity(&self, node: NodeId) -> Activity {
        self.stations.get(node).map_or(Activity::default(), |station| station.activity)
    }

    /// Returns the number of bytes of all PSDUs that were on the air, and the number of these PSDUs.
    pub fn traffic(&self) -> (u64, u64) {
        let frames: u64 = self.stations.iter().map(|station| station.activity.frames).sum();
        let sending: Micros = self.stations.iter().map(|station| station.activity.sending).sum();
        (sending / radio::BYTE - frames * radio::PHY_HEADER_LEN, frames)
    }

    /// Captures every frame from now on.
    pub fn start_capture(&mut self) {
        self.capture = Some(Vec::new());
    }

    /// Returns the captured frames, sorted by the time at which they began.
    pub fn take_capture(&mut self) -> Vec<Captured> {
        self.capture.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the address of a node.
    pub fn address(&self, node: NodeId) -> LinkAddress {
        self.stations.get(node).map_or(LinkAddress::Absent, |station| station.address)
    }

    /// Returns the maximum payload of a frame from `node` to `to`, in bytes.
    pub fn room(&self, node: NodeId, to: LinkAddress) -> usize {
        let header = frame::Header::data(PAN, self.address(node), to, 0);
        frame::MAX_LEN - frame::FCS_LEN - header.len()
    }

    /// Passes a payload to the station of `node`, and returns its ticket. [`Told::Sent`] reports the outcome. Returns
    /// `None` if the payload does not fit a frame.
    pub fn send(&mut self, node: NodeId, to: LinkAddress, payload: &[u8]) -> Option<u64> {
        let station = self.stations.get_mut(node)?;
        station.sequence = station.sequence.wrapping_add(1);
        let mut header = frame::Header::data(PAN, station.address, to, station.sequence);
        header.acknowledge &= self.radio.acknowledges;
        let mut out = [0; frame::MAX_LEN];
        let psdu = frame::write(&header, payload, &mut out).ok()?;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let to = self.by_address.get(&to).copied();
        self.enqueue(node, mac::Outgoing { ticket, header, psdu: (*psdu).into(), to });
        Some(ticket)
    }

    /// Plans [`Told::Alarm`] with this token for `node` at the time `at`, or now if `at` is past.
    pub fn alarm(&mut self, node: NodeId, at: Micros, token: u64) {
        self.queue.plan(at.max(self.now), Event::Alarm { node: node as u32, token });
    }

    /// Lets time pass until the next event that a node receives, but at most until `end`. Returns `None` if there is no
    /// event before `end`.
    pub fn next(&mut self, end: Micros) -> Option<Told> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Some(told);
            }
            let (at, event) = self.queue.take(end)?;
            self.now = at;
            self.events += 1;
            match event {
                Event::Assessed { node, turn } => self.on_assessed(node as usize, turn),
                Event::TurnedAround { node } => self.on_turned_around(node as usize),
                Event::FrameEnds { slot } => self.on_frame_ends(slot as usize),
                Event::AcknowledgementMissing { node, turn } => self.on_acknowledgement_missing(node as usize, turn),
                Event::Ready { node } => self.on_ready(node as usize),
                Event::Alarm { node, token } => return Some(Told::Alarm { node: node as usize, token }),
            }
        }
    }
}

/// The identifier of the network that contains all nodes.
pub const PAN: PanId = PanId(0xabcd);
