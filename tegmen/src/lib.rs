//! Tegmen: what constrained devices say, secured.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod buf;
pub mod crypto;
pub mod replay;
pub mod secret;
pub mod time;
