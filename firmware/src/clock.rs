//! A monotonic clock in microseconds. The processor runs at 50 MHz. SysTick counts tenths of a second, and its counter
//! gives the time between them.

use crate::register::Register;
use core::sync::atomic::{AtomicU32, Ordering};
use tegmen::time::Instant;

// SAFETY: RIS, RCC of the system control (LM3S6965 data sheet, chapter 5).
const RAW_INTERRUPTS: Register = unsafe { Register::at(0x400f_e050) };
// SAFETY: as above.
const RUN_CLOCK: Register = unsafe { Register::at(0x400f_e060) };
// SAFETY: SYST_CSR, SYST_RVR, SYST_CVR, ICSR of the ARMv7-M system control space.
const TICK_CONTROL: Register = unsafe { Register::at(0xe000_e010) };
// SAFETY: as above.
const TICK_RELOAD: Register = unsafe { Register::at(0xe000_e014) };
// SAFETY: as above.
const TICK_COUNTER: Register = unsafe { Register::at(0xe000_e018) };
// SAFETY: as above.
const INTERRUPT_STATE: Register = unsafe { Register::at(0xe000_ed04) };

/// Number of ticks since the start. A tick is a tenth of a second, so 32 bits are enough for 13 years.
static TICKS: AtomicU32 = AtomicU32::new(0);

/// Sets the processor to 50 MHz with the board's 8 MHz crystal, and starts the clock at zero.
pub fn start() {
    use_crystal();
    TICK_RELOAD.write(CYCLES_PER_TICK - 1);
    TICK_COUNTER.write(0);
    TICK_CONTROL.write(0b111); // processor clock, interrupt, on
}

/// Returns the time. Call this only in thread mode, because the tick does not advance inside an interrupt handler.
pub fn now() -> Instant {
    let (ticks, counter) = loop {
        let ticks = TICKS.load(Ordering::Relaxed);
        let counter = TICK_COUNTER.read();
        // The counter may have wrapped before its interrupt was taken: then the two values do not match.
        let tick_pending = INTERRUPT_STATE.read() & (1 << 26) != 0;
        if !tick_pending && TICKS.load(Ordering::Relaxed) == ticks {
            break (ticks, counter);
        }
    };
    let within = CYCLES_PER_TICK.wrapping_sub(1).wrapping_sub(counter) / CYCLES_PER_MICROSECOND;
    Instant::from_micros(u64::from(ticks).wrapping_mul(MICROSECONDS_PER_TICK).wrapping_add(within.into()))
}

/// Starts the PLL in the order of the data sheet (5.3, initialization): bypass the PLL, start crystal and PLL, set the
/// divider, wait for the lock, use the PLL.
fn use_crystal() {
    const BYPASS: u32 = 1 << 11;
    const USE_DIVIDER: u32 = 1 << 22;
    const POWER_DOWN: u32 = 1 << 13;
    let mut clock = (RUN_CLOCK.read() | BYPASS) & !USE_DIVIDER;
    RUN_CLOCK.write(clock);
    clock = (clock & !(0xf << 6 | 0b11 << 4 | POWER_DOWN | 1)) | 0xe << 6; // 8 MHz crystal, main oscillator on
    RUN_CLOCK.write(clock);
    clock = (clock & !(0xf << 23)) | 3 << 23 | USE_DIVIDER; // 200 MHz by 4
    RUN_CLOCK.write(clock);
    for _ in 0..0x8000 {
        if RAW_INTERRUPTS.read() & (1 << 6) != 0 {
            break;
        }
    }
    RUN_CLOCK.write(clock & !BYPASS);
}

/// Handles the SysTick interrupt.
#[unsafe(no_mangle)]
extern "C" fn SysTick() {
    // Only this function writes the counter, so a load and a store are sufficient.
    TICKS.store(TICKS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

const CYCLES_PER_MICROSECOND: u32 = 50;
const MICROSECONDS_PER_TICK: u64 = 100_000;
const CYCLES_PER_TICK: u32 = CYCLES_PER_MICROSECOND * MICROSECONDS_PER_TICK as u32;
