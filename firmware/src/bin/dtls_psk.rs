//! Two DTLS endpoints in one image, client and server, that exchange real datagrams in memory: a handshake with
//! cookie and pre-shared key, then a record of 64 bytes each way.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::counters::Counters;
use tegmen::dtls::state::{Answer, HandshakeState};
use tegmen::dtls::{Channel, Config, Records};
use tegmen::endpoint::{
    Address, Cx, Endpoint, Event, HEADROOM, Misuse, Path, Peer, PeerArray, PeerId, Principal, TAILROOM,
};
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::Place;

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
    Note::size("Endpoint", size_of::<Endpoint<Table>>()),
    Note::size("Cx parts", size_of::<Provider>() + size_of::<Counters>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// The whole exchange; `None` if anything goes another way than expected.
fn run() -> Option<()> {
    let client = CLIENT_NODE.fill(|| Node::new(&CLIENT))?;
    let server = SERVER_NODE.fill(|| Node::new(&SERVER))?;
    let wire = WIRE.fill(|| Wire { there: [0; DATAGRAM_LEN], back: [0; DATAGRAM_LEN] })?;

    client.connect()?;
    while client.session.is_none() || server.session.is_none() {
        let (sent_by_client, sent_by_server) = (client.step(wire, server)?, server.step(wire, client)?);
        if !sent_by_client && !sent_by_server {
            return None;
        }
    }

    let text = [b'x'; RECORD_LEN];
    let datagram = client.seal(wire, &text).ok()?;
    server.open(datagram, &text)
}

/// One end.
struct Node {
    endpoint: Endpoint<Table>,
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
    fn new(end: &'static End) -> Self {
        let mut crypto = Provider::new([end.region as u8; 32]);
        let mut counters = Counters::default();
        let mut cx = Cx { now: NOW, crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, Table::new(), Config::default());
        Self { endpoint, crypto, counters, end, session: None }
    }

    fn connect(&mut self) -> Option<()> {
        let Self { endpoint, crypto, counters, end, .. } = self;
        let mut cx = Cx { now: NOW, crypto, counters };
        measured(end.region, || endpoint.connect(&mut cx, &end.path)).ok().map(|_| ())
    }

    /// Sends what is due to the other end; false if nothing was.
    fn step(&mut self, wire: &mut Wire, other: &mut Self) -> Option<bool> {
        let mut sent = false;
        loop {
            let Self { endpoint, crypto, counters, end, .. } = &mut *self;
            let mut cx = Cx { now: NOW, crypto, counters };
            match measured(end.region, || endpoint.poll(&mut cx, &mut wire.there)) {
                Some(Event::Transmit { datagram, .. }) => {
                    sent = true;
                    other.receive(datagram, &mut wire.back, self)?;
                }
                Some(_) => return None,
                None => return Some(sent),
            }
        }
    }

    /// Takes a datagram of the other end. It may be answered at once, which ends there: a cookie.
    fn receive(&mut self, datagram: &mut [u8], out: &mut [u8], other: &mut Self) -> Option<()> {
        let mut records = Records::new(datagram);
        loop {
            let Self { endpoint, crypto, counters, end, .. } = &mut *self;
            let mut cx = Cx { now: NOW, crypto, counters };
            let mut event = measured(end.region, || endpoint.handle(&mut cx, &end.path, &mut records, &mut *out));
            if let Some(Event::Need(id)) = event {
                let answer = Answer::Psk { identity: b"Client_identity", key: b"0123456789abcdef", principal: WHO };
                event = measured(end.region, || endpoint.resume(&mut cx, id, answer));
                if event.is_none() {
                    continue;
                }
            }
            match event {
                Some(Event::Transmit { datagram, .. }) => other.receive(datagram, &mut [], self)?,
                Some(Event::Established(id)) => self.session = Some(id),
                Some(_) => return None,
                None => return Some(()),
            }
        }
    }

    fn seal<'w>(&mut self, wire: &'w mut Wire, text: &[u8]) -> Result<&'w mut [u8], Misuse> {
        let id = self.session.ok_or(Misuse::NotEstablished)?;
        let mut frame = Frame::new(&mut wire.there, HEADROOM);
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

/// The datagrams under way.
struct Wire {
    there: [u8; DATAGRAM_LEN],
    back: [u8; DATAGRAM_LEN],
}

/// One peer, its identity or cookie of up to 32 bytes, and 96 bytes of what comes early.
type Table = PeerArray<(), 1, 1, 32, 96>;

static CLIENT_NODE: Place<Node> = Place::empty();
static SERVER_NODE: Place<Node> = Place::empty();
static WIRE: Place<Wire> = Place::empty();

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
