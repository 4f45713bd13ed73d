//! Memory that replaces the serial line and the LEDs of the board if two motes are in one image: an array of bytes
//! replaces the line, and the sum of all values that the motes show replaces the LEDs.

/// The line in memory. It holds the bytes that one mote has sent and the other mote has not yet taken.
pub mod uart {
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    /// Maximum number of bytes that the line holds.
    pub const LEN: usize = 1024;
    static SENT: [AtomicU8; LEN] = [const { AtomicU8::new(0) }; LEN];
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// Sends a byte.
    pub fn send(byte: u8) {
        if let Some(place) = SENT.get(COUNT.fetch_add(1, Ordering::Relaxed)) {
            place.store(byte, Ordering::Relaxed);
        }
    }

    /// Takes all bytes from the line.
    pub fn take(line: &mut [u8; LEN]) -> &[u8] {
        for (to, from) in line.iter_mut().zip(&SENT) {
            *to = from.load(Ordering::Relaxed);
        }
        line.get(..COUNT.swap(0, Ordering::Relaxed)).unwrap_or(&[])
    }
}

/// A replacement for the LEDs of a board: it keeps the sum of all values that the motes show.
pub mod leds {
    use core::sync::atomic::{AtomicU32, Ordering};

    /// The sum of all values that were shown.
    pub static SHOWN: AtomicU32 = AtomicU32::new(0);

    /// Shows a value: adds it to [`SHOWN`].
    pub fn show(value: u32) {
        SHOWN.fetch_add(value, Ordering::Relaxed);
    }
}
