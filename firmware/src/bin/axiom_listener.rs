//! A listener of a protected group (Axiom), provisioned with its keys. The image processes two requests of a sender,
//! and between them the rekey messages that begin the next epoch.
#![no_std]
#![no_main]

#[path = "../asking.rs"]
pub mod asking;
#[path = "../axiom_datagrams.rs"]
pub mod axiom_datagrams;
#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../axiom_listener.rs"]
pub mod axiom_listener;
#[path = "../axiom_provisioned.rs"]
pub mod axiom_provisioned;
#[path = "../lamp.rs"]
pub mod lamp;

use axiom_datagrams::{EPOCH_MESSAGE, LISTENER_MESSAGE, NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use axiom_group::{LEVELS, Provisioning, SENDER, listener, member};
use axiom_listener::Listener;
use axiom_provisioned::Provisioned;
use core::hint::black_box;
use lamp::SENDERS;
use tegmen::axiom::{KeyPath, Member};
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::flash::Pages;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 11] = [
    Note::operation(START, "start"),
    Note::operation(TAKE, "take request"),
    Note::operation(POLL, "send response"),
    Note::operation(NODE, "node message"),
    Note::operation(EPOCH, "epoch message"),
    Note::size("association", size_of::<Member<0, 0>>()),
    Note::size("association, one sender", size_of::<Member<1, 0>>()),
    Note::size("write state", size_of::<Member<1, 0>>() - size_of::<Member<0, 0>>()),
    Note::size("KeyPath", size_of::<KeyPath<LEVELS>>()),
    Note::size("Listener", size_of::<Listener<Pages>>()),
    Note::size("datagrams", DATAGRAMS),
];

/// The first entry of the flash memory. Its value is 0: in this memory the member reserves the record numbers of its
/// group messages, and has reserved none yet. The installer of the image must write the same entry into the device.
#[used]
#[unsafe(link_section = ".numbers")]
static FIRST: [u8; tegmen_flash::RECORD_LEN] = tegmen_flash::record(0);

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the listener process two requests with two rekey messages between them. Returns `None` if a result is not the
/// expected one.
fn run() -> Option<()> {
    let member = MEMBER.take()?;
    let kept = tegmen_flash::Kept::open(Pages).ok()?;
    let crypto = Provider::new(black_box([1; 32]));
    let group = measured(START, || Provisioned::new(member, crypto, black_box(&PROVISIONING), kept))?;
    let listener = LISTENING.fill(|| Listener::new(group))?;
    serve(listener, &REQUEST, &RESPONSE)?;
    measured(NODE, || take(listener, &LISTENER_MESSAGE))?;
    measured(EPOCH, || take(listener, &EPOCH_MESSAGE))?;
    serve(listener, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Processes a request, and checks the response. `expected` is the whole record, with epoch and record number.
#[inline(never)]
fn serve(listener: &mut Listener<Pages>, request: &[u8], expected: &[u8]) -> Option<()> {
    measured(TAKE, || take(listener, request))?;
    let (to, response) = measured(POLL, || listener.poll(LATER))?;
    (to == member(SENDER) && response == expected).then_some(())
}

#[inline(never)]
fn take(listener: &mut Listener<Pages>, datagram: &[u8]) -> Option<()> {
    let mut received = [0; BUFFER_LEN];
    let received = received.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    listener.take(NOW, &member(SENDER), received);
    Some(())
}

static MEMBER: Kept<Member<SENDERS, 0>> = Kept::new(Member::EMPTY);
static LISTENING: Place<Listener<Pages>> = Place::empty();
static PROVISIONING: Provisioning<'static> = listener();

const DATAGRAMS: usize = REQUEST.len()
    + RESPONSE.len()
    + LISTENER_MESSAGE.len()
    + EPOCH_MESSAGE.len()
    + NEXT_REQUEST.len()
    + NEXT_RESPONSE.len();
const BUFFER_LEN: usize = 128;
const NOW: Instant = Instant::from_micros(0);
/// A time after the end of the leisure (RFC 7252, section 8.2).
const LATER: Instant = Instant::from_micros(1_000_000);

const START: u32 = 0;
const TAKE: u32 = 1;
const POLL: u32 = 2;
const NODE: u32 = 3;
const EPOCH: u32 = 4;
