//! The motes of `node_client` and `node_server` in one image, connected by memory in place of a serial line. They
//! exchange an observation, and bodies in blocks.
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
use mote::Mote;
use node_client::Small;
use node_pair::{Pair, notes};
use node_server::Serving;
use tegmen::dtls::{ClientOnly, ServerOnly};
use tegmen::node::Parts;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::place::Place;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 15] = notes::<Small, Serving>();

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

fn run() -> Option<()> {
    Pair::new((&CLIENT, || ()), (&SERVER, Parts::default), false)?.run()
}

static CLIENT: Place<Mote<ClientOnly, Small>> = Place::empty();
static SERVER: Place<Mote<ServerOnly, Serving>> = Place::empty();
