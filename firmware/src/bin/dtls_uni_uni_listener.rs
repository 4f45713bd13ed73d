//! A listener in a group of lamps. It receives requests over a DTLS session (DTLS Uni-Uni). The image runs the
//! handshake with a sender, and answers two requests.
#![no_std]
#![no_main]

#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../lamp.rs"]
pub mod lamp;
#[path = "../recorded.rs"]
pub mod recorded;
#[path = "../session_datagrams.rs"]
pub mod session_datagrams;
#[path = "../sessions.rs"]
pub mod sessions;
#[path = "../uni_uni_listener.rs"]
pub mod uni_uni_listener;

use axiom_group::{LISTENER, SENDER, member};
use core::hint::black_box;
use lamp::SENDERS;
use recorded::{OF_LISTENER, handshake};
use session_datagrams::{HANDSHAKE_LEN, NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use sessions::{OUT_LEN, Sessions, Table};
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};
use uni_uni_listener::UniUniListener;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 6] = [
    Note::operation(HANDSHAKE, "handshake"),
    Note::operation(TAKE, "take request"),
    Note::size("state of a sender", size_of::<Table<2>>() - size_of::<Table<1>>()),
    Note::size("sessions", size_of::<Table<SENDERS>>()),
    Note::size("Listener", size_of::<UniUniListener>()),
    Note::size("datagrams", HANDSHAKE_LEN + REQUEST.len() + RESPONSE.len() + NEXT_REQUEST.len() + NEXT_RESPONSE.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the listener complete a handshake with a sender and answer two requests. Returns `None` if a result is not the
/// expected one.
fn run() -> Option<()> {
    let table = TABLE.take()?;
    let listener = LISTENING.fill(|| {
        let sessions = Sessions::new(NOW, Provider::new(black_box([2; 32])), member(LISTENER), table);
        UniUniListener::new(sessions)
    })?;
    handshake(&OF_LISTENER, |received, out| measured(HANDSHAKE, || step(listener, received, out)))?;
    serve(listener, &REQUEST, &RESPONSE)?;
    serve(listener, &NEXT_REQUEST, &NEXT_RESPONSE)
}

#[inline(never)]
fn step(listener: &mut UniUniListener, received: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
    match listener.take(NOW, &member(SENDER), received, out) {
        0 => listener.poll(NOW, out).map_or(0, |(_, len)| len),
        len => len,
    }
}

/// Processes a request, and checks the response.
#[inline(never)]
fn serve(listener: &mut UniUniListener, request: &[u8], expected: &[u8]) -> Option<()> {
    let (mut received, mut out) = ([0; OUT_LEN], [0; OUT_LEN]);
    let received = received.get_mut(..request.len())?;
    received.copy_from_slice(request);
    let len = measured(TAKE, || listener.take(NOW, &member(SENDER), received, &mut out));
    (out.get(..len)? == expected).then_some(())
}

static TABLE: Kept<Table<SENDERS>> = Kept::new(Table::new());
static LISTENING: Place<UniUniListener> = Place::empty();

const NOW: Instant = Instant::from_micros(0);

const HANDSHAKE: u32 = 0;
const TAKE: u32 = 1;
