//! A sender for a group of lamps. A sender of this kind sends a separate request to each listener, over the DTLS
//! session with this listener (DTLS Uni-Uni). This image runs the handshake with one listener, sends two requests to
//! it, and processes the two responses. It has space for 150 listeners.
#![no_std]
#![no_main]

#[path = "../asking.rs"]
pub mod asking;
#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../recorded.rs"]
pub mod recorded;
#[path = "../session_datagrams.rs"]
pub mod session_datagrams;
#[path = "../sessions.rs"]
pub mod sessions;
#[path = "../uni_uni_sender.rs"]
pub mod uni_uni_sender;

use asking::{Heard, Listeners, REQUEST_LEN, Requests, Round};
use axiom_group::{LISTENER, SENDER, member};
use core::hint::black_box;
use recorded::{OF_SENDER, handshake};
use session_datagrams::{HANDSHAKE_LEN, NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use sessions::{OUT_LEN, Sessions, Table};
use tegmen::coap::Code;
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};
use uni_uni_sender::UniUniSender;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 7] = [
    Note::operation(HANDSHAKE, "handshake"),
    Note::operation(REQUEST_REGION, "make request"),
    Note::operation(TAKE, "take response"),
    Note::size("150 listeners", size_of::<Table<LISTENERS>>() + size_of::<Listeners<LISTENERS>>()),
    Note::size("state of a listener", STATE),
    Note::size("Sender", size_of::<UniUniSender<LISTENERS>>()),
    Note::size("datagrams", HANDSHAKE_LEN + REQUEST.len() + RESPONSE.len() + NEXT_REQUEST.len() + NEXT_RESPONSE.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the sender open a session with one listener, send two requests to it, and process the two responses. Returns
/// `None` if a result is not the expected one.
fn run() -> Option<()> {
    let (table, listeners) = (TABLE.take()?, KNOWN.take()?);
    let sender = SENDING.fill(|| {
        let sessions = Sessions::new(NOW, Provider::new(black_box([1; 32])), member(SENDER), table);
        UniUniSender::new(sessions, Round::new(listeners, Requests::new(0)))
    })?;
    sender.round.add(&member(LISTENER))?;
    open(sender)?;
    ask(sender, true, &REQUEST, &RESPONSE)?;
    ask(sender, false, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Opens the session with the listener.
#[inline(never)]
fn open(sender: &mut SenderOfMany) -> Option<()> {
    measured(HANDSHAKE, || sender.connect(NOW, &member(LISTENER)))?;
    handshake(&OF_SENDER, |received, out| measured(HANDSHAKE, || step(sender, received, out)))?;
    sender.is_open(&member(LISTENER)).then_some(())
}

#[inline(never)]
fn step(sender: &mut SenderOfMany, received: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
    if !received.is_empty() {
        sender.take(NOW, &member(LISTENER), received, out);
    }
    sender.poll(NOW, out).map_or(0, |(_, len)| len)
}

/// Makes a request, and processes the response.
#[inline(never)]
fn ask(sender: &mut SenderOfMany, is_on: bool, expected: &[u8], response: &[u8]) -> Option<()> {
    let mut out = [0; REQUEST_LEN];
    sender.round.begin(is_on);
    let (to, request) = measured(REQUEST_REGION, || sender.ask_next(NOW, &mut out))?;
    if to != member(LISTENER) || request != expected {
        return None;
    }
    let heard = measured(TAKE, || take(sender, response))?;
    // The round is over.
    (heard == Heard::Served(Code::CHANGED) && sender.round.next().is_none()).then_some(())
}

#[inline(never)]
fn take(sender: &mut SenderOfMany, datagram: &[u8]) -> Option<Heard> {
    let (mut received, mut out) = ([0; OUT_LEN], [0; OUT_LEN]);
    let received = received.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    sender.take(NOW, &member(LISTENER), received, &mut out).1
}

type SenderOfMany = UniUniSender<LISTENERS>;

/// Number of listeners for whose sessions and addresses the image has space.
const LISTENERS: usize = 150;
/// Size of a session and an address, in bytes.
const STATE: usize =
    size_of::<Table<2>>() - size_of::<Table<1>>() + size_of::<Listeners<2>>() - size_of::<Listeners<1>>();

static TABLE: Kept<Table<LISTENERS>> = Kept::new(Table::new());
static KNOWN: Kept<Listeners<LISTENERS>> = Kept::new(Listeners::NONE);
static SENDING: Place<SenderOfMany> = Place::empty();

const NOW: Instant = Instant::from_micros(0);

const HANDSHAKE: u32 = 0;
const REQUEST_REGION: u32 = 1;
const TAKE: u32 = 2;
