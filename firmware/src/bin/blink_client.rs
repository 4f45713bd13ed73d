//! The client of Blink. It sends a PUT to its server every second and shows the low three bits of the count in the
//! response.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;

use blink_client::Client;
use mote::Mote;
use tegmen::dtls::ClientOnly;
use tegmen_firmware::board::run;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run::<Client, ()>(&MOTE)
}

static MOTE: Place<Mote<ClientOnly>> = Place::empty();
