//! Messages and message layer of CoAP (RFC 7252).
//!
//! [`MessageRef`] is a view of a received message, and [`Builder`] writes a message in place. [`Exchanges`] is the
//! message layer of one peer (retransmission, deduplication, matching of responses), and [`ExchangeStorage`] is its
//! memory. [`cache`] contains the rules of a cache and of a proxy. [`block`] contains the options of block-wise
//! transfer (RFC 7959), and [`observe`] the numbers of notifications (RFC 7641). [`Freshness`] is the proof that a
//! client receives datagrams at its address (RFC 9175). [`Probing`] limits messages to peers that do not answer.
//! [`Rule`] is a rule on requests in a readable notation.
//!
//! The crate uses no operating system, no heap, no socket and no `unsafe`, and cannot panic. The access rights of
//! requests and the protection of messages are in the crate `tegmen`, which re-exports the items of this crate as
//! `tegmen::coap`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

pub mod block;
pub mod cache;
mod code;
mod error;
mod exchange;
mod freshness;
mod message;
mod no_response;
pub mod observe;
pub mod option;
mod probing;
mod rule;
mod storage;

pub use block::Block;
pub use code::Code;
pub use exchange::{Due, Exchanges, PeerExchanges, Received};
pub use freshness::Freshness;
pub use message::{
    BuildError, Builder, HEADER_LEN, MAX_TOKEN, Malformed, MessageRef, MessageType, Token, empty_message,
};
pub use no_response::NoResponse;
pub use option::{OptionNumber, Options, uint, uint_bytes};
pub use probing::Probing;
pub use rule::{Methods, Rule};
pub use storage::{Busy, EXCHANGE_LIFETIME, ExchangeStorage, Fixed, Late, Outgoing, Repeat, RequestId, Waiting};

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
