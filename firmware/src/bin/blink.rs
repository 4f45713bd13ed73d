//! The two motes of Blink in one image, on a line in memory: what the sources of `blink_*` and `cosim_*` do, counted.
//!
//! The images of those names speak over a serial line, whose interrupts would be counted, too. Here the same mote and the
//! same applications stand on a line that takes no time. As on the board, what is sent is encoded for the line; what comes
//! is given whole.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;
#[path = "../blink_server.rs"]
pub mod blink_server;
#[path = "../mote.rs"]
pub mod mote;

use blink_client::Client;
use blink_server::Server;
use core::sync::atomic::{AtomicU32, Ordering};
use mote::{Application, Mote, PACKET_LEN};
use tegmen::address::Address;
use tegmen::dtls::roles::{ClientOnly, Configured, ServerOnly};
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};
use tegmen_lowpan::slip::{Decoder, Start};

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

/// A handshake with the PUT that follows at once, and a PUT a second later; `None` if they are not answered.
fn run() -> Option<()> {
    let now = Instant::from_micros(1);
    let (mut blinker, mut counter) = (Client::start(&start(1))?, Server::start(&start(2))?);
    let client = make(&CLIENT_MOTE, now, 1)?;
    let server = make(&SERVER_MOTE, now, 2)?;
    let (line, storage) = (LINE.take()?, STORAGE.take()?);

    measured(HANDSHAKE, || client.on_time(&mut blinker, now));
    // What is said in the session is counted in the second round, when it is nothing else.
    converse((&mut *client, &mut blinker), (&mut *server, &mut counter), now, FIRST, (&mut *line, &mut *storage));
    let later = now.after(Duration::from_secs(1));
    measured(SEND, || client.on_time(&mut blinker, later));
    converse((client, &mut blinker), (server, &mut counter), later, REQUEST, (line, storage));
    // Both showed 1, and then 2.
    (leds::SHOWN.load(Ordering::Relaxed) == 6).then_some(())
}

/// Apart, so that the stack holds the mote only while it is made.
#[inline(never)]
fn make<R: Configured>(place: &'static Place<Mote<R>>, now: Instant, node: u8) -> Option<&'static mut Mote<R>> {
    place.fill(|| Mote::new(now, start(node)))
}

/// Lets the two answer each other until nothing more is said.
fn converse(
    (client, blinker): (&mut Mote<ClientOnly>, &mut Client),
    (server, counter): (&mut Mote<ServerOnly>, &mut Server),
    now: Instant,
    in_session: u32,
    (line, storage): (&mut [u8; uart::LEN], &mut [u8; PACKET_LEN]),
) {
    loop {
        let to_server = uart::take(line);
        deliver(server, counter, now, in_session + SERVER, to_server, storage);
        let to_client = uart::take(line);
        if to_client.is_empty() {
            return;
        }
        deliver(client, blinker, now, in_session, to_client, storage);
    }
}

/// Gives a mote every packet that is on its line.
fn deliver<A: Application>(
    mote: &mut Mote<A::Roles>,
    application: &mut A,
    now: Instant,
    in_session: u32,
    line: &[u8],
    storage: &mut [u8; PACKET_LEN],
) {
    let mut decoder = Decoder::new(storage);
    for byte in line {
        let Some(packet) = decoder.push(*byte) else { continue };
        let is_in_session = packet.get(RECORD) == Some(&APPLICATION_DATA);
        let region = if is_in_session { in_session } else { HANDSHAKE + in_session % 2 };
        Region::new(region).measured(|| mote.on_packet(application, now, packet));
    }
}

fn start(node: u8) -> Start {
    let ip = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let peer = (node == 1).then_some(Address { ip: ip(2), port: 5684, scope: 0 });
    Start { seed: Secret::new([node; 32]), ip: ip(node), peer }
}

/// The line: what was sent since it was last looked at.
mod uart {
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    pub(super) const LEN: usize = 1024;
    static SENT: [AtomicU8; LEN] = [const { AtomicU8::new(0) }; LEN];
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn send(byte: u8) {
        if let Some(place) = SENT.get(COUNT.fetch_add(1, Ordering::Relaxed)) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    pub(super) fn take(line: &mut [u8; LEN]) -> &[u8] {
        for (to, from) in line.iter_mut().zip(&SENT) {
            *to = from.load(Ordering::Relaxed);
        }
        line.get(..COUNT.swap(0, Ordering::Relaxed)).unwrap_or(&[])
    }
}

/// The LEDs: the sum of what was shown.
mod leds {
    use super::{AtomicU32, Ordering};

    pub(super) static SHOWN: AtomicU32 = AtomicU32::new(0);

    pub(super) fn show(value: u32) {
        SHOWN.fetch_add(value, Ordering::Relaxed);
    }
}

/// Regions: those of the client are even, those of the server follow them.
const HANDSHAKE: u32 = 0;
const REQUEST: u32 = 2;
const FIRST: u32 = 4;
const SEND: u32 = 6;
const SERVER: u32 = 1;
/// Where the record of a datagram begins, behind the headers of IPv6 and UDP.
const RECORD: usize = 48;
/// A content type (RFC 6347, section 4.3.1).
const APPLICATION_DATA: u8 = 23;
static CLIENT_MOTE: Place<Mote<ClientOnly>> = Place::empty();
static SERVER_MOTE: Place<Mote<ServerOnly>> = Place::empty();
static LINE: Kept<[u8; uart::LEN]> = Kept::new([0; uart::LEN]);
static STORAGE: Kept<[u8; PACKET_LEN]> = Kept::new([0; PACKET_LEN]);
