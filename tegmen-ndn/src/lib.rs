//! Named Data Networking: packets of the [format v0.3](https://docs.named-data.net/NDN-packet-spec/current/) with their signatures.
//!
//! [`ReceivedInterest::parse`] and [`ReceivedData::parse`] read packets in place. [`Interest::write`] and
//! [`Data::write`] write packets. The module [`signature`] has the kinds of signature: a digest, HMAC, ECDSA on
//! secp256r1 and Ed25519. A [`publisher::Publisher`] encrypts content, and never uses one name for two contents. The
//! module [`certificate`] reads certificates, and verifies packets with them. The module [`lp`] is the link protocol,
//! and [`forwarder::Forwarder`] forwards packets between faces.
//!
//! Standards: the packet format v0.3, revision 3 of the naming conventions, and NDNLPv2. RSA is not supported.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod certificate;
mod data;
mod error;
pub mod fixed;
pub mod forwarder;
mod interest;
pub mod lowpan;
pub mod lp;
mod name;
pub mod publisher;
pub mod signature;
pub mod tables;
pub mod tlv;
mod types;
mod uri;
mod validity;

pub use data::{ContentType, Data, ReceivedData};
pub use error::{Error, WriteError};
pub use interest::{DEFAULT_LIFETIME, Interest, ReceivedInterest, write_with_nonce};
pub use name::{Component, Name, Names};
pub use uri::{UriError, write_uri};

use tegmen_base::buf::{Frame, Full};
use tlv::Type;

/// Length of the longest packet that forwarders forward, in bytes.
pub const MAX_PACKET: usize = 8800;

/// Maximum number of bytes in front of a packet's value: its type and its length.
pub const MAX_HEAD: usize = 6;

/// Puts the type and the length in front of the value in `frame`.
fn put_head(kind: Type, frame: &mut Frame<'_>) -> Result<(), Full> {
    let mut bytes = [0; tlv::MAX_NUMBERS];
    put_front(tlv::head(kind, frame.len(), &mut bytes)?, frame)
}

/// Puts `bytes` in front of the bytes in `frame`.
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn put_front(bytes: &[u8], frame: &mut Frame<'_>) -> Result<(), Full> {
    tegmen_base::buf::copy(frame.widen(bytes.len(), 0)?, bytes)
}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
