//! The parts that a firmware image needs in addition to the crate `tegmen`. They are for the chip LM3S6965 (Cortex-M3)
//! on QEMU's board `lm3s6965evb`.
//!
//! [`start`] starts the image and restarts it after a panic. [`clock`] counts its time, [`uart`] is its only
//! connection, [`leds`] are its display, and [`place`] stores values that are too large for the stack. [`mote`] runs on
//! any board, and so do its applications (`blink_client.rs`, `blink_server.rs`), which are modules of the images that
//! use them. [`board`] runs the mote on this board. The time comes from the board's clock, or from a simulator that
//! sends the current time in each message ([`turn`]). Two motes in one image are connected by memory (`line.rs`,
//! `two_motes.rs`). Images that measure use [`measure`]: marks around the counted code, notes in the ELF file that
//! describe the marks, and an exit code. A [`pair`] consists of a DTLS client and a DTLS server in one image, which
//! exchange datagrams in memory.
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

/// The cryptographic provider of this build.
#[cfg(feature = "compact")]
pub type Provider = tegmen::crypto::Compact;
/// The cryptographic provider of this build.
#[cfg(all(feature = "rustcrypto", not(feature = "compact")))]
pub type Provider = tegmen::crypto::RustCrypto;

#[cfg(all(feature = "compact", feature = "rustcrypto"))]
compile_error!("choose one provider: --no-default-features --features compact, or rustcrypto");
#[cfg(not(any(feature = "compact", feature = "rustcrypto")))]
compile_error!("choose a provider: --features compact, or rustcrypto");
