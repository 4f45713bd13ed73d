//! A client that sends a PUT every second, and observes the number of PUTs that the server has counted.
#![no_std]
#![no_main]

#[path = "../blink_client.rs"]
pub mod blink_client;
#[path = "../node_client.rs"]
pub mod node_client;

use mote::Mote;
use node_client::{Client, Small};
use tegmen::dtls::ClientOnly;
use tegmen_firmware::board::run;
use tegmen_firmware::place::Place;
use tegmen_firmware::{leds, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run::<Client, Small>(&MOTE)
}

static MOTE: Place<Mote<ClientOnly, Small>> = Place::empty();
