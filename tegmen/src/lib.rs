//! Tegmen: secured CoAP for constrained devices.
//!
//! The core: CoAP, DTLS, OSCORE and groups (Axiom) as state machines over the caller's bytes and the caller's clock. No operating system, no
//! heap (but for the long keys of some ciphers, with the feature `alloc`), no socket, no `unsafe`; no byte from the network
//! can make it panic.
//!
//! The way of a datagram, in the order of the calls:
//!
//! 1. [`node::Node::handle`], by [`endpoint::Endpoint::handle`], finds out who sent it, and opens it in place
//!    ([`dtls::record`]);
//! 2. [`coap::Exchanges::receive`] parses it into a view and knows whether it was seen before;
//! 3. [`coap::handler::serve`] takes a request through the policy to the handler, which writes the response;
//! 4. [`endpoint::Endpoint::seal`] protects it.
//!
//! [`endpoint::Endpoint::poll`] sends what is due, the first time and again. Ciphers, hashes and randomness come
//! through one trait, [`crypto::Crypto`]; peers live in a table behind one trait, [`endpoint::Peers`]. A mote
//! without a network stack finds one in the crate `tegmen-lowpan`, verifies certificates with `tegmen-x509` and keeps
//! the ends of leases with `tegmen-flash`; a host has it all ready in the crate `tegmen-host`.
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
