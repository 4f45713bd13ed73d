//! Three LEDs on port F, pins 0 to 2. The evaluation board has only the LED on pin 0.

use crate::register::Register;

// SAFETY: RCGC2 of the system control, and registers of GPIO port F (LM3S6965 data sheet, chapters 5 and 8).
const CLOCK_GATES_2: Register = unsafe { Register::at(0x400f_e108) };
// SAFETY: as above. The address bits 9:2 mask the pins that a write touches, here 0 to 2.
const DATA: Register = unsafe { Register::at(0x4002_5000 + (0b111 << 2)) };
// SAFETY: as above.
const DIRECTION: Register = unsafe { Register::at(0x4002_5400) };
// SAFETY: as above.
const DIGITAL_ENABLE: Register = unsafe { Register::at(0x4002_551c) };

/// Makes the pins outputs, all dark.
pub fn start() {
    CLOCK_GATES_2.set(1 << 5);
    DIRECTION.set(0b111);
    DIGITAL_ENABLE.set(0b111);
    show(0);
}

/// Shows the low three bits of `value`.
pub fn show(value: u32) {
    DATA.write(value & 0b111);
}
