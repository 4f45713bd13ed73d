//! A sender for a group of lamps. A sender of this kind sends each request, without protection, once to the address of
//! the group (CoAP Mul). This image sends two requests, and processes one listener's response to each request. It has
//! space for the addresses of 400 listeners.
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

use asking::{Heard, Listeners, REQUEST_LEN, Requests};
use axiom_group::{LISTENER, member};
use clear_datagrams::{NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use coap_sender::MulSender;
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
    Note::size("Sender", size_of::<MulSender<LISTENERS>>()),
    Note::size("datagrams", REQUEST.len() + RESPONSE.len() + NEXT_REQUEST.len() + NEXT_RESPONSE.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the sender send two requests to the group and process a response to each. Returns `None` if a result is not the
/// expected one.
fn run() -> Option<()> {
    let heard = HEARD.take()?;
    let sender = SENDING.fill(|| MulSender::new(Requests::new(black_box(0)), heard))?;
    ask(sender, true, &REQUEST, &RESPONSE)?;
    ask(sender, false, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Makes a request, and processes the response.
#[inline(never)]
fn ask(sender: &mut MulSender<LISTENERS>, is_on: bool, expected: &[u8], response: &[u8]) -> Option<()> {
    let mut out = [0; REQUEST_LEN];
    let request = measured(REQUEST_REGION, || sender.request(is_on, &mut out))?;
    if request != expected {
        return None;
    }
    let heard = measured(TAKE, || sender.take(&member(LISTENER), response))?;
    (heard == Heard::Served(Code::CHANGED)).then_some(())
}

/// Number of listeners for whose addresses the image has space.
const LISTENERS: usize = 400;

static HEARD: Kept<Listeners<LISTENERS>> = Kept::new(Listeners::NONE);
static SENDING: Place<MulSender<LISTENERS>> = Place::empty();

const REQUEST_REGION: u32 = 0;
const TAKE: u32 = 1;
