//! The board of the examples: an LM3S6965 (Cortex-M3) with its Ethernet controller. QEMU emulates it as the machine
//! `lm3s6965evb`.
//!
//! For your own board, replace this package. You need the clock, the network driver and the panic handler of the
//! board's HAL, a logger such as `defmt-rtt`, and your own source of keys and of random numbers.
#![no_std]

pub mod clock;
pub mod ethernet;
mod register;
mod settings;

pub use settings::Settings;

use core::panic::PanicInfo;
use defmt::{Display2Format, error};
use defmt_semihosting as _;
use semihosting::process;

/// Ends QEMU, with the exit code 0 if `is_success` is true, and 1 otherwise.
pub fn exit(is_success: bool) -> ! {
    process::exit(i32::from(!is_success))
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    error!("{}", Display2Format(info));
    exit(false)
}
