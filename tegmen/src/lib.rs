//! Tegmen: secured CoAP for constrained devices.
//!
//! This crate is the core. It implements CoAP, DTLS, OSCORE and groups (Axiom) as state machines, to which the caller
//! passes received bytes and the time. The core needs no operating system, no socket and no heap, except for the long
//! keys of some ciphers with the feature `alloc`. The crate has no `unsafe` code, and no byte from the network can make
//! it panic.
//!
//! When a datagram arrives, these functions process it, in this order:
//!
//! 1. [`node::Node::handle`] calls [`endpoint::Endpoint::handle`], which finds the peer that sent the datagram, and
//!    decrypts the datagram in place ([`dtls::record`]).
//! 2. [`coap::Exchanges::receive`] parses the message without a copy, and recognizes a duplicate.
//! 3. [`coap::handler::serve`] asks the policy about a request, and passes an allowed request to the handler, which
//!    writes the response.
//! 4. [`endpoint::Endpoint::seal`] protects the response.
//!
//! [`endpoint::Endpoint::poll`] sends flights and alerts when they are due, and sends lost flights again. The trait
//! [`crypto::Crypto`] provides ciphers, hashes and random numbers. The trait [`endpoint::Peers`] is the peer table. For
//! a mote (a small device), the crate `tegmen-lowpan` is a network stack, `tegmen-x509` verifies certificates, and
//! `tegmen-flash` stores the end of the reserved record numbers in flash memory, so that no record number is used twice
//! after a restart. For a host, the crate `tegmen-host` provides sockets, credentials, a peer table, a server and a
//! client.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod axiom;
pub mod coap;
mod counters;
pub mod cx;
pub mod dtls;
pub mod endpoint;
mod error;
pub mod identity;
pub mod node;

pub use tegmen_base::{address, buf, crypto, secret, time};
pub use tegmen_oscore as oscore;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
