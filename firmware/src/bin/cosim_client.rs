//! The image `blink_client` for a simulator: the mote does not use its own clock, but receives the time from the
//! simulator over the serial line.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;

use blink_client::Client;
use mote::Mote;
use tegmen::dtls::ClientOnly;
use tegmen_firmware::board::run_in_turns;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run_in_turns::<Client>(&MOTE)
}

static MOTE: Place<Mote<ClientOnly>> = Place::empty();
