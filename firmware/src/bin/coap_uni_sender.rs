//! A sender for a group of lamps. A sender of this kind sends a separate request without protection to each listener
//! (CoAP Uni). This image sends two requests to one listener, and processes the two responses. It has space for the
//! addresses of 400 listeners.
#![no_std]
#![no_main]

#[path = "../asking.rs"]
pub mod asking;
#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../clear_datagrams.rs"]
pub mod clear_datagrams;
#[path = "../coap_sender.rs"]
pub mod coap_sender;

use asking::{Heard, Listeners, REQUEST_LEN, Requests, Round};
use axiom_group::{LISTENER, member};
use clear_datagrams::{NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use coap_sender::ask_next;
use core::hint::black_box;
use tegmen::coap::Code;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 6] = [
    Note::operation(REQUEST_REGION, "make request"),
    Note::operation(TAKE, "take response"),
    Note::size("400 listeners", size_of::<Listeners<LISTENERS>>()),
    Note::size("state of a listener", size_of::<Listeners<2>>() - size_of::<Listeners<1>>()),
    Note::size("Sender", size_of::<Round<LISTENERS>>()),
    Note::size("datagrams", REQUEST.len() + RESPONSE.len() + NEXT_REQUEST.len() + NEXT_RESPONSE.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the sender send two requests to one listener and process the two responses. Returns `None` if a result is not
/// the expected one.
fn run() -> Option<()> {
    let listeners = KNOWN.take()?;
    let round = SENDING.fill(|| Round::new(listeners, Requests::new(black_box(0))))?;
    round.add(&member(LISTENER))?;
    ask(round, true, &REQUEST, &RESPONSE)?;
    ask(round, false, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Makes a request, and processes the response.
#[inline(never)]
fn ask(round: &mut Round<LISTENERS>, is_on: bool, expected: &[u8], response: &[u8]) -> Option<()> {
    let mut out = [0; REQUEST_LEN];
    round.begin(is_on);
    let (to, request) = measured(REQUEST_REGION, || ask_next(round, &mut out))?;
    if to != member(LISTENER) || request != expected {
        return None;
    }
    let heard = measured(TAKE, || round.hear(&member(LISTENER), response))?;
    // The round of requests to all listeners has ended.
    (heard == Heard::Served(Code::CHANGED) && round.next().is_none()).then_some(())
}

/// Number of listeners for whose addresses the image has space.
const LISTENERS: usize = 400;

static KNOWN: Kept<Listeners<LISTENERS>> = Kept::new(Listeners::NONE);
static SENDING: Place<Round<LISTENERS>> = Place::empty();

const REQUEST_REGION: u32 = 0;
const TAKE: u32 = 1;
