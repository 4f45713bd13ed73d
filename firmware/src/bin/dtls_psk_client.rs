//! A DTLS client without a server in the image. So the size of this image is the size of a client.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Answer, ClientOnly, Config, HandshakeState, Records};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, OnePeer, Peer};
use tegmen::identity::Principal;
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit};
use tegmen_firmware::place::Kept;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 3] = [
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("Endpoint", size_of::<Endpoint<&mut Table, ClientOnly>>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(run().is_some())
}

/// Connects, sends one record and processes all datagrams that arrive. Returns `None` when the session has ended.
fn run() -> Option<()> {
    let Memory { table, received, sent } = MEMORY.take()?;
    let crypto = &mut Provider::new(black_box([0; 32]));
    let counters = &mut Counters::default();
    let mut cx = Cx { now: Instant::from_micros(0), crypto, counters };
    let mut endpoint = Endpoint::<_, ClientOnly>::new(&mut cx, table, Config::default());

    let path = black_box(&PATH);
    endpoint.connect(&mut cx, path).ok()?;
    loop {
        cx.now = Instant::from_micros(black_box(0));
        while let Some(event) = endpoint.poll(&mut cx, sent) {
            match event {
                Event::Transmit { len, .. } => _ = black_box((&sent, len)),
                Event::Closed { .. } => return None,
                _ => {}
            }
        }
        let received_len = black_box(BUFFER_LEN);
        let mut records = Records::new(received.get_mut(..received_len)?);
        while let Some(event) = endpoint.handle(&mut cx, path, &mut records, &mut []) {
            match event {
                Event::Need(id) => {
                    let answer = Answer::Psk { identity: b"Client_identity", key: b"0123456789abcdef", principal: WHO };
                    endpoint.resume(&mut cx, id, answer);
                }
                Event::Established(id) => {
                    let mut frame = Frame::new(sent, HEADROOM);
                    frame.append(black_box(b"hello")).ok()?;
                    endpoint.seal(&mut cx, id, &mut frame).ok()?;
                    black_box(frame.finish());
                }
                Event::Message { bytes, .. } => _ = black_box(records.bytes(bytes)),
                Event::Closed { .. } => return None,
                _ => {}
            }
        }
    }
}

/// A table for one peer, with 32 bytes for its identity or cookie, and 96 bytes for fragments and early records.
type Table = OnePeer<(), 32, 96>;

/// The data that is not on the stack: the table, the received datagram and the datagram to send.
struct Memory {
    table: Table,
    received: [u8; BUFFER_LEN],
    sent: [u8; BUFFER_LEN],
}

static MEMORY: Kept<Memory> =
    Kept::new(Memory { table: Table::new(), received: [0; BUFFER_LEN], sent: [0; BUFFER_LEN] });

static PATH: Path = Path { local: address(1), remote: address(2) };

const fn address(last: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 }
}

const WHO: Principal = Principal(1);
const BUFFER_LEN: usize = 200;
