//! Two DTLS endpoints in one image, client and server, that exchange real datagrams in memory: a handshake with
//! cookie and pre-shared key, then a record of 64 bytes each way.
#![no_std]
#![no_main]

use tegmen::counters::Counters;
use tegmen::dtls::HandshakeState;
use tegmen::dtls::{Channel, Config};
use tegmen::endpoint::{Both, Cx, Endpoint, Path, Peer, PeerArray};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::pair::{End, MIN_DATAGRAM, Node, OPEN, RECORD_LEN, SEAL, address};
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
    let client = Node::start(&CLIENT_NODE, &CLIENT_TABLE, &CLIENT, endpoint)?;
    let server = Node::start(&SERVER_NODE, &SERVER_TABLE, &SERVER, endpoint)?;
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

/// The same for both, so that it is in the image once.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table> {
    Endpoint::new(cx, table, Config::default())
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

static CLIENT_NODE: Place<Node<Table, Both>> = Place::empty();
static SERVER_NODE: Place<Node<Table, Both>> = Place::empty();
static CLIENT_TABLE: Kept<Table> = Kept::new(Table::new());
static SERVER_TABLE: Kept<Table> = Kept::new(Table::new());
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; DATAGRAM_LEN], back: [0; DATAGRAM_LEN], text: [0; RECORD_LEN] });

static CLIENT: End = End { region: 0, path: Path { local: address(1), remote: address(2) } };
static SERVER: End = End { region: 1, path: Path { local: address(2), remote: address(1) } };
/// Flights of the handshake are below 140 bytes.
const DATAGRAM_LEN: usize = 200;
const _: () = assert!(DATAGRAM_LEN >= MIN_DATAGRAM);
