//! Two DTLS endpoints in one image, client and server, that exchange real datagrams in memory: a handshake with
//! cookie and pre-shared key, then a record of 64 bytes each way.
#![no_std]
#![no_main]

use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Channel, Config, HandshakeState};
use tegmen::endpoint::{Endpoint, OnePeer, Peer};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::pair::{CLIENT, Either, OPEN, Pair, SEAL, SERVER};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 10] = [
    Note::operation(CLIENT.region.id(), "handshake client"),
    Note::operation(SERVER.region.id(), "handshake server"),
    Note::operation(SEAL, "seal 64 B"),
    Note::operation(OPEN, "open 64 B"),
    Note::size("Channel", size_of::<Channel>()),
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("peer table of one", size_of::<Table>()),
    Note::size("Endpoint", size_of::<Endpoint<&mut Table, Either>>()),
    Note::size("Cx parts", size_of::<Provider>() + size_of::<Counters>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// The whole exchange; `None` if anything goes another way than expected.
fn run() -> Option<()> {
    let mut pair = PAIR.start(endpoint)?;
    pair.client.connect(&mut pair.cx)?;
    pair.meet(|_| Some(()))?;
    pair.speak()
}

/// The same for both, so that it is in the image once.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table, Either> {
    Endpoint::new(cx, table, Config::default())
}

/// One peer, its identity or cookie of up to 32 bytes, and 96 bytes of fragments and early records.
type Table = OnePeer<(), 32, 96>;

static PAIR: Pair<Table, Either, DATAGRAM_LEN> = Pair::new(Table::new(), Table::new());

/// Flights of the handshake are below 140 bytes.
const DATAGRAM_LEN: usize = 200;
