//! A listener in a group of lamps, for messages without protection (CoAP Uni and CoAP Mul). The image processes one
//! request to the address of the listener, and one request to the address of the group.
#![no_std]
#![no_main]

#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../clear_datagrams.rs"]
pub mod clear_datagrams;
#[path = "../coap_listener.rs"]
pub mod coap_listener;
#[path = "../lamp.rs"]
pub mod lamp;

use axiom_group::{ADDRESS, LISTENER, SENDER, member};
use clear_datagrams::{NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use coap_listener::CoapListener;
use core::hint::black_box;
use tegmen::address::{Address, Path};
use tegmen::time::Instant;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::Place;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 4] = [
    Note::operation(TAKE, "take request"),
    Note::operation(POLL, "send response"),
    Note::size("Listener", size_of::<CoapListener>()),
    Note::size("datagrams", REQUEST.len() + RESPONSE.len() + NEXT_REQUEST.len() + NEXT_RESPONSE.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the listener process a request to its own address and a request to the address of the group. Returns `None` if
/// a result is not the expected one.
fn run() -> Option<()> {
    let listener = LISTENING.fill(|| CoapListener::new(black_box(0)))?;
    serve(listener, &member(LISTENER), &REQUEST, &RESPONSE)?;
    serve(listener, &ADDRESS, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Processes a request to the address `to`, and checks the response.
#[inline(never)]
fn serve(listener: &mut CoapListener, to: &Address, request: &[u8], expected: &[u8]) -> Option<()> {
    let path = Path { local: *to, remote: member(SENDER) };
    measured(TAKE, || listener.take(NOW, &path, request, black_box(200)));
    let (to, response) = measured(POLL, || listener.poll(LATER))?;
    (to == member(SENDER) && response == expected).then_some(())
}

static LISTENING: Place<CoapListener> = Place::empty();

const NOW: Instant = Instant::from_micros(0);
/// A time after the end of the leisure (RFC 7252, section 8.2).
const LATER: Instant = Instant::from_micros(1_000_000);

const TAKE: u32 = 0;
const POLL: u32 = 1;
