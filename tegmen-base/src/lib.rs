//! Types that the crates of Tegmen share: [ciphers and hashes](crypto) behind one trait, [secrets](secret),
//! [buffers](buf), [addresses](address) and the caller's [clock](time).
//!
//! The crate uses no operating system, no heap and no `unsafe`, and implements no protocol. The core `tegmen`, the
//! crate `tegmen-coap` and the crates for motes all use these types. A crypto provider needs no other crate of Tegmen
//! than this crate. The core re-exports each module under the same name.
//!
//! The feature `std`, for crates of hosts, adds strings of [hexadecimal digits](hex) and files for secrets
//! (`private`).
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod address;
pub mod buf;
pub mod cbor;
pub mod crypto;
mod error;
pub mod hex;
pub mod lease;
#[cfg(feature = "std")]
pub mod private;
pub mod replay;
pub mod secret;
pub mod time;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
