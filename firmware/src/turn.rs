//! Turns: messages between a mote and a simulator that sets the mote's clock.
//!
//! The high nibble of the first byte of both messages is not a version of IP. So the messages can be distinguished from
//! packets, as the control frames of [`tegmen_lowpan::slip`] can. The format is version 1, with numbers in big-endian
//! order:
//!
//! ```text
//! turn   '*' 1, the time in microseconds (8 bytes) [, the IPv6 packet that came at that time]
//! done   '.' 1
//! ```
//!
//! After each `turn`, the mote does everything that is due at the given time: it processes the packet, sends its
//! packets, and then sends `done`. Until the next `turn` it does nothing. Its packets depend only on its seed and on
//! the turns that it received.

use super::mote::{Application, Mote};
use super::uart;
use tegmen::time::Instant;
use tegmen_lowpan::slip::encode;

/// Processes the frame `turn` of the simulator: sets the clock of the mote, processes the IPv6 packet or the timers,
/// and then sends `done`. Ignores other frames.
pub fn take_turn<A: Application>(mote: &mut Mote<A::Roles>, application: &mut A, frame: &mut [u8]) {
    let Some((&mut TURN, rest)) = frame.split_first_chunk_mut() else { return };
    let Some((&mut now, packet)) = rest.split_first_chunk_mut() else { return };
    let now = Instant::from_micros(u64::from_be_bytes(now));
    if packet.is_empty() {
        mote.on_time(application, now);
    } else {
        mote.on_packet(application, now, packet);
    }
    encode(&DONE).for_each(uart::send);
}

/// The first bytes of the frame `turn`, with which the simulator sets the clock of the mote. The time follows.
pub const TURN: [u8; 2] = *b"*\x01";
/// The whole frame `done`, with which the mote reports that it has processed a `turn`.
pub const DONE: [u8; 2] = *b".\x01";
