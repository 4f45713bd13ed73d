//! Trust of Tegmen on an operating system, without sockets and without a runtime.
//!
//! * [`x509`] verifies certificates and raw public keys of peers, and has keys of our own, in files or in a TPM.
//! * [`public_keys`] are the keys of one endpoint and the peers that it trusts.
//! * [`credentials`] are identities, pre-shared keys and rights, from a file or from a key store.
//! * [`request_uri`] reads the path and the query of a request, by one rule for rights, resources, observers and log.
//! * [`provider`] is the crypto provider of hosts, and [`provider::public`] its public-key arithmetic.
//! * [`hex`], [`digest`], [`private`] and [`reading`] are small tools of these modules and of the crates above.

pub mod credentials;
pub mod digest;
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
