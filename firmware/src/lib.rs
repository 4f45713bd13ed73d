//! The parts of an image around the core on an LM3S6965 (Cortex-M3), the chip of QEMU's `lm3s6965evb`.
//!
//! [`start`] starts the image and restarts it after a panic, [`clock`] is its time, [`uart`] its only connection,
//! [`leds`] its display, and [`place`] keeps values that are too large for the stack. [`mote`] runs on any board, as do
//! its applications (`blink_client.rs`, `blink_server.rs`: part of the images that have them); [`board`] runs it on
//! this one, by its own clock or in the [`turn`]s of a simulator. Two motes in one image are on a line in memory
//! (`line.rs`, `two_motes.rs`). Measuring images use [`measure`]: marks around what is counted, notes in the ELF that
//! name it, an exit code; two ends in one image that exchange datagrams are a [`pair`].
#![no_std]

pub mod board;
pub mod clock;
pub mod flash;
pub mod leds;
pub mod measure;
pub mod mote;
pub mod pair;
pub mod place;
mod register;
pub mod resuming;
pub mod start;
pub mod turn;
pub mod uart;

/// The crypto provider of this build.
#[cfg(feature = "compact")]
pub type Provider = tegmen::crypto::Compact;
/// The crypto provider of this build.
#[cfg(all(feature = "rustcrypto", not(feature = "compact")))]
pub type Provider = tegmen::crypto::RustCrypto;

#[cfg(all(feature = "compact", feature = "rustcrypto"))]
compile_error!("choose one provider: --no-default-features --features compact, or rustcrypto");
#[cfg(not(any(feature = "compact", feature = "rustcrypto")))]
compile_error!("choose a provider: --features compact, or rustcrypto");
