//! A mote on its board. It starts the hardware, requests a [`Start`] from the bridge, and then runs the mote forever.
//!
//! [`run`] runs a mote with its own clock, as in the field. [`run_in_turns`] runs a mote with the clock of a simulator.

use crate::mote::{Application, Memory, Mote, PACKET_LEN};
use crate::place::Place;
use crate::start::restart;
use crate::turn::take_turn;
use crate::{clock, leds, uart};
use tegmen::buf::Writer;
use tegmen::secret::wipe;
use tegmen::time::{Duration, Instant};
use tegmen_lowpan::slip::{Control, Decoder, Start, encode};

/// Runs the application forever. `place` stores the mote.
pub fn run<A: Application<M>, M: Memory<Features: Default>>(place: &'static Place<Mote<A::Roles, M>>) -> ! {
    let mut line = begin();
    let (start, mut application) = await_start::<A, M>(&mut line);
    let Some(mote) = place.fill(|| Mote::new(clock::now(), start, M::Features::default())) else { restart() };
    loop {
        let now = clock::now();
        mote.on_time(&mut application, now);
        while let Some(byte) = uart::receive() {
            if let Some(packet) = line.push(byte) {
                mote.on_packet(&mut application, now, packet);
            }
        }
        uart::wait();
    }
}

/// Runs the application forever, in the [`turn`](crate::turn)s that arrive over the serial line. A turn is a message of
/// a simulator with the current time. `place` stores the mote.
pub fn run_in_turns<A: Application>(place: &'static Place<Mote<A::Roles>>) -> ! {
    let mut line = begin();
    let (start, mut application) = await_start::<A, ()>(&mut line);
    let Some(mote) = place.fill(|| Mote::new(Instant::default(), start, ())) else { restart() };
    loop {
        while let Some(byte) = uart::receive() {
            if let Some(frame) = line.push(byte) {
                take_turn(mote, &mut application, frame);
            }
        }
        uart::wait();
    }
}

/// Starts the board. Returns the decoder of its serial line.
fn begin() -> Decoder<'static> {
    clock::start();
    uart::start();
    leds::start();
    let Some(received) = RECEIVED.fill(|| [0; PACKET_LEN]) else { restart() };
    Decoder::new(received)
}

/// Sends a request for a [`Start`] once a second, and nothing else, until the bridge's answer has everything that the
/// application needs.
fn await_start<A: Application<M>, M: Memory>(line: &mut Decoder<'_>) -> (Start, A) {
    let mut ask_at = Instant::default();
    loop {
        let now = clock::now();
        if ask_at <= now {
            ask_at = now.after(Duration::from_secs(1));
            let mut question = [0; Control::MAX_LEN];
            let mut writer = Writer::new(&mut question);
            if Control::SeedPlease.write(&mut writer).is_ok() {
                encode(writer.written()).for_each(uart::send);
            }
        }
        while let Some(byte) = uart::receive() {
            let Some(frame) = line.push(byte) else { continue };
            let control = Control::parse(frame);
            wipe(frame);
            if let Ok(Control::Start(start)) = control
                && let Some(application) = A::start(&start)
            {
                return (start, application);
            }
        }
        uart::wait();
    }
}

static RECEIVED: Place<[u8; PACKET_LEN]> = Place::empty();
