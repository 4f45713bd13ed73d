//! OSCORE (RFC 8613): messages with end-to-end protection, over any transport.
//!
//! A [`Context`] is the security context of one endpoint. The client builds a message in a frame, calls
//! [`Context::protect_request`], stores the [`Pending`], and passes it to [`Context::unprotect_response`]. The server
//! reads the option with [`OscoreOption::parse`] to find the context, calls [`Context::unprotect_request`], and answers
//! with [`Context::protect_response`]. All operations work in place. A retransmission has the same bytes and needs no
//! cryptography.
//!
//! No sequence number is used twice: each sequence number comes from a reserved range (a [lease](Lease)), whose end was
//! stored durably before the first number of the range was used. A power cut loses the replay window, which records the
//! sequence numbers that the other endpoint has used. After a power cut, the server answers a request with a challenge
//! ([`Context::write_challenge`]; RFC 8613, appendix B.1.2), and delivers a request only if it repeats the challenge.
//! If the stored data cannot be trusted, both endpoints can derive new keys (RFC 8613, appendix B.2). Both endpoints
//! must have agreed on this before, with `RederivableContext` and `Offers` (feature `rederivation`).
//!
//! The module [`group`] protects messages to groups, and messages between members of a group (RFC 10021).
//!
//! The crate uses no operating system, no heap, no socket and no `unsafe`, and cannot panic. The core `tegmen`
//! re-exports this crate as `tegmen::oscore`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

mod context;
mod cose;
mod derivation;
mod discovery;
mod error;
pub mod group;
mod id;
mod naming;
mod option;
mod protect;
#[cfg(feature = "rederivation")]
mod rederivation;
mod texts;
mod unprotect;

pub use context::{BadParameters, Context, Parameters, SecurityContext};
pub use cose::Aead;
pub use discovery::discovery_address;
pub use error::ProtectError;
pub use id::Id;
pub use option::{BadOption, MAX_PARTIAL_IV, OscoreOption};
pub use protect::OVERHEAD;
#[cfg(feature = "rederivation")]
pub use rederivation::{FirstRequest, MAX_DERIVED_ID_CONTEXT, Offers, RederivableContext, Rederived};
pub use tegmen_base::lease::Lease;
pub use tegmen_base::replay::ReplayWindow;
pub use unprotect::{OpenedRequest, Pending, RequestBinding, RequestNonce, UnprotectError, Unprotected};

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
