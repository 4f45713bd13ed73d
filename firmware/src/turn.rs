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
//! A mote does nothing between turns. In a turn the mote runs to completion: it sends its packets, and then `done`. Its
//! packets depend only on its seed and on the turns that it received.

use super::mote::{Application, Mote};
use super::uart;
use tegmen::time::Instant;
use tegmen_lowpan::slip::encode;

/// Runs the turn in a frame, and then sends `done`. Ignores other frames.
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

/// The first bytes of a turn, before the time.
pub const TURN: [u8; 2] = *b"*\x01";
/// The whole frame that ends a turn.
pub const DONE: [u8; 2] = *b".\x01";
