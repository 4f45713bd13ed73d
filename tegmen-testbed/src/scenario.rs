//! A scenario: a deployment that runs with one protection and one seed. Each node runs the real protocol stack of
//! Tegmen. 6LoWPAN carries the packets of the nodes, and a simulated radio carries the frames. A reading is a measured
//! value. Over CoAP, a node sends a reading to node 0 in a request. Over NDN, node 0 makes the reading, and a node
//! requests it from node 0. In both cases, the answer to the reading is the response to the request.

mod group;
mod named;
mod sleep;

use crate::cost::{self, Costs};
use crate::deployment::{Addresses, Changes, Deployment, Prefix, Rebooted, Stack};
use crate::mote::{
    self, Asking, Exchange, GroupNode, HUB, LEAF, Milestone, Mote, NamedNode, ObjectNode, Part, Protection, SMALL_HUB,
    Script, Scripts, Setup, Wish, is_handshake,
};
use crate::platform::{Energy, Platform};
use crate::sim::random::{Purpose, Stream};
use crate::sim::{Activity, Captured, Micros, Network, NodeId, Radio, Told, radio};
use serde::Serialize;
use std::collections::VecDeque;
use std::rc::Rc;
use tegmen::address::{Address, Path};
use tegmen::time::{Duration, Instant};
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::ip::{self, Datagram};
use tegmen_lowpan::iphc::{Context, Hop};
use tegmen_lowpan::route::{Route, next_hop};
use tegmen_lowpan::{Arrived, Interface};

/// The result of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// Number of readings that were made.
    pub made: u64,
    /// Number of readings that were answered.
    pub answered: u64,
    /// Times from a reading to its answer in microseconds, sorted.
    pub delays: Vec<Micros>,
    /// The delays in microseconds of the readings that were answered at the first try. Such a reading was sent at once,
    /// without waiting for an earlier reading of the same node, and it was sent only once. The list is in the order of
    /// the answers.
    pub first_try: Vec<Micros>,
    /// For each node, the delays of its answered readings in microseconds, sorted.
    pub by_node: Vec<Vec<Micros>>,
    /// Number of bytes on the air: the PSDUs of all frames of all nodes.
    pub bytes: u64,
    /// Number of frames on the air.
    pub frames: u64,
    /// Number of sessions that nodes other than node 0 opened.
    pub sessions: u64,
    /// Number of requests that node 0 answered with a challenge, because it had lost its OSCORE state.
    pub challenges: u64,
    /// Number of changes of addresses.
    pub moves: u64,
    /// For each change of a node's address, the time in microseconds until an answer reaches the node again. The time
    /// begins when the node makes its next reading. If a reading already waits for an answer, the time begins with the
    /// change. The list is in the order of the answers.
    pub recoveries: Vec<Micros>,
    /// The virtual time in microseconds at which a node that makes readings received its last answer.
    pub last_answer: Micros,
    /// The virtual time when the run ended, in microseconds.
    pub elapsed: Micros,
    /// Number of events that the simulation processed.
    pub events: u64,
    /// The energy of the mote that consumes the most energy, in microjoules. Node 0 is not counted.
    pub hungriest: Energy,
    /// The energy of one mote in microjoules: the mean over all motes that make readings.
    pub energy: Energy,
    /// The number of processor instructions: the sum over all motes that make readings.
    pub instructions: u64,
}

/// Runs a deployment with one protection and one seed. Returns the result, and also the frames that were on the air if
/// `capture` is true.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run(deployment: &Deployment, protection: Protection, seed: u64, capture: bool) -> (Outcome, Vec<Captured>) {
    let (mut world, mut frames) = (world_of(deployment, protection, seed), Vec::new());
    if capture {
        world.network.start_capture();
    }
    world.go();
    if capture {
        frames = world.network.take_capture();
    }
    (world.outcome(), frames)
}

/// The result of a run in which node 0 sends requests to a group.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupRun {
    /// The result.
    pub outcome: Outcome,
    /// The milestones (such as the end of the handshakes) that node 0 reached, in order.
    pub noted: Vec<Noted>,
    /// The frames that were on the air.
    pub frames: Vec<Captured>,
    /// Number of datagrams of DTLS handshakes that were sent.
    pub handshakes: u64,
    /// The energy that node 0 used, in microjoules.
    pub sender: Energy,
}

/// Runs a deployment in which node 0 sends requests to a group.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run_group(deployment: &Deployment, protection: Protection, seed: u64) -> GroupRun {
    let mut world = world_of(deployment, protection, seed);
    world.network.start_capture();
    world.go();
    let (frames, noted) = (world.network.take_capture(), std::mem::take(&mut world.noted));
    let sender = world.platform.energy(&world.network.activity(0), world.stations[0].cpu, world.network.now());
    GroupRun { handshakes: world.handshakes, sender, noted, frames, outcome: world.outcome() }
}

/// Makes the nodes of a deployment, each with its protocol stack.
fn world_of(deployment: &Deployment, protection: Protection, seed: u64) -> World<'_> {
    if protection.is_named() {
        return named::world_of(deployment, protection, seed);
    }
    let asking = deployment.traffic.group.map(Asking::from);
    World::new(deployment, protection, seed, |node, addresses, setup| -> Box<dyn Mote> {
        let makers = deployment.makers(addresses.len());
        match (node, asking) {
            (0, Some(asking)) => {
                let members: Vec<Address> = makers.iter().map(|member| addresses[*member]).collect();
                match addresses.len() > SMALL_HUB + 1 {
                    true => Box::new(GroupNode::<HUB, HUB>::new(seed, node, setup, asking, &members)),
                    false => Box::new(GroupNode::<SMALL_HUB, SMALL_HUB>::new(seed, node, setup, asking, &members)),
                }
            }
            (_, Some(asking)) => Box::new(GroupNode::<LEAF, 1>::new(seed, node, setup, asking, &[])),
            (_, None) => mote::node(seed, node, addresses.len() - 1, setup),
        }
    })
}

/// A milestone, and the activity of all nodes from the beginning of the run to this milestone. A milestone is an event
/// at the node that sends requests to a group, such as the end of the handshakes. The activity of the radios is read a
/// millisecond after the milestone, so that it includes the acknowledgement of the last frame.
#[derive(Clone, PartialEq, Debug)]
pub struct Noted {
    /// The kind of the milestone.
    pub milestone: Milestone,
    /// The virtual time, in microseconds, at which the event happened that led to the milestone: a datagram arrived at
    /// the node, or an alarm of the node fired.
    pub begun: Micros,
    /// The virtual time, in microseconds, at which the processor of the node finished the computation for this datagram
    /// or alarm (see [`begun`](Self::begun)).
    pub at: Micros,
    /// For each node: the activity of its radio, the time in microseconds for which its processor was busy, and the
    /// number of instructions that it executed.
    pub nodes: Vec<(Activity, Micros, u64)>,
}

/// Runs one exchange between node 0 and the node that makes readings. The node that makes readings begins the exchange.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run_exchange(deployment: &Deployment, exchange: &Exchange, seed: u64) -> Outcome {
    let began = Rc::default();
    let mut world =
        World::new(deployment, Protection::Coap, seed, |node, _, _| Box::new(Script::new(exchange, node != 0, &began)));
    world.go();
    world.outcome()
}

/// Runs one exchange with each node that makes readings in a deployment. The nodes send no readings. Instead, when the
/// reading of a node is due, node 0 begins an exchange with this node. The run ends after the last exchange.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run_exchanges(deployment: &Deployment, exchange: &Exchange, seed: u64) -> Outcome {
    let mut world = World::new(deployment, Protection::Coap, seed, |node, _, _| match node {
        0 => Box::new(Scripts::new(exchange)),
        _ => Box::new(Script::new(exchange, false, &Rc::default())),
    });
    (world.begins_at_hub, world.ends_with_last) = (true, true);
    world.go();
    world.outcome()
}

/// Runs a network in which nodes request named content objects. The nodes that make readings in the deployment are the
/// consumers: when a reading is due, the consumer sends a request. `part` returns the role of a node; its arguments are
/// the number of the node and the addresses of all nodes.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run_objects(
    deployment: &Deployment,
    part: impl Fn(NodeId, &[Address]) -> Part,
    protection: Protection,
    seed: u64,
) -> Outcome {
    let mut world = World::new(deployment, protection, seed, |node, addresses, setup| -> Box<dyn Mote> {
        let part = part(node, addresses);
        let peers = if let Part::Consumer { producers, proxy: None, .. } = &part { producers.len() } else { 0 };
        match protection.is_named() {
            true => Box::new(NamedNode::of_part(seed, node, setup, &part)),
            false if peers > SMALL_HUB => Box::new(ObjectNode::<HUB>::new(seed, node, setup, part)),
            false => Box::new(ObjectNode::<SMALL_HUB>::new(seed, node, setup, part)),
        }
    });
    world.go();
    world.outcome()
}

/// The result of [`run_storm`]. In this run a device has ended all its sessions, and all its peers return to the
/// device.
#[derive(Clone, PartialEq, Debug)]
pub struct Storm {
    /// The delays, bytes and energies of the run. A peer has returned to the device when the device has answered the
    /// peer's first reading. So the share of answered readings is the share of returned peers.
    pub outcome: Outcome,
    /// Number of frames that were on the air at the same time as another frame.
    pub collisions: u64,
    /// Number of alerts with which the device refused a handshake.
    pub refusals: u64,
    /// Number of public-key operations of the peers. A verification is one operation: the peer verifies the
    /// certificate or the raw public key of the device, and also the proof that the device owns this key. A signature is
    /// one operation too.
    pub public_key_answers: u64,
}

/// Simulates how all other nodes return to node 0 after node 0 has ended all its sessions. Each node that makes
/// readings returns with its first reading. The run ends when all nodes have returned, or after an hour. With
/// [`Protection::Delegation`] each node has a ticket of an ended epoch of node 0. With [`Protection::Certificate`] a
/// node has no ticket. A node whose handshake fails, or whose request has no response, tries again after `pause`. Each
/// further pause is twice as long. During the first pause a node that has a ticket gets a ticket of the current epoch
/// from the delegation server.
///
/// # Panics
/// If the deployment was not checked. [`crate::deployment::Plan::parse`] checks deployments.
pub fn run_storm(deployment: &Deployment, protection: Protection, pause: Duration, seed: u64) -> Storm {
    let mut world = World::new(deployment, protection, seed, |node, addresses, setup| match node {
        0 => mote::node(seed, node, addresses.len() - 1, setup),
        _ => mote::returning(seed, node, setup, pause),
    });
    world.ends_with_last = true;
    world.network.start_capture();
    world.go();
    let frames = world.network.take_capture();
    let (refusals, public_key_answers) = (world.refusals, world.public_key_answers);
    Storm { collisions: collisions(&frames), refusals, public_key_answers, outcome: world.outcome() }
}

/// Returns the number of frames that were on the air at the same time as another frame.
fn collisions(frames: &[Captured]) -> u64 {
    let mut collided = vec![false; frames.len()];
    // Of the earlier frames, the frame that ends last: its index, and the time of its end.
    let mut last: Option<(usize, Micros)> = None;
    for (place, frame) in frames.iter().enumerate() {
        let end = frame.at + radio::airtime(frame.psdu.len());
        if let Some((before, until)) = last
            && frame.at < until
        {
            (collided[before], collided[place]) = (true, true);
        }
        if last.is_none_or(|(_, until)| end > until) {
            last = Some((place, end));
        }
    }
    collided.iter().filter(|collided| **collided).count() as u64
}

struct World<'s> {
    deployment: &'s Deployment,
    network: Network,
    stations: Vec<Station>,
    contexts: Vec<Context>,
    addresses: Vec<Address>,
    makers: Vec<NodeId>,
    costs: Costs,
    cycles: f64,
    /// True if the cryptography of the protection keeps processors busy for seconds. While the processor of a node is
    /// busy, the timer of the node does not fire: it fires when the processor has finished.
    computes_long: bool,
    platform: Platform,
    /// The milestones (events such as the end of the handshakes) of the node that sends requests to a group, in the
    /// order in which the node reached them. The radio activity of the latest milestones is still missing, because it
    /// is read a millisecond later.
    noted: Vec<Noted>,
    is_accounted: usize,
    handshakes: u64,
    /// Number of unencrypted alerts that node 0 sent.
    refusals: u64,
    public_key_answers: u64,
    /// True if node 0 begins each exchange with the node whose reading is due; false if that node begins it.
    begins_at_hub: bool,
    /// True if the run ends when all readings are answered.
    ends_with_last: bool,
    /// True if frames contain NDN packets directly, without IPv6 and UDP.
    is_named: bool,
    outcome: Outcome,
}

/// A node: its protocol stack, its 6LoWPAN interface, and the time until which its processor is busy.
struct Station {
    mote: Box<dyn Mote>,
    interface: Interface<4, 1280>,
    /// The reassembly of NDN packets; `None` if the node sends IPv6 packets.
    packets: Option<Box<named::Packets>>,
    /// The fragmentation tag of the last NDN packet that the node sent.
    next_tag: u16,
    address: Address,
    link: LinkAddress,
    routes: Vec<Route>,
    traffic: Stream,
    relaying: Stream,
    reboots: Stream,
    /// True if the path of another node to node 0 contains this node. Such a node relays the frames that are flooded to
    /// a group.
    relays: bool,
    later: Vec<(Micros, Later)>,
    /// Number of readings that the node still has to make. For node 0 it is the number of requests that it still has to
    /// send to the group.
    readings_left: u32,
    reboots_at: Option<u32>,
    busy_until: Micros,
    cpu: Micros,
    instructions: u64,
    /// Datagrams that wait until the processor has finished, each with its destination.
    leaving: VecDeque<(Address, Vec<u8>)>,
    /// The virtual time in microseconds at which the timer of the node's protocol stack fires; `None` if it is not set.
    alarm: Option<Micros>,
    /// Number of changes of the node's address.
    moves: u8,
    /// The virtual time in microseconds of the last change of the node's address; `None` after an answer has reached
    /// the new address.
    moved_at: Option<Micros>,
    radio: sleep::Sleeping,
}

/// The link-layer addresses of all nodes, and for each node the next node on its path to node 0.
struct Layout<'s> {
    stack: &'s Stack,
    /// For each node, its neighbour on the path to node 0.
    parents: Vec<NodeId>,
    addresses: Vec<LinkAddress>,
}

impl Layout<'_> {
    fn ip_of(&self, node: NodeId) -> [u8; 16] {
        let mut ip = match self.stack.addresses {
            Prefix::LinkLocal => [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            Prefix::Context | Prefix::Inline => PREFIX,
        };
        ip[8..].copy_from_slice(&self.addresses[node].interface_id().unwrap_or_default());
        ip
    }

    /// Returns the routes of `node`. If `node` is on the path from another node to node 0, it sends packets for the
    /// other node to its own child on this path. It sends all other packets to its parent.
    fn routes(&self, node: NodeId) -> Vec<Route> {
        let Self { parents, addresses, .. } = self;
        let mut routes: Vec<_> = (1..parents.len())
            .filter_map(|below| {
                let way = std::iter::successors(Some(below), |n| (*n != 0).then(|| parents[*n]));
                let child = way.take_while(|n| *n != node).last()?;
                (parents[child] == node && child != node).then(|| Route::to(self.ip_of(below), addresses[child]))
            })
            .collect();
        if node != 0 {
            routes.push(Route::default(addresses[parents[node]]));
        }
        routes
    }
}

/// Returns the link-layer address of a node.
fn link_of(stack: &Stack, node: NodeId) -> LinkAddress {
    match stack.link_addresses {
        Addresses::Short => LinkAddress::Short(node as u16 + 1),
        Addresses::Extended => {
            let [high, low] = (node as u16 + 1).to_be_bytes();
            LinkAddress::Extended([2, 0, 0, 0, 0, 0, high, low])
        }
    }
}

impl Station {
    /// Creates the node with the number `node`, in its state at the beginning of the run. `all` contains the addresses
    /// of all nodes.
    fn new(
        deployment: &Deployment,
        layout: &Layout<'_>,
        (node, all): (NodeId, &[Address]),
        (protection, costs): (Protection, Costs),
        seed: u64,
        made: &impl Fn(NodeId, &[Address], Setup) -> Box<dyn Mote>,
    ) -> Self {
        let Deployment { stack, traffic, .. } = deployment;
        let (address, nodes) = (all[node], all.len());
        let setup = Setup {
            local: address,
            protection,
            profile: stack.profile.into(),
            payload: traffic.payload,
            response: traffic.response,
            costs,
        };
        let speaks = if traffic.group.is_some() { node == 0 } else { deployment.makers(nodes).contains(&node) };
        Self {
            mote: made(node, all, setup),
            interface: Interface::new(),
            packets: protection.is_named().then(Box::default),
            next_tag: 0,
            address,
            link: layout.addresses[node],
            routes: layout.routes(node),
            traffic: Stream::new(seed, node, Purpose::Traffic),
            relaying: Stream::new(seed, node, Purpose::Leisure),
            reboots: Stream::new(seed, node, Purpose::Reboots),
            relays: layout.parents.iter().skip(1).any(|parent| *parent == node),
            later: Vec::new(),
            readings_left: if speaks { traffic.readings } else { 0 },
            reboots_at: traffic.reboot_after.map(|share| (f64::from(traffic.readings) * (1.0 - share)) as u32),
            busy_until: 0,
            cpu: 0,
            instructions: 0,
            leaving: VecDeque::new(),
            alarm: None,
            moves: 0,
            moved_at: None,
            radio: sleep::Sleeping::default(),
        }
    }
}

/// A frame or packet that a node sends later.
enum Later {
    /// A packet that another node sent. This node forwards it to this neighbour when its own processor has finished.
    Forward(LinkAddress, Vec<u8>),
    /// A flooded frame that another node sent, and that this node broadcasts again.
    Relay(Vec<u8>),
}

impl<'s> World<'s> {
    /// Makes the nodes, the radio network and the empty result of a run. `made` makes the stack of a node. Its
    /// arguments are the number of the node, the addresses of all nodes, and the settings of the stack.
    fn new(
        deployment: &'s Deployment,
        protection: Protection,
        seed: u64,
        made: impl Fn(NodeId, &[Address], Setup) -> Box<dyn Mote>,
    ) -> Self {
        let links = deployment.links().expect("a checked deployment");
        let parents = deployment.parents(&links).expect("a checked deployment");
        let nodes = links.nodes();
        let stack = &deployment.stack;
        let layout = Layout { stack, parents, addresses: (0..nodes).map(|node| link_of(stack, node)).collect() };
        let Stack { rejects_duplicates, deaf, acknowledgements: acknowledges, .. } = *stack;
        let radio = Radio { rejects_duplicates, deaf, acknowledges, ..Radio::STANDARD };
        let network = Network::with_addresses(seed, radio, links, &layout.addresses);
        let costs = Costs::of_budget();
        let address_of = |node| Address { ip: layout.ip_of(node), port: stack.ports[usize::from(node == 0)], scope: 0 };
        let all: Vec<Address> = (0..nodes).map(address_of).collect();
        let stations =
            (0..nodes).map(|node| Station::new(deployment, &layout, (node, &all), (protection, costs), seed, &made));
        let contexts = match stack.addresses {
            Prefix::Context => vec![Context { id: 0, prefix: PREFIX, len: 64 }],
            _ => Vec::new(),
        };
        Self {
            deployment,
            stations: stations.collect(),
            addresses: all,
            network,
            contexts,
            makers: deployment.makers(nodes),
            costs,
            cycles: deployment.mote.cycles_per_instruction,
            computes_long: protection.has_public_keys(),
            platform: Platform::find(&deployment.mote.platform).expect("a checked deployment"),
            noted: Vec::new(),
            is_accounted: 0,
            handshakes: 0,
            refusals: 0,
            public_key_answers: 0,
            begins_at_hub: false,
            ends_with_last: false,
            is_named: protection.is_named(),
            outcome: Outcome { by_node: vec![Vec::new(); nodes], ..Outcome::default() },
        }
    }

    fn period(&self) -> Micros {
        (self.deployment.traffic.period_s * 1e6) as Micros
    }

    fn go(&mut self) {
        let period = self.period();
        for node in 0..self.stations.len() {
            if self.stations[node].readings_left > 0 {
                let first = self.stations[node].traffic.below(period);
                self.network.alarm(node, first, READ);
            }
        }
        self.plan_polls();
        for (number, moves) in self.deployment.moves.iter().enumerate() {
            self.network.alarm(moves.node, (moves.at_s * 1e6) as Micros, MOVE + number as u64);
        }
        // After the last reading the run continues for a while, so that frames on the air and answers can arrive. Then
        // the run ends.
        let mut end = Micros::MAX;
        while let Some(told) = self.network.next(end) {
            match told {
                Told::Alarm { node, token: READ } => self.read(node),
                Told::Alarm { node, token: LEAVE } => self.leave(node),
                Told::Alarm { node, token: POLL } => self.poll(node),
                Told::Alarm { node, token: LATER } => self.now_due(node),
                Told::Alarm { token: ACCOUNT, .. } => self.account(),
                Told::Alarm { node, token: ASK_PARENT } => self.ask_parent(node),
                Told::Alarm { node, token } => self.move_to(node, token - MOVE),
                Told::Received { node, from, payload } => self.receive(node, from, &payload),
                Told::Sent { .. } => {}
            }
            if end == Micros::MAX && self.stations.iter().all(|station| station.readings_left == 0) {
                end = self.network.now() + if self.ends_with_last { LONGEST_RETURN } else { AFTERWARDS };
            }
            if self.ends_with_last && end != Micros::MAX && self.outcome.answered == self.outcome.made {
                end = end.min(self.network.now() + ACKNOWLEDGED_AFTER);
            }
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_micros(self.network.now() + 1)
    }

    fn read(&mut self, node: NodeId) {
        let (now, period) = (self.instant(), self.period());
        let (begins, other) = if self.begins_at_hub { (0, node) } else { (node, 0) };
        let to = self.stations[other].address;
        let station = &mut self.stations[node];
        let drawn = self.deployment.traffic.reboots.filter(|reboots| station.reboots.unit() < reboots.share);
        let drawn = drawn.map(|reboots| reboots.of);
        if station.reboots_at == Some(station.readings_left) || drawn == Some(Rebooted::Client) {
            station.mote.reboot(now);
            station.interface = Interface::new();
            station.leaving.clear();
        }
        if drawn == Some(Rebooted::Server) {
            self.stations[0].mote.forget(node);
        }
        let station = &mut self.stations[node];
        station.readings_left -= 1;
        if station.readings_left > 0 {
            let pause = period - period / 4 + station.traffic.below(period / 2 + 1);
            self.network.alarm(node, self.network.now() + pause, READ);
        }
        let mut wishes = Vec::new();
        self.stations[begins].mote.read(now, to, &mut wishes);
        self.outcome.made += if self.deployment.traffic.group.is_some() { self.makers.len() as u64 } else { 1 };
        self.fulfil(begins, wishes);
    }

    /// Gives a node the new address of the move with the index `number`. The routes of all nodes change immediately.
    fn move_to(&mut self, node: NodeId, number: u64) {
        let Some(moves) = self.deployment.moves.get(number as usize) else { return };
        let (now, to) = (self.instant(), self.stations[0].address);
        let station = &mut self.stations[node];
        let old = station.address.ip;
        station.moves = station.moves.wrapping_add(1);
        station.moved_at = Some(self.network.now());
        match moves.changes {
            Changes::Port => station.address.port = station.address.port.wrapping_add(1),
            Changes::Address => {
                let id = [2, 0, 0, 0, station.moves, 0, (node >> 8) as u8, node as u8];
                station.address.ip[8..].copy_from_slice(&id);
            }
        }
        let address = station.address;
        station.leaving.clear();
        let mut wishes = Vec::new();
        station.mote.moved(now, address, to, &mut wishes);
        for route in self.stations.iter_mut().flat_map(|station| &mut station.routes) {
            if route.len == 128 && route.prefix == old {
                route.prefix = address.ip;
            }
        }
        self.outcome.moves += 1;
        self.fulfil(node, wishes);
    }

    fn poll(&mut self, node: NodeId) {
        let now = self.instant();
        let mut wishes = Vec::new();
        let busy_until = self.stations[node].busy_until;
        if self.computes_long && busy_until > self.network.now() {
            return self.network.alarm(node, busy_until, POLL);
        }
        self.stations[node].alarm = None;
        self.stations[node].mote.poll(now, &mut wishes);
        self.fulfil(node, wishes);
    }

    /// Keeps the processor of a node busy for the time of these instructions, and for the time that the operating
    /// system needs for this number of datagrams.
    fn work(&mut self, node: NodeId, instructions: u64, datagrams: u64) {
        let system = datagrams * Micros::from(self.deployment.mote.stack_us);
        let cpu = cost::micros(instructions, self.cycles, self.platform.clock_hz) + system;
        let station = &mut self.stations[node];
        station.instructions += instructions;
        station.cpu += cpu;
        station.busy_until = station.busy_until.max(self.network.now()) + cpu;
    }

    /// Carries out the wishes of a node, which are its requests to the simulation. Keeps the processor of the node busy
    /// for the time of the instructions that it has executed since the last call. Sends the datagrams when the
    /// processor has finished.
    fn fulfil(&mut self, node: NodeId, wishes: Vec<Wish>) {
        let now = self.instant();
        let sent = wishes.iter().filter_map(|wish| match wish {
            Wish::Send { datagram, .. } => Some(self.costs.send_of(datagram.len())),
            _ => None,
        });
        let (instructions, datagrams) = sent.fold((0, 0), |(sum, count), one| (sum + one, count + 1));
        let instructions = instructions + self.stations[node].mote.take_instructions();
        self.work(node, instructions, datagrams);
        let station = &mut self.stations[node];
        let working = station.busy_until - self.network.now();
        let mut noted = Vec::new();
        for wish in wishes {
            match wish {
                Wish::Send { to, datagram } => {
                    station.leaving.push_back((to, datagram));
                    self.network.alarm(node, station.busy_until, LEAVE);
                }
                Wish::Answered { made, at_once } => {
                    self.outcome.answered += 1;
                    let delay = now.since(made).as_micros() as Micros + working;
                    self.outcome.delays.push(delay);
                    self.outcome.last_answer = self.outcome.last_answer.max(self.network.now() + working);
                    if at_once {
                        self.outcome.first_try.push(delay);
                    }
                    self.outcome.by_node[node].push(delay);
                    if let Some(moved) = station.moved_at.take() {
                        // The time begins when the node made the reading, or with the change of the address if the
                        // reading already waited.
                        let wanted = moved.max((made.as_micros() - 1) as Micros);
                        self.outcome.recoveries.push(self.network.now() - wanted + working);
                    }
                }
                Wish::Established => self.outcome.sessions += u64::from(node != 0),
                Wish::UsedPublicKey => self.public_key_answers += u64::from(node != 0),
                Wish::Challenged => self.outcome.challenges += 1,
                Wish::Heard { made, member } => {
                    let Some(member) = self.addresses.iter().position(|address| *address == member) else { continue };
                    self.outcome.answered += 1;
                    let delay = now.since(made).as_micros() as Micros + working;
                    self.outcome.delays.push(delay);
                    self.outcome.first_try.push(delay);
                    self.outcome.by_node[member].push(delay);
                }
                Wish::Noted(milestone) => noted.push((milestone, self.network.now() + working)),
                Wish::GivenUp | Wish::Served => {}
            }
        }
        let next = station.mote.next_alarm().filter(|next| *next != Instant::NEVER);
        let next = next.map(|next| next.as_micros().saturating_sub(1).max(self.network.now()));
        if let Some(next) = next.filter(|next| station.alarm.is_none_or(|set| *next < set || set < self.network.now()))
        {
            station.alarm = Some(next);
            self.network.alarm(node, next, POLL);
        }
        for (milestone, at) in noted {
            let account = |station: &Station| (Activity::default(), station.cpu, station.instructions);
            self.noted.push(Noted {
                milestone,
                begun: self.network.now(),
                at,
                nodes: self.stations.iter().map(account).collect(),
            });
            self.network.alarm(node, self.network.now() + ACKNOWLEDGED_AFTER, ACCOUNT);
        }
    }

    /// Stores the current activity of all radios in [`Self::noted`]: in the oldest milestone whose radio activity is
    /// still missing.
    fn account(&mut self) {
        let Some(noted) = self.noted.get_mut(self.is_accounted) else { return };
        self.is_accounted += 1;
        for (node, (activity, ..)) in noted.nodes.iter_mut().enumerate() {
            *activity = self.network.activity(node);
        }
    }

    /// Sends the first of the datagrams that have waited for the processor of the node to finish.
    fn leave(&mut self, node: NodeId) {
        let Some((to, datagram)) = self.stations[node].leaving.pop_front() else { return };
        if self.is_named {
            return self.send_named(node, to, &datagram);
        }
        self.handshakes += u64::from(is_handshake(&datagram));
        self.refusals += u64::from(node == 0 && is_alert_in_clear(&datagram));
        self.stay_awake(node, sleep::AFTER_DATAGRAM);
        let path = Path { local: self.stations[node].address, remote: to };
        let Ok(headers) = ip::headers(&path, self.deployment.stack.hop_limit, &datagram) else { return };
        let mut packet = headers.to_vec();
        packet.extend(datagram);
        if to.ip[0] == 0xff {
            return self.flood(node, &packet);
        }
        let routes = &self.stations[node].routes;
        if let Some(next) = next_hop(routes, &to.ip) {
            self.send(node, next, &packet);
        }
    }

    fn send(&mut self, node: NodeId, to: LinkAddress, packet: &[u8]) {
        if self.holds(to, packet) {
            return;
        }
        let room = self.network.room(node, to);
        let station = &mut self.stations[node];
        let view = view(station.link, &station.address, &self.contexts, &station.routes, station.relays);
        let Ok(mut fragments) = station.interface.send(&view, to, packet) else { return };
        let mut out = [0; 127];
        while let Ok(Some(payload)) = fragments.next_frame(room, &mut out) {
            self.network.send(node, to, payload);
        }
    }

    fn receive(&mut self, node: NodeId, from: LinkAddress, payload: &[u8]) {
        if payload == sleep::DATA_REQUEST {
            return self.release(node, from);
        }
        self.stay_awake(node, sleep::AFTER_DATAGRAM);
        if self.is_named {
            return self.receive_named(node, from, payload);
        }
        let now = self.instant();
        let station = &mut self.stations[node];
        let view = view(station.link, &station.address, &self.contexts, &station.routes, station.relays);
        let hop = Hop { source: from, destination: station.link };
        let frame = payload;
        let Ok(received) = station.interface.receive(now, &view, &hop, payload) else { return };
        let relay = received.relay;
        match received.packet {
            Some(Arrived::Here(packet)) => {
                let Ok(Datagram { path, payload }) = Datagram::parse(packet) else { return };
                let received = self.costs.receive_of(payload.len());
                let mut wishes = Vec::new();
                match path.local.ip[0] {
                    0xff => station.mote.receive_group(now, &path, payload, &mut wishes),
                    _ => station.mote.receive(now, path.remote, payload, &mut wishes),
                }
                self.work(node, received, 1);
                self.fulfil(node, wishes);
            }
            Some(Arrived::On(next, packet)) => {
                let (len, packet) = (packet.len().saturating_sub(ip::HEADROOM), packet.to_vec());
                self.work(node, self.costs.receive_of(len) + self.costs.send_of(len), 2);
                self.send_later(node, self.stations[node].busy_until, Later::Forward(next, packet));
            }
            Some(Arrived::Dropped(_)) | None => {}
        }
        if let Some(header) = relay {
            self.relay(node, &header, frame);
        }
    }

    /// Plans to send a frame or packet of `node` at the time `at`.
    fn send_later(&mut self, node: NodeId, at: Micros, later: Later) {
        self.stations[node].later.push((at, later));
        self.network.alarm(node, at, LATER);
    }

    /// Sends a frame or packet that is due.
    fn now_due(&mut self, node: NodeId) {
        let now = self.network.now();
        let later = &mut self.stations[node].later;
        let Some(due) = later.iter().position(|(at, _)| *at <= now) else { return };
        match later.remove(due).1 {
            Later::Relay(payload) => {
                self.network.send(node, LinkAddress::BROADCAST, &payload);
            }
            Later::Forward(next, packet) => self.send(node, next, &packet),
        }
    }

    fn outcome(mut self) -> Outcome {
        let elapsed = self.network.now();
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.delays.sort_unstable();
        outcome.by_node.iter_mut().for_each(|delays| delays.sort_unstable());
        (outcome.elapsed, outcome.events) = (elapsed, self.network.events());
        let (bytes, frames) = self.network.traffic();
        (outcome.bytes, outcome.frames) = (bytes, frames);
        let energies = self.makers.iter().map(|node| {
            let activity = self.network.activity(*node);
            self.platform.energy(&activity, self.stations[*node].cpu, self.radio_on(*node, elapsed))
        });
        let energies: Vec<Energy> = energies.collect();
        let n = energies.len() as f64;
        let mean = |field: fn(&Energy) -> f64| energies.iter().map(field).sum::<f64>() / n;
        outcome.energy = Energy {
            cpu_uj: mean(|energy| energy.cpu_uj),
            tx_uj: mean(|energy| energy.tx_uj),
            rx_uj: mean(|energy| energy.rx_uj),
            overheard_uj: mean(|energy| energy.overheard_uj),
            rx_always_on_uj: mean(|energy| energy.rx_always_on_uj),
        };
        let hungriest = (1..self.stations.len())
            .map(|node| (node, self.network.activity(node), self.radio_on(node, elapsed)))
            .map(|(node, activity, on)| self.platform.energy(&activity, self.stations[node].cpu, on));
        outcome.hungriest =
            hungriest.max_by(|a, b| a.radio_by_frame().total_cmp(&b.radio_by_frame())).unwrap_or_default();
        outcome.instructions = self.makers.iter().map(|node| self.stations[*node].instructions).sum();
        outcome
    }
}

const PREFIX: [u8; 16] = [0xfd, 0x00, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// The token (purpose) of the simulator's alarm at which a node makes a reading.
const READ: u64 = 1;
/// The token (purpose) of the simulator's alarm at which a waiting datagram leaves a node.
const LEAVE: u64 = 2;
/// The token (purpose) of the simulator's alarm for the next timer of a node's protocol stack.
const POLL: u64 = 3;
/// The token (purpose) of the simulator's alarm at which a node sends the frame or packet that [`World::send_later`]
/// has planned.
const LATER: u64 = 4;
/// The token (purpose) of the simulator's alarm at which the simulation reads the activity of the radios. This alarm
/// fires a millisecond after a milestone (an event such as the end of the handshakes).
const ACCOUNT: u64 = 5;
/// The token (purpose) of the simulator's alarm at which a node with a sleeping radio asks its parent for packets.
const ASK_PARENT: u64 = 6;
/// The token (purpose) of the simulator's alarm for the first move in the deployment's list of moves. A move changes
/// the address of a node. The next higher numbers are the tokens of the alarms for the other moves.
const MOVE: u64 = 7;
/// Maximum time in microseconds from the end of a frame to the end of its acknowledgement, rounded up.
const ACKNOWLEDGED_AFTER: Micros = 1000;
/// Time in microseconds for which a run continues after the last reading. It is longer than the time for which CoAP
/// retransmits a message and waits for the answer (RFC 7252, section 4.8.2: MAX_TRANSMIT_WAIT).
const AFTERWARDS: Micros = 93_000_000;
/// Maximum time in microseconds for which a run continues after the last reading, if the run ends when all readings are
/// answered.
const LONGEST_RETURN: Micros = 3_600_000_000;

/// Returns true if the datagram is an unencrypted alert, in a record of epoch 0 (RFC 6347, section 4.1).
fn is_alert_in_clear(datagram: &[u8]) -> bool {
    matches!(datagram, [21, _, _, 0, 0, ..])
}

/// Returns the network configuration of a station.
fn view<'n>(
    link: LinkAddress,
    address: &'n Address,
    contexts: &'n [Context],
    routes: &'n [Route],
    relays: bool,
) -> tegmen_lowpan::Network<'n> {
    tegmen_lowpan::Network { link, own: std::slice::from_ref(&address.ip), contexts, routes, relays }
}

#[cfg(test)]
mod tests;
