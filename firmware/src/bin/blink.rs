//! The two motes of Blink in one image, connected by a [`line`] in memory: a client that sends a PUT every second, and
//! a server that counts the PUTs. The image measures the code that `blink_*` and `cosim_*` also contain.
//!
//! The images `blink_*` and `cosim_*` use a serial line, whose interrupts would also be counted. In this image the same
//! mote and the same applications use a [`line`] in memory.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;
#[path = "../blink_server.rs"]
pub mod blink_server;
#[path = "../line.rs"]
pub mod line;
#[path = "../mote.rs"]
pub mod mote;
#[path = "../two_motes.rs"]
pub mod two_motes;

use blink_client::Client;
use blink_server::Server;
use core::sync::atomic::Ordering;
use line::{leds, uart};
use mote::{Application, Mote, PACKET_LEN};
use tegmen::dtls::{ClientOnly, ServerOnly};
use tegmen::time::{Duration, Instant};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};
use two_motes::{HANDSHAKE, SERVER, converse, make, start};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 6] = [
    Note::operation(HANDSHAKE, "handshake client, PUT"),
    Note::operation(HANDSHAKE + SERVER, "handshake server"),
    Note::operation(SEND, "send PUT"),
    Note::operation(REQUEST + SERVER, "serve PUT"),
    Note::operation(REQUEST, "receive response"),
    Note::size("Mote", size_of::<Mote<ClientOnly>>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Runs a handshake and a PUT in the new session. A second later runs another PUT. Returns `None` if the server does
/// not answer the PUTs.
fn run() -> Option<()> {
    let now = Instant::from_micros(1);
    let mut blinker: Client = Application::<()>::start(&start(1))?;
    let mut counter: Server = Application::<()>::start(&start(2))?;
    let client = make::<_, ()>(&CLIENT_MOTE, now, 1, || ())?;
    let server = make::<_, ()>(&SERVER_MOTE, now, 2, || ())?;
    let (line, storage) = (LINE.take()?, STORAGE.take()?);

    measured(HANDSHAKE, || client.on_time(&mut blinker, now));
    // The second PUT measures a request in the session: it is sent without a handshake.
    converse((&mut *client, &mut blinker), (&mut *server, &mut counter), now, FIRST, (&mut *line, &mut *storage));
    let later = now.after(Duration::from_secs(1));
    measured(SEND, || client.on_time(&mut blinker, later));
    converse((client, &mut blinker), (server, &mut counter), later, REQUEST, (line, storage));
    // Both showed 1, and then 2.
    (leds::SHOWN.load(Ordering::Relaxed) == 6).then_some(())
}

/// The number of the measured region in which the instructions of the client in the second PUT are counted, without the
/// instructions that send this PUT. `FIRST` is the number for the first PUT, and `SEND` is the number for the
/// instructions that send the second PUT. `FIRST + SERVER` and `REQUEST + SERVER` are the numbers for the server in the
/// two PUTs.
const REQUEST: u32 = 2;
const FIRST: u32 = 4;
const SEND: u32 = 6;
static CLIENT_MOTE: Place<Mote<ClientOnly>> = Place::empty();
static SERVER_MOTE: Place<Mote<ServerOnly>> = Place::empty();
static LINE: Kept<[u8; uart::LEN]> = Kept::new([0; uart::LEN]);
static STORAGE: Kept<[u8; PACKET_LEN]> = Kept::new([0; PACKET_LEN]);
