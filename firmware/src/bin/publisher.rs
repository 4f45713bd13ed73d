//! A constrained publisher, which derives the keys of its sessions from a protokey.
#![no_std]
#![no_main]

#[path = "../publisher.rs"]
pub mod publisher;

use mote::Mote;
use publisher::Publisher;
use tegmen::dtls::ClientOnly;
use tegmen_firmware::board::run;
use tegmen_firmware::place::Place;
use tegmen_firmware::{Provider, mote};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    run::<Publisher, ()>(&MOTE)
}

static MOTE: Place<Mote<ClientOnly>> = Place::empty();
