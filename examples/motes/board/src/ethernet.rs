//! The driver of the Ethernet controller of the LM3S6965 (data sheet, chapter 17). It receives and sends whole frames.

use crate::register::Register;
use core::cell::Cell;
use cortex_m::interrupt::{InterruptNumber, Mutex, free};
use cortex_m::peripheral::NVIC;
use cortex_m_rt::exception;

// SAFETY: RCGC2 of the system control (data sheet, chapter 5).
const CLOCK_GATES: Register = unsafe { Register::at(0x400f_e108) };
// SAFETY: registers of the Ethernet controller.
const INTERRUPTS: Register = unsafe { Register::at(0x4004_8000) };
// SAFETY: as above.
const INTERRUPT_MASK: Register = unsafe { Register::at(0x4004_8004) };
// SAFETY: as above.
const RECEIVER: Register = unsafe { Register::at(0x4004_8008) };
// SAFETY: as above.
const TRANSMITTER: Register = unsafe { Register::at(0x4004_800c) };
// SAFETY: as above.
const DATA: Register = unsafe { Register::at(0x4004_8010) };
// SAFETY: as above.
const ADDRESS_LOW: Register = unsafe { Register::at(0x4004_8014) };
// SAFETY: as above.
const ADDRESS_HIGH: Register = unsafe { Register::at(0x4004_8018) };
// SAFETY: as above.
const WAITING: Register = unsafe { Register::at(0x4004_8034) };
// SAFETY: as above.
const REQUEST: Register = unsafe { Register::at(0x4004_8038) };

/// Length of the longest frame without its checksum, in bytes: a header of 14 bytes, and a packet of 1500 bytes.
pub const FRAME_LEN: usize = 1514;

/// The controller.
pub struct Ethernet(());

impl Ethernet {
    /// Starts the controller with this hardware address. Call this function only once.
    pub fn start(address: [u8; 6]) -> Self {
        CLOCK_GATES.write(CLOCK_GATES.read() | 1 << 30 | 1 << 28);
        let [a, b, c, d, e, f] = address;
        ADDRESS_LOW.write(u32::from_le_bytes([a, b, c, d]));
        ADDRESS_HIGH.write(u32::from_le_bytes([e, f, 0, 0]));
        INTERRUPT_MASK.write(0);
        TRANSMITTER.write(1 << 4 | 1 << 2 | 1 << 1 | 1); // full duplex, checksum, padding, on
        RECEIVER.write(1 << 4); // empties the queue
        RECEIVER.write(1 << 3 | 1); // drops frames with a wrong checksum, on
        Self(())
    }

    /// Enables the interrupt of the controller. After each received frame the interrupt handler calls `on_frame`.
    pub fn enable_interrupt(&mut self, on_frame: fn()) {
        free(|cs| ON_FRAME.borrow(cs).set(Some(on_frame)));
        INTERRUPTS.write(RECEIVED);
        INTERRUPT_MASK.write(RECEIVED);
        // SAFETY: no code of the examples relies on this interrupt being masked.
        unsafe { NVIC::unmask(Interrupt) };
    }

    /// Returns true if the controller has a received frame.
    pub fn has_frame(&self) -> bool {
        WAITING.read() & 0x3f != 0
    }

    /// Takes a received frame from the controller, and writes it to `frame` without its checksum. Returns its length in
    /// bytes. If `frame` is shorter than the received frame, the other bytes are lost.
    pub fn receive(&mut self, frame: &mut [u8]) -> usize {
        // Two bytes of length, then the frame, then four bytes of checksum: the length counts all of them.
        let [low, high, first, second] = DATA.read().to_le_bytes();
        let total = usize::from(u16::from_le_bytes([low, high]));
        let len = total.saturating_sub(6).min(frame.len());
        let (frame, _) = frame.split_at_mut(len);
        if let Some(start) = frame.first_chunk_mut() {
            *start = [first, second];
        }
        let mut rest = frame.get_mut(2..).unwrap_or(&mut []).chunks_mut(4);
        for _ in 1..total.div_ceil(4) {
            let word = DATA.read().to_le_bytes();
            if let Some(place) = rest.next() {
                place.copy_from_slice(word.get(..place.len()).unwrap_or(&[]));
            }
        }
        len
    }

    /// Returns true if the previous frame is sent, so that [`Self::send`] does not have to wait.
    pub fn can_send(&self) -> bool {
        REQUEST.read() & 1 == 0
    }

    /// Sends a frame, which begins with its header of 14 bytes. Waits until the previous frame is sent. The controller
    /// adds the padding and the checksum.
    pub fn send(&mut self, frame: &[u8]) {
        while !self.can_send() {}
        let Some(([first, second], rest)) = frame.split_first_chunk() else { return };
        // Two bytes of length come first. The length does not count the header.
        let [low, high] = (frame.len().saturating_sub(14) as u16).to_le_bytes();
        DATA.write(u32::from_le_bytes([low, high, *first, *second]));
        for chunk in rest.chunks(4) {
            let mut word = [0; 4];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            DATA.write(u32::from_le_bytes(word));
        }
        REQUEST.write(1);
    }
}

static ON_FRAME: Mutex<Cell<Option<fn()>>> = Mutex::new(Cell::new(None));

/// The bit of the event "a frame was received" in the interrupt registers of the controller.
const RECEIVED: u32 = 1;

/// The number of the controller's interrupt.
#[derive(Clone, Copy)]
struct Interrupt;

// SAFETY: the number is that of the Ethernet controller (data sheet, chapter 2.5).
unsafe impl InterruptNumber for Interrupt {
    fn number(self) -> u16 {
        42
    }
}

/// Handles all interrupts of devices. The examples use only the interrupt of the Ethernet controller.
#[exception]
unsafe fn DefaultHandler(_number: i16) {
    INTERRUPTS.write(RECEIVED);
    if let Some(on_frame) = free(|cs| ON_FRAME.borrow(cs).get()) {
        on_frame();
    }
}
