//! A forward proxy with a cache in fixed memory, for devices (RFC 7252, section 5.7).
//!
//! The application of a node owns a [`Proxy`]. The application passes three kinds of data to the proxy: each request
//! whose target is not the node itself to [`Proxy::handle`], the right to answer this request later to
//! [`Proxy::on_deferred`], and each reply to a request of the node itself to [`Proxy::on_reply`]. After each datagram
//! or timer that the node has processed, the application sends the messages of the proxy. While [`Proxy::target`]
//! returns a target, the application chooses the peer and calls [`Proxy::forward`]. While [`Proxy::respond`] returns
//! the length of a datagram, the application sends the datagram.
//!
//! A request names its target in the options Proxy-Scheme, Uri-Host and Uri-Port. Each block of a block-wise transfer
//! (RFC 7959) is forwarded as a separate message, and is not stored. A client that wants to observe a resource gets a
//! response without an observation (RFC 7641, section 4.1). Equal requests that wait at the same time are forwarded
//! separately. Any client can fill the memory for waiting requests. So the application must decide which requests it
//! passes to the proxy.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod held;
mod key;
mod proxy;
mod response;

pub use key::Target;
pub use proxy::{Next, Proxy};
pub use response::{write_known, write_stored};

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
