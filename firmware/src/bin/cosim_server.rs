//! The image `blink_server` for a simulator: the mote does not use its own clock, but receives the time from the
//! simulator over the serial line.
#![no_std]
#![no_main]

#[path = "../blink_server.rs"]
pub mod blink_server;

use blink_server::Server;
use mote::Mote;
use tegmen::dtls::ServerOnly;
use tegmen_firmware::board::run_in_turns;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run_in_turns::<Server>(&MOTE)
}

static MOTE: Place<Mote<ServerOnly>> = Place::empty();
