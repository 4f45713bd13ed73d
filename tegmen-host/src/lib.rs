//! Tegmen on an operating system: UDP sockets that receive in batches, a peer table for millions of sessions,
//! credentials from a file, a client, and a CoAP server. The server is divided into shards. A shard is a thread with
//! its own sockets. There is usually one shard for each core.
//!
//! * [`server`] answers requests: give it addresses, [`credentials`] and an application.
//! * [`client`] sends requests.
//! * [`proxy`] forwards requests to other servers, and stores their responses.
//! * [`contexts`] keeps OSCORE contexts on disk, and [`edhoc`] makes contexts between two endpoints that know each
//!   other's keys.
//! * [`group`] implements a member of a protected group, and [`controller`] asks the controller of a group for keys.
//! * [`delegate`] lets a server open sessions in the name of devices, and lets a device resume them.
//! * [`exporter`] gives keying material of sessions to other protocols.
//! * [`state`] keeps the sequence numbers of sessions and OSCORE contexts over restarts, so that none is used twice.
//! * [`formats`], [`senml`] and [`problem`] read and write payloads.
//! * [`x509`] verifies peers that have public keys, and [`provider::public`] implements the operations with these keys.
//! * [`probe`], [`pcapng`] and [`metrics`] show the operation of servers and sessions.
//! * [`connections`] limits the number of TCP connections of a listener.
//! * [`bridge`] forwards packets between the serial line of a mote and UDP sockets.
//! * [`steering`] gives a device and its delegation server one address.
//! * [`exchange_pool`] keeps the replies to all peers of a shard in a bounded number of bytes.
//! * [`slab`] is the peer table of servers and clients, which can also be used alone with
//!   [`tegmen::endpoint::Endpoint`].

pub mod base64url;
#[cfg(unix)]
pub mod bridge;
pub mod cbor;
pub mod client;
pub mod clock;
pub mod connections;
pub mod contexts;
pub mod controller;
pub mod delegate;
pub mod edhoc;
mod etag;
pub mod exchange_pool;
pub mod exporter;
pub mod formats;
pub mod group;
pub mod hash;
pub mod image;
pub mod index;
mod informative;
pub mod metrics;
pub mod pcapng;
mod prefix;
pub mod printable;
pub mod probe;
pub mod problem;
pub mod proxy;
pub mod resources;
pub mod resumption;
pub mod senml;
pub mod server;
pub mod slab;
pub mod state;
pub mod steering;
mod target;
pub mod udp;
pub mod uri;
mod wheel;

pub use tegmen_trust::{credentials, digest, hex, provider, public_keys, request_uri, x509};

use tegmen_trust::{private, reading};

/// The Rust blocks of the documentation page about the library, which are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
struct LibraryPage;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
