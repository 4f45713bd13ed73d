//! A server that counts the PUTs of its clients, and sends the count to observers. It also receives and sends bodies in
//! blocks.
#![no_std]
#![no_main]

#[path = "../blink_server.rs"]
pub mod blink_server;
#[path = "../node_server.rs"]
pub mod node_server;

use mote::Mote;
use node_server::{Server, Serving};
use tegmen::dtls::ServerOnly;
use tegmen_firmware::board::run;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run::<Server, Serving>(&MOTE)
}

static MOTE: Place<Mote<ServerOnly, Serving>> = Place::empty();
