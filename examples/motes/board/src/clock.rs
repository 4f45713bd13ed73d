//! The clock: it counts the milliseconds since the start.
//!
//! SysTick causes an interrupt in each millisecond. The image defines the handler of this interrupt, which calls
//! [`tick`].

use crate::register::Register;
use core::cell::Cell;
use cortex_m::interrupt::{Mutex, free};
use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

// SAFETY: RIS, RCC of the system control (LM3S6965 data sheet, chapter 5).
const RAW_INTERRUPTS: Register = unsafe { Register::at(0x400f_e050) };
// SAFETY: as above.
const RUN_CLOCK: Register = unsafe { Register::at(0x400f_e060) };

static MILLIS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// Sets the processor to 50 MHz, and starts the clock at zero.
pub fn start(mut systick: SYST) {
    use_crystal();
    systick.set_clock_source(SystClkSource::Core);
    systick.set_reload(CYCLES_PER_MILLI - 1);
    systick.clear_current();
    systick.enable_counter();
    systick.enable_interrupt();
}

/// Returns the milliseconds since the start.
pub fn millis() -> u64 {
    free(|cs| MILLIS.borrow(cs).get())
}

/// Counts a millisecond. Call it from the SysTick interrupt.
pub fn tick() {
    free(|cs| {
        let millis = MILLIS.borrow(cs);
        millis.set(millis.get().wrapping_add(1));
    });
}

/// Selects the clock of the processor: the PLL, which multiplies the 8 MHz of the crystal to 200 MHz, divided by 4
/// (LM3S6965 data sheet, section 5.3, initialization).
fn use_crystal() {
    const CRYSTAL: u32 = 0xe << 6;
    const DIVIDER: u32 = 3 << 23 | 1 << 22;
    const BYPASS: u32 = 1 << 11;
    const IS_LOCKED: u32 = 1 << 6;
    RUN_CLOCK.write(CRYSTAL | BYPASS);
    RUN_CLOCK.write(CRYSTAL | BYPASS | DIVIDER);
    while RAW_INTERRUPTS.read() & IS_LOCKED == 0 {}
    RUN_CLOCK.write(CRYSTAL | DIVIDER);
}

const CYCLES_PER_MILLI: u32 = 50_000;
