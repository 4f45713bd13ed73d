//! A sender of a protected group (Axiom), provisioned with its keys. The image sends two requests to the group, and
//! processes one listener's response to each request. Between the two requests it processes the rekey messages that
//! begin the next epoch. It has space for 400 listeners.
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
#[path = "../axiom_sender.rs"]
pub mod axiom_sender;

use asking::{Heard, REQUEST_LEN};
use axiom_datagrams::{EPOCH_MESSAGE, NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE, SENDER_MESSAGE};
use axiom_group::{LISTENER, Provisioning, member, sender};
use axiom_provisioned::Provisioned;
use axiom_sender::Sender;
use core::hint::black_box;
use tegmen::axiom::Member;
use tegmen::coap::Code;
use tegmen_firmware::Provider;
use tegmen_firmware::flash::Pages;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 10] = [
    Note::operation(START, "start"),
    Note::operation(REQUEST_REGION, "make request"),
    Note::operation(TAKE, "take response"),
    Note::operation(NODE, "node message"),
    Note::operation(EPOCH, "epoch message"),
    Note::size("400 listeners", size_of::<Member<0, LISTENERS>>()),
    Note::size("read state", size_of::<Member<0, 1>>() - size_of::<Member<0, 0>>()),
    Note::size("read state, MAC only", size_of::<Member<0, 1, 32>>() - size_of::<Member<0, 0, 32>>()),
    Note::size("Sender", size_of::<Sender<Pages, LISTENERS>>()),
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

/// Lets the sender send two requests to the group and process a response to each. Between the two requests it processes
/// two rekey messages. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let member = MEMBER.take()?;
    let kept = tegmen_flash::Kept::open(Pages).ok()?;
    let crypto = Provider::new(black_box([1; 32]));
    let group = measured(START, || Provisioned::new(member, crypto, black_box(&PROVISIONING), kept))?;
    let sender = SENDING.fill(|| Sender::new(group))?;
    ask(sender, true, &REQUEST, &RESPONSE)?;
    measured(NODE, || take(sender, &SENDER_MESSAGE));
    measured(EPOCH, || take(sender, &EPOCH_MESSAGE));
    ask(sender, false, &NEXT_REQUEST, &NEXT_RESPONSE)
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
    let mut received = [0; BUFFER_LEN];
    let received = received.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    sender.take(&member(LISTENER), received)
}

type SenderOfMany = Sender<Pages, LISTENERS>;

/// Number of listeners for whose states the image has space.
const LISTENERS: usize = 400;
const DATAGRAMS: usize = REQUEST.len()
    + RESPONSE.len()
    + SENDER_MESSAGE.len()
    + EPOCH_MESSAGE.len()
    + NEXT_REQUEST.len()
    + NEXT_RESPONSE.len();

static MEMBER: Kept<Member<0, LISTENERS>> = Kept::new(Member::EMPTY);
static SENDING: Place<SenderOfMany> = Place::empty();
static PROVISIONING: Provisioning<'static> = sender();

const BUFFER_LEN: usize = 128;

const START: u32 = 0;
const REQUEST_REGION: u32 = 1;
const TAKE: u32 = 2;
const NODE: u32 = 3;
const EPOCH: u32 = 4;
