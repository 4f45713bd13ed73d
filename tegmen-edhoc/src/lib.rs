//! EDHOC (RFC 9528): two peers agree on the keys of an OSCORE context (RFC 8613), and authenticate each other.
//!
//! Both peers authenticate with static Diffie-Hellman keys (method 3) under cipher suite 2: P-256, AES-CCM-16-64-128
//! and SHA-256. Other methods and suites are not supported. A credential is a CWT Claims Set (RFC 8392) with a public
//! key on P-256. Messages contain either the `kid` of the credential or the whole credential. The library `lakers`
//! has the state machine. This crate refuses the messages that would make `lakers` panic, and takes the cryptography
//! from a [`Crypto`](tegmen_base::crypto::Crypto) provider.
//!
//! ```text
//! Initiator::begin    message_1 ->                    Responder::begin
//! Initiator::finish             <- message_2
//!                     message_3 ->                    Responder::finish
//! Agreed                        <- message_4 (optional)  Agreed
//! ```
//!
//! Over CoAP, the messages are bodies of requests to `/.well-known/edhoc` and of their responses ([`transfer`]). A
//! client can also send message_3 together with the first OSCORE request ([`combined`], RFC 9668).
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod agreed;
pub mod combined;
mod connection_id;
mod credential;
mod failure;
mod initiator;
mod message;
mod provider;
mod responder;
pub mod transfer;

pub use agreed::Agreed;
pub use connection_id::ConnectionId;
pub use credential::{BadCredential, Credential, CredentialId, Identity, MAX_CREDENTIAL, Transfer};
pub use failure::{Failure, PeerError};
pub use initiator::Initiator;
pub use message::Message;
pub use responder::Responder;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
