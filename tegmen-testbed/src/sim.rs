//! A simulated radio network: IEEE 802.15.4 at 2.4 GHz with unslotted CSMA/CA. Its virtual time is in whole
//! microseconds.
//!
//! [`Network`] contains the clock, the air, and a station (radio and MAC) for each node. The caller contains the
//! software of the nodes:
//!
//! * [`Network::send`] passes a payload to a station, and [`Network::alarm`] sets a timer for a node.
//! * [`Network::next`] lets time pass until the next event that concerns the software of a node ([`Told`]).
//!
//! Each node has a separate ChaCha8 stream of random numbers for each purpose ([`random`]). Events at the same
//! microsecond happen in the order in which they were planned, and no code iterates over a hash map. So the same seed
//! gives the same bytes on every machine. `docs/lab.md` describes how the simulator was compared with ns-3, and where
//! their results differ.
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

/// A point in virtual time, or a duration, in microseconds.
pub type Micros = u64;

/// The number of a node, from 0. It is the index of the node in all lists of nodes.
pub type NodeId = usize;

/// An event that the software of a node receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The node received a data frame.
    Received {
        /// The node.
        node: NodeId,
        /// The neighbour that sent the frame over this hop.
        from: LinkAddress,
        /// The payload of the frame.
        payload: Vec<u8>,
    },
    /// The transmission of a payload has ended, with or without success.
    Sent {
        /// The node.
        node: NodeId,
        /// The number that [`Network::send`] returned for this payload.
        ticket: u64,
        /// The result.
        outcome: Outcome,
    },
    /// An alarm that the node set.
    Alarm {
        /// The node.
        node: NodeId,
        /// The value that the caller passed to [`Network::alarm`].
        token: u64,
    },
}

/// The result of a transmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The frame was acknowledged, or needed no acknowledgement.
    Done,
    /// Neither the frame nor any of its retransmissions was acknowledged.
    NoAcknowledgement,
    /// The channel was busy in each attempt to send the frame.
    ChannelBusy,
}

/// The activity of a node's radio. The energy of the node and its time on the air are computed from the activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Number of sent frames, including acknowledgements.
    pub frames: u64,
    /// Time in microseconds for which the station sent frames and acknowledgements, including their preambles.
    pub sending: Micros,
    /// Time in microseconds for which the station sent acknowledgements. It is part of [`Self::sending`].
    pub acknowledging: Micros,
    /// Time in microseconds for which the station received frames and acknowledgements that were for this station. A
    /// frame that it did not receive completely does not count.
    pub receiving: Micros,
    /// Time in microseconds for which the station received frames that were for other stations. A frame that it did not
    /// receive completely does not count.
    pub overhearing: Micros,
    /// Number of frames that the station gave up because the channel was busy.
    pub busy: u64,
    /// Number of frames that the station gave up because no acknowledgement arrived.
    pub unacknowledged: u64,
}

/// A frame that was captured on the air.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// The virtual time at which the transmission of the frame began, in microseconds.
    pub at: Micros,
    /// The sender of the frame.
    pub from: NodeId,
    /// The frame as a PSDU, which includes its FCS.
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
    /// Makes a network with one node for each node of `links`. The nodes have the short addresses 1, 2, and so on.
    pub fn new(seed: u64, radio: Radio, links: Links) -> Self {
        let address = |node: NodeId| LinkAddress::Short(node as u16 + 1);
        let addresses: Vec<_> = (0..links.nodes()).map(address).collect();
        Self::with_addresses(seed, radio, links, &addresses)
    }

    /// Makes a network of nodes with these addresses.
    ///
    /// # Panics
    /// If the numbers of addresses and of nodes are different.
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

    /// Returns the current virtual time.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// Returns the number of events that have been processed.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the activity of a node's radio from the beginning until now.
    pub fn activity(&self, node: NodeId) -> Activity {
        self.stations.get(node).map_or(Activity::default(), |station| station.activity)
    }

    /// Returns the total length in bytes of all PSDUs that were on the air, and the number of these PSDUs.
    pub fn traffic(&self) -> (u64, u64) {
        let frames: u64 = self.stations.iter().map(|station| station.activity.frames).sum();
        let sending: Micros = self.stations.iter().map(|station| station.activity.sending).sum();
        (sending / radio::BYTE - frames * radio::PHY_HEADER_LEN, frames)
    }

    /// Begins to capture every frame that is on the air.
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

    /// Returns the maximum length of the payload in a frame from `node` to `to`, in bytes.
    pub fn room(&self, node: NodeId, to: LinkAddress) -> usize {
        let header = frame::Header::data(PAN, self.address(node), to, 0);
        frame::MAX_LEN - frame::FCS_LEN - header.len()
    }

    /// Passes a payload to the station of `node`. Returns the number of this transmission, with which [`Told::Sent`]
    /// later reports its outcome. Returns `None` if the payload does not fit into a frame.
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

    /// Plans [`Told::Alarm`] with `token` for `node`, at the time `at`. If this time has passed, the alarm fires now.
    pub fn alarm(&mut self, node: NodeId, at: Micros, token: u64) {
        self.queue.plan(at.max(self.now), Event::Alarm { node: node as u32, token });
    }

    /// Lets time pass until the next event that the software of a node receives, and returns the event. Returns `None`
    /// if there is no such event up to the time `end`.
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

/// The PAN identifier of the network to which all nodes belong.
pub const PAN: PanId = PanId(0xabcd);
