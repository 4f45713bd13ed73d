//! The exchanges of `node`, protected with OSCORE. The nodes of the two motes have all optional parts: a queue of
//! messages that wait for NSTART and PROBING_RATE, one OSCORE context, observers, and bodies in blocks.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;
#[path = "../blink_server.rs"]
pub mod blink_server;
#[path = "../line.rs"]
pub mod line;
#[path = "../mote.rs"]
pub mod mote;
#[path = "../node_client.rs"]
pub mod node_client;
#[path = "../node_pair.rs"]
pub mod node_pair;
#[path = "../node_server.rs"]
pub mod node_server;
#[path = "../two_motes.rs"]
pub mod two_motes;

use line::{leds, uart};
use mote::{Memory, Mote};
use node_pair::{Pair, notes};
use node_server::Texts;
use tegmen::coap::Fixed;
use tegmen::dtls::{ClientOnly, ServerOnly};
use tegmen::identity::Principal;
use tegmen::node::{ObserverArray, OneContext, PacingArray, Parts, QueueArray};
use tegmen::oscore::{Aead, Context, Parameters, RequestBinding};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::place::Place;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 15] = notes::<Full, Full>();

/// The memory of a node with all parts.
pub struct Full;

impl Memory for Full {
    type Storage = Fixed<3, 64, 4, 64>;
    type Features = AllParts;
}

type AllParts = Parts<QueueArray<2, 64>, PacingArray<2>, OneContext<3>, ObserverArray<2, 32, RequestBinding>, Texts>;

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

fn run() -> Option<()> {
    let (client, server) = (context(b"c", b"s")?, context(b"s", b"c")?);
    Pair::new((&CLIENT, || parts(client)), (&SERVER, || parts(server)), true)?.run()
}

/// Makes the OSCORE context of one endpoint.
fn context(sender_id: &[u8], recipient_id: &[u8]) -> Option<Context> {
    let parameters = Parameters {
        master_secret: &[7; 16],
        master_salt: &[],
        sender_id,
        recipient_id,
        id_context: None,
        aead: Aead::AesCcm16_64_128,
    };
    let mut context = Context::new::<Provider>(&parameters).ok()?;
    // A mote first writes the end of its reserved sequence numbers to its flash memory.
    context.lease_mut().extend(64);
    Some(context)
}

/// Makes the optional parts of one node. Every second notification is non-confirmable. The function is inlined, so that
/// the parts are on the stack once.
#[inline(always)]
fn parts(context: Context) -> AllParts {
    Parts {
        queue: QueueArray::default(),
        pacing: PacingArray::default(),
        oscore: OneContext::new(context, THE_OTHER),
        observers: ObserverArray::with_unconfirmed(1),
        bodies: Texts::default(),
        leisure: (),
        group_requests: (),
        groups: (),
    }
}

/// The identity (principal) by which the client knows the server, and the server knows the client. It is the owner of
/// the OSCORE context.
const THE_OTHER: Principal = Principal(1);
static CLIENT: Place<Mote<ClientOnly, Full>> = Place::empty();
static SERVER: Place<Mote<ServerOnly, Full>> = Place::empty();
