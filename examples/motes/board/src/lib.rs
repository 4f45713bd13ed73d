//! The board of the examples: an LM3S6965 (Cortex-M3) with its Ethernet controller, as QEMU's machine `lm3s6965evb` emulates it.
//!
//! For a board of your own, replace this package: by the clock, the network driver and the panic handler of its HAL, by a logger such
//! as `defmt-rtt`, and by your source of keys and of randomness.
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

/// Ends the run of QEMU.
pub fn exit(is_success: bool) -> ! {
    process::exit(i32::from(!is_success))
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    error!("{}", Display2Format(info));
    exit(false)
}
