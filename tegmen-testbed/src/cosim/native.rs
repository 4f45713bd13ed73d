//! The motes of the firmware, compiled for this machine. Substitutes replace the board.

#[path = "../../../firmware/src/blink_client.rs"]
pub mod blink_client;
#[path = "../../../firmware/src/blink_server.rs"]
pub mod blink_server;
#[path = "../../../firmware/src/mote.rs"]
pub mod mote;
#[path = "../../../firmware/src/turn.rs"]
pub mod turn;

use super::{Error, packet_or_done};
use mote::Application;
use tegmen::crypto::Compact;
use tegmen::time::Instant;
use tegmen_lowpan::slip::{Decoder, Start};

/// The cryptographic provider of the images. On this machine it is used only to compare bytes, and never for secrets.
type Provider = Compact;

/// A mote that runs in this process.
pub struct Native<A: Application> {
    mote: mote::Mote<A::Roles>,
    application: A,
    shown: u32,
}

impl<A: Application> Native<A> {
    /// Creates a mote that has not received or sent anything yet. Returns `None` if `start` does not contain a value
    /// that the application of the mote needs.
    pub fn new(start: Start) -> Option<Self> {
        let application = A::start(&start)?;
        Some(Self { mote: mote::Mote::new(Instant::default(), start, ()), application, shown: 0 })
    }

    /// Returns the value that the mote's LEDs show.
    pub const fn shown(&self) -> u32 {
        self.shown
    }
}

impl<A: Application> super::Mote for Native<A> {
    fn take_turn(&mut self, now: Instant, packet: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        turn::take_turn(&mut self.mote, &mut self.application, &mut super::turn(now, packet));
        self.shown = leds::take().unwrap_or(self.shown);
        let mut storage = [0; mote::PACKET_LEN];
        let mut line = Decoder::new(&mut storage);
        let mut packets = Vec::new();
        for byte in uart::take() {
            let Some(frame) = line.push(byte) else { continue };
            match packet_or_done(frame.to_vec())? {
                Some(packet) => packets.push(packet),
                None => return Ok(packets),
            }
        }
        Err(Error::Silent)
    }
}

/// A substitute for the serial line of the board. It stores the bytes that the mote sends, until the simulation reads
/// them. Each thread has its own store, so that motes in different threads do not disturb each other.
mod uart {
    use std::cell::RefCell;

    thread_local!(static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });

    pub(super) fn send(byte: u8) {
        SENT.with_borrow_mut(|sent| sent.push(byte));
    }

    pub(super) fn take() -> Vec<u8> {
        SENT.take()
    }
}

/// A substitute for the LEDs of the board. It stores the last value that the mote showed, until the simulation reads
/// it. Each thread has its own store.
mod leds {
    use std::cell::Cell;

    thread_local!(static SHOWN: Cell<Option<u32>> = const { Cell::new(None) });

    pub(super) fn show(value: u32) {
        SHOWN.set(Some(value & 0b111));
    }

    pub(super) fn take() -> Option<u32> {
        SHOWN.take()
    }
}
