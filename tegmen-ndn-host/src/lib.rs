//! Named Data Networking on hosts.
//!
//! [`Node`](node::Node) is a [forwarder](tegmen_ndn::forwarder) with faces over UDP, TCP and Unix sockets, and with the
//! management of NFD that clients need. [`Client`](client::Client) is a consumer and a producer at a forwarder.

#![forbid(unsafe_code)]

pub mod client;
mod faces;
mod management;
pub mod node;
pub mod object;
mod reassembly;
mod stream;
pub mod tables;
pub mod uri;
