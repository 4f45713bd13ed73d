//! UART0 at 115,200 baud. The interrupt handler puts received bytes into a bounded ring. [`send`] waits while the
//! transmit queue is full.

use crate::register::Register;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

// SAFETY: RCGC1, RCGC2 of the system control (LM3S6965 data sheet, chapter 5).
const CLOCK_GATES_1: Register = unsafe { Register::at(0x400f_e104) };
// SAFETY: as above.
const CLOCK_GATES_2: Register = unsafe { Register::at(0x400f_e108) };
// SAFETY: GPIOAFSEL, GPIODEN of port A, whose pins 0 and 1 are UART0 (chapter 8).
const PORT_A_FUNCTION: Register = unsafe { Register::at(0x4000_4420) };
// SAFETY: as above.
const PORT_A_DIGITAL: Register = unsafe { Register::at(0x4000_451c) };
// SAFETY: registers of UART0, a PL011 (chapter 12).
const DATA: Register = unsafe { Register::at(0x4000_c000) };
// SAFETY: as above.
const FLAGS: Register = unsafe { Register::at(0x4000_c018) };
// SAFETY: as above.
const DIVISOR: Register = unsafe { Register::at(0x4000_c024) };
// SAFETY: as above.
const DIVISOR_FRACTION: Register = unsafe { Register::at(0x4000_c028) };
// SAFETY: as above.
const LINE: Register = unsafe { Register::at(0x4000_c02c) };
// SAFETY: as above.
const CONTROL: Register = unsafe { Register::at(0x4000_c030) };
// SAFETY: as above.
const INTERRUPT_MASK: Register = unsafe { Register::at(0x4000_c038) };
// SAFETY: as above.
const INTERRUPT_CLEAR: Register = unsafe { Register::at(0x4000_c044) };
// SAFETY: NVIC_ISER0 of the ARMv7-M system control space.
const INTERRUPT_ENABLE: Register = unsafe { Register::at(0xe000_e100) };

/// Starts UART0 for a processor at 50 MHz, which [`crate::clock::start`] sets.
pub fn start() {
    CLOCK_GATES_1.set(1);
    CLOCK_GATES_2.set(1);
    PORT_A_FUNCTION.set(0b11);
    PORT_A_DIGITAL.set(0b11);
    CONTROL.write(0);
    DIVISOR.write(27); // 50 MHz / (16 * 115,200) = 27 + 8 / 64
    DIVISOR_FRACTION.write(8);
    LINE.write(0b111 << 4); // eight bits, queues on
    INTERRUPT_MASK.write(RECEIVED);
    INTERRUPT_ENABLE.write(1 << 5);
    CONTROL.write(1 | 0b11 << 8); // on, both directions
}

/// Returns the next received byte, or `None` if the ring is empty.
pub fn receive() -> Option<u8> {
    RING.take()
}

/// Sleeps until a byte is received, for a tenth of a second at most.
pub fn wait() {
    // SAFETY: interrupts are only held back while the ring is checked, so that no byte arrives between the check and
    // the sleep; a pending interrupt still ends the sleep.
    unsafe { core::arch::asm!("cpsid i", options(nostack)) };
    if RING.is_empty() {
        // SAFETY: waits; touches neither memory nor registers.
        unsafe { core::arch::asm!("wfi", options(nostack)) };
    }
    // SAFETY: as they were before.
    unsafe { core::arch::asm!("cpsie i", options(nostack)) };
}

/// Sends one byte. Waits while the transmit queue is full.
pub fn send(byte: u8) {
    const TRANSMIT_FULL: u32 = 1 << 5;
    while FLAGS.read() & TRANSMIT_FULL != 0 {}
    DATA.write(byte.into());
}

/// Returns the number of bytes that were lost because the ring was full.
pub fn lost() -> u32 {
    RING.lost.load(Ordering::Relaxed)
}

/// Handles the UART0 interrupt: moves all bytes from the receive queue into the ring.
#[unsafe(no_mangle)]
extern "C" fn UART0() {
    const RECEIVE_EMPTY: u32 = 1 << 4;
    INTERRUPT_CLEAR.write(RECEIVED);
    while FLAGS.read() & RECEIVE_EMPTY == 0 {
        RING.put(DATA.read() as u8); // the upper bits are error flags; a damaged packet fails its checksum
    }
}

/// A ring of received bytes. One interrupt handler puts bytes into the ring, and one thread takes them. The counters
/// `put` and `taken` only increase. The position of a byte is the remainder of its counter modulo [`RING_LEN`].
struct Ring {
    bytes: [AtomicU8; RING_LEN],
    put: AtomicUsize,
    taken: AtomicUsize,
    lost: AtomicU32,
}

static RING: Ring = Ring {
    bytes: [const { AtomicU8::new(0) }; RING_LEN],
    put: AtomicUsize::new(0),
    taken: AtomicUsize::new(0),
    lost: AtomicU32::new(0),
};

impl Ring {
    fn put(&self, byte: u8) {
        let put = self.put.load(Ordering::Relaxed);
        let full = put.wrapping_sub(self.taken.load(Ordering::Acquire)) >= RING_LEN;
        match self.bytes.get(put % RING_LEN) {
            Some(slot) if !full => {
                slot.store(byte, Ordering::Relaxed);
                self.put.store(put.wrapping_add(1), Ordering::Release);
            }
            _ => self.lost.store(self.lost.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed),
        }
    }

    fn is_empty(&self) -> bool {
        self.put.load(Ordering::Acquire) == self.taken.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let taken = self.taken.load(Ordering::Relaxed);
        let byte = self.bytes.get(taken % RING_LEN)?.load(Ordering::Relaxed);
        self.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(byte)
    }
}

/// Capacity of the ring in bytes, a power of two. In a tenth of a second, 1,152 bytes can arrive at 115,200 baud. This
/// is more than the capacity, but the thread empties the ring after every interrupt.
const RING_LEN: usize = 512;
/// The bits of the interrupts "receive queue filled to its trigger level" and "receive timeout".
const RECEIVED: u32 = 1 << 4 | 1 << 6;
