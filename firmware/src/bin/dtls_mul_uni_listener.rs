//! A listener in a group of lamps. It receives requests under the keys of the group, and answers over a DTLS session
//! (DTLS Mul-Uni). The image runs the handshake with a sender, and then processes two requests. Between the two
//! requests it processes the rekey messages of `axiom_listener`.
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
#[path = "../mul_uni_listener.rs"]
pub mod mul_uni_listener;
#[path = "../recorded.rs"]
pub mod recorded;
#[path = "../session_datagrams.rs"]
pub mod session_datagrams;
#[path = "../sessions.rs"]
pub mod sessions;

use axiom_datagrams::{EPOCH_MESSAGE, LISTENER_MESSAGE, REQUEST};
use axiom_group::{LISTENER, Provisioning, SENDER, listener, member};
use axiom_listener::Listener;
use axiom_provisioned::Provisioned;
use core::hint::black_box;
use lamp::SENDERS;
use mul_uni_listener::OverSessions;
use recorded::{OF_LISTENER, handshake};
use session_datagrams::{HANDSHAKE_LEN, NEXT_GROUP_REQUEST, NEXT_RESPONSE, RESPONSE};
use sessions::{OUT_LEN, Sessions, Table};
use tegmen::axiom::Member;
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::flash::Pages;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 10] = [
    Note::operation(HANDSHAKE, "handshake"),
    Note::operation(START, "start"),
    Note::operation(TAKE, "take request"),
    Note::operation(POLL, "send response"),
    Note::operation(NODE, "node message"),
    Note::operation(EPOCH, "epoch message"),
    Note::size("state of a sender", STATE),
    Note::size("sessions", size_of::<Table<SENDERS>>()),
    Note::size("Listener", size_of::<MulUniListener>()),
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

/// Lets the listener complete a handshake with a sender, and process two requests to the group with two rekey messages
/// between them. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let (member, table) = (MEMBER.take()?, TABLE.take()?);
    let kept = tegmen_flash::Kept::open(Pages).ok()?;
    let crypto = Provider::new(black_box([1; 32]));
    let group = measured(START, || Provisioned::new(member, crypto, black_box(&PROVISIONING), kept))?;
    let sessions = Sessions::new(NOW, Provider::new(black_box([2; 32])), axiom_group::member(LISTENER), table);
    let listener = LISTENING.fill(|| Listener::with_responses(group, OverSessions::new(sessions)))?;
    handshake(&OF_LISTENER, |received, out| measured(HANDSHAKE, || step(listener, received, out)))?;
    serve(listener, &REQUEST, &RESPONSE)?;
    measured(NODE, || take(listener, &LISTENER_MESSAGE))?;
    measured(EPOCH, || take(listener, &EPOCH_MESSAGE))?;
    serve(listener, &NEXT_GROUP_REQUEST, &NEXT_RESPONSE)
}

#[inline(never)]
fn step(listener: &mut MulUniListener, received: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
    match listener.take_own(NOW, &member(SENDER), received, out) {
        0 => listener.poll_own(NOW, out).map_or(0, |(_, len)| len),
        len => len,
    }
}

/// Processes a request, and checks the response.
#[inline(never)]
fn serve(listener: &mut MulUniListener, request: &[u8], expected: &[u8]) -> Option<()> {
    measured(TAKE, || take(listener, request))?;
    let (to, response) = measured(POLL, || listener.poll(LATER))?;
    (to == member(SENDER) && response == expected).then_some(())
}

/// Processes a datagram to the group.
#[inline(never)]
fn take(listener: &mut MulUniListener, datagram: &[u8]) -> Option<()> {
    let mut received = [0; OUT_LEN];
    let received = received.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    listener.take(NOW, &member(SENDER), received);
    Some(())
}

type MulUniListener = Listener<Pages, OverSessions>;

/// Size of the state of one sender in bytes: its session, and the numbers and the key of its requests.
const STATE: usize =
    size_of::<Table<2>>() - size_of::<Table<1>>() + size_of::<Member<1, 0>>() - size_of::<Member<0, 0>>();
const DATAGRAMS: usize = HANDSHAKE_LEN
    + REQUEST.len()
    + RESPONSE.len()
    + LISTENER_MESSAGE.len()
    + EPOCH_MESSAGE.len()
    + NEXT_GROUP_REQUEST.len()
    + NEXT_RESPONSE.len();

static MEMBER: Kept<Member<SENDERS, 0>> = Kept::new(Member::EMPTY);
static TABLE: Kept<Table<SENDERS>> = Kept::new(Table::new());
static LISTENING: Place<MulUniListener> = Place::empty();
static PROVISIONING: Provisioning<'static> = listener();

const NOW: Instant = Instant::from_micros(0);
/// A time after the end of the leisure (RFC 7252, section 8.2).
const LATER: Instant = Instant::from_micros(1_000_000);

const HANDSHAKE: u32 = 0;
const START: u32 = 1;
const TAKE: u32 = 2;
const POLL: u32 = 3;
const NODE: u32 = 4;
const EPOCH: u32 = 5;
