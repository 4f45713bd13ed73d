//! Named Data Networking on hosts.
//!
//! [`Node`](node::Node) is a [forwarder](tegmen_ndn::forwarder) with faces over UDP, TCP and Unix sockets. Clients
//! control it with a part of the management protocol of NFD. [`Client`](client::Client) is a consumer and a producer
//! that is connected to one forwarder. [`Trust`](trust::Trust) verifies packets by certificates and by a [schema].

#![forbid(unsafe_code)]

pub mod client;
mod datagrams;
mod faces;
pub mod keys;
mod management;
pub mod node;
pub mod object;
mod reassembly;
mod reliability;
pub mod schema;
mod stream;
pub mod tables;
pub mod trust;
pub mod uri;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
