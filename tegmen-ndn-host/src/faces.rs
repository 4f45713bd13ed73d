//! The faces of a node. A face sends packets, and divides long packets into fragments of the link protocol.

use crate::datagrams::Port;
use crate::management::Counters;
use crate::reassembly::Reassembly;
use crate::reliability::{Lost, Reliability};
use crate::tables::Token;
use crate::uri::FaceUri;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use tegmen_base::buf::{Frame, Writer};
use tegmen_base::time::Instant;
use tegmen_ndn::MAX_PACKET;
use tegmen_ndn::forwarder::{Faces, Outgoing};
use tegmen_ndn::lp::{FRAGMENT_OVERHEAD, LpPacket, MAX_FIELDS, Part, set_tx_sequence, write_acks};
use tegmen_ndn::tables::FaceId;
use tokio::sync::Notify;

/// The number of the internal face that takes the commands of the management protocol.
pub(crate) const MANAGEMENT: FaceId = FaceId(0);

/// Maximum number of bytes that wait until a stream can send them. Further packets are lost.
const OUTBOX: usize = 4 << 20;

/// The bytes that wait for a stream.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) bytes: RefCell<Vec<u8>>,
    pub(crate) added: Notify,
    /// True while the stream is open.
    pub(crate) is_open: Cell<bool>,
}

pub(crate) enum Link {
    Management,
    Udp(Rc<Port>, SocketAddr),
    Stream(Rc<Outbox>),
}

pub(crate) struct Face {
    pub(crate) link: Link,
    pub(crate) remote: FaceUri,
    pub(crate) local: String,
    pub(crate) is_local: bool,
    /// True if the remote peer opened the face.
    pub(crate) is_on_demand: bool,
    pub(crate) counters: Counters,
    pub(crate) active: Instant,
    next_sequence: u64,
    pub(crate) reassembly: Reassembly,
    /// The key of a UDP face in the table of remote addresses: the number of the socket, and the remote address. It is
    /// `None` for other faces.
    by_remote: Option<(usize, SocketAddr)>,
    /// The state of acknowledgements and retransmissions. It is `None` if the face is not a UDP face, or if the setting
    /// [`Config::reliable`](crate::node::Config::reliable) of the node is false.
    pub(crate) reliability: Option<Box<Reliability>>,
}

impl Face {
    pub(crate) fn new(link: Link, remote: FaceUri, local: String, is_on_demand: bool, now: Instant) -> Self {
        let is_local = match &remote {
            FaceUri::Unix(_) => true,
            FaceUri::Tcp(address) | FaceUri::Udp(address) => address.ip().to_canonical().is_loopback(),
        };
        Self {
            link,
            remote,
            local,
            is_local,
            is_on_demand,
            counters: Counters::default(),
            active: now,
            next_sequence: 0,
            reassembly: Reassembly::default(),
            by_remote: None,
            reliability: None,
        }
    }

    /// Sends a packet. Over UDP, sends it in fragments if it is longer than the MTU permits.
    fn send(&mut self, now: Instant, mtu: usize, fields: &LpPacket<'_>, packet: &[u8], buffer: &mut [u8]) {
        let is_bare = *fields == LpPacket::default() && self.reliability.is_none();
        if let Link::Udp(..) = self.link {
            let overhead = if is_bare { 0 } else { MAX_FIELDS };
            if packet.len() + overhead > mtu && packet.len() > mtu / 2 {
                return self.send_fragments(now, mtu, fields, packet, buffer);
            }
        }
        if is_bare {
            return self.put(packet);
        }
        // The neighbour takes a retransmission for a new Interest, in a loop, if it has no Sequence.
        let part = self.reliability.is_some().then(|| Part { sequence: self.sequence(), index: 0, count: 1 });
        self.send_framed(now, LpPacket { part, ..*fields }, packet, buffer);
    }

    /// Returns the Sequence of the next fragment.
    const fn sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Sends a packet in fragments. Only the first fragment contains the values in `fields`.
    fn send_fragments(&mut self, now: Instant, mtu: usize, fields: &LpPacket<'_>, packet: &[u8], buffer: &mut [u8]) {
        let size = mtu.saturating_sub(FRAGMENT_OVERHEAD + MAX_FIELDS / 2).max(200);
        let count = packet.len().div_ceil(size) as u64;
        for (index, fragment) in (0..).zip(packet.chunks(size)) {
            let part = Some(Part { sequence: self.sequence(), index, count });
            let fields =
                if index == 0 { LpPacket { part, ..*fields } } else { LpPacket { part, ..LpPacket::default() } };
            self.send_framed(now, fields, fragment, buffer);
        }
    }

    /// Sends an LpPacket. If the face is reliable, keeps the LpPacket for a retransmission.
    fn send_framed(&mut self, now: Instant, fields: LpPacket<'_>, fragment: &[u8], buffer: &mut [u8]) {
        let sequence = self.reliability.as_mut().map(|reliability| reliability.sequence());
        let fields = LpPacket { tx_sequence: sequence, ..fields };
        let mut frame = Frame::new(buffer, MAX_FIELDS);
        if frame.append(fragment).is_ok() && fields.write_around(&mut frame).is_ok() {
            self.put(frame.bytes());
            if let (Some(reliability), Some(sequence)) = (&mut self.reliability, sequence) {
                reliability.keep(now, sequence, frame.bytes().into(), 0);
            }
        }
    }

    /// Acknowledges received LpPackets, and retransmits LpPackets that the neighbour has not acknowledged. Returns true
    /// if LpPackets still wait for an acknowledgement.
    fn repeat(&mut self, now: Instant, buffer: &mut [u8]) -> bool {
        const ACKS: usize = 80;
        loop {
            let Some(reliability) = &mut self.reliability else { return false };
            let acks = reliability.take_acks(ACKS);
            let mut out = Writer::new(buffer);
            if acks.is_empty() || write_acks(&acks, &mut out).is_err() {
                break;
            }
            self.put(out.written());
        }
        loop {
            let Some(reliability) = &mut self.reliability else { return false };
            let Some(Lost { mut packet, retransmissions }) = reliability.take_lost(now) else {
                return !reliability.is_idle();
            };
            let sequence = reliability.sequence();
            if set_tx_sequence(&mut packet, sequence) {
                self.put(&packet);
                if let Some(reliability) = &mut self.reliability {
                    reliability.keep(now, sequence, packet, retransmissions);
                }
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.counters.out_bytes += bytes.len() as u64;
        match &self.link {
            Link::Management => {}
            Link::Udp(socket, remote) => {
                socket.push(*remote, bytes);
            }
            Link::Stream(outbox) => {
                let mut waiting = outbox.bytes.borrow_mut();
                if outbox.is_open.get() && waiting.len() + bytes.len() <= OUTBOX {
                    if waiting.is_empty() {
                        outbox.added.notify_one();
                    }
                    waiting.extend_from_slice(bytes);
                }
            }
        }
    }
}

/// All faces of a node.
pub(crate) struct FaceTable {
    faces: Vec<Option<Face>>,
    /// The numbers of removed faces. The number that was freed first is used again first, so that no number is used
    /// again soon.
    free: VecDeque<u16>,
    by_remote: HashMap<(usize, SocketAddr), FaceId>,
    /// The sockets of the UDP faces.
    ports: Vec<Rc<Port>>,
    pub(crate) mtu: usize,
    most: usize,
    buffer: Box<[u8]>,
    /// The commands that still have to be executed: the face that sent the Interest, and the Interest.
    pub(crate) commands: VecDeque<(FaceId, Box<[u8]>)>,
    /// The face that received the packet which is being forwarded now.
    pub(crate) from: FaceId,
    /// The time at which the node began to forward the current packet.
    pub(crate) now: Instant,
    /// True if UDP faces acknowledge LpPackets, and retransmit LpPackets that the neighbour does not acknowledge.
    reliable: bool,
    /// The UDP faces that have to send an acknowledgement, or that wait for an acknowledgement.
    busy: HashSet<FaceId>,
    pub(crate) totals: Counters,
}

impl FaceTable {
    pub(crate) fn new(most: usize, mtu: usize, reliable: bool, now: Instant) -> Self {
        let own = Face::new(Link::Management, FaceUri::Unix("internal".into()), "internal://".into(), false, now);
        Self {
            faces: vec![Some(own)],
            free: VecDeque::new(),
            by_remote: HashMap::new(),
            ports: Vec::new(),
            mtu,
            most: most.min(usize::from(u16::MAX)),
            buffer: vec![0; MAX_PACKET + 2 * MAX_FIELDS].into(),
            commands: VecDeque::new(),
            from: MANAGEMENT,
            now,
            reliable,
            busy: HashSet::new(),
            totals: Counters::default(),
        }
    }

    /// Adds a face. Returns `None` if the table already contains the maximum number of faces, or if the system has no
    /// random numbers.
    pub(crate) fn add(&mut self, mut face: Face) -> Option<FaceId> {
        if self.reliable && matches!(face.link, Link::Udp(..)) {
            // The neighbour may remember the numbers of this node before a restart.
            face.next_sequence = getrandom::u64().ok()?;
            face.reliability = Some(Box::new(Reliability::beginning_at(getrandom::u64().ok()?)));
        }
        if self.faces.len() - self.free.len() >= self.most {
            return None;
        }
        if let Link::Udp(port, _) = &face.link
            && !self.ports.iter().any(|known| Rc::ptr_eq(known, port))
        {
            self.ports.push(Rc::clone(port));
        }
        // A number is used again only if no new one is left, or many are free.
        let id = match self.free.front() {
            Some(free) if self.free.len() > 1024 || self.faces.len() >= usize::from(u16::MAX) => {
                let id = *free;
                self.free.pop_front();
                self.faces[usize::from(id)] = Some(face);
                id
            }
            _ => {
                self.faces.push(Some(face));
                (self.faces.len() - 1) as u16
            }
        };
        Some(FaceId(id))
    }

    /// Returns the UDP face with this socket number and this remote address; `None` if there is none.
    pub(crate) fn of_remote(&self, socket: usize, remote: SocketAddr) -> Option<FaceId> {
        self.by_remote.get(&(socket, remote)).copied()
    }

    /// Adds `face`, a UDP face, to the table of remote addresses. Its key in this table is its socket number and its
    /// remote address.
    pub(crate) fn set_remote(&mut self, socket: usize, remote: SocketAddr, face: FaceId) {
        self.by_remote.insert((socket, remote), face);
        if let Some(face) = self.get(face) {
            face.by_remote = Some((socket, remote));
        }
    }

    pub(crate) fn remove(&mut self, id: FaceId) {
        let Some(face) = self.faces.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        self.free.push_back(id.0);
        self.busy.remove(&id);
        if let Some(place) = face.by_remote {
            self.by_remote.remove(&place);
        }
    }

    /// Processes the acknowledgements in a received LpPacket. Records the TxSequence of the LpPacket, so that the node
    /// acknowledges it.
    pub(crate) fn note(&mut self, id: FaceId, now: Instant, sequence: Option<u64>, acks: impl Iterator<Item = u64>) {
        let Some(reliability) = self.get(id).and_then(|face| face.reliability.as_mut()) else { return };
        acks.for_each(|ack| reliability.acknowledged(now, ack));
        if let Some(sequence) = sequence {
            reliability.received(sequence);
            self.busy.insert(id);
        }
    }

    /// Sends all acknowledgements and retransmissions that are due, at all faces.
    pub(crate) fn repeat(&mut self, now: Instant) {
        let Self { faces, busy, buffer, .. } = self;
        busy.retain(|id| {
            let face = faces.get_mut(usize::from(id.0)).and_then(Option::as_mut);
            face.is_some_and(|face| face.repeat(now, buffer))
        });
    }

    /// Sends the datagrams that wait at all UDP faces.
    pub(crate) fn flush(&self) {
        self.ports.iter().for_each(|port| port.flush());
    }

    /// Removes, at all faces, the packets whose missing fragments did not arrive in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.faces.iter_mut().flatten().for_each(|face| face.reassembly.expire(now));
    }

    pub(crate) fn get(&mut self, id: FaceId) -> Option<&mut Face> {
        self.faces.get_mut(usize::from(id.0))?.as_mut()
    }

    pub(crate) fn exists(&self, id: FaceId) -> bool {
        self.faces.get(usize::from(id.0)).is_some_and(Option::is_some)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FaceId, &Face)> {
        (0..).zip(&self.faces).filter_map(|(id, face)| Some((FaceId(id), face.as_ref()?)))
    }
}

impl Faces<Token> for FaceTable {
    fn is_local(&self, face: FaceId) -> bool {
        self.faces.get(usize::from(face.0)).and_then(Option::as_ref).is_some_and(|face| face.is_local)
    }

    fn send(&mut self, to: FaceId, packet: Outgoing<'_, Token>) {
        if to == MANAGEMENT {
            if let Outgoing::Interest(packet, _) = packet {
                self.commands.push_back((self.from, packet.into()));
            }
            return;
        }
        let Self { faces, mtu, buffer, totals, now, busy, .. } = self;
        let Some(face) = faces.get_mut(usize::from(to.0)).and_then(Option::as_mut) else { return };
        let mut fields = LpPacket::default();
        let (packet, token) = match &packet {
            Outgoing::Interest(packet, _) => {
                (face.counters.out_interests, totals.out_interests) =
                    (face.counters.out_interests + 1, totals.out_interests + 1);
                (*packet, Token::default())
            }
            Outgoing::Data(packet, token) => {
                (face.counters.out_data, totals.out_data) = (face.counters.out_data + 1, totals.out_data + 1);
                (*packet, *token)
            }
            Outgoing::Nack(packet, reason, token) => {
                (face.counters.out_nacks, totals.out_nacks) = (face.counters.out_nacks + 1, totals.out_nacks + 1);
                fields.nack = Some(*reason);
                (*packet, *token)
            }
        };
        fields.token = token.get();
        if face.reliability.is_some() {
            busy.insert(to);
        }
        face.send(*now, *mtu, &fields, packet, buffer);
    }
}
