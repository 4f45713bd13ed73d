//! Tegmen: what constrained devices say, secured.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod buf;
pub mod coap;
pub mod counters;
pub mod crypto;
pub mod dtls;
pub mod endpoint;
pub mod ip;
pub mod replay;
pub mod secret;
pub mod slip;
pub mod time;
