//! The initiator of an EDHOC session (RFC 9528) with static keys and cipher suite 2. It writes message_1, verifies
//! message_2, writes message_3 and derives the keys of an OSCORE context. The messages of the responder are recorded.
#![no_std]
#![no_main]

#[path = "../edhoc_ends.rs"]
pub mod edhoc_ends;
#[path = "../edhoc_messages.rs"]
pub mod edhoc_messages;
#[path = "../points.rs"]
pub mod points;

use core::hint::black_box;
use edhoc_ends::{INITIATOR, RESPONDER};
use edhoc_messages::{MESSAGE_1, MESSAGE_2, MESSAGE_3, MESSAGE_4};
use tegmen_edhoc::{Agreed, Initiator};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 6] = [
    Note::operation(BEGIN, "write message_1"),
    Note::operation(FINISH, "message_2 to message_3"),
    Note::operation(VERIFY, "verify message_4"),
    Note::size("Initiator", size_of::<Initiator>()),
    Note::size("Agreed", size_of::<Agreed>()),
    Note::size("messages", MESSAGE_1.len() + MESSAGE_2.len() + MESSAGE_3.len() + MESSAGE_4.len()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Runs the session. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([INITIATOR.seed; 32]);
    let (identity, known) = (INITIATOR.identity()?, RESPONDER.credential()?);
    let begin = || Initiator::begin(crypto, INITIATOR.connection_id()?).ok();
    let (initiator, message_1) = measured(BEGIN, begin)?;
    if message_1.as_bytes() != MESSAGE_1 {
        return None;
    }
    let message_2 = black_box(&MESSAGE_2);
    let finish = || initiator.finish(crypto, message_2, &identity, |id| known.is_meant_by(id).then_some(known)).ok();
    let (agreed, message_3, last) = measured(FINISH, finish)?;
    if message_3.as_bytes() != MESSAGE_3 || Some(agreed.sender_id) != RESPONDER.connection_id() {
        return None;
    }
    measured(VERIFY, || last.verify(crypto, black_box(&MESSAGE_4)).ok())
}

const BEGIN: u32 = 0;
const FINISH: u32 = 1;
const VERIFY: u32 = 2;
