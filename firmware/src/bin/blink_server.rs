//! The server of Blink. It counts the PUTs of its clients, answers with the count, and shows the low three bits of the
//! count.
#![no_std]
#![no_main]

#[path = "../blink_server.rs"]
pub mod blink_server;

use blink_server::Server;
use mote::Mote;
use tegmen::dtls::ServerOnly;
use tegmen_firmware::board::run;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run::<Server, ()>(&MOTE)
}

static MOTE: Place<Mote<ServerOnly>> = Place::empty();
