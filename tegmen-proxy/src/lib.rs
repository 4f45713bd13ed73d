//! A forward proxy with a cache in fixed memory, for devices (RFC 7252, section 5.7).
//!
//! The application of a node owns a [`Proxy`]. It gives requests that name another target to [`Proxy::handle`], their rights to answer to
//! [`Proxy::on_deferred`], and the replies to the node's own requests to [`Proxy::on_reply`]. After each call of the node, the owner sends
//! what is due: while [`Proxy::target`] returns a target, it chooses the peer and calls [`Proxy::forward`]; while [`Proxy::respond`]
//! returns the length of a datagram, it sends the datagram.
//!
//! A request names its target by Proxy-Scheme, Uri-Host and Uri-Port. Each block of a block-wise transfer (RFC 7959) is a message of its own,
//! which is forwarded and not stored. A response to a client that observes is the response of a request that does not (RFC 7641, section 4.1).
//! Equal requests that wait at the same time are forwarded one by one. Any client can use all places for requests that wait: the application
//! decides which requests it gives to the proxy.

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
