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

/// Runs the whole exchange. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let mut pair = PAIR.start(endpoint)?;
    pair.client.connect(&mut pair.cx)?;
    pair.meet(|_| Some(()))?;
    pair.speak()
}

/// Makes an endpoint. This function makes both the client and the server, so that its code is in the image once.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table, Either> {
    Endpoint::new(cx, table, Config::default())
}

/// A table for one peer, with 32 bytes for its identity or cookie, and 96 bytes for fragments and early records.
type Table = OnePeer<(), 32, 96>;

static PAIR: Pair<Table, Either, DATAGRAM_LEN> = Pair::new(Table::new(), Table::new());

/// Length of a datagram buffer in bytes. Flights of the handshake are shorter than 140 bytes.
const DATAGRAM_LEN: usize = 200;
