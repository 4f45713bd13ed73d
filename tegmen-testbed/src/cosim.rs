//! Co-simulation of two motes: the client of the Blink example sends a PUT request every second, and the server answers
//! it. The motes communicate over the simulated radio, and the simulation controls their time.
//!
//! A mote runs only in turns. In a turn the mote receives the current time and possibly a packet, and runs until it has
//! nothing more to do. The packets of the mote are sent at the time when a real processor would have finished,
//! according to [`crate::cost`]. A mote is either the image for a Cortex-M3 in QEMU ([`emulated`]), or the same source
//! code compiled for this machine ([`native`]). With the same seed and the same turns, the image and the native mote
//! must send the same bytes.

pub mod emulated;
pub mod native;

use crate::cost::{self, CYCLES_PER_INSTRUCTION, Costs};
use crate::footprint;
use crate::sim::links::Links;
use crate::sim::random::{Purpose, Stream};
use crate::sim::{Captured, Micros, Network, NodeId, Radio, Told};
use native::turn::{DONE, TURN};
use std::collections::VecDeque;
use std::fmt;
use tegmen::address::Address;
use tegmen::dtls::record::{ContentType, OVERHEAD};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::ip::Datagram;
use tegmen_lowpan::iphc::{Context, Hop};
use tegmen_lowpan::slip::Start;
use tegmen_lowpan::{Arrived, Interface};

/// A mote that runs only in turns. In a turn the mote receives the current time and possibly a packet, and runs until
/// it has nothing more to do.
pub trait Mote {
    /// Lets the mote run at the time `now`, until it has nothing more to do. The mote receives the IPv6 packet
    /// `packet`, which is empty if only time has passed. Returns the packets that the mote sends.
    ///
    /// # Errors
    /// [`Error`], if the mote does not report that it has nothing more to do.
    fn take_turn(&mut self, now: Instant, packet: &[u8]) -> Result<Vec<Vec<u8>>, Error>;
}

/// The parameters of a co-simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Setup {
    /// The seed of the random numbers of the motes and of the radio.
    pub seed: u64,
    /// The share of frames that the link loses in each direction, from 0 to 1.
    pub loss: f64,
    /// The virtual time at which the co-simulation ends, in microseconds.
    pub end: Micros,
}

impl Setup {
    /// Returns the [`Start`] of the server and of the client, in this order. A [`Start`] contains the data with which a
    /// mote begins. Outside this simulation, a bridge sends this data to a mote.
    pub fn starts(&self) -> [Start; 2] {
        [SERVER, CLIENT].map(|node| Start {
            seed: Secret::new(Stream::new(self.seed, node, Purpose::Crypto).seed()),
            ip: ip_of(node),
            peer: (node == CLIENT).then_some(Address { ip: ip_of(SERVER), port: DTLS_PORT, scope: 0 }),
        })
    }
}

/// The datagrams and frames of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversation {
    /// The UDP datagrams, in the order in which the motes passed them to the radio.
    pub said: Vec<Said>,
    /// The frames that were on the air.
    pub air: Vec<Captured>,
}

/// A UDP datagram that a mote sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// The virtual time at which the mote passed the datagram to the radio, in microseconds.
    pub at: Micros,
    /// The sender: [`CLIENT`] or [`SERVER`].
    pub by: NodeId,
    /// The payload of the datagram.
    pub datagram: Vec<u8>,
}

impl Conversation {
    /// Describes the first difference between this conversation and `expected`. Returns `None` if they are equal.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let longer = self.said.len().max(expected.said.len());
        for number in 0..longer {
            let (ours, theirs) = (self.said.get(number), expected.said.get(number));
            if ours != theirs {
                return Some(format!("datagram {number}: {}, expected {}", told(ours), told(theirs)));
            }
        }
        (self.air != expected.air).then(|| "the same datagrams, other frames on the air".to_owned())
    }
}

fn told(said: Option<&Said>) -> String {
    let Some(Said { at, by, datagram }) = said else { return "nothing".to_owned() };
    let hex = datagram.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{} at {at} us: {hex}", if *by == CLIENT { "client" } else { "server" })
}

/// Lets two motes communicate over the radio. The first mote is the server, and the second mote is the client.
///
/// # Errors
/// [`Error`], if one of the motes fails.
pub fn run(setup: &Setup, motes: [&mut dyn Mote; 2]) -> Result<Conversation, Error> {
    let mut links = Links::all(2);
    links.set_all_losses(setup.loss);
    let addresses = [SERVER, CLIENT].map(link_of);
    let mut network = Network::with_addresses(setup.seed, Radio::STANDARD, links, &addresses);
    network.start_capture();
    [SERVER, CLIENT].into_iter().for_each(|node| network.alarm(node, 0, TICK));
    let mut stations = [SERVER, CLIENT].map(Station::new);
    let costs = Costs::of_budget();
    let mut said = Vec::new();
    while let Some(told) = network.next(setup.end) {
        let now = Instant::from_micros(network.now() + 1);
        let (node, packet) = match told {
            Told::Alarm { node, token: TICK } => {
                network.alarm(node, network.now() + TICK_INTERVAL, TICK);
                (node, Vec::new())
            }
            Told::Alarm { node, .. } => {
                if let Some(leaving) = stations[node].leave(&mut network) {
                    said.push(leaving);
                }
                continue;
            }
            Told::Received { node, from, payload } => match stations[node].receive(now, from, &payload) {
                Some(packet) => (node, packet),
                None => continue,
            },
            Told::Sent { .. } => continue,
        };
        let packets = motes[node].take_turn(now, &packet)?;
        stations[node].work(&costs, &mut network, &packet, packets);
    }
    Ok(Conversation { said, air: network.take_capture() })
}

/// One of the two motes: its 6LoWPAN interface, and the time until which its processor is busy.
struct Station {
    node: NodeId,
    interface: Interface<4, 1280>,
    busy_until: Micros,
    /// The packets that are sent when the processor has finished.
    leaving: VecDeque<Vec<u8>>,
}

impl Station {
    fn new(node: NodeId) -> Self {
        Self { node, interface: Interface::new(), busy_until: 0, leaving: VecDeque::new() }
    }

    /// Processes a frame. Returns a packet if this frame was the last missing fragment of the packet; `None` otherwise.
    fn receive(&mut self, now: Instant, from: LinkAddress, payload: &[u8]) -> Option<Vec<u8>> {
        let hop = Hop { source: from, destination: link_of(self.node) };
        let own = [ip_of(self.node)];
        match self.interface.receive(now, &view(self.node, &own), &hop, payload).ok()?.packet? {
            Arrived::Here(packet) => Some(packet.to_vec()),
            Arrived::On(..) | Arrived::Dropped(_) => None,
        }
    }

    /// Keeps the processor of the mote busy for the time that it needs to process the received packet `came` and to
    /// make `packets`. The `packets` are sent afterwards.
    fn work(&mut self, costs: &Costs, network: &mut Network, came: &[u8], packets: Vec<Vec<u8>>) {
        let instructions = instructions(costs, self.node, came, &packets);
        let cpu = cost::micros(instructions, CYCLES_PER_INSTRUCTION[1], CLOCK_HZ);
        self.busy_until = self.busy_until.max(network.now()) + cpu;
        packets.iter().for_each(|_| network.alarm(self.node, self.busy_until, LEAVE));
        self.leaving.extend(packets);
    }

    /// Sends the first delayed packet over the radio. Returns its UDP datagram, or `None` if no packet was sent.
    fn leave(&mut self, network: &mut Network) -> Option<Said> {
        let packet = self.leaving.pop_front()?;
        let to = link_of(CLIENT + SERVER - self.node);
        let own = [ip_of(self.node)];
        let mut fragments = self.interface.send(&view(self.node, &own), to, &packet).ok()?;
        let mut out = [0; 127];
        while let Ok(Some(payload)) = fragments.next_frame(network.room(self.node, to), &mut out) {
            network.send(self.node, to, payload);
        }
        Some(Said { at: network.now(), by: self.node, datagram: payload_of(&packet) })
    }
}

/// Returns the network configuration of a node. The other node is its only neighbour.
fn view(node: NodeId, own: &[[u8; 16]; 1]) -> tegmen_lowpan::Network<'_> {
    const CONTEXTS: &[Context] = &[Context { id: 0, prefix: PREFIX, len: 64 }];
    tegmen_lowpan::Network { link: link_of(node), own, contexts: CONTEXTS, routes: &[], relays: false }
}

/// Returns the number of instructions that a node needs to process the received packet `came` and to make the sent
/// `packets`. The cost of a record with application data depends on the length of its content. If the node sends a
/// flight of a handshake, the result also includes a third of the instructions that the node needs for the whole
/// handshake.
fn instructions(costs: &Costs, node: NodeId, came: &[u8], packets: &[Vec<u8>]) -> u64 {
    let content = |packet: &[u8]| {
        let datagram = payload_of(packet);
        let application_data = datagram.first() == Some(&ContentType::APPLICATION_DATA.0);
        application_data.then(|| datagram.len().saturating_sub(OVERHEAD))
    };
    let opened = content(came).map_or(0, |len| costs.open_of(len) + [costs.serve, costs.hear][node]);
    let sealed = packets.iter().filter_map(|packet| content(packet));
    let sealed = sealed.map(|len| costs.seal_of(len) + [0, costs.build + costs.keep][node]).sum::<u64>();
    let flight = packets.iter().any(|packet| content(packet).is_none());
    opened + sealed + if flight { [costs.server, costs.client][node] / FLIGHTS } else { 0 }
}

/// Returns the UDP payload of a packet. The result is empty if the packet contains no UDP datagram.
fn payload_of(packet: &[u8]) -> Vec<u8> {
    Datagram::parse(&mut packet.to_vec()).map(|datagram| datagram.payload.to_vec()).unwrap_or_default()
}

/// Makes the frame that lets a mote run until it has nothing more to do. The frame contains the time `now` and the
/// packet that the mote receives.
fn turn(now: Instant, packet: &[u8]) -> Vec<u8> {
    [&TURN, &now.as_micros().to_be_bytes()[..], packet].concat()
}

/// Reads a frame that a mote sent to the simulation. Returns the packet in the frame, or `None` if the frame reports
/// that the mote has nothing more to do.
///
/// # Errors
/// [`Error::Garbled`], if the frame contains neither a packet nor the report that the mote has nothing more to do.
fn packet_or_done(frame: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    match frame.first() {
        _ if frame == DONE => Ok(None),
        Some(first) if first >> 4 == 6 => Ok(Some(frame)),
        _ => Err(Error::Garbled(frame)),
    }
}

/// The reason why the simulation of a mote cannot continue.
#[derive(Debug)]
pub enum Error {
    /// The images cannot be built.
    Build(footprint::Error),
    /// QEMU does not start, or the connection to its serial port fails.
    Line(std::io::Error),
    /// The mote does not report that it has nothing more to do.
    Silent,
    /// The program of the mote ended. Contains the error message of QEMU.
    Ended(String),
    /// The mote sent a frame that contains neither a packet nor the report that the mote has nothing more to do.
    /// Contains the frame.
    Garbled(Vec<u8>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::Line(error) => write!(f, "the line to a mote: {error}"),
            Self::Silent => f.write_str("a mote does not end its turn"),
            Self::Ended(why) => write!(f, "a mote ended: {why}"),
            Self::Garbled(frame) => write!(f, "a mote sent neither a packet nor the end of its turn: {frame:02x?}"),
        }
    }
}

impl std::error::Error for Error {}

fn link_of(node: NodeId) -> LinkAddress {
    LinkAddress::Short(node as u16 + 1)
}

fn ip_of(node: NodeId) -> [u8; 16] {
    let mut ip = PREFIX;
    ip[8..].copy_from_slice(&link_of(node).interface_id().unwrap_or_default());
    ip
}

/// The number of the server mote's node.
pub const SERVER: NodeId = 0;
/// The number of the client mote's node.
pub const CLIENT: NodeId = 1;
const PREFIX: [u8; 16] = [0xfd, 0x00, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// UDP port of the motes (RFC 7252, section 12.7).
const DTLS_PORT: u16 = 5684;
/// Interval at which the simulation lets each mote run without a received packet, in microseconds. It is the period of
/// the mote's SysTick timer.
const TICK_INTERVAL: Micros = 100_000;
const TICK: u64 = 1;
const LEAVE: u64 = 2;
/// Number of flights that a client sends in a handshake. A server also sends this number of flights.
const FLIGHTS: u64 = 3;
/// Clock frequency of the board, in Hz.
const CLOCK_HZ: u64 = 50_000_000;
