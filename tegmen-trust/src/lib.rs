//! Keys, credentials and rights of endpoints on an operating system, and the verification of their peers. This crate
//! opens no sockets and needs no async runtime.
//!
//! * [`x509`] verifies certificates and raw public keys of peers. It also manages the private keys of this endpoint, in
//!   files or in a TPM.
//! * [`public_keys`] combines the public keys of one endpoint with the peers that it trusts.
//! * [`credentials`] contains identities, pre-shared keys and rights, from a file or from a key store.
//! * [`request_uri`] reads the path and the query of a request. Rights, resources, observers and log all use this
//!   module, so that they agree on the path.
//! * [`provider`] is the crypto provider of hosts, and [`provider::public`] contains its public-key arithmetic.
//! * [`hex`], [`digest`], [`private`] and [`reading`] are small tools for these modules and for crates that depend on
//!   this one.

pub mod credentials;
pub mod digest;
mod halves;
pub mod provider;
pub mod public_keys;
pub mod reading;
pub mod request_uri;
pub mod x509;

pub use tegmen_base::{hex, private};

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
