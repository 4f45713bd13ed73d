//! Delegated sessions (R. Hummen and others, "Delegation-based Authentication and Authorization for the IP-based Internet of
//! Things", 2014).
//!
//! A delegation server performs the handshake with certificates in the name of a device. Then the remote peer resumes
//! the session at the device. The device has no certificate and no private key, and its image contains no public-key
//! cryptography. There are two ways to bring a session to the device: a [ticket](Ticket) (RFC 5077) that the server
//! encrypts for the device, or a [handed-over session](HandedOver) for peers that resume by session id.
//!
//! A device and its server share a [device key](DeviceKey). Each [epoch](Epoch) has one ticket key and one list of
//! refused connections. In the next epoch, the device refuses all tickets of the previous epoch.
//!
//! The device and the server use this crate. It needs neither an operating system nor a heap.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

mod admission;
mod device;
mod epoch;
mod flash;
mod issuer;
mod message;
mod refusal;
mod resources;
mod sessions;
mod ticket;

pub use device::{Device, Lost, Memory, Rejected, Unread};
pub use epoch::{CHECK_LEN, DeviceKey, EXPORTER, Epoch, PSK_LEN};
pub use flash::{FlashMemory, NotKept};
pub use issuer::{Issuer, MAX_TICKETS, NotReissued};
pub use message::{Go, HandedOver, Malformed, Request, Resource, Status};
pub use refusal::{Refusals, Refused};
pub use resources::{Due, Resources};
pub use sessions::Sessions;
pub use ticket::{Connection, Delegation, LONGEST_TICKET, SERVER, STATE_LEN, Ticket};

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
