//! A sender for a group of lamps. A sender of this kind sends each request once to the whole group, under the keys of
//! the group. It receives each response over the DTLS session with a listener (DTLS Mul-Uni). This image runs the
//! handshake with one listener, and then sends two requests and processes the responses of this listener. Between the
//! two requests it processes the rekey messages of `axiom_sender`. It has space for 150 listeners.
#![no_std]
#![no_main]

#[path = "../asking.rs"]
pub mod asking;
#[path = "../axiom_datagrams.rs"]
pub mod axiom_datagrams;
#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../axiom_provisioned.rs"]
pub mod axiom_provisioned;
#[path = "../mul_uni_sender.rs"]
pub mod mul_uni_sender;
#[path = "../recorded.rs"]
pub mod recorded;
#[path = "../session_datagrams.rs"]
pub mod session_datagrams;
#[path = "../sessions.rs"]
pub mod sessions;

use asking::{Heard, REQUEST_LEN};
use axiom_datagrams::{EPOCH_MESSAGE, REQUEST, SENDER_MESSAGE};
use axiom_group::{LISTENER, Provisioning, SENDER, member, sender};
use axiom_provisioned::Provisioned;
use core::hint::black_box;
use mul_uni_sender::MulUniSender;
use recorded::{OF_SENDER, handshake};
use session_datagrams::{HANDSHAKE_LEN, NEXT_GROUP_REQUEST, NEXT_RESPONSE, RESPONSE};
use sessions::{OUT_LEN, Sessions, Table};
use tegmen::axiom::Member;
use tegmen::coap::Code;
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
    Note::operation(REQUEST_REGION, "make request"),
    Note::operation(TAKE, "take response"),
    Note::operation(NODE, "node message"),
    Note::operation(EPOCH, "epoch message"),
    Note::size("150 listeners", size_of::<Table<LISTENERS>>()),
    Note::size("state of a listener", size_of::<Table<2>>() - size_of::<Table<1>>()),
    Note::size("Sender", size_of::<SenderOfMany>()),
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

/// Lets the sender open a session with one listener, send two requests to the group, and process a response to each.
/// Between the two requests it processes two rekey messages. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let (member, table) = (MEMBER.take()?, TABLE.take()?);
    let kept = tegmen_flash::Kept::open(Pages).ok()?;
    let crypto = Provider::new(black_box([1; 32]));
    let group = measured(START, || Provisioned::new(member, crypto, black_box(&PROVISIONING), kept))?;
    let sessions = Sessions::new(NOW, Provider::new(black_box([1; 32])), axiom_group::member(SENDER), table);
    let sender = SENDING.fill(|| MulUniSender::new(group, sessions))?;
    open(sender)?;
    ask(sender, true, &REQUEST, &RESPONSE)?;
    measured(NODE, || take(sender, &SENDER_MESSAGE));
    measured(EPOCH, || take(sender, &EPOCH_MESSAGE));
    ask(sender, false, &NEXT_GROUP_REQUEST, &NEXT_RESPONSE)
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
    let request = measured(REQUEST_REGION, || sender.request(is_on, &mut out))?;
    if request != expected {
        return None;
    }
    let heard = measured(TAKE, || take(sender, response))?;
    (heard == Heard::Served(Code::CHANGED)).then_some(())
}

#[inline(never)]
fn take(sender: &mut SenderOfMany, datagram: &[u8]) -> Option<Heard> {
    let (mut received, mut out) = ([0; OUT_LEN], [0; OUT_LEN]);
    let received = received.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    sender.take(NOW, &member(LISTENER), received, &mut out).1
}

type SenderOfMany = MulUniSender<Pages, LISTENERS>;

/// Number of listeners for whose sessions the image has space.
const LISTENERS: usize = 150;
const DATAGRAMS: usize = HANDSHAKE_LEN
    + REQUEST.len()
    + RESPONSE.len()
    + SENDER_MESSAGE.len()
    + EPOCH_MESSAGE.len()
    + NEXT_GROUP_REQUEST.len()
    + NEXT_RESPONSE.len();

static MEMBER: Kept<Member<0, 0>> = Kept::new(Member::EMPTY);
static TABLE: Kept<Table<LISTENERS>> = Kept::new(Table::new());
static SENDING: Place<SenderOfMany> = Place::empty();
static PROVISIONING: Provisioning<'static> = sender();

const NOW: Instant = Instant::from_micros(0);

const HANDSHAKE: u32 = 0;
const START: u32 = 1;
const REQUEST_REGION: u32 = 2;
const TAKE: u32 = 3;
const NODE: u32 = 4;
const EPOCH: u32 = 5;
