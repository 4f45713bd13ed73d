//! Two DTLS endpoints in one image, client and server, that exchange real datagrams in memory: a handshake with
//! cookie and pre-shared key, then a record of 64 bytes each way.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::counters::Counters;
use tegmen::dtls::HandshakeState;
use tegmen::dtls::need::Answer;
use tegmen::dtls::{Channel, Config, Records};
use tegmen::endpoint::{
    Address, Cx, Endpoint, Event, HEADROOM, Misuse, Path, Peer, PeerArray, PeerId, Principal, TAILROOM,
};
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 10] = [
    Note::operation(CLIENT.region, "handshake client"),
    Note::operation(SERVER.region, "handshake server"),
    Note::operation(SEAL, "seal 64 B"),
    Note::operation(OPEN, "open 64 B"),
    Note::size("Channel", size_of::<Channel>()),
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("peer table of one", size_of::<Table>()),
    Note::size("Endpoint", size_of::<Endpoint<&mut Table>>()),
    Note::size("Cx parts", size_of::<Provider>() + size_of::<Counters>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// The whole exchange; `None` if anything goes another way than expected.
fn run() -> Option<()> {
    let client = Node::start(&CLIENT_NODE, &CLIENT_TABLE, &CLIENT)?;
    let server = Node::start(&SERVER_NODE, &SERVER_TABLE, &SERVER)?;
    let Wire { there, back, text } = WIRE.take()?;

    client.connect()?;
    while client.session.is_none() || server.session.is_none() {
        let sent = client.send_flight(there, back, server)? + server.send_flight(there, back, client)?;
        if sent == 0 {
            return None;
        }
    }

    let datagram = client.seal(there, text).ok()?;
    server.open(datagram, text)
}

/// One end.
struct Node {
    endpoint: Endpoint<&'static mut Table>,
    crypto: Provider,
    counters: Counters,
    end: &'static End,
    session: Option<PeerId>,
}

/// What distinguishes the ends.
struct End {
    region: u32,
    path: Path,
}

impl Node {
    /// Apart, so that the stack holds the node only while it is made.
    #[inline(never)]
    fn start(place: &'static Place<Self>, table: &'static Kept<Table>, end: &'static End) -> Option<&'static mut Self> {
        let table = table.take()?;
        place.fill(|| {
            let mut crypto = Provider::new([end.region as u8; 32]);
            let mut counters = Counters::default();
            let mut cx = Cx { now: NOW, crypto: &mut crypto, counters: &mut counters };
            let endpoint = Endpoint::new(&mut cx, table, Config::default());
            Self { endpoint, crypto, counters, end, session: None }
        })
    }

    fn connect(&mut self) -> Option<()> {
        let Self { endpoint, crypto, counters, end, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        measured(end.region, || endpoint.connect(&mut cx, &end.path)).ok().map(|_| ())
    }

    /// Sends what is due to the other end, and takes back what that answers at once: a cookie. How many were sent.
    fn send_flight(&mut self, there: &mut Datagram, back: &mut Datagram, other: &mut Self) -> Option<usize> {
        let mut sent = 0;
        loop {
            let len = self.poll(there);
            if len == 0 {
                return Some(sent);
            }
            sent += 1;
            let answer_len = other.receive(there.get_mut(..len)?, back);
            if answer_len > 0 {
                self.receive(back.get_mut(..answer_len)?, &mut []);
            }
        }
    }

    /// The length of the next datagram that is due, 0 if there is none. Apart, so that the other end's turn does not stand
    /// on this one's stack.
    #[inline(never)]
    fn poll(&mut self, out: &mut [u8]) -> usize {
        let Self { endpoint, crypto, counters, end, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        match measured(end.region, || endpoint.poll(&mut cx, out)) {
            Some(Event::Transmit { datagram, .. }) => datagram.len(),
            _ => 0,
        }
    }

    /// Takes a datagram of the other end; the length of the answer, 0 if there is none.
    #[inline(never)]
    fn receive(&mut self, datagram: &mut [u8], out: &mut [u8]) -> usize {
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        loop {
            let Self { endpoint, crypto, counters, end, .. } = self;
            let mut cx = Cx { now: NOW, crypto, counters };
            match measured(end.region, || endpoint.handle(&mut cx, &end.path, &mut records, out)) {
                Some(Event::Answer(datagram)) => answer_len = datagram.len(),
                Some(Event::Need(id)) => self.give_key(id),
                Some(Event::Established(id)) => self.session = Some(id),
                Some(_) => {}
                None => return answer_len,
            }
        }
    }

    /// Apart, so that it does not stand on the stack while records are handled.
    #[inline(never)]
    fn give_key(&mut self, id: PeerId) {
        let answer = Answer::Psk { identity: b"Client_identity", key: b"0123456789abcdef", principal: WHO };
        let Self { endpoint, crypto, counters, end, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        measured(end.region, || endpoint.resume(&mut cx, id, answer));
    }

    fn seal<'w>(&mut self, wire: &'w mut [u8], text: &[u8]) -> Result<&'w mut [u8], Misuse> {
        let id = self.session.ok_or(Misuse::NotEstablished)?;
        let mut frame = Frame::new(wire, HEADROOM);
        frame.append(text).map_err(|_| Misuse::Full)?;
        let Self { endpoint, crypto, counters, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        measured(SEAL, || endpoint.seal(&mut cx, id, &mut frame))?;
        Ok(black_box(frame.finish()))
    }

    fn open(&mut self, datagram: &mut [u8], expected: &[u8]) -> Option<()> {
        let Self { endpoint, crypto, counters, end, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        let mut records = Records::new(datagram);
        match measured(OPEN, || endpoint.handle(&mut cx, &end.path, &mut records, &mut [])) {
            Some(Event::Message { bytes, .. }) if bytes == expected => Some(()),
            _ => None,
        }
    }
}

/// The datagrams under way, and what is said in the end.
struct Wire {
    there: Datagram,
    back: Datagram,
    text: [u8; RECORD_LEN],
}

type Datagram = [u8; DATAGRAM_LEN];

/// One peer, its identity or cookie of up to 32 bytes, and 96 bytes of what comes early.
type Table = PeerArray<(), 1, 1, 32, 96>;

static CLIENT_NODE: Place<Node> = Place::empty();
static SERVER_NODE: Place<Node> = Place::empty();
static CLIENT_TABLE: Kept<Table> = Kept::new(Table::new());
static SERVER_TABLE: Kept<Table> = Kept::new(Table::new());
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; DATAGRAM_LEN], back: [0; DATAGRAM_LEN], text: [0; RECORD_LEN] });

static CLIENT: End = End { region: 0, path: Path { local: address(1), remote: address(2) } };
static SERVER: End = End { region: 1, path: Path { local: address(2), remote: address(1) } };
const SEAL: u32 = 2;
const OPEN: u32 = 3;

const fn address(last: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 }
}

const WHO: Principal = Principal(1);
/// Nothing here takes time.
const NOW: Instant = Instant::from_micros(0);
const RECORD_LEN: usize = 64;
/// Flights of the handshake are below 140 bytes.
const DATAGRAM_LEN: usize = 200;
const _: () = assert!(DATAGRAM_LEN >= HEADROOM + RECORD_LEN + TAILROOM);
