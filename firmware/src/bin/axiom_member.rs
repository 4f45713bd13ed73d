//! A member that joins a protected group (Axiom) over a session with the controller, which is in the same image. The
//! image runs the handshake, the transfer of the keys, and then the datagrams of `axiom_listener`.
#![no_std]
#![no_main]

#[path = "../asking.rs"]
pub mod asking;
#[path = "../axiom_controller.rs"]
pub mod axiom_controller;
#[path = "../axiom_datagrams.rs"]
pub mod axiom_datagrams;
#[path = "../axiom_group.rs"]
pub mod axiom_group;
#[path = "../axiom_keys.rs"]
pub mod axiom_keys;
#[path = "../axiom_listener.rs"]
pub mod axiom_listener;
#[path = "../axiom_member.rs"]
pub mod axiom_member;
#[path = "../axiom_provisioned.rs"]
pub mod axiom_provisioned;
#[path = "../lamp.rs"]
pub mod lamp;

use axiom_controller::{Controller, LONGEST};
use axiom_datagrams::{EPOCH_MESSAGE, KEYS, LISTENER_MESSAGE, NEXT_REQUEST, NEXT_RESPONSE, REQUEST, RESPONSE};
use axiom_group::{ADDRESS, CONTROLLER as HOST, LISTENER, SENDER, member};
use axiom_member::{GroupMember, OUT_LEN};
use core::hint::black_box;
use lamp::SENDERS;
use tegmen::address::Path;
use tegmen::axiom::Member;
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::flash::Pages;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 5] = [
    Note::operation(JOIN, "join"),
    Note::operation(TAKE, "take request"),
    Note::operation(NODE, "node message"),
    Note::operation(EPOCH, "epoch message"),
    Note::size("GroupMember", size_of::<GroupMember<Pages>>()),
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

/// Lets the member join the group, and process two requests with two rekey messages between them. Returns `None` if a
/// result is not the expected one.
fn run() -> Option<()> {
    let buffers = BUFFERS.take()?;
    let parts = (MEMBER.take()?, Provider::new(black_box([1; 32])), tegmen_flash::Kept::open(Pages).ok()?);
    let joining = JOINING.fill(|| GroupMember::new(NOW, Provider::new(black_box([2; 32])), TO_CONTROLLER, parts))?;
    let controller =
        CONTROLLER.fill(|| Controller::new(NOW, Provider::new(black_box([3; 32])), TO_CONTROLLER, &KEYS))?;
    join(joining, controller, buffers)?;
    serve(joining, buffers, &REQUEST, &RESPONSE)?;
    measured(NODE, || take(joining, buffers, &LISTENER_MESSAGE))?;
    measured(EPOCH, || take(joining, buffers, &EPOCH_MESSAGE))?;
    serve(joining, buffers, &NEXT_REQUEST, &NEXT_RESPONSE)
}

/// Exchanges datagrams between the member and the controller until the member has joined and neither has a datagram to
/// send.
#[inline(never)]
fn join(
    joining: &mut GroupMember<Pages>,
    controller: &mut Controller,
    Buffers { out, back }: &mut Buffers,
) -> Option<()> {
    while let Some((path, len)) = measured(JOIN, || joining.poll(NOW, out)) {
        if path.remote != TO_CONTROLLER.remote {
            return None;
        }
        let mut answer_len = controller.receive(NOW, out.get_mut(..len)?, back)?;
        while answer_len > 0 {
            let answer = back.get_mut(..answer_len)?;
            let len = measured(JOIN, || joining.handle(NOW, &TO_CONTROLLER, answer, out));
            if len > 0 {
                controller.receive(NOW, out.get_mut(..len)?, back)?;
            }
            answer_len = controller.poll(NOW, back);
        }
    }
    joining.listener().map(|_| ())
}

/// Processes a request, and checks the response.
#[inline(never)]
fn serve(joining: &mut GroupMember<Pages>, buffers: &mut Buffers, request: &[u8], expected: &[u8]) -> Option<()> {
    measured(TAKE, || take(joining, buffers, request))?;
    let (path, len) = joining.poll(LATER, &mut buffers.out)?;
    (path.remote == member(SENDER) && buffers.out.get(..len) == Some(expected)).then_some(())
}

/// Processes a datagram to the group.
#[inline(never)]
fn take(joining: &mut GroupMember<Pages>, Buffers { out, back }: &mut Buffers, datagram: &[u8]) -> Option<()> {
    let received = back.get_mut(..datagram.len())?;
    received.copy_from_slice(datagram);
    let path = Path { local: ADDRESS, remote: member(SENDER) };
    joining.handle(NOW, &path, received, out);
    Some(())
}

struct Buffers {
    out: [u8; OUT_LEN],
    back: [u8; LONGEST],
}

static BUFFERS: Kept<Buffers> = Kept::new(Buffers { out: [0; OUT_LEN], back: [0; LONGEST] });
static MEMBER: Kept<Member<SENDERS, 0>> = Kept::new(Member::EMPTY);
static JOINING: Place<GroupMember<Pages>> = Place::empty();
static CONTROLLER: Place<Controller> = Place::empty();

const TO_CONTROLLER: Path = Path { local: member(LISTENER), remote: member(HOST) };
const NOW: Instant = Instant::from_micros(1);
/// A time after the end of the leisure (RFC 7252, section 8.2).
const LATER: Instant = Instant::from_micros(1_000_000);

const JOIN: u32 = 0;
const TAKE: u32 = 1;
const NODE: u32 = 2;
const EPOCH: u32 = 3;
