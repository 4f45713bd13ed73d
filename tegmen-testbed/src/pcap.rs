//! Writes frames of the simulated radio into a capture file, which tshark and Wireshark can decode. Its link type 283
//! (IEEE 802.15.4 TAP) includes the channel and the signal strength.

use crate::sim::Captured;
use std::io::{self, Write};

/// Writes the frames into `out`, in the order in which they were sent.
///
/// # Errors
/// The errors of writing into `out`.
pub fn write(frames: &[Captured], out: &mut impl Write) -> io::Result<()> {
    out.write_all(&MAGIC_MICROSECONDS.to_le_bytes())?;
    for half in [2u16, 4] {
        out.write_all(&half.to_le_bytes())?; // version 2.4
    }
    for word in [0, 0, SNAP_LEN, LINKTYPE_IEEE802_15_4_TAP] {
        out.write_all(&word.to_le_bytes())?;
    }
    for frame in frames {
        let len = (TAP.len() + frame.psdu.len()) as u32;
        for word in [(frame.at / 1_000_000) as u32, (frame.at % 1_000_000) as u32, len, len] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&TAP)?;
        out.write_all(&frame.psdu)?;
    }
    Ok(())
}

const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const SNAP_LEN: u32 = 256;
const LINKTYPE_IEEE802_15_4_TAP: u32 = 283;
/// The TAP header that precedes each frame. It states version 0, a length of 28 bytes, an FCS of 16 bits, a signal
/// strength of -60 dBm as a float, and channel 26 of page 0.
const TAP: [u8; 28] = [
    0, 0, 28, 0, //
    0, 0, 1, 0, 1, 0, 0, 0, //
    1, 0, 4, 0, 0, 0, 0x70, 0xc2, //
    3, 0, 3, 0, 26, 0, 0, 0,
];

#[cfg(test)]
mod tests;
